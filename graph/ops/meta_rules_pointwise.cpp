#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

#include "graph/ops/meta_families.h"
#include "graph/ops/meta_results.h"

namespace framejit::graph {
namespace {

at::Tensor first(Stack* stack) { return (*stack)[0].toTensor(); }
at::Tensor second(Stack* stack) { return (*stack)[1].toTensor(); }

bool unary(Stack* stack, c10::ScalarType dtype) {
  return finish(stack, {elementwise(dtype, {first(stack)})});
}

c10::ScalarType default_type() {
  return c10::typeMetaToScalarType(c10::get_default_dtype());
}

}  // namespace

bool meta_same_type(Stack* stack) {
  return unary(stack, first(stack).scalar_type());
}

bool meta_absolute(Stack* stack) {
  at::Tensor x = first(stack);
  if (!x.is_complex()) return meta_same_type(stack);
  return finish(stack, {like(x, c10::toRealValueType(x.scalar_type()))});
}

bool meta_angle(Stack* stack) {
  c10::ScalarType type = first(stack).scalar_type();
  if (c10::isComplexType(type)) {
    return finish(stack,
                  {make(first(stack).sizes(), c10::toRealValueType(type))});
  }
  return meta_to_float(stack);
}

bool meta_to_float(Stack* stack) {
  c10::ScalarType type = first(stack).scalar_type();
  bool integral = c10::isIntegralType(type, /*includeBool=*/true);
  return unary(stack, integral ? default_type() : type);
}

bool meta_float_only(Stack* stack) {
  return first(stack).is_floating_point() && meta_same_type(stack);
}

bool meta_float_like(Stack* stack) {
  return first(stack).is_floating_point() && meta_like_first(stack);
}

bool meta_to_bool(Stack* stack) {
  at::Tensor x = first(stack);
  if (stack->size() == 1) return unary(stack, at::kBool);
  return finish(stack, {elementwise(at::kBool, {x, second(stack)})});
}

bool meta_promoted(Stack* stack) {
  at::Tensor a = first(stack), b = second(stack);
  return finish(stack, {elementwise(at::result_type(a, b), {a, b})});
}

bool meta_reversed(Stack* stack) {
  at::Tensor a = first(stack), b = second(stack);
  if (a.scalar_type() == at::kBool || b.scalar_type() == at::kBool)
    return false;
  return finish(stack, {elementwise(at::result_type(b, a), {b, a})});
}

// Arguments of another type are converted first, which makes them dense.
bool meta_where(Stack* stack) {
  at::Tensor condition = first(stack), a = second(stack),
             b = (*stack)[2].toTensor();
  if (condition.scalar_type() != at::kBool) return false;
  c10::ScalarType type = at::result_type(a, b);
  auto converted = [&](const at::Tensor& x) {
    return x.scalar_type() == type || !x.is_meta() ? x : like(x, type);
  };
  return finish(stack,
                {elementwise(type, {condition, converted(a), converted(b)})});
}

// complex(real, imag), polar(abs, angle)
bool meta_complex(Stack* stack) {
  at::Tensor a = first(stack), b = second(stack);
  if (a.scalar_type() != b.scalar_type()) return false;
  return finish(stack,
                {elementwise(c10::toComplexType(a.scalar_type()), {a, b})});
}

bool meta_gradient_and_self(Stack* stack) {
  at::Tensor gradient = first(stack), self = second(stack);
  if (gradient.scalar_type() != self.scalar_type()) return false;
  return finish(stack, {elementwise(gradient.scalar_type(), {gradient, self})});
}

// gradient * mask * scale
bool meta_masked_gradient(Stack* stack) {
  at::Tensor gradient = first(stack), mask = second(stack);
  c10::ScalarType type = at::result_type(gradient, mask);
  if (!c10::isFloatingType(type)) return false;
  return finish(stack, {elementwise(type, {gradient, mask})});
}

bool meta_like_first(Stack* stack) {
  return finish(stack, {like(first(stack))});
}

bool meta_like_second(Stack* stack) {
  return finish(stack, {like(second(stack))});
}

bool meta_contiguous_first(Stack* stack) {
  at::Tensor x = first(stack);
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

bool meta_contiguous_second(Stack* stack) {
  at::Tensor x = second(stack);
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

bool meta_prelu(Stack* stack) {
  at::Tensor x = first(stack), weight = second(stack);
  if (x.scalar_type() != weight.scalar_type()) return false;
  return finish(stack, {like(x)});
}

// (gradient, self, weight): both gradients are broadcast.
bool meta_prelu_backward(Stack* stack) {
  at::Tensor gradient = first(stack), x = second(stack),
             weight = (*stack)[2].toTensor();
  if (x.scalar_type() != weight.scalar_type() ||
      x.scalar_type() != gradient.scalar_type())
    return false;
  at::Tensor result = elementwise(x.scalar_type(), {x, weight, gradient});
  return finish(stack, {result, like(result)});
}

bool meta_log_sigmoid(Stack* stack) {
  at::Tensor x = first(stack);
  return finish(stack, {elementwise(x.scalar_type(), {x}),
                        make(x.sizes(), x.scalar_type())});
}

// self + t1 / t2 * scalars[i] of lists, the scalars in a tensor.
bool meta_scaled_lists(Stack* stack) {
  std::vector<at::Tensor> self = (*stack)[0].toTensorVector();
  std::vector<at::Tensor> first = (*stack)[1].toTensorVector();
  std::vector<at::Tensor> second = (*stack)[2].toTensorVector();
  c10::List<at::Tensor> results;
  for (size_t i = 0; i < self.size(); ++i) {
    c10::ScalarType dtype = self[i].scalar_type();
    if (first.at(i).scalar_type() != dtype ||
        second.at(i).scalar_type() != dtype)
      return false;
    results.push_back(elementwise(dtype, {self[i], first[i], second[i]}));
  }
  stack->clear();
  stack->emplace_back(std::move(results));
  return true;
}

}  // namespace framejit::graph
