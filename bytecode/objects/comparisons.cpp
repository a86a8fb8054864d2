// Comparisons: with methods in Python, CPython's order of attempts; sequences
// element by element; everything else natively.
#include <algorithm>

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/compared_sequence.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/operator_attempts.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/strict_errors.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

struct CompareRow {
  const char* name;
  const char* method;
  const char* reflected;
  const char* symbol;
};
// Indexed by Py_LT ... Py_GE.
const CompareRow kCompare[] = {
    {"lt", "__lt__", "__gt__", "<"},  {"le", "__le__", "__ge__", "<="},
    {"eq", "__eq__", "__eq__", "=="}, {"ne", "__ne__", "__ne__", "!="},
    {"gt", "__gt__", "__lt__", ">"},  {"ge", "__ge__", "__le__", ">="}};

Result<Ref> identity_answer(CaptureState& state, int op, PyObject* a,
                            PyObject* b) {
  FJ_TRY(bool same, state.is_same(a, b));
  return Ref::borrow(same == (op == Py_EQ) ? Py_True : Py_False);
}

// object's own comparison: no look at the contents. A class with some methods
// in Python has object's for the others.
bool has_default_compare(PyObject* object, const char* method) {
  richcmpfunc compare = Py_TYPE(object)->tp_richcompare;
  if (!compare || compare == PyBaseObject_Type.tp_richcompare) return true;
  PyObject* raw = raw_lookup(Py_TYPE(object), method);
  return raw && Py_IS_TYPE(raw, &PyWrapperDescr_Type) &&
         PyDescr_TYPE(raw) == &PyBaseObject_Type;
}

Result<Ref> python_attempt(CaptureState& state, int op, PyObject* function,
                           bool inverted, PyObject* a, PyObject* b) {
  FJ_TRY(Ref result, attempt(state, function, a, b));
  if (!result || !inverted) return result;
  FJ_TRY(bool value, state.truth(result.get()));
  return Ref::borrow(value ? Py_False : Py_True);
}

// The Python method for one side; `!=` falls back to an inverted `__eq__`.
Result<std::pair<Ref, bool>> compare_special(CaptureState& state, int op,
                                             PyObject* object,
                                             const char* method) {
  FJ_TRY(Ref found, state.python_special(object, method));
  if (found || op != Py_NE) return std::make_pair(std::move(found), false);
  PyObject* raw = raw_lookup(Py_TYPE(object), "__ne__");
  bool inherits = raw && Py_IS_TYPE(raw, &PyWrapperDescr_Type) &&
                  PyDescr_TYPE(raw) == &PyBaseObject_Type;
  if (!inherits) return std::make_pair(Ref(), false);
  FJ_TRY(found, state.python_special(object, "__eq__"));
  if (!found && !has_default_compare(object, "__eq__")) {
    // `__ne__ = object.__ne__`: the inverse of an `__eq__` of C.
    return state.make_break(BreakReason::kUnguardableInput,
                            std::string("!= of ") + Py_TYPE(object)->tp_name);
  }
  return std::make_pair(std::move(found), true);
}

// CPython's do_richcompare with at least one Python method.
Result<Ref> python_compare(CaptureState& state, int op, PyObject* a,
                           PyObject* b, std::pair<Ref, bool> left,
                           std::pair<Ref, bool> right) {
  // A derived class goes first, with a method that it inherits as well.
  const bool reflected_first =
      Py_TYPE(a) != Py_TYPE(b) && PyType_IsSubtype(Py_TYPE(b), Py_TYPE(a));
  for (int turn = 0; turn < 2; ++turn) {
    const bool reflects = (turn == 1) != reflected_first;
    PyObject* self = reflects ? b : a;
    PyObject* other = reflects ? a : b;
    const auto& method = reflects ? right : left;
    const char* name = reflects ? kCompare[op].reflected : kCompare[op].method;
    if (method.first) {
      FJ_TRY(Ref result, python_attempt(state, op, method.first.get(),
                                        method.second, self, other));
      if (result) return result;
    } else if (!has_default_compare(self, name) &&
               (!is_builtin_constant(self) || extends_builtin(state, other))) {
      return state.make_break(BreakReason::kUnguardableInput,
                              std::string("comparison of ") +
                                  Py_TYPE(self)->tp_name + " and " +
                                  Py_TYPE(other)->tp_name);
    }
  }
  if (op == Py_EQ || op == Py_NE) return identity_answer(state, op, a, b);
  PyErr_Format(PyExc_TypeError,
               "'%s' not supported between instances of '%.100s' and "
               "'%.100s'",
               kCompare[op].symbol, Py_TYPE(a)->tp_name, Py_TYPE(b)->tp_name);
  return Result<Ref>::raised();
}

