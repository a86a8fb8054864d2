#include "bytecode/objects/native_calls.h"

#include <cstring>

#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bytecode/library/library.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/own_items.h"
#include "bytecode/objects/private_type.h"
#include "bytecode/objects/strict_errors.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// The exception is private: no except clause of a program names it, and only
// `except BaseException` in foreign code can swallow it.
PyObject* make_capture_break_type() {
  return PyErr_NewException("framejit._CaptureBreak", PyExc_BaseException,
                            nullptr);
}

struct Trampoline : CaptureObject {
  TrampolineResult result;
  Ref callable;
};

Result<Ref> finish_trampoline(Trampoline* trampoline, Ref value) {
  CaptureState& state = *trampoline->state;
  switch (trampoline->result) {
    case TrampolineResult::kAsIs:
      return value;
    case TrampolineResult::kTruth: {
      FJ_TRY(bool truth, state.truth(value.get()));
      return Ref::borrow(truth ? Py_True : Py_False);
    }
    case TrampolineResult::kPlain:
      return prepare(state, value.get(), Reads::kDeep);
  }
  return value;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<Trampoline*>(self)->callable.~Ref();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* trampoline_call(PyObject* self, PyObject* args, PyObject* keywords) {
  auto* trampoline = reinterpret_cast<Trampoline*>(self);
  return under_c(trampoline->state, false, [&]() -> Result<Ref> {
    std::vector<PyObject*> values;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      values.push_back(PyTuple_GET_ITEM(args, i));
    }
    Ref names;
    if (keywords && PyDict_GET_SIZE(keywords) != 0) {
      names = Ref::steal(PySequence_Tuple(keywords));
      if (!names) return Result<Ref>::raised();
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
        values.push_back(
            PyDict_GetItem(keywords, PyTuple_GET_ITEM(names.get(), i)));
      }
    }
    FJ_TRY(Ref value, trampoline->state->caller.call(trampoline->callable.get(),
                                                     values, names.get()));
    return finish_trampoline(trampoline, std::move(value));
  });
}

PyTypeObject* trampoline_type() {
  static PyTypeObject* type = made_once([] {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_call, reinterpret_cast<void*>(trampoline_call)},
        {0, nullptr}};
    return make_private_type("framejit._Trampoline", sizeof(Trampoline), slots);
  });
  return type;
}

}  // namespace

PyObject* capture_break_type() {
  static PyObject* type = made_once(make_capture_break_type);
  return type;
}

// Code outside may still hold these objects; they must not reach us.
CaptureState::~CaptureState() { table<NativeCalls>().detach(); }

PyObject* trampoline_callable(PyObject* object) {
  if (Py_TYPE(object) != trampoline_type()) return nullptr;
  return reinterpret_cast<Trampoline*>(object)->callable.get();
}

Result<Ref> trampoline(CaptureState& state, PyObject* callable,
                       TrampolineResult result) {
  PyTypeObject* type = trampoline_type();
  if (!type) return Result<Ref>::raised();
  Ref object = Ref::steal(type->tp_alloc(type, 0));
  if (!object) return Result<Ref>::raised();
  auto* trampoline = reinterpret_cast<Trampoline*>(object.get());
  trampoline->state = &state;
  trampoline->result = result;
  new (&trampoline->callable) Ref(Ref::borrow(callable));
  state.table<NativeCalls>().held.push_back(object);
  return object;
}

bool CaptureState::has_native_break() const {
  return table<NativeCalls>().pending_break.has_value();
}

void CaptureState::set_native_break(Break brk) {
  if (!table<NativeCalls>().pending_break)
    table<NativeCalls>().pending_break = std::move(brk);
}

Result<Ref> CaptureState::after_native(PyObject* new_reference) {
  Ref result = Ref::steal(new_reference);
  if (table<NativeCalls>().pending_break) {
    PyErr_Clear();
    Break brk = std::move(*table<NativeCalls>().pending_break);
    table<NativeCalls>().pending_break.reset();
    return brk;
  }
  if (std::optional<Break> brk = tracer.pending_break()) {
    PyErr_Clear();
    return std::move(*brk);
  }
  if (!result) return Result<Ref>::raised();
  return result;
}

namespace {

// Those know the value of what they are called on and ask it for nothing.
bool is_method_of_scalar(PyObject* callable) {
  if (!Py_IS_TYPE(callable, &PyMethodDescr_Type) &&
      !Py_IS_TYPE(callable, &PyWrapperDescr_Type))
    return false;
  PyTypeObject* type = PyDescr_TYPE(callable);
  return type == &PyUnicode_Type || type == &PyLong_Type ||
         type == &PyFloat_Type || type == &PyBytes_Type;
}

}  // namespace

