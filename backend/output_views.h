// Outputs that a graph does not compute as they are: views of an input or of
// another output, which are made outside of it, and the strides of dimensions
// that have one element or none, which kernels do not care for but programs
// see.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "backend/aten_args.h"
#include "graph/joint/joint.h"

namespace framejit::backend {

// The lists of tensors that views of one call were taken from: unbind() of a
// thousand rows runs once, and not for each row.
class ViewLists {
 public:
  // Null: it was not made yet.
  const std::vector<at::Tensor>* find(int list, const at::Tensor& base) const;
  const std::vector<at::Tensor>& add(int list, const at::Tensor& base,
                                     std::vector<at::Tensor> tensors);

 private:
  struct Row {
    int list;
    const at::TensorImpl* base;
    std::vector<at::Tensor> tensors;
  };
  std::vector<Row> rows_;
};

class OutputView {
 public:
  static Result<OutputView> build(const graph::OutputInfo& info);
  // Nothing but a view of the whole base.
  static OutputView of_all(const graph::OutputInfo& info);
  // Under autograd, in the grad mode that the program was in.
  // counted: the base's version counts what the call wrote to it.
  at::Tensor make(const at::Tensor& base, bool counted, const int64_t* symbols,
                  ViewLists* lists) const;

 private:
  struct Step {
    c10::OperatorHandle op;
    std::vector<AtenArg> args;
    int result;
    int list;
  };
  at::Tensor make_of(const at::Tensor& base, const int64_t* symbols,
                     ViewLists* lists) const;
  at::Tensor make_strided(const at::Tensor& base, const int64_t* symbols) const;

  std::vector<Step> steps_;  // empty: by its strides
  bool of_all_ = false;
  bool detaches_ = false;  // no step does
  // What eager detached last is no view to autograd, whatever it was made of.
  bool ends_detached_ = false;
  graph::OutputInfo info_;
};

// Gives the tensor, which nobody else has seen, the strides that say nothing
// about its memory.
void set_idle_strides(const at::Tensor& tensor,
                      const std::vector<Expr>& strides, const int64_t* symbols);

}  // namespace framejit::backend
