// Does a view require a gradient? Where its own fields say no, its base
// answers: so it is for one made in no_grad of a tensor that requires one.
#pragma once

namespace framejit {

// Registered by the tracer's layer with the TensorLayout, if its tensors have
// such views.
struct ViewGradients {
  int is_view = -1;  // within AutogradMeta, a byte; -1: there are none
  bool (*requires_grad)(const void* impl) = nullptr;
};

inline ViewGradients& view_gradients() {
  static ViewGradients registered;
  return registered;
}

}  // namespace framejit