Result<Ref> call_native(CaptureState& state, PyObject* callable,
                        const std::vector<PyObject*>& args, PyObject* kwnames,
                        Reads reads) {
  std::vector<Ref> prepared;
  std::vector<PyObject*> values;
  prepared.reserve(args.size());
  const bool has_receiver = is_method_of_scalar(callable);
  for (PyObject* arg : args) {
    const bool is_receiver = has_receiver && values.empty();
    FJ_TRY(Ref value,
           prepare(state, arg, is_receiver ? Reads::kNothing : reads));
    values.push_back(value.get());
    prepared.push_back(std::move(value));
  }
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  StrictErrors strict(values);
  FJ_TRY(Ref result,
         strict.checked(
             state, PyObject_Vectorcall(callable, values.data(),
                                        values.size() - keywords, kwnames)));
  return Ref::borrow(state.unshadow(result.get()));
}

// ---- arguments of C code
namespace {

// One walk over an argument. What it meets twice it prepares once, so that
// what is one object stays one.
class Preparation {
 public:
  Preparation(CaptureState& state, Reads reads) : state(state), reads_(reads) {}
  Result<Ref> prepare(PyObject* object);

 private:
  Result<Ref> contents(PyObject* object);
  // ---- by type (builtin_types.def)
  Result<Ref> items(PyObject* object);
  Result<Ref> dict(PyObject* dict);
  Result<Ref> slice(PyObject* object);
  Result<Ref> as_it_is(PyObject* object);
  Result<Ref> scalar(PyObject* object);
  using Methods = std::span<const char* const>;
  Status check(PyObject* object, Methods methods, const char* what);
  Status check_own_answers(PyObject* object);
  Status check_text(PyObject* object);
  Status check_own_elements(PyObject* object);
  Result<Ref> other(PyObject* object);

  bool is_deep() const { return reads_ >= Reads::kCompares; }

  CaptureState& state;
  const Reads reads_;
  // An empty one: not ready yet.
  std::unordered_map<PyObject*, Ref> known_;
  std::vector<Ref> kept_;
};

// `__str__ = int.__repr__` (IntEnum): the text of the value, under another
// name.
bool is_text_of_scalar(PyObject* function) {
  if (!Py_IS_TYPE(function, &PyWrapperDescr_Type)) return false;
  auto* slot = reinterpret_cast<PyDescrObject*>(function);
  const PyTypeObject* home = slot->d_type;
  return (home == &PyLong_Type || home == &PyFloat_Type ||
          home == &PyUnicode_Type) &&
         (PyUnicode_CompareWithASCIIString(slot->d_name, "__repr__") == 0 ||
          PyUnicode_CompareWithASCIIString(slot->d_name, "__str__") == 0);
}

// What these modules define for the classes that they make reads the object
// and nothing else: enums, named tuples, Counter (but a class derived from it
// may answer what its methods ask).
bool is_method_of_library(PyObject* object, PyObject* function) {
  if (is_text_of_scalar(function)) return true;
  if (!PyFunction_Check(function)) return false;
  PyObject* home =
      PyDict_GetItemString(PyFunction_GET_GLOBALS(function), "__name__");
  if (!home || !PyUnicode_Check(home)) return false;
  if (PyUnicode_CompareWithASCIIString(home, "enum") == 0) return true;
  return PyUnicode_CompareWithASCIIString(home, "collections") == 0 &&
         (PyTuple_Check(object) ||
          as_object(Py_TYPE(object)) ==
              library_object("collections", "Counter"));
}

// What C code asks an object for.
constexpr const char* kComparisons[] = {
    "__eq__", "__ne__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"};
constexpr const char* kConversions[] = {
    "__bool__",  "__index__", "__int__",  "__float__", "__complex__",
    "__trunc__", "__floor__", "__ceil__", "__round__", "__abs__"};
// The text of a set iterates over it.
constexpr const char* kTexts[] = {"__str__", "__repr__", "__format__",
                                  "__iter__", "__len__"};
constexpr const char* kOtherQuestions[] = {
    "__bytes__", "__neg__", "__add__",  "__radd__",    "__sub__",
    "__rsub__",  "__mul__", "__rmul__", "__getitem__", "__contains__"};
// An operator in C may ask for each element.
constexpr const char* kElementwise[] = {"__iter__", "__len__", "__getitem__"};

Status Preparation::check(PyObject* object, Methods methods, const char* what) {
  for (const char* method : methods) {
    FJ_TRY(Ref special, state.python_special(object, method));
    if (special && !is_method_of_library(object, special.get()))
      return unguardable(state, object, what);
  }
  return ok_status();
}

Status Preparation::check_own_answers(PyObject* object) {
  const bool all = reads_ == Reads::kDeep;
  auto ask = [&](bool asked, Methods methods) {
    return asked ? check(object, methods, "the value") : ok_status();
  };
  FJ_CHECK_OK(ask(all || reads_ == Reads::kCompares, kComparisons));
  const bool converts = reads_ == Reads::kConverts;
  FJ_CHECK_OK(ask(all || converts, kConversions));
  // int("one") shows in its error what it was given.
  const bool shows =
      converts && (PyUnicode_Check(object) || PyBytes_Check(object));
  FJ_CHECK_OK(ask(all || shows || reads_ == Reads::kFormats, kTexts));
  return ask(all, kOtherQuestions);
}

Status Preparation::check_own_elements(PyObject* object) {
  return check(object, kElementwise, "the elements");
}

Result<Ref> Preparation::items(PyObject* object) {
  FJ_CHECK_OK(check_own_answers(object));
  Ref list = own_items(object);
  if (!list) return Result<Ref>::raised();
  bool changed = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(list.get(), i);
    FJ_TRY(Ref prepared, prepare(item));
    FJ_CHECK_OK(guard_class_text(state, item));
    if (prepared.get() == item) continue;
    changed = true;
    PyList_SetItem(list.get(), i, prepared.release());
  }
  if (!changed) return Ref::borrow(object);
  if (PyTuple_CheckExact(object)) {
    return from_api(PyList_AsTuple(list.get()));
  }
  if (PyList_CheckExact(object)) return list;
  if (is_library_tuple(Py_TYPE(object))) {
    return from_api(PyObject_CallOneArg(
        reinterpret_cast<PyObject*>(Py_TYPE(object)), list.get()));
  }
  return unguardable(state, object, "the nested contents");
}

