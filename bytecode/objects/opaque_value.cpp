#include "bytecode/objects/opaque_value.h"

#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/private_type.h"
#include "bytecode/objects/unbuildable.h"

namespace framejit::bytecode {

namespace {

struct Opaque : CaptureObject {
  OpaqueKind kind;
  Ref object;
  Ref other;
};

Opaque* as_opaque(PyObject* object) {
  return reinterpret_cast<Opaque*>(object);
}

// Every use that would have to know the value.
PyObject* looked_at(PyObject* self) {
  static const char* const kDetails[] = {"looks into a traceback",
                                         "uses what the caller handles",
                                         "uses id() as a number",
                                         "looks into a context token",
                                         "looks into a frame",
                                         "reads a text on its way to print()",
                                         "reads a text that is handed on"};
  Opaque* opaque = as_opaque(self);
  if (opaque->state) {
    opaque->state->set_native_break(opaque->state->make_break(
        BreakReason::kUnguardableInput, kDetails[int(opaque->kind)]));
  }
  PyErr_SetString(PyExc_RuntimeError, "framejit stopped its capture here");
  return nullptr;
}

PyObject* unary(PyObject* self) { return looked_at(self); }
PyObject* binary(PyObject* a, PyObject* b) {
  return looked_at(is_opaque(a) ? a : b);
}
PyObject* ternary(PyObject* a, PyObject* b, PyObject*) {
  return looked_at(is_opaque(a) ? a : b);
}
PyObject* get_attribute(PyObject* self, PyObject*) { return looked_at(self); }
int set_attribute(PyObject* self, PyObject*, PyObject*) {
  looked_at(self);
  return -1;
}
PyObject* call(PyObject* self, PyObject*, PyObject*) { return looked_at(self); }

int truth(PyObject* self) {
  switch (as_opaque(self)->kind) {
    case OpaqueKind::kTraceback:
    case OpaqueKind::kIdentity:
    case OpaqueKind::kToken:
    case OpaqueKind::kFrame:
      return 1;
    case OpaqueKind::kUnknown:
    case OpaqueKind::kText:
    case OpaqueKind::kMoved:
      break;
  }
  looked_at(self);
  return -1;
}

Py_ssize_t length(PyObject* self) {
  looked_at(self);
  return -1;
}
int contains(PyObject* self, PyObject*) {
  looked_at(self);
  return -1;
}
int give_buffer(PyObject* self, Py_buffer*, int) {
  looked_at(self);
  return -1;
}

Py_hash_t hash(PyObject* self) {
  Opaque* opaque = as_opaque(self);
  if (opaque->kind == OpaqueKind::kIdentity) {
    PyObject* object = opaque->object.get();
    // Equal constants may be one object in the next call: they are compared.
    if (is_builtin_constant(object)) {
      Py_hash_t value = PyObject_Hash(object);
      if (value != -1) return value;
      PyErr_Clear();
    }
    return _Py_HashPointer(object);
  }
  looked_at(self);
  return -1;
}

// Are the ids of these two the same? -1: no guard says so.
int same_identity(PyObject* a, PyObject* b) {
  if (a == b) {
    if (!is_builtin_constant(a) || a == Py_None || PyBool_Check(a)) return 1;
    int overflow = 0;
    long value =
        PyLong_CheckExact(a) ? PyLong_AsLongAndOverflow(a, &overflow) : 1000;
    return !overflow && value >= -5 && value <= 256 ? 1 : -1;
  }
  if (!is_builtin_constant(a) || !is_builtin_constant(b)) return 0;
  if (Py_TYPE(a) != Py_TYPE(b)) return 0;
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 0 ? 0 : -1;
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  bool ids = is_opaque(a, OpaqueKind::kIdentity) &&
             is_opaque(b, OpaqueKind::kIdentity);
  if (ids && (op == Py_EQ || op == Py_NE)) {
    int same =
        same_identity(as_opaque(a)->object.get(), as_opaque(b)->object.get());
    if (same >= 0) return PyBool_FromLong(same == (op == Py_EQ));
  }
  // Something that is no number differs from an id.
  if (is_opaque(a, OpaqueKind::kIdentity) && !PyLong_Check(b) &&
      !PyFloat_Check(b) && !PyComplex_Check(b) && !is_opaque(b)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return looked_at(is_opaque(a) ? a : b);
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  as_opaque(self)->object.~Ref();
  as_opaque(self)->other.~Ref();
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* opaque_object_type() {
  static PyTypeObject* type = made_once([] {
    auto slot = [](auto function) { return reinterpret_cast<void*>(function); };
    static PyType_Slot slots[] = {{Py_tp_dealloc, slot(dealloc)},
                                  {Py_tp_repr, slot(unary)},
                                  {Py_tp_str, slot(unary)},
                                  {Py_tp_hash, slot(hash)},
                                  {Py_tp_richcompare, slot(compare)},
                                  {Py_tp_getattro, slot(get_attribute)},
                                  {Py_tp_setattro, slot(set_attribute)},
                                  {Py_tp_call, slot(call)},
                                  {Py_tp_iter, slot(unary)},
                                  {Py_nb_bool, slot(truth)},
                                  {Py_nb_int, slot(unary)},
                                  {Py_nb_float, slot(unary)},
                                  {Py_nb_index, slot(unary)},
                                  {Py_nb_negative, slot(unary)},
                                  {Py_nb_positive, slot(unary)},
                                  {Py_nb_absolute, slot(unary)},
                                  {Py_nb_invert, slot(unary)},
                                  {Py_nb_add, slot(binary)},
                                  {Py_nb_subtract, slot(binary)},
                                  {Py_nb_multiply, slot(binary)},
                                  {Py_nb_remainder, slot(binary)},
                                  {Py_nb_divmod, slot(binary)},
                                  {Py_nb_power, slot(ternary)},
                                  {Py_nb_lshift, slot(binary)},
                                  {Py_nb_rshift, slot(binary)},
                                  {Py_nb_and, slot(binary)},
                                  {Py_nb_or, slot(binary)},
                                  {Py_nb_xor, slot(binary)},
                                  {Py_nb_floor_divide, slot(binary)},
                                  {Py_nb_true_divide, slot(binary)},
                                  {Py_nb_matrix_multiply, slot(binary)},
                                  {Py_mp_subscript, slot(get_attribute)},
                                  {Py_mp_length, slot(length)},
                                  {Py_sq_length, slot(length)},
                                  {Py_sq_contains, slot(contains)},
                                  {Py_bf_getbuffer, slot(give_buffer)},
                                  {0, nullptr}};
    return make_private_type("framejit._Opaque", sizeof(Opaque), slots,
                             opaque_type);
  });
  return type;
}

}  // namespace

Result<Ref> make_opaque(CaptureState& state, OpaqueKind kind, PyObject* object,
                        PyObject* other) {
  PyTypeObject* type = opaque_object_type();
  if (!type) return Result<Ref>::raised();
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return Result<Ref>::raised();
  Opaque* opaque = as_opaque(made.get());
  opaque->state = &state;
  opaque->kind = kind;
  new (&opaque->object) Ref(Ref::borrow(object));
  new (&opaque->other) Ref(Ref::borrow(other));
  state.table<NativeCalls>().held.push_back(made);
  // Should it have to outlive the capture, that stops where it is made. A frame
  // made there would be that of the residual code, which ends: the function is
  // left to CPython.
  if (kind != OpaqueKind::kIdentity && kind != OpaqueKind::kFrame &&
      kind != OpaqueKind::kText && kind != OpaqueKind::kMoved) {
    note_unbuildable(state, made.get());
  }
  return made;
}

bool is_opaque(PyObject* object) {
  return object && Py_TYPE(object) == opaque_object_type();
}

bool is_opaque(PyObject* object, OpaqueKind kind) {
  return is_opaque(object) && as_opaque(object)->kind == kind;
}

OpaqueKind opaque_kind(PyObject* object) { return as_opaque(object)->kind; }
PyObject* opaque_object(PyObject* object) {
  return as_opaque(object)->object.get();
}
PyObject* opaque_other(PyObject* object) {
  return as_opaque(object)->other.get();
}

PyTypeObject* opaque_type(PyObject* object) {
  switch (as_opaque(object)->kind) {
    case OpaqueKind::kTraceback:
      return &PyTraceBack_Type;
    case OpaqueKind::kIdentity:
      return &PyLong_Type;
    case OpaqueKind::kToken:
      return &PyContextToken_Type;
    case OpaqueKind::kFrame:
      return &PyFrame_Type;
    case OpaqueKind::kText:
      return &PyUnicode_Type;
    case OpaqueKind::kMoved:
      return reinterpret_cast<PyTypeObject*>(opaque_object(object));
    case OpaqueKind::kUnknown:
      break;
  }
  return nullptr;
}

}  // namespace framejit::bytecode
