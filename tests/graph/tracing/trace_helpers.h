// Helpers of the tracing tests: run Python on stand-ins, keep what reached the
// Fake key, and replay it on real tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "graph/ops/fake_fallback.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph::testing {

// Imports torch and registers the fallback.
void start_torch();
// One shared namespace with `torch` and `F`.
void exec(const std::string& source);
Ref eval(const std::string& expression);
void set_global(const char* name, PyObject* value);
std::string take_error();
inline Ref wrap(const at::Tensor& value) { return wrap_tensor(value); }
inline const at::Tensor& tensor(const Ref& object) {
  return unpack_tensor(object.get());
}
// Calls the global function `name`; empty when it raised (error kept).
Ref call(const char* name, const std::vector<at::Tensor>& arguments);
// The tensors in a result: one, or a tuple of them.
std::vector<at::Tensor> tensors_of(const Ref& result);
bool same(const at::Tensor& a, const at::Tensor& b);  // bits, sizes, strides

class RecordingSession : public TraceSession {
 public:
  using TraceSession::TraceSession;
  struct Step {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments;
    std::vector<c10::IValue> results;
  };
  std::vector<Step> steps;
  std::map<int, at::Tensor> constants;

  void record(const c10::OperatorHandle& op,
              c10::ArrayRef<c10::IValue> arguments,
              c10::ArrayRef<c10::IValue> results) override;
  Result<at::Tensor> lift(const at::Tensor& real, bool fresh) override;
  bool called(const std::string& name) const;
  std::string text() const;
  // inputs: by value id. The result: every value.
  std::map<int, at::Tensor> replay(std::map<int, at::Tensor> inputs,
                                   const std::vector<int64_t>& symbols) const;
};

// A guard set with one symbol per hint, on the sizes of argument 0.
struct Symbols {
  explicit Symbols(std::vector<int64_t> hints);
  GuardSet guards;
  // The guards that are expressions, as text.
  std::vector<std::string> guard_texts() const;
  bool hold(const std::vector<int64_t>& symbols) const;
};

// A contiguous stand-in whose dims may be expressions.
at::Tensor symbolic_input(TraceSession& session, std::vector<Expr> sizes,
                          c10::ScalarType dtype = at::kFloat);

}  // namespace framejit::graph::testing