Result<Ref> Preparation::dict(PyObject* dict) {
  FJ_CHECK_OK(check_own_answers(dict));
  Ref copy = Ref::steal(PyDict_New());
  if (!copy) return Result<Ref>::raised();
  bool changed = false;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (!is_safe_key(state, key)) return unguardable_key(state, key);
    FJ_TRY(Ref prepared, prepare(value));
    changed |= prepared.get() != value;
    if (PyDict_SetItem(copy.get(), key, prepared.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
  if (!changed) return Ref::borrow(dict);
  if (PyDict_CheckExact(dict)) return copy;
  return unguardable(state, dict, "the nested contents");
}

Result<Ref> Preparation::slice(PyObject* object) {
  auto* parts = reinterpret_cast<PySliceObject*>(object);
  FJ_TRY(Ref start, prepare(parts->start));
  FJ_TRY(Ref stop, prepare(parts->stop));
  FJ_TRY(Ref step, prepare(parts->step));
  if (start.get() == parts->start && stop.get() == parts->stop &&
      step.get() == parts->step)
    return Ref::borrow(object);
  return from_api(PySlice_New(start.get(), stop.get(), step.get()));
}

Result<Ref> Preparation::as_it_is(PyObject* object) {
  // Not one of a class that is derived from the type.
  if (builtin_type(Py_TYPE(object)) == BuiltinType::kOther)
    return other(object);
  return Ref::borrow(object);
}

// An int, a str, a tuple of a subclass that answers by methods of its own, now
// or when its class gets some.
Result<Ref> Preparation::scalar(PyObject* object) {
  FJ_CHECK_OK(check_own_answers(object));
  return Ref::borrow(object);
}

Result<Ref> Preparation::other(PyObject* object) {
  // Reached through an object that C code made: its class decides what it is.
  if (is_enum_member(object)) return Ref::borrow(object);
  return unguardable(state, object, "the contents");
}

// [].append of the program: what it is bound to is not known.
bool is_bound_input(CaptureState& state, PyObject* object) {
  return is_bound_c_method(object) && state.is_input(object) &&
         !state.is_constant(object);
}

// Contents of a fresh object, which C code may look at freely. Walked once.
Result<Ref> Preparation::contents(PyObject* object) {
  static constexpr Result<Ref> (Preparation::* kRules[])(PyObject*) = {
#define FJ_TYPE(name, type, parts, identity, prepare, ...) \
  &Preparation::prepare,
#include "bytecode/objects/builtin_types.def"
  };
  auto rule = kRules[size_t(builtin_base(Py_TYPE(object)))];
  bool nests = rule == &Preparation::items || rule == &Preparation::dict;
  if (!nests) return (this->*rule)(object);
  auto [known, inserted] = known_.try_emplace(object);
  if (!inserted) {
    if (known->second) return known->second;
    return unguardable(state, object, "what refers to itself in the contents");
  }
  kept_.push_back(Ref::borrow(object));
  FJ_CHECK_OK(room_for(state, "containers"));
  FJ_TRY(Ref result, (this->*rule)(object));
  known_[object] = result;
  return result;
}

// The text of an integer of so many digits is a matter of
// sys.set_int_max_str_digits(): 640 is the least that can be set.
bool has_many_digits(PyObject* object) {
  constexpr size_t kBits = 2100;  // of 632 digits
  return PyLong_Check(object) && _PyLong_NumBits(object) > kBits;
}

// What C code writes of it is for a state to say that no guard covers.
Status Preparation::check_text(PyObject* object) {
  if (reads_ < Reads::kFormats) return ok_status();
  if (PyTuple_Check(object)) {  // of constants
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      FJ_CHECK_OK(check_text(PyTuple_GET_ITEM(object, i)));
    return ok_status();
  }
  if (has_many_digits(object)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "the text of an integer of very many digits");
  }
  const ErrorStateRow* row =
      reads_ == Reads::kFormats ? find_error_state({&object, 1}) : nullptr;
  if (row) {
    return state.make_break(
        BreakReason::kUnguardableInput,
        std::string("the text of a number of ") + row->module);
  }
  return ok_status();
}

Result<Ref> Preparation::prepare(PyObject* object) {
  const bool is_constant = is_builtin_constant(object);
  if (is_constant || PyNumber_Check(object)) FJ_CHECK_OK(check_text(object));
  if (is_constant) return Ref::borrow(object);
  switch (state.tracer.classify(object)) {
    case ObjectClass::kPlain:
      break;
    case ObjectClass::kConstant:
      return Ref::borrow(object);
    case ObjectClass::kSymbolic:
      return state.tracer.concretise(object);
    case ObjectClass::kStandIn:
      if (!is_deep()) return Ref::borrow(object);
      return state.make_break(BreakReason::kDataDependentValue,
                              "C code looks at a tensor");
    default:
      return state.make_break(BreakReason::kUnknownTensor,
                              Py_TYPE(object)->tp_name);
  }
  if (reads_ == Reads::kNothing) return Ref::borrow(object);
  if (PyObject* inner = proxied(state, object)) {
    FJ_TRY(Ref dict, prepare(inner));
    return from_api(PyDictProxy_New(dict.get()));
  }
  if (PyType_Check(object) || PyFunction_Check(object) ||
      PyModule_Check(object) ||
      (PyCFunction_Check(object) && !is_bound_input(state, object))) {
    return Ref::borrow(object);
  }
  const Source* source = state.source_of(object);
  Ref visible = Ref::borrow(object);
  if (source && is_container(object)) {
    FJ_TRY(visible, state.shadow(object));
  } else if (source && !PyTuple_Check(object)) {
    if (is_guarded_by_identity(object) && !is_bound_input(state, object)) {
      // Its value never changes, its class may.
      const bool has_parts = PyFrozenSet_Check(object) || PySlice_Check(object);
      if (has_parts && is_deep()) return contents(object);
      bool answers = is_enum_member(object) || PyLong_Check(object) ||
                     PyFloat_Check(object) || PyComplex_Check(object) ||
                     PyUnicode_Check(object) || PyBytes_Check(object) ||
                     has_parts;
      if (answers && is_deep()) return scalar(object);
      if (answers) FJ_CHECK_OK(check_own_elements(object));
      return visible;
    }
    return unguardable(state, object, "the contents");
  }
  if (!is_deep()) {
    if (PyTuple_Check(object)) FJ_CHECK_OK(check_own_elements(object));
    return visible;
  }
  return contents(visible.get());
}

}  // namespace

Result<Ref> prepare(CaptureState& state, PyObject* object, Reads reads) {
  return Preparation(state, reads).prepare(object);
}

}  // namespace framejit::bytecode
