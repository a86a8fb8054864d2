#include "bytecode/objects/identity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "frame_hook/native_stack.h"

namespace framejit::bytecode {
namespace {

// A constant, or a tuple of constants, that was found at `source`.
struct Origin {
  const Source* source;
  Ref object;
};

// Constants are guarded as a whole.
bool is_part_of(PyObject* whole, PyObject* part) {
  if (whole == part) return true;
  if (!whole || !PyTuple_CheckExact(whole)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(whole); ++i) {
    if (is_part_of(PyTuple_GET_ITEM(whole, i), part)) return true;
  }
  return false;
}

// All places that held this very object when the call began. An object that
// the program made, or that its code holds, may be among them (a str that is
// interned), which is why each place is guarded by itself.
std::vector<Origin> origins_of_constant(CaptureState& state, PyObject* object) {
  std::vector<Origin> found;
  for (const Guard& guard : state.guards.guards()) {
    if (guard.kind != GuardKind::kEquals && guard.kind != GuardKind::kFloatIs)
      continue;
    if (is_part_of(guard.object.get(), object))
      found.push_back({guard.source, Ref::borrow(guard.object.get())});
  }
  return found;
}

// Nothing: it was computed, or is no object (a size).
std::vector<Origin> origins_of_symbol(CaptureState& state, PyObject* object) {
  const auto& numbers = state.table<NumbersThatCameIn>().places;
  auto found = numbers.find(object);
  if (found == numbers.end()) return {};
  Ref real = evaluate_source(found->second, state.request.args,
                             state.request.function);
  if (!real) return {};
  return {{found->second, std::move(real)}};
}

// The object itself, once its origins are guarded; null: nobody can say.
PyObject* pin_origins(CaptureState& state, PyObject* object, bool symbolic,
                      const std::vector<Origin>& origins) {
  for (const Origin& origin : origins) {
    if (origin.source->kind == SourceKind::kConst) continue;
    state.guard(GuardKind::kIs, origin.source, origin.object.get());
  }
  if (!symbolic) return object;
  return origins.empty() ? nullptr : origins[0].object.get();
}

bool holds_nan(PyObject* constant) {
  if (PyFloat_Check(constant)) return std::isnan(PyFloat_AS_DOUBLE(constant));
  if (PyComplex_Check(constant)) {
    Py_complex value = PyComplex_AsCComplex(constant);
    return std::isnan(value.real) || std::isnan(value.imag);
  }
  if (PyTuple_CheckExact(constant)) {
    if (native_stack_low()) return false;  // no constant is that deep
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constant); ++i) {
      if (holds_nan(PyTuple_GET_ITEM(constant, i))) return true;
    }
    return false;
  }
  if (!PyFrozenSet_CheckExact(constant)) return false;
  Ref items = Ref::steal(PySequence_Tuple(constant));
  if (!items) PyErr_Clear();
  return !items || holds_nan(items.get());
}

bool is_compared_in_python(PyObject* object) {
  PyObject* equal = raw_lookup(Py_TYPE(object), "__eq__");
  return equal && PyFunction_Check(equal);
}

}  // namespace

Result<bool> is_same_value(CaptureState& state, PyObject* a, PyObject* b) {
  const bool symbolic_a = is_symbolic(state, a);
  const bool symbolic_b = is_symbolic(state, b);
  std::vector<Origin> from_a =
      symbolic_a ? origins_of_symbol(state, a) : origins_of_constant(state, a);
  std::vector<Origin> from_b =
      symbolic_b ? origins_of_symbol(state, b) : origins_of_constant(state, b);
  const bool known_a = !symbolic_a || !from_a.empty();
  const bool known_b = !symbolic_b || !from_b.empty();
  if ((from_a.empty() && from_b.empty()) || !known_a || !known_b) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "identity of equal constants");
  }
  return pin_origins(state, a, symbolic_a, from_a) ==
         pin_origins(state, b, symbolic_b, from_b);
}

void pin_unequal_to_itself(CaptureState& state, PyObject* constant) {
  if (!holds_nan(constant)) return;
  pin_origins(state, constant, false, origins_of_constant(state, constant));
  if (!PyTuple_CheckExact(constant)) return;
  // Made here, of what came in.
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constant); ++i) {
    pin_unequal_to_itself(state, PyTuple_GET_ITEM(constant, i));
  }
}

Result<bool> is_same_or_equal(CaptureState& state, PyObject* a, PyObject* b) {
  if (state.unshadow(a) == state.unshadow(b)) {
    if (is_builtin_constant(a)) pin_unequal_to_itself(state, a);
    return true;
  }
  for (PyObject* object : {a, b}) {
    // By its bits, so that it is no NaN, or a known one.
    if (is_symbolic(state, object) &&
        state.type_of(object).get() ==
            reinterpret_cast<PyObject*>(&PyFloat_Type)) {
      FJ_TRY(Ref value, state.tracer.concretise(object));
      FJ_CHECK(!is_symbolic(state, value.get()));
      if (holds_nan(value.get())) return state.is_same(a, b);
    }
  }
  if (is_builtin_constant(a) && is_builtin_constant(b)) {
    if (holds_nan(a) && holds_nan(b)) {
      pin_unequal_to_itself(state, a);
      pin_unequal_to_itself(state, b);
    }
  } else if (!is_symbolic(state, a) && !is_symbolic(state, b) &&
             (is_compared_in_python(a) || is_compared_in_python(b))) {
    FJ_TRY(bool same, state.is_same(a, b));
    if (same) return true;
  }
  FJ_TRY(Ref equal, state.compare(Py_EQ, a, b));
  return state.truth(equal.get());
}

}  // namespace framejit::bytecode
