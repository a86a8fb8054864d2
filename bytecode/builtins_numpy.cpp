// Functions of NumPy on plain numbers: np.sqrt(dim), np.prod(x.shape).
//
// They compute constants, so they are called natively. Arguments are numbers,
// strings, and lists and tuples of those; nothing is written (`out=`). What
// NumPy would warn about is a break: the warning belongs to every call. So is
// an array as the result.
#include <cstring>

#include "bytecode/builtins.h"
#include "frame_hook/frame_eval.h"

namespace framejit::bytecode {

namespace {

// numpy.float64 and its kin.
bool is_scalar_type(PyObject* callable) {
  if (!PyType_Check(callable)) return false;
  auto* type = reinterpret_cast<PyTypeObject*>(callable);
  if (std::strncmp(type->tp_name, "numpy.", 6) != 0) return false;
  for (; type; type = type->tp_base) {
    if (std::strcmp(type->tp_name, "numpy.generic") == 0) return true;
  }
  return false;
}

// NumPy's own: `frompyfunc` makes some that run Python.
bool is_own_ufunc(PyObject* ufunc) {
  ErrorGuard keep;
  Ref name = Ref::steal(PyObject_GetAttrString(ufunc, "__name__"));
  const char* text = name && PyUnicode_Check(name.get())
                         ? PyUnicode_AsUTF8(name.get())
                         : nullptr;
  return text && library_object("numpy", text) == ufunc;
}

// Of those with Python in front, the ones that only compute.
bool is_pure_function(PyObject* function) {
  static const char* const kNames[] = {
      "prod",   "sum",  "mean", "median", "std",    "var",    "max", "min",
      "amax",   "amin", "any",  "all",    "argmax", "argmin", "dot", "round",
      "around", "clip", "ndim", "size",   "shape",  "isclose"};
  ErrorGuard keep;
  for (const char* name : kNames) {
    if (library_object("numpy", name) == function) return true;
  }
  return false;
}

bool is_numpy_function(PyObject* callable) {
  if (is_scalar_type(callable)) return true;
  const char* name = Py_TYPE(callable)->tp_name;
  if (std::strcmp(name, "numpy.ufunc") == 0) return is_own_ufunc(callable);
  return std::strcmp(name, "numpy._ArrayFunctionDispatcher") == 0 &&
         is_pure_function(callable);
}

bool is_plain(CaptureState& state, PyObject* object, int depth) {
  if (state.is_constant(object)) {
    return true;
  }
  bool is_list = PyList_CheckExact(object);
  if ((!is_list && !PyTuple_Check(object)) || depth > 8) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    if (!is_plain(state, PySequence_Fast_GET_ITEM(object, i), depth + 1)) {
      return false;
    }
  }
  return true;
}

bool has_keyword(PyObject* kwnames, const char* name) {
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), name) ==
        0) {
      return true;
    }
  }
  return false;
}

// Calls it with floating-point warnings as errors.
Ref call_strictly(PyObject* callable, const std::vector<PyObject*>& values,
                  PyObject* kwnames) {
  PauseHook pause;
  PyObject* errstate = library_object("numpy", "errstate");
  Ref none = Ref::steal(PyTuple_New(0));
  Ref all = Ref::steal(PyDict_New());
  Ref raise = Ref::steal(PyUnicode_FromString("raise"));
  if (!errstate || !none || !all || !raise ||
      PyDict_SetItemString(all.get(), "all", raise.get()) < 0) {
    return {};
  }
  Ref state = Ref::steal(PyObject_Call(errstate, none.get(), all.get()));
  Ref entered = Ref::steal(
      state ? PyObject_CallMethod(state.get(), "__enter__", nullptr) : nullptr);
  if (!entered) return {};
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  Ref result = Ref::steal(PyObject_Vectorcall(
      callable, values.data(), values.size() - keywords, kwnames));
  ErrorGuard keep;
  Ref left = Ref::steal(PyObject_CallMethod(state.get(), "__exit__", "OOO",
                                            Py_None, Py_None, Py_None));
  PyErr_Clear();
  return result;
}

}  // namespace

Result<Ref> call_numpy(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (!is_numpy_function(call.callable)) return Ref();
  if (has_keyword(call.kwnames, "out") || has_keyword(call.kwnames, "where")) {
    return Ref();
  }
  std::vector<Ref> prepared;
  std::vector<PyObject*> values;
  for (PyObject* arg : call.args) {
    FJ_TRY(Ref value, prepare(state, arg, Reads::kDeep));
    if (!is_plain(state, value.get(), 0)) return Ref();
    values.push_back(value.get());
    prepared.push_back(std::move(value));
  }
  state.pin(call.callable);
  Ref result = call_strictly(call.callable, values, call.kwnames);
  // (An array could be written to.)
  if (result && state.is_constant(result.get())) return result;
  PyErr_Clear();
  return call.unknown();
}

}  // namespace framejit::bytecode
