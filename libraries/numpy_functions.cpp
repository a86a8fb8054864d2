// Functions of NumPy on plain numbers: np.sqrt(dim), np.prod(x.shape).
//
// They compute constants, so they are called natively. Arguments are numbers,
// strings, and lists and tuples of those; nothing is written (`out=`). What
// NumPy would warn about is a break: the warning belongs to every call. So is
// an array as the result.
#include <cstring>

#include "bytecode/objects/native_calls.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

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

// numpy.errstate(all="raise"), entered.
PyObject* enter_error_state() {
  PauseHook pause;
  PyObject* errstate = library_object("numpy", "errstate");
  Ref none = Ref::steal(PyTuple_New(0));
  Ref all = Ref::steal(PyDict_New());
  Ref raise = Ref::steal(PyUnicode_FromString("raise"));
  if (!errstate || !none || !all || !raise ||
      PyDict_SetItemString(all.get(), "all", raise.get()) < 0) {
    return nullptr;
  }
  Ref state = Ref::steal(PyObject_Call(errstate, none.get(), all.get()));
  Ref entered = Ref::steal(
      state ? PyObject_CallMethod(state.get(), "__enter__", nullptr) : nullptr);
  return entered ? state.release() : nullptr;
}

void leave_error_state(PyObject* state) {
  PauseHook pause;
  Ref left = Ref::steal(
      PyObject_CallMethod(state, "__exit__", "OOO", Py_None, Py_None, Py_None));
}

constexpr ErrorStateRow kErrorStates[] = {
    {"numpy", "generic", enter_error_state, leave_error_state}};

// Calls it with floating-point warnings as errors.
Ref call_strictly(PyObject* callable, const std::vector<PyObject*>& values,
                  PyObject* kwnames) {
  PauseHook pause;
  Ref state = Ref::steal(enter_error_state());
  if (!state) return {};
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  Ref result = Ref::steal(PyObject_Vectorcall(
      callable, values.data(), values.size() - keywords, kwnames));
  ErrorGuard keep;
  leave_error_state(state.get());
  PyErr_Clear();
  return result;
}

Result<Ref> compute(BuiltinCall& call) {
  CaptureState& state = call.state;
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

// numpy.float64 and its kin, and NumPy's own ufuncs: `frompyfunc` makes some
// that run Python, which the module does not hold.
constexpr FamilyRow kFamilies[] = {
    {"numpy", "generic", FamilyRow::Of::kSubtypes, compute},
    {"numpy", "ufunc", FamilyRow::Of::kInstances, compute},
};

// Of those with Python in front, the ones that only compute.
constexpr CalleeRow kCallees[] = {
    {"numpy", "prod", compute},   {"numpy", "sum", compute},
    {"numpy", "mean", compute},   {"numpy", "median", compute},
    {"numpy", "std", compute},    {"numpy", "var", compute},
    {"numpy", "max", compute},    {"numpy", "min", compute},
    {"numpy", "amax", compute},   {"numpy", "amin", compute},
    {"numpy", "any", compute},    {"numpy", "all", compute},
    {"numpy", "argmax", compute}, {"numpy", "argmin", compute},
    {"numpy", "dot", compute},    {"numpy", "round", compute},
    {"numpy", "around", compute}, {"numpy", "clip", compute},
    {"numpy", "ndim", compute},   {"numpy", "size", compute},
    {"numpy", "shape", compute},  {"numpy", "isclose", compute},
};

// Numbers that compare as exactly as Python's do.
constexpr ConstantTypeRow kConstants[] = {
    {"numpy", "integer"}, {"numpy", "float64"}, {"numpy", "bool_"}};

}  // namespace

const Library& numpy_functions() {
  static constexpr Library kLibrary = {.name = "numpy",
                                       .callees = kCallees,
                                       .families = kFamilies,
                                       .constant_types = kConstants,
                                       .error_states = kErrorStates};
  return kLibrary;
}

}  // namespace framejit::libraries
