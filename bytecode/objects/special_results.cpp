#include "bytecode/objects/special_results.h"

#include <string>

#include "bytecode/objects/object_kinds.h"

namespace framejit::bytecode {
namespace {

struct Row {
  PyTypeObject* type;  // null: any iterator
  bool derived;        // objects of derived types are taken as they are
  // %s: the type of what was given. Null: other types are asked further, which
  // is left to the slot itself.
  const char* message;
};

// Indexed by SpecialResult.
const Row kRows[] = {
    {&PyUnicode_Type, true, "__str__ returned non-string (type %s)"},
    {&PyUnicode_Type, true, "__repr__ returned non-string (type %s)"},
    {&PyUnicode_Type, true, "__format__ must return a str, not %s"},
    {&PyBool_Type, false, "__bool__ should return bool, returned %s"},
    {&PyLong_Type, false, "__int__ returned non-int (type %s)"},
    {&PyFloat_Type, false, nullptr},
    {&PyLong_Type, false, "__index__ returned non-int (type %s)"},
    {&PyLong_Type, true, nullptr},
    {&PyLong_Type, true, "__hash__ method should return an integer"},
    {nullptr, false, "iter() returned non-iterator of type '%s'"},
};
static_assert(sizeof kRows / sizeof kRows[0] ==
              size_t(SpecialResult::kIterator) + 1);

Result<Ref> wrong_type(CaptureState& state, const Row& row,
                       PyTypeObject* type) {
  if (!row.message) {
    return state.make_break(
        BreakReason::kUnguardableInput,
        std::string("a special method gave an object of type ") +
            type->tp_name);
  }
  std::string text = row.message;
  if (size_t at = text.find("%s"); at != std::string::npos)
    text.replace(at, 2, std::string(type->tp_name).substr(0, 200));
  PyErr_SetString(PyExc_TypeError, text.c_str());
  return Result<Ref>::raised();
}

Result<Ref> checked_length(CaptureState& state, Ref length) {
  bool is_bool = is_symbolic(state, length.get()) &&
                 state.tracer.symbolic_type(length.get()) ==
                     reinterpret_cast<PyObject*>(&PyBool_Type);
  if (is_bool) {
    FJ_TRY(length, state.tracer.concretise(length.get()));
  }
  Ref zero = Ref::steal(PyLong_FromLong(0));
  if (!zero) return Result<Ref>::raised();
  FJ_TRY(Ref negative, state.compare(Py_LT, length.get(), zero.get()));
  FJ_TRY(bool is_negative, state.truth(negative.get()));
  if (is_negative) {
    PyErr_SetString(PyExc_ValueError, "__len__() should return >= 0");
    return Result<Ref>::raised();
  }
  if (!is_symbolic(state, length.get())) {
    // Too large is an error of its own; bools become numbers.
    Py_ssize_t size = PyNumber_AsSsize_t(length.get(), PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) return Result<Ref>::raised();
    return from_api(PyLong_FromSsize_t(size));
  }
  return length;
}

Result<Ref> checked_hash(CaptureState& state, Ref number) {
  if (is_symbolic(state, number.get())) {
    FJ_TRY(number, state.tracer.concretise(number.get()));
  }
  Py_hash_t hash = PyLong_AsSsize_t(number.get());
  if (hash == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    hash = PyLong_Type.tp_hash(number.get());
  }
  return from_api(PyLong_FromSsize_t(hash == -1 ? -2 : hash));
}

}  // namespace

Result<Ref> checked_special(CaptureState& state, SpecialResult kind,
                            Ref result) {
  const Row& row = kRows[size_t(kind)];
  Ref type_object = state.type_of(result.get());
  auto* type = reinterpret_cast<PyTypeObject*>(type_object.get());
  if (!row.type) {
    bool iterator = Py_IS_TYPE(result.get(), type)
                        ? PyIter_Check(result.get())
                        : type->tp_iternext != nullptr;
    if (!iterator) return wrong_type(state, row, type);
    return result;
  }
  if (type != row.type) {
    if (!PyType_IsSubtype(type, row.type)) return wrong_type(state, row, type);
    // CPython warns of the others, in the program's line.
    if (!row.derived) {
      return state.make_break(BreakReason::kSideEffectCallee,
                              "a special method gave a derived type");
    }
  }
  if (kind == SpecialResult::kLength)
    return checked_length(state, std::move(result));
  if (kind == SpecialResult::kHash)
    return checked_hash(state, std::move(result));
  return result;
}

Result<Ref> call_special(CaptureState& state, SpecialResult kind,
                         PyObject* method, PyObject* self) {
  FJ_TRY(Ref result, state.caller.call(method, {self}));
  return checked_special(state, kind, std::move(result));
}

}  // namespace framejit::bytecode
