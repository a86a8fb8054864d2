#include "tests/graph/tracing/trace_helpers.h"

#include <ATen/ops/equal.h>

#include "graph/ops/meta_inference.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph::testing {
namespace {

PyObject* names() {
  static PyObject* dict = [] {
    PyObject* made = PyDict_New();
    PyDict_SetItemString(made, "__builtins__", PyEval_GetBuiltins());
    return made;
  }();
  return dict;
}

Ref run_source(const std::string& source, int start) {
  return Ref::steal(PyRun_String(source.c_str(), start, names(), names()));
}

int id_of(const at::Tensor& value) { return as_trace(value)->value_id(); }

}  // namespace

void start_torch() {
  static bool started = false;
  if (started) return;
  started = true;
  exec("import torch\nimport torch.nn.functional as F\n");
  std::string error;
  ASSERT_TRUE(register_fake_fallback(&error)) << error;
}

void exec(const std::string& source) {
  Ref result = run_source(source, Py_file_input);
  if (!result) FAIL() << take_error();
}

Ref eval(const std::string& expression) {
  Ref result = run_source(expression, Py_eval_input);
  if (!result) ADD_FAILURE() << take_error();
  return result;
}

void set_global(const char* name, PyObject* value) {
  PyDict_SetItemString(names(), name, value);
}

std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(traceback);
  if (!t) return "";
  Ref text = Ref::steal(PyObject_Str(v ? v.get() : t.get()));
  std::string result = text ? PyUnicode_AsUTF8(text.get()) : "?";
  return std::string(reinterpret_cast<PyTypeObject*>(t.get())->tp_name) + ": " +
         result;
}

Ref call(const char* name, const std::vector<at::Tensor>& arguments) {
  PyObject* function = PyDict_GetItemString(names(), name);
  Ref tuple = Ref::steal(PyTuple_New(arguments.size()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, THPVariable_Wrap(arguments[i]));
  }
  return Ref::steal(PyObject_Call(function, tuple.get(), nullptr));
}

std::vector<at::Tensor> tensors_of(const Ref& result) {
  std::vector<at::Tensor> values;
  if (!result) return values;
  if (is_tensor_object(result.get())) {
    values.push_back(tensor(result));
  } else {
    Ref fast = Ref::steal(PySequence_Fast(result.get(), "a tuple"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(fast.get(), i);
      values.push_back(item == Py_None ? at::Tensor() : unpack_tensor(item));
    }
  }
  return values;
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && at::equal(a, b);
}

void RecordingSession::record(const c10::OperatorHandle& op,
                              c10::ArrayRef<c10::IValue> arguments,
                              c10::ArrayRef<c10::IValue> results) {
  steps.push_back({op, arguments.vec(), results.vec()});
}

Result<at::Tensor> RecordingSession::lift(const at::Tensor& real, bool fresh) {
  if (!fresh) return TraceSession::lift(real, fresh);
  at::Tensor value =
      make_trace_tensor(*this, make_companion(real), real.device());
  constants[id_of(value)] = real;
  return value;
}

bool RecordingSession::called(const std::string& name) const {
  for (const Step& step : steps) {
    if (step.op.schema().name() == name) return true;
  }
  return false;
}

std::string RecordingSession::text() const {
  std::string result;
  for (const Step& step : steps) {
    result +=
        step.op.schema().name() + "." + step.op.schema().overload_name() + "\n";
  }
  return result;
}

std::map<int, at::Tensor> RecordingSession::replay(
    std::map<int, at::Tensor> values,
    const std::vector<int64_t>& symbols) const {
  for (const auto& [id, value] : constants) values[id] = value;
  auto number = [&](const c10::SymInt& value) {
    if (auto constant = value.maybe_as_int()) return *constant;
    auto* node = dynamic_cast<ExprSymNode*>(value.toSymNode().get());
    return node->expr().evaluate(symbols.data());
  };
  for (const Step& step : steps) {
    std::vector<c10::IValue> stack;
    for (const c10::IValue& argument : step.arguments) {
      if (argument.isSymInt()) {
        stack.emplace_back(number(argument.toSymInt()));
      } else if (argument.isSymIntList()) {
        std::vector<int64_t> list;
        for (const auto& item : argument.toSymIntVector()) {
          list.push_back(number(item));
        }
        stack.emplace_back(list);
      } else {
        stack.push_back(map_tensors(argument, [&](const at::Tensor& value) {
          return as_trace(value) ? values.at(id_of(value)) : value;
        }));
      }
    }
    step.op.callBoxed(&stack);
    for (size_t i = 0; i < stack.size(); ++i) {
      std::vector<at::Tensor> real;
      visit_tensors(stack[i], [&](const at::Tensor& t) { real.push_back(t); });
      size_t next = 0;
      visit_tensors(step.results[i], [&](const at::Tensor& value) {
        values[id_of(value)] = real.at(next++);
      });
    }
  }
  return values;
}

Symbols::Symbols(std::vector<int64_t> hints) {
  for (size_t i = 0; i < hints.size(); ++i) {
    const Source* size =
        guards.sources().make(SourceKind::kTensorSize, guards.sources().arg(0),
                              nullptr, static_cast<int64_t>(i));
    guards.add_symbol(size, hints[i]);
  }
}

std::vector<std::string> Symbols::guard_texts() const {
  std::vector<std::string> result;
  for (const Guard& guard : guards.guards()) {
    if (guard.kind == GuardKind::kShapeExpr) result.push_back(guard.expr.str());
  }
  return result;
}

bool Symbols::hold(const std::vector<int64_t>& symbols) const {
  for (const Guard& guard : guards.guards()) {
    if (guard.kind == GuardKind::kShapeExpr &&
        !guard.expr.evaluate(symbols.data())) {
      return false;
    }
  }
  return true;
}

at::Tensor symbolic_input(TraceSession& session, std::vector<Expr> sizes,
                          c10::ScalarType dtype) {
  SymbolicShape shape;
  shape.strides.assign(sizes.size(), Expr(1));
  for (size_t i = sizes.size(); i-- > 1;) {
    shape.strides[i - 1] = shape.strides[i] * sizes[i];
  }
  shape.sizes = std::move(sizes);
  return make_trace_tensor(session, dtype, at::kCPU, shape,
                           session.guards()->hints());
}

}  // namespace framejit::graph::testing
