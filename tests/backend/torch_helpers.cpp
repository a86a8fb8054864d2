#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {

namespace {

PyObject* globals() {
  static PyObject* dict = [] {
    PyObject* result = PyDict_New();
    PyDict_SetItemString(result, "__builtins__", PyEval_GetBuiltins());
    Ref done =
        Ref::steal(PyRun_String("import torch, operator, gc, weakref\n"
                                "import torch.nn.functional as F\n",
                                Py_file_input, result, result));
    EXPECT_TRUE(done) << take_error();
    return result;
  }();
  return dict;
}

}  // namespace

std::string take_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref held_type = Ref::steal(type), held = Ref::steal(value),
      held_traceback = Ref::steal(traceback);
  if (!held) return "";
  Ref text = Ref::steal(PyObject_Str(held.get()));
  std::string name = Py_TYPE(held.get())->tp_name;
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return name + ": " + (utf8 ? utf8 : "?");
}

Ref eval(const std::string& expression) {
  Ref result = Ref::steal(
      PyRun_String(expression.c_str(), Py_eval_input, globals(), globals()));
  EXPECT_TRUE(result) << expression << "\n" << take_error();
  return result;
}

void exec(const std::string& source) {
  Ref result = Ref::steal(
      PyRun_String(source.c_str(), Py_file_input, globals(), globals()));
  EXPECT_TRUE(result) << source << "\n" << take_error();
}

Ref callable(std::function<PyObject*(PyObject*)> function) {
  using Function = std::function<PyObject*(PyObject*)>;
  static PyMethodDef method = {
      "call",
      [](PyObject* self, PyObject* args) {
        return (*static_cast<Function*>(PyCapsule_GetPointer(self, nullptr)))(
            args);
      },
      METH_VARARGS, nullptr};
  Ref held = Ref::steal(PyCapsule_New(
      new Function(std::move(function)), nullptr, [](PyObject* capsule) {
        delete static_cast<Function*>(PyCapsule_GetPointer(capsule, nullptr));
      }));
  return Ref::steal(PyCFunction_New(&method, held.get()));
}

void set_global(const char* name, PyObject* value) {
  PyDict_SetItemString(globals(), name, value);
}

graph::TensorMeta meta(std::vector<Expr> sizes, bool requires_grad,
                       c10::ScalarType dtype) {
  graph::TensorMeta result;
  result.dtype = dtype;
  result.strides.resize(sizes.size());
  Expr stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    result.strides[i] = stride;
    stride = stride * sizes[i];
  }
  result.sizes = std::move(sizes);
  result.requires_grad = requires_grad;
  return result;
}

graph::Value* call(graph::Graph& graph, const std::string& function,
                   std::vector<graph::Arg> args,
                   std::vector<std::pair<std::string, graph::Arg>> kwargs) {
  auto node = std::make_unique<graph::Node>();
  node->callable = eval(function);
  node->args = std::move(args);
  node->kwargs = std::move(kwargs);
  return graph.add_output(graph.append(std::move(node)));
}

graph::Value* method(graph::Graph& graph, const std::string& name,
                     std::vector<graph::Arg> args) {
  auto node = std::make_unique<graph::Node>();
  node->op = graph::Opcode::kCallMethod;
  node->method = name;
  node->args = std::move(args);
  return graph.add_output(graph.append(std::move(node)));
}

graph::Node* aten_node(graph::Graph& graph, const std::string& name,
                       const std::string& overload,
                       std::vector<graph::Arg> args) {
  auto node = std::make_unique<graph::Node>();
  node->aten = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name).c_str(), overload.c_str());
  node->args = std::move(args);
  return graph.append(std::move(node));
}

graph::Value* aten(graph::Graph& graph, const std::string& name,
                   const std::string& overload, std::vector<graph::Arg> args,
                   graph::TensorMeta meta) {
  graph::Node* node = aten_node(graph, name, overload, std::move(args));
  graph::Value* value = graph.add_output(node);
  value->meta = std::move(meta);
  return value;
}

std::shared_ptr<graph::TorchGraph> torch_graph(int num_inputs) {
  auto result = std::make_shared<graph::TorchGraph>();
  for (int i = 0; i < num_inputs; ++i) {
    result->graph->add_input("x" + std::to_string(i), {});
    result->input_objects.push_back(i);
  }
  return result;
}

RunResult run(Executor& executor, const std::vector<Ref>& inputs,
              size_t num_outputs, std::vector<int64_t> symbols) {
  std::vector<PyObject*> raw;
  for (const Ref& input : inputs) raw.push_back(input.get());
  std::vector<PyObject*> outputs(num_outputs, nullptr);
  RunResult result;
  result.status = executor.run(raw.data(), symbols.data(), outputs.data());
  for (PyObject* output : outputs) {
    result.outputs.push_back(Ref::steal(output));
  }
  return result;
}

}  // namespace framejit::backend::testing
