// AotNode: the backward of one call of an AOT-compiled graph.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/program.h"
#include "graph/joint.h"

namespace framejit::backend {

// What all calls of one executor share. Holds no Python object, because a node
// may die on a thread without the GIL.
struct BackwardCode {
  std::shared_ptr<const Program> program;
  // Positions of the saved tensors, then of the tangents, among the backward
  // graph's inputs (the rest are symbols).
  std::vector<int> tensor_inputs;
  size_t num_saved = 0;
  // Expected layout of each tangent.
  struct Tangent {
    std::vector<Expr> strides;
    bool contiguous = true;
  };
  std::vector<Tangent> tangents;
  // Per next edge: which result of the backward graph, and whether it has to be
  // copied because it may share memory with a saved tensor or another result.
  struct Gradient {
    int output;
    bool copy;
    // The tangents it comes from: without any of them there is no gradient.
    std::vector<int> tangents;
  };
  std::vector<Gradient> gradients;
};

class AotNode final : public torch::autograd::Node {
 public:
  AotNode(std::shared_ptr<const BackwardCode> code,
          torch::autograd::edge_list&& edges, std::vector<int64_t> symbols)
      : Node(std::move(edges)),
        code_(std::move(code)),
        symbols_(std::move(symbols)) {}

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return "FrameJitBackward"; }

  void save(const at::Tensor& tensor, bool is_output) {
    saved_.emplace_back(tensor, is_output);
  }
  // Its memory is saved through another tensor: only its version matters.
  void watch(const at::Tensor& tensor, bool is_output) {
    watched_.emplace_back(tensor, is_output);
  }

 private:
  at::Tensor tangent(size_t index, at::Tensor grad) const;

  std::shared_ptr<const BackwardCode> code_;
  std::vector<int64_t> symbols_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<torch::autograd::SavedVariable> watched_;
  bool released_ = false;
};

}  // namespace framejit::backend