// Lists and tuples whose elements are not all constants: element by element,
// as list_richcompare does.
Result<Ref> compare_sequences(CaptureState& state, int op, PyObject* a,
                              PyObject* b) {
  FJ_TRY(std::vector<Ref> left, own_elements(state, a));
  FJ_TRY(std::vector<Ref> right, own_elements(state, b));
  bool equality = op == Py_EQ || op == Py_NE;
  if (equality && left.size() != right.size()) {
    return Ref::borrow(op == Py_NE ? Py_True : Py_False);
  }
  const ComparedSequence walk_a(state, a), walk_b(state, b);
  size_t common = std::min(left.size(), right.size());
  for (size_t i = 0; i < common; ++i) {
    FJ_TRY(bool same, is_same_or_equal(state, left[i].get(), right[i].get()));
    FJ_CHECK_OK(walk_a.check());
    FJ_CHECK_OK(walk_b.check());
    if (same) continue;
    if (equality) return Ref::borrow(op == Py_NE ? Py_True : Py_False);
    return state.compare(op, left[i].get(), right[i].get());
  }
  Py_ssize_t size_a = left.size(), size_b = right.size();
  bool answer = false;
  switch (op) {
    case Py_LT:
      answer = size_a < size_b;
      break;
    case Py_LE:
      answer = size_a <= size_b;
      break;
    case Py_EQ:
      answer = size_a == size_b;
      break;
    case Py_NE:
      answer = size_a != size_b;
      break;
    case Py_GT:
      answer = size_a > size_b;
      break;
    case Py_GE:
      answer = size_a >= size_b;
      break;
  }
  return Ref::borrow(answer ? Py_True : Py_False);
}

// Whatever they hold: CPython compares them with their own kind alone.
bool equals_no_number(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  for (PyTypeObject* known :
       {&PyUnicode_Type, &PyBytes_Type, &PyTuple_Type, &PyList_Type,
        &PyDict_Type, &PySet_Type, &PyFrozenSet_Type, &PySlice_Type,
        &PyRange_Type}) {
    if (type == known) return true;
  }
  return has_default_compare(object, "__eq__");
}

}  // namespace

Result<Ref> CaptureState::compare(int op, PyObject* a, PyObject* b) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (is_builtin_constant(a) && is_builtin_constant(b)) {
    if (PyTuple_CheckExact(a) || PyFrozenSet_CheckExact(a)) {
      for (PyObject* object : {a, b}) pin_unequal_to_itself(*this, object);
    }
    return from_api(PyObject_RichCompare(a, b, op));
  }
  if (is_opaque(a) || is_opaque(b)) {
    return after_native(PyObject_RichCompare(a, b, op));
  }
  FJ_TRY(auto left, compare_special(*this, op, a, kCompare[op].method));
  FJ_TRY(auto right, compare_special(*this, op, b, kCompare[op].reflected));
  bool foreign = is_foreign(*this, a) || is_foreign(*this, b);
  if (foreign && !left.first && !right.first) {
    bool tensor = is_stand_in(*this, a) || is_stand_in(*this, b);
    auto is_real = [&](PyObject* object) {
      return is_symbolic(*this, object) ||
             (is_number(object) && !PyComplex_CheckExact(object));
    };
    bool numbers = is_real(a) && is_real(b);
    if (tensor || numbers) {
      PyObject* function = library_object("operator", kCompare[op].name);
      return operate(*this, function, {a, b});
    }
    // Enum members, NumPy's scalars, decimals may be equal to a number.
    if ((op == Py_EQ || op == Py_NE) &&
        (equals_no_number(a) || equals_no_number(b))) {
      return Ref::borrow(op == Py_NE ? Py_True : Py_False);
    }
    FJ_TRY(Ref plain_a, is_symbolic(*this, a) ? tracer.concretise(a)
                                              : Result<Ref>(Ref::borrow(a)));
    FJ_TRY(Ref plain_b, is_symbolic(*this, b) ? tracer.concretise(b)
                                              : Result<Ref>(Ref::borrow(b)));
    return compare(op, plain_a.get(), plain_b.get());
  }
  if (left.first || right.first) {
    return python_compare(*this, op, a, b, std::move(left), std::move(right));
  }
  bool default_a = has_default_compare(a, kCompare[op].method);
  bool default_b = has_default_compare(b, kCompare[op].reflected);
  if (default_a && default_b) {
    if (op == Py_EQ || op == Py_NE) return identity_answer(*this, op, a, b);
    return from_api(PyObject_RichCompare(a, b, op));  // TypeError
  }
  if ((op == Py_EQ || op == Py_NE) && unshadow(a) == unshadow(b) && default_a) {
    return Ref::borrow(op == Py_EQ ? Py_True : Py_False);
  }
  bool lists = PyList_Check(a) && PyList_Check(b);
  bool tuples = PyTuple_Check(a) && PyTuple_Check(b);
  if (lists || tuples) return compare_sequences(*this, op, a, b);
  // A default-compared object against a C type: the C side looks at the type.
  auto visible = [&](PyObject* object, bool by_default) -> Result<Ref> {
    if (by_default) return Ref::borrow(object);
    return prepare(*this, object, Reads::kCompares);
  };
  FJ_TRY(Ref plain_a, visible(a, default_a));
  FJ_TRY(Ref plain_b, visible(b, default_b));
  return after_native(PyObject_RichCompare(plain_a.get(), plain_b.get(), op));
}

}  // namespace framejit::bytecode
