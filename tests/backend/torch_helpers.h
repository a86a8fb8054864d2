// Helpers of the backend tests: run Python source, look up torch callables and
// build small graphs by hand.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::backend::testing {

// Evaluates an expression (or runs statements) in one shared namespace that has
// torch imported. Fails the test on an exception.
Ref eval(const std::string& expression);
void exec(const std::string& source);
void set_global(const char* name, PyObject* value);
// A Python callable of a C++ function of its arguments (a tuple).
Ref callable(std::function<PyObject*(PyObject*)> function);
// Text of the pending Python error, which is cleared.
std::string take_error();

inline const at::Tensor& tensor(const Ref& object) {
  return graph::unpack_tensor(object.get());
}
inline Ref wrap(const at::Tensor& value) { return graph::wrap_tensor(value); }

graph::TensorMeta meta(std::vector<Expr> sizes, bool requires_grad = false,
                       c10::ScalarType dtype = c10::ScalarType::Float);

// Appends a torch-level call: `function` is a Python expression.
graph::Value* call(graph::Graph& graph, const std::string& function,
                   std::vector<graph::Arg> args,
                   std::vector<std::pair<std::string, graph::Arg>> kwargs = {});
graph::Value* method(graph::Graph& graph, const std::string& name,
                     std::vector<graph::Arg> args);
// Appends an ATen call ("aten::mul.Tensor" is "mul", "Tensor") whose result
// has the metadata `meta`.
graph::Value* aten(graph::Graph& graph, const std::string& name,
                   const std::string& overload, std::vector<graph::Arg> args,
                   graph::TensorMeta meta);
graph::Node* aten_node(graph::Graph& graph, const std::string& name,
                       const std::string& overload,
                       std::vector<graph::Arg> args);

// A TorchGraph whose i-th placeholder is gathered object i.
std::shared_ptr<graph::TorchGraph> torch_graph(int num_inputs);

struct RunResult {
  RunStatus status;
  std::vector<Ref> outputs;
};
RunResult run(Executor& executor, const std::vector<Ref>& inputs,
              size_t num_outputs, std::vector<int64_t> symbols = {});

}  // namespace framejit::backend::testing
