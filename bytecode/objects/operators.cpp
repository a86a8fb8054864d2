// Operators: tensors and symbolic numbers go to the tracer, classes with Python
// dunders are interpreted with CPython's order of attempts, everything else is
// computed natively on constants, fresh objects and shadows.
#include <algorithm>

#include "bytecode/code/micro_op.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/compared_sequence.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/operator_attempts.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/special_results.h"
#include "bytecode/objects/strict_errors.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

bool is_number(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyBool_Check(object) || PyComplex_CheckExact(object);
}

Result<Ref> attempt(CaptureState& state, PyObject* function, PyObject* a,
                    PyObject* b) {
  FJ_TRY(Ref result, state.caller.call(function, {a, b}));
  if (result.get() == Py_NotImplemented) return Ref();
  return result;
}

bool extends_builtin(CaptureState& state, PyObject* object) {
  if (!is_heap_type(Py_TYPE(object)) || is_stand_in(state, object) ||
      is_foreign(state, object))
    return false;
  PyObject* mro = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (is_heap_type(base) || base == &PyBaseObject_Type) continue;
    if (base->tp_as_number || base->tp_as_sequence ||
        base->tp_richcompare != PyBaseObject_Type.tp_richcompare)
      return true;
  }
  return false;
}

namespace {

struct BinaryRow {
  const char* name;  // in the operator module
  const char* in_place;
  const char* method;
  const char* reflected;
  const char* in_place_method;
  PyObject* (*native)(PyObject*, PyObject*);
  PyObject* (*native_in_place)(PyObject*, PyObject*);
  const char* symbol;
};

PyObject* power(PyObject* a, PyObject* b) {
  return PyNumber_Power(a, b, Py_None);
}
PyObject* power_in_place(PyObject* a, PyObject* b) {
  return PyNumber_InPlacePower(a, b, Py_None);
}

// Indexed by NB_ADD ... NB_XOR.
#define ROW(name, iname, dunder, native, inplace, symbol) \
  {name,                                                  \
   iname,                                                 \
   "__" dunder "__",                                      \
   "__r" dunder "__",                                     \
   "__i" dunder "__",                                     \
   native,                                                \
   inplace,                                               \
   symbol}
const BinaryRow kBinary[] = {
    ROW("add", "iadd", "add", PyNumber_Add, PyNumber_InPlaceAdd, "+"),
    ROW("and_", "iand", "and", PyNumber_And, PyNumber_InPlaceAnd, "&"),
    ROW("floordiv", "ifloordiv", "floordiv", PyNumber_FloorDivide,
        PyNumber_InPlaceFloorDivide, "//"),
    ROW("lshift", "ilshift", "lshift", PyNumber_Lshift, PyNumber_InPlaceLshift,
        "<<"),
    ROW("matmul", "imatmul", "matmul", PyNumber_MatrixMultiply,
        PyNumber_InPlaceMatrixMultiply, "@"),
    ROW("mul", "imul", "mul", PyNumber_Multiply, PyNumber_InPlaceMultiply, "*"),
    ROW("mod", "imod", "mod", PyNumber_Remainder, PyNumber_InPlaceRemainder,
        "%"),
    ROW("or_", "ior", "or", PyNumber_Or, PyNumber_InPlaceOr, "|"),
    ROW("pow", "ipow", "pow", power, power_in_place, "** or pow()"),
    ROW("rshift", "irshift", "rshift", PyNumber_Rshift, PyNumber_InPlaceRshift,
        ">>"),
    ROW("sub", "isub", "sub", PyNumber_Subtract, PyNumber_InPlaceSubtract, "-"),
    ROW("truediv", "itruediv", "truediv", PyNumber_TrueDivide,
        PyNumber_InPlaceTrueDivide, "/"),
    ROW("xor", "ixor", "xor", PyNumber_Xor, PyNumber_InPlaceXor, "^"),
};
#undef ROW
constexpr int kAdd = 0, kMultiply = 5, kRemainder = 6, kOr = 7, kPower = 8;

Result<Ref> unsupported(CaptureState& state, const BinaryRow& row,
                        bool in_place, PyObject* a, PyObject* b) {
  Ref type_a = state.type_of(a), type_b = state.type_of(b);
  // CPython names pow() where the operator may have been called so.
  const char* symbol = in_place && &row == &kBinary[kPower] ? "**" : row.symbol;
  PyErr_Format(PyExc_TypeError,
               "unsupported operand type(s) for %.100s%s: '%.100s' and "
               "'%.100s'",
               symbol, in_place ? "=" : "",
               reinterpret_cast<PyTypeObject*>(type_a.get())->tp_name,
               reinterpret_cast<PyTypeObject*>(type_b.get())->tp_name);
  return Result<Ref>::raised();
}

struct Specials {
  Ref in_place;
  Ref left;
  Ref right;
  bool any() const { return in_place || left || right; }
};

Result<Specials> find_specials(CaptureState& state, const BinaryRow& row,
                               bool in_place, PyObject* a, PyObject* b) {
  Specials found;
  if (in_place) {
    FJ_TRY(found.in_place, state.python_special(a, row.in_place_method));
  }
  FJ_TRY(found.left, state.python_special(a, row.method));
  if (Py_TYPE(a) != Py_TYPE(b)) {
    FJ_TRY(found.right, state.python_special(b, row.reflected));
  }
  return found;
}

Result<Ref> foreign_binary(CaptureState& state, const BinaryRow& row,
                           bool in_place, PyObject* a, PyObject* b);

Result<Ref> format_operator(CaptureState& state, PyObject* a, PyObject* b);

// Does C code of the builtin number's type compute with b, of whatever class?
// Then b's reflected method is not asked.
bool takes_number(const BinaryRow& row, PyTypeObject* type, PyObject* b) {
  const bool is_whole = type == &PyLong_Type || type == &PyBool_Type;
  if (!is_whole && type != &PyFloat_Type && type != &PyComplex_Type)
    return false;
  if (!raw_lookup(type, row.method)) return false;
  if (PyLong_Check(b)) return true;
  if (PyFloat_Check(b)) return !is_whole;
  return PyComplex_Check(b) && type == &PyComplex_Type;
}

bool is_plain_sequence(PyObject* object) {
  const PySequenceMethods* slots = Py_TYPE(object)->tp_as_sequence;
  return !is_heap_type(Py_TYPE(object)) && slots &&
         (slots->sq_concat || slots->sq_repeat);
}

// Methods in Python have declined, or there are none for one side: may C code
// compute, or refuse in other words?
bool c_code_may_answer(CaptureState& state, const BinaryRow& row, PyObject* a,
                       PyObject* b) {
  const bool adds = &row == &kBinary[kAdd],
             repeats = &row == &kBinary[kMultiply];
  return extends_builtin(state, a) || extends_builtin(state, b) ||
         ((adds || repeats) && is_plain_sequence(a)) ||
         (repeats && is_plain_sequence(b));
}

// `a op= b` asks a's in-place slot first. A class of the program has one for
// whatever method in place it inherits; of builtin types those of sequences
// wait for the numbers' slots of both operands.
bool asks_c_in_place(CaptureState& state, const BinaryRow& row, PyObject* a) {
  PyTypeObject* type = Py_TYPE(a);
  if (is_stand_in(state, a) || is_foreign(state, a) ||
      !raw_lookup(type, row.in_place_method))
    return false;
  if (is_heap_type(type)) return true;
  const bool of_sequences =
      (&row == &kBinary[kAdd] || &row == &kBinary[kMultiply]) &&
      type->tp_as_sequence &&
      (type->tp_as_sequence->sq_inplace_concat ||
       type->tp_as_sequence->sq_inplace_repeat);
  return !of_sequences;
}

Break mixed_operands(CaptureState& state, const BinaryRow& row, PyObject* a,
                     PyObject* b) {
  return state.make_break(BreakReason::kUnguardableInput,
                          std::string(Py_TYPE(a)->tp_name) + " " + row.symbol +
                              " " + Py_TYPE(b)->tp_name);
}

// A tensor's own method knows what to do with tensors, with what overrides it,
// and with numbers of any class.
Result<bool> tensor_takes(CaptureState& state, PyObject* b) {
  FJ_CHECK_OK(check_answers_itself(state, b));
  FJ_TRY(bool asks, asks_override(state, {b}));
  const bool is_number =
      PyLong_Check(b) || PyFloat_Check(b) || PyComplex_Check(b);
  return asks || is_number || is_stand_in(state, b);
}

// At least one operand's class implements the operator in Python.
Result<Ref> python_binary(CaptureState& state, const BinaryRow& row,
                          bool in_place, PyObject* a, PyObject* b,
                          Specials special) {
  if (special.in_place) {
    FJ_TRY(Ref result, attempt(state, special.in_place.get(), a, b));
    if (result) return result;
  } else if (in_place && is_stand_in(state, a) &&
             raw_lookup(Py_TYPE(a), row.in_place_method)) {
    FJ_TRY(bool takes, tensor_takes(state, b));
    if (takes) return foreign_binary(state, row, in_place, a, b);
    return mixed_operands(state, row, a, b);
  } else if (in_place && asks_c_in_place(state, row, a)) {
    return mixed_operands(state, row, a, b);
  }
  Ref type = state.type_of(a);
  auto* type_of_a = reinterpret_cast<PyTypeObject*>(type.get());
  if (special.right && PyType_IsSubtype(Py_TYPE(b), type_of_a)) {
    // The reflected method goes first when the subclass overrides it.
    bool overridden = raw_lookup(type_of_a, row.reflected) !=
                      raw_lookup(Py_TYPE(b), row.reflected);
    if (overridden) {
      FJ_TRY(Ref result, attempt(state, special.right.get(), b, a));
      if (result) return result;
      special.right.reset();
    }
  }
  if (special.left) {
    FJ_TRY(Ref result, attempt(state, special.left.get(), a, b));
    if (result) return result;
  } else if (&row == &kBinary[kRemainder] &&
             (PyUnicode_Check(a) || PyBytes_Check(a))) {
    return format_operator(state, a, b);
  } else if (takes_number(row, type_of_a, b)) {
    FJ_TRY(Ref number, prepare(state, b, Reads::kElements));
    FJ_TRY(number, plain_scalar(number.get()));
    int op = static_cast<int>(&row - kBinary);
    return state.binary(op, in_place, a, number.get());
  } else if (is_stand_in(state, a)) {
    FJ_TRY(bool takes, tensor_takes(state, b));
    if (takes) return foreign_binary(state, row, in_place, a, b);
  } else if (!is_builtin_constant(a) && !is_foreign(state, a)) {
    // C code of a's type may look into b.
    if (raw_lookup(Py_TYPE(a), row.method))
      return mixed_operands(state, row, a, b);
  }
  if (special.right) {
    FJ_TRY(Ref result, attempt(state, special.right.get(), b, a));
    if (result) return result;
  } else if (!is_builtin_constant(b) &&
             (is_foreign(state, b) || raw_lookup(Py_TYPE(b), row.reflected))) {
    return mixed_operands(state, row, a, b);
  }
  if (c_code_may_answer(state, row, a, b))
    return mixed_operands(state, row, a, b);
  return unsupported(state, row, in_place, a, b);
}

Result<Ref> foreign_binary(CaptureState& state, const BinaryRow& row,
                           bool in_place, PyObject* a, PyObject* b) {
  bool tensor = is_stand_in(state, a) || is_stand_in(state, b);
  bool symbolic_ok = (is_number(a) || is_symbolic(state, a)) &&
                     (is_number(b) || is_symbolic(state, b));
  if (tensor || symbolic_ok) {
    // `int += int` makes a new object.
    const char* name =
        in_place && is_stand_in(state, a) ? row.in_place : row.name;
    PyObject* function = library_object("operator", name);
    if (!function) return Result<Ref>::raised();
    FJ_TRY(bool asks, asks_override(state, {a, b}));
    if (asks) return operate(state, function, {a, b});
    // prepare() would ask for the value of a symbolic number, and guard it.
    Ref left = Ref::borrow(a), right = Ref::borrow(b);
    if (!is_symbolic(state, a)) {
      FJ_TRY(left, prepare(state, a, Reads::kElements));
      FJ_TRY(left, plain_scalar(left.get()));
    }
    if (!is_symbolic(state, b)) {
      FJ_TRY(right, prepare(state, b, Reads::kElements));
      FJ_TRY(right, plain_scalar(right.get()));
    }
    Result<Ref> result = operate(state, function, {left.get(), right.get()});
    if (in_place && !tensor && result.is_raised() &&
        PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      return unsupported(state, row, in_place, a, b);
    }
    return result;
  }
  Ref left = Ref::borrow(a), right = Ref::borrow(b);
  if (is_symbolic(state, a)) {
    FJ_TRY(left, state.tracer.concretise(a));
  }
  if (is_symbolic(state, b)) {
    FJ_TRY(right, state.tracer.concretise(b));
  }
  int op = static_cast<int>(&row - kBinary);
  return state.binary(op, in_place, left.get(), right.get());
}

// One by one, as they come: what gives the items may look at the list, or write
// to it.
Result<Ref> extend_list(CaptureState& state, PyObject* list, PyObject* added) {
  bool whole = PyList_Check(added) || PyTuple_CheckExact(added);
  Ref iterator;
  std::vector<Ref> items;
  if (whole) {
    FJ_TRY(items, state.elements(added));
  } else {
    FJ_TRY(iterator, state.iter(added));
    FJ_CHECK_OK(ask_length_hint(state, added));
  }
  Ref logged;
  for (size_t i = 0;; ++i) {
    Ref item;
    if (iterator) {
      FJ_TRY(item, state.next(iterator.get()));
    } else if (i < items.size()) {
      item = items[i];
    }
    if (!item) return Ref::borrow(list);
    ContainerState& entry = state.table<Containers>().states[list];
    if (entry.shadow && PyList_Append(entry.shadow.get(), item.get()) < 0) {
      return Result<Ref>::raised();
    }
    entry.written = true;
    const auto& log = state.table<WriteLog>().entries;
    if (!logged || log.empty() || log.back().value.get() != logged.get()) {
      logged = Ref::steal(PyList_New(0));
      if (!logged) return Result<Ref>::raised();
      WriteLog::add(state, Write::Kind::kExtend, list, nullptr, logged.get());
    }
    if (PyList_Append(logged.get(), item.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
}

// `container op= x` for a container of the program.
Result<Ref> in_place_container(CaptureState& state, const BinaryRow& row,
                               int op, PyObject* a, PyObject* b) {
  // A sequence's slot waits for the numbers' of the other operand (NumPy's).
  const PyNumberMethods* numbers = Py_TYPE(b)->tp_as_number;
  if (op == kAdd && numbers && numbers->nb_add && !is_number(b) &&
      !is_heap_type(Py_TYPE(b)))
    return mixed_operands(state, row, a, b);
  if (op == kAdd && PyList_Check(a)) return extend_list(state, a, b);
  if (op == kOr && PyDict_Check(a)) {
    FJ_TRY(Ref other, prepare(state, b, Reads::kElements));
    if (!PyDict_Check(other.get())) {
      return state.make_break(BreakReason::kUnsupportedWrite, "dict |= x");
    }
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(other.get(), &position, &key, &value)) {
      FJ_CHECK_OK(state.dict_set(a, key, value));
    }
    return Ref::borrow(a);
  }
  FJ_TRY(Ref copy, state.shadow(a));
  const bool deque = kDeque.is_type_of(a);
  Ref other;
  if (deque && op == kAdd) {
    FJ_TRY(std::vector<Ref> items, state.elements(b));
    other = Ref::steal(PyList_New(0));
    for (const Ref& item : items) {
      if (!other || PyList_Append(other.get(), item.get()) < 0) {
        return Result<Ref>::raised();
      }
    }
  } else {
    FJ_TRY(other, prepare(state, b, Reads::kElements));
  }
  Ref result = Ref::steal(row.native_in_place(copy.get(), other.get()));
  if (!result) return Result<Ref>::raised();
  if (result.get() != copy.get()) return result;
  ContainerState& entry = state.table<Containers>().states[a];
  if (!deque || entry.replaced) {
    WriteLog::replace_content(state, a);
    return Ref::borrow(a);
  }
  // Again on the deque itself: it knows when its iterators become invalid.
  entry.written = true;
  Ref args = Ref::steal(PyTuple_Pack(1, other.get()));
  if (!args) return Result<Ref>::raised();
  const char* name = op == kAdd ? "iadd" : "imul";
  WriteLog::add(state, Write::Kind::kMethod, a,
                library_object("operator", name), args.get());
  return Ref::borrow(a);
}

// "%s" % args calls str() on what it formats.
Result<Ref> format_operator(CaptureState& state, PyObject* a, PyObject* b) {
  FJ_TRY(Ref args, prepare(state, b, Reads::kDeep));
  // Whatever comes is formatted: a `__rmod__` is not asked.
  PyTypeObject* text = PyUnicode_Check(a) ? &PyUnicode_Type : &PyBytes_Type;
  return state.after_native(text->tp_as_number->nb_remainder(a, args.get()));
}

}  // namespace

Result<Ref> CaptureState::binary(int op, bool in_place, PyObject* a,
                                 PyObject* b) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (op >= 13) {
    op -= 13;
    in_place = true;
  }
  FJ_CHECK(op >= 0 && op < 13, "unknown binary operator");
  const BinaryRow& row = kBinary[op];
  // (In place it makes a new number as well, but refuses in other words.)
  auto* native = in_place ? row.native_in_place : row.native;
  if (is_number(a) && is_number(b)) return from_api(native(a, b));
  FJ_TRY(Specials special, find_specials(*this, row, in_place, a, b));
  if (special.any()) {
    return python_binary(*this, row, in_place, a, b, std::move(special));
  }
  if (is_foreign(*this, a) || is_foreign(*this, b)) {
    return foreign_binary(*this, row, in_place, a, b);
  }
  if (in_place && is_input(a) && is_container(a)) {
    return in_place_container(*this, row, op, a, b);
  }
  if (op == kRemainder && (PyUnicode_Check(a) || PyBytes_Check(a))) {
    return format_operator(*this, a, b);
  }
  if (op == kMultiply) {
    // A sequence asks the other operand for an index.
    for (PyObject* operand : {a, b}) {
      FJ_TRY(Ref index, python_special(operand, "__index__"));
      if (index) return mixed_operands(*this, row, a, b);
    }
  }
  FJ_TRY(Ref left, prepare(*this, a, Reads::kElements));
  FJ_TRY(Ref right, prepare(*this, b, Reads::kElements));
  if (in_place && op == kAdd && PyList_Check(left.get())) {
    FJ_TRY(right, sized_iterable(*this, b));
  }
  // A sequence times a tensor or a user's __index__ was handled above.
  PyObject* operands[] = {left.get(), right.get()};
  StrictErrors strict(operands);
  return strict.checked(*this, native(left.get(), right.get()));
}

Result<Ref> CaptureState::unary(int op, PyObject* a) {
  struct Row {
    const char* name;
    const char* method;
    PyObject* (*native)(PyObject*);
  };
  static const Row kRows[] = {{"pos", "__pos__", PyNumber_Positive},
                              {"neg", "__neg__", PyNumber_Negative},
                              {"invert", "__invert__", PyNumber_Invert}};
  if (op == kNot) {
    FJ_TRY(bool value, truth(a));
    return Ref::borrow(value ? Py_False : Py_True);
  }
  const Row& row = kRows[op == kPositive ? 0 : op == kNegative ? 1 : 2];
  if (internals::kInvertingBoolWarns && op == kInvert && PyBool_Check(a)) {
    // At the program's own line.
    return make_break(BreakReason::kSideEffectCallee, "~ of a bool");
  }
  if (is_foreign(*this, a)) {
    PyObject* function = library_object("operator", row.name);
    FJ_TRY(Ref special, python_special(a, row.method));
    if (special) return caller.call(special.get(), {a});
    return operate(*this, function, {a});
  }
  FJ_TRY(Ref special, python_special(a, row.method));
  if (special) return caller.call(special.get(), {a});
  FJ_TRY(Ref plain, prepare(*this, a, Reads::kElements));
  PyObject* operands[] = {plain.get()};
  StrictErrors strict(operands);
  return strict.checked(*this, row.native(plain.get()));
}

}  // namespace framejit::bytecode
