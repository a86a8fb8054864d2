// What the caller of a graph gets for each of its outputs: what the graph
// computes, or something that is made when it has run (output_views.h).
#pragma once

#include <vector>

#include "backend/output_views.h"

namespace framejit::backend {

struct UserOutput {
  enum class Kind : uint8_t {
    kTensor,
    kInt,
    kInputObject,
    kViewOfInput,
    kViewOfOutput
  };
  Kind kind = Kind::kTensor;
  Expr expr;                       // kInt
  int object = 0;                  // kInputObject: gathered object
  int base = 0;                    // views: graph input or user output
  OutputView view;                 // views, and kTensor with is_view: how
  std::vector<Expr> idle_strides;  // kTensor
  bool is_view = false;            // kTensor: OutputInfo's
  bool passes_base = false;        // kViewOfOutput: OutputInfo's

  // input_objects: the gathered object of each graph input.
  static Result<UserOutput> build(const graph::Arg& arg,
                                  const graph::OutputInfo& info,
                                  const std::vector<int>& input_objects);
};

// A call when its graph has run.
struct RanCall {
  c10::ArrayRef<const at::Tensor*> tensors;  // by graph input
  c10::ArrayRef<at::Tensor> results;         // by user output
  PyObject* const* inputs;                   // gathered objects
  const int64_t* symbols;
};

// The outputs of one call.
class CallOutputs {
 public:
  CallOutputs(const std::vector<UserOutput>& user_outputs, const RanCall& call);
  // What is made of an input or an output, or of what the graph computes: once.
  const at::Tensor& view(size_t output);
  // The first `count` are the caller's. False: an exception is set, and nothing
  // in `outputs`.
  bool wrap(size_t count, PyObject** outputs);

 private:
  const std::vector<UserOutput>& user_outputs_;
  const RanCall& call_;
  ViewLists lists_;
  std::vector<at::Tensor> views_;
};

}  // namespace framejit::backend
