#include "graph/tracing/block_runner.h"

#include <torch/csrc/Exceptions.h>

#include <bit>
#include <unordered_map>

#include "graph/ir/python_args.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {

namespace {

[[noreturn]] void failed() { throw python_error(); }

class Runner {
 public:
  Runner(const TorchGraph& graph, const std::vector<Ref>& inputs)
      : graph_(*graph.graph) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      Value* input = graph_.inputs[i];
      objects_[input] = inputs.at(i);
      if (input->kind == Value::Kind::kInt) add_symbol(input, inputs[i].get());
    }
  }

  std::vector<Ref> run() {
    for (const auto& node : graph_.block().nodes) run_node(*node);
    std::vector<Ref> results;
    for (const Arg& output : graph_.outputs) results.push_back(object(output));
    return results;
  }

 private:
  void add_symbol(Value* input, PyObject* value) {
    size_t index = input->expr.symbol_index();
    if (symbols_.size() <= index) symbols_.resize(index + 1);
    if (PyFloat_Check(value)) {
      symbols_[index] = std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value));
      return;
    }
    if (!PyLong_Check(value)) {
      traced_ = true;  // a SymInt or SymFloat: numbers stay expressions
      if (!input->expr.is_float()) return;
      if (TraceSession* session = TraceSession::active())
        session->set_hides_floats(true);
      return;
    }
    symbols_[index] = PyLong_AsLongLong(value);
    if (PyErr_Occurred()) failed();
  }

  Ref object(const Arg& arg) {
    auto value = [&](Value* found) -> PyObject* {
      return objects_.at(found).get();
    };
    Ref made = traced_ ? to_python(arg, value,
                                   [](const Expr& expr) {
                                     return sym_number_object(expr);
                                   })
                       : to_python(arg, value, symbols_.data());
    if (!made) failed();
    return made;
  }

  void run_node(const Node& node) {
    switch (node.op) {
      case Opcode::kPlaceholder:
      case Opcode::kOutput:
        return;
      case Opcode::kGetAttr:
        objects_[node.outputs.at(0).get()] = node.args.at(0).get<Ref>();
        return;
      default:
        break;
    }
    std::vector<Ref> kept;
    std::vector<PyObject*> args;
    for (const Arg& arg : node.args) kept.push_back(object(arg));
    Ref names;
    if (!node.kwargs.empty()) {
      names = Ref::steal(PyTuple_New(node.kwargs.size()));
      if (!names) failed();
      for (size_t i = 0; i < node.kwargs.size(); ++i) {
        PyObject* name = PyUnicode_FromString(node.kwargs[i].first.c_str());
        if (!name) failed();
        PyTuple_SET_ITEM(names.get(), i, name);
        kept.push_back(object(node.kwargs[i].second));
      }
    }
    for (const Ref& ref : kept) args.push_back(ref.get());
    Ref result = Ref::steal(PyObject_Vectorcall(
        node.callable.get(), args.data(), node.args.size(), names.get()));
    if (!result) failed();
    bind(node, std::move(result));
  }

  void bind(const Node& node, Ref result) {
    if (!node.outputs_are_list) {
      if (!node.outputs.empty())
        objects_[node.outputs[0].get()] = std::move(result);
      return;
    }
    Ref items = Ref::steal(PySequence_Tuple(result.get()));
    if (!items) failed();
    TORCH_CHECK(PyTuple_GET_SIZE(items.get()) ==
                    static_cast<Py_ssize_t>(node.outputs.size()),
                "a captured call returned another number of values");
    for (size_t i = 0; i < node.outputs.size(); ++i)
      objects_[node.outputs[i].get()] =
          Ref::borrow(PyTuple_GET_ITEM(items.get(), i));
  }

  const Graph& graph_;
  std::unordered_map<const Value*, Ref> objects_;
  std::vector<int64_t> symbols_;
  bool traced_ = false;
};

}  // namespace

std::vector<Ref> run_block(const TorchGraph& graph,
                           const std::vector<Ref>& inputs) {
  return Runner(graph, inputs).run();
}

std::vector<Expr> symbol_inputs(const TorchGraph& graph) {
  std::vector<Expr> symbols;
  for (const Value* input : graph.graph->inputs)
    if (input->kind == Value::Kind::kInt) symbols.push_back(input->expr);
  return symbols;
}

}  // namespace framejit::graph
