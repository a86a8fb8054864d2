// Effects that the outside world sees: print, streams, locks. What they get is
// known during the capture; they are entries of the write log, so they happen
// after the graph, in their order.
#include <cstring>

#include "bytecode/builtins.h"
#include "bytecode/effects.h"

namespace framejit::bytecode {

Status defer(CaptureState& state, PyObject* callable,
             const std::vector<PyObject*>& args) {
  Ref packed = Ref::steal(PyTuple_New(args.size()));
  if (!packed) return Status::raised();
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SET_ITEM(packed.get(), i, Py_NewRef(args[i]));
  }
  WriteLog::add(state, Write::Kind::kCall, callable, nullptr, packed.get());
  return ok_status();
}

PyObject* effect_function(PyMethodDef* method) {
  static std::unordered_map<PyMethodDef*, PyObject*> functions;
  PyObject*& function = functions[method];
  if (!function) function = PyCFunction_New(method, nullptr);
  return function;
}

namespace {

// A C stream of the program (sys.stderr): what it does is not seen by Python.
bool is_c_stream(CaptureState& state, PyObject* object) {
  if (!state.is_input(object)) return false;
  PyObject* write = raw_lookup(Py_TYPE(object), "write");
  return write && Py_IS_TYPE(write, &PyMethodDescr_Type) &&
         std::strncmp(PyDescr_TYPE(write)->tp_name, "_io.", 4) == 0;
}

// (print with its keywords, stream, text ...)
PyObject* print_to_stream(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Ref texts = Ref::steal(PyTuple_New(count - 2));
  Ref keywords = Ref::steal(PyDict_New());
  if (!texts || !keywords ||
      PyDict_SetItemString(keywords.get(), "file", args[1]) < 0) {
    return nullptr;
  }
  for (Py_ssize_t i = 2; i < count; ++i) {
    PyTuple_SET_ITEM(texts.get(), i - 2, Py_NewRef(args[i]));
  }
  return PyObject_Call(args[0], texts.get(), keywords.get());
}

PyMethodDef kPrintToStream = {"print_to_stream",
                              reinterpret_cast<PyCFunction>(print_to_stream),
                              METH_FASTCALL, nullptr};

// print with the keywords bound; `stream`: the one that is none of them.
Result<Ref> with_keywords(BuiltinCall& call, PyObject** stream) {
  Ref keywords = Ref::steal(PyDict_New());
  if (!keywords) return Result<Ref>::raised();
  for (size_t i = call.positional(); i < call.args.size(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(call.kwnames, i - call.positional());
    PyObject* value = call.args[i];
    if (PyUnicode_CompareWithASCIIString(name, "file") == 0 &&
        is_c_stream(call.state, value)) {
      *stream = value;
      continue;
    }
    if (!is_builtin_constant(value)) {
      return call.state.make_break(BreakReason::kSideEffectCallee,
                                   "print to a file of the program");
    }
    if (PyDict_SetItem(keywords.get(), name, value) < 0) {
      return Result<Ref>::raised();
    }
  }
  if (PyDict_GET_SIZE(keywords.get()) == 0) return Ref::borrow(call.callable);
  Ref args = Ref::steal(PyTuple_Pack(1, call.callable));
  PyObject* partial = library_object("functools", "partial");
  if (!args || !partial) return Result<Ref>::raised();
  return from_api(PyObject_Call(partial, args.get(), keywords.get()));
}

}  // namespace

// What is printed is known now, as text; a tensor's content is not.
Result<Ref> model_print(BuiltinCall& call) {
  CaptureState& state = call.state;
  PyObject* stream = nullptr;
  FJ_TRY(Ref callable, with_keywords(call, &stream));
  std::vector<Ref> texts;
  std::vector<PyObject*> values;
  if (stream) values = {callable.get(), stream};
  for (size_t i = 0; i < call.positional(); ++i) {
    if (is_stand_in(state, call.args[i])) {
      return state.make_break(BreakReason::kSideEffectCallee,
                              "print of a tensor");
    }
    Result<Ref> text = state.format_value(call.args[i], 1, nullptr);
    if (text.broke()) {
      Break brk = text.take_break();
      brk.detail = "print: " + brk.detail;
      brk.reason = BreakReason::kSideEffectCallee;
      return brk;
    }
    if (!text.ok()) return text;
    // str() of a str subclass is its own business.
    FJ_TRY(Ref plain, plain_scalar(text.value().get()));
    values.push_back(plain.get());
    texts.push_back(std::move(plain));
  }
  // The function that prints is no value of the program.
  if (stream) state.pin(callable.get());
  FJ_CHECK_OK(defer(state,
                    stream ? effect_function(&kPrintToStream) : callable.get(),
                    values));
  return none();
}

// sys.stdout.write(text)
Result<Ref> model_stream_write(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (!call.plain(2, 2) || !is_c_stream(state, call.args[0]) ||
      !PyUnicode_CheckExact(call.args[1])) {
    return call.unknown();
  }
  FJ_CHECK_OK(defer(state, call.callable, call.args));
  return from_api(PyLong_FromSsize_t(PyUnicode_GET_LENGTH(call.args[1])));
}

Result<Ref> model_stream_flush(BuiltinCall& call) {
  if (!call.plain(1, 1) || !is_c_stream(call.state, call.args[0])) {
    return call.unknown();
  }
  FJ_CHECK_OK(defer(call.state, call.callable, call.args));
  return none();
}

Result<Ref> model_effect(BuiltinCall& call) {
  Break brk = call.unknown();
  brk.reason = BreakReason::kSideEffectCallee;
  return brk;
}

// Python's own random numbers: another one at every call, so nothing that a
// graph could be made of.
Result<Ref> model_random(BuiltinCall& call) {
  Break brk = call.unknown();
  brk.reason = BreakReason::kTensorRandomState;
  return brk;
}

// A lock is taken when the effects are replayed, around those it protects.
Result<Ref> model_lock(BuiltinCall& call) {
  CaptureState& state = call.state;
  const char* name = Py_IS_TYPE(call.callable, &PyMethodDescr_Type)
                         ? reinterpret_cast<PyMethodDescrObject*>(call.callable)
                               ->d_method->ml_name
                         : "";
  if (call.args.empty() || call.has_keywords()) return call.unknown();
  bool takes =
      std::strcmp(name, "acquire") == 0 || std::strcmp(name, "__enter__") == 0;
  if (takes && call.args.size() > 1) return call.unknown();
  FJ_CHECK_OK(defer(state, call.callable, {call.args[0]}));
  return takes ? boolean(true) : none();
}

}  // namespace framejit::bytecode
