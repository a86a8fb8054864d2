#include "bytecode/objects/object_kinds.h"

#include <cstring>

#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/native_stack.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

bool is_scalar_type(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyUnicode_Type ||
         type == &PyFloat_Type || type == &PyBytes_Type ||
         type == &PyComplex_Type;
}

}  // namespace

bool is_singleton(PyObject* object) {
  return object == Py_None || object == Py_Ellipsis ||
         object == Py_NotImplemented || PyBool_Check(object);
}

bool is_small_int(PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  long value = PyLong_AsLongAndOverflow(object, &overflow);
  return !overflow && value >= -5 && value <= 256;
}

namespace {

// Looks at each constant of a guard's size and depth, and gives up on others:
// tuples that are shared may be a thousand deep and have 2**1000 leaves.
class ConstantTest {
 public:
  bool holds(PyObject* object) {
    if (is_singleton(object)) return true;
    static constexpr bool (ConstantTest::* kTests[])(PyObject*) = {
#define FJ_TYPE(name, type, parts, ...) &ConstantTest::parts,
#include "bytecode/objects/builtin_types.def"
    };
    auto test = kTests[size_t(builtin_type(Py_TYPE(object)))];
    if (test == &ConstantTest::no_constant) return false;
    if (test == &ConstantTest::is_constant) return true;
    if (depth_ >= kMaxConstantDepth || containers_ >= kMaxContainers)
      return false;
    ++containers_;
    ++depth_;
    bool result = (this->*test)(object);
    --depth_;
    return result;
  }

 private:
  static constexpr int kMaxContainers = 10'000;

  // ---- by type (builtin_types.def)
  bool no_constant(PyObject*) { return false; }
  bool is_constant(PyObject*) { return true; }
  bool tuple_is_constant(PyObject* object) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      if (!holds(PyTuple_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  bool slice_is_constant(PyObject* object) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return holds(slice->start) && holds(slice->stop) && holds(slice->step);
  }
  bool set_is_constant(PyObject* object) {
    Ref iterator = Ref::steal(PyObject_GetIter(object));
    if (!iterator) PyErr_Clear();
    while (Ref key =
               Ref::steal(iterator ? PyIter_Next(iterator.get()) : nullptr)) {
      if (!holds(key.get())) return false;
    }
    return static_cast<bool>(iterator);
  }

  int depth_ = 0;
  int containers_ = 0;
};

}  // namespace

bool is_builtin_constant(PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return true;
  return ConstantTest().holds(object);
}

bool is_type_form(PyObject* object) {
  return Py_IS_TYPE(object, &Py_GenericAliasType) || kUnion.is_type_of(object);
}

bool is_getter(PyObject* object) {
  return kItemGetter.is_type_of(object) || kAttrGetter.is_type_of(object) ||
         kMethodCaller.is_type_of(object);
}

bool is_guarded_by_identity(PyObject* object) {
  // Subclasses of the scalar types, too: C code reads the value behind our
  // back, so only identity covers it.
  enum Rule { kNever, kExact, kAll };
  static constexpr Rule kRules[] = {
#define FJ_TYPE(name, type, parts, identity, ...) identity,
#include "bytecode/objects/builtin_types.def"
  };
  if (kRules[size_t(builtin_type(Py_TYPE(object)))] != kNever ||
      kRules[size_t(builtin_base(Py_TYPE(object)))] == kAll) {
    return true;
  }
  return is_method_of_descriptor(object) || is_enum_member(object);
}

bool is_struct_sequence(PyTypeObject* type) {
  if (type->tp_base != &PyTuple_Type || type->tp_new == PyTuple_Type.tp_new) {
    return false;
  }
  PyObject* maker = raw_lookup(type, "__new__");
  Ref dict = own_dict(type);
  return maker && PyCFunction_Check(maker) && dict &&
         PyDict_GetItemString(dict.get(), "n_sequence_fields");
}

bool is_enum_member(PyObject* object) {
  return is_heap_type(Py_TYPE(object)) &&
         kEnumMeta.is_base_of(Py_TYPE(Py_TYPE(object)));
}

bool is_method_wrapper(PyObject* object) {
  return Py_IS_TYPE(object, internals::method_wrapper_type());
}

bool is_method_of_descriptor(PyObject* object) {
  if (!is_method_wrapper(object)) return false;
  Ref self = Ref::steal(PyObject_GetAttrString(object, "__self__"));
  if (!self) PyErr_Clear();
  return self && (Py_IS_TYPE(self.get(), &PyGetSetDescr_Type) ||
                  Py_IS_TYPE(self.get(), &PyMemberDescr_Type) ||
                  Py_IS_TYPE(self.get(), &PyMethodDescr_Type) ||
                  Py_IS_TYPE(self.get(), &PyWrapperDescr_Type));
}

bool is_bound_c_method(PyObject* object) {
  if (is_method_wrapper(object)) return !is_method_of_descriptor(object);
  if (!PyCFunction_CheckExact(object)) return false;
  PyObject* self = PyCFunction_GET_SELF(object);
  // (The functions that pybind11 makes are bound to a capsule.)
  return self && !PyModule_Check(self) && !PyType_Check(self) &&
         !PyCapsule_CheckExact(self);
}

bool is_regular_expression(PyTypeObject* type) {
  return type == kPattern.get() || type == kMatch.get();
}

bool is_foreign(CaptureState& state, PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return false;
  ObjectClass kind = state.tracer.classify(object);
  return kind == ObjectClass::kStandIn || kind == ObjectClass::kSymbolic;
}

bool is_symbolic(CaptureState& state, PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return false;
  return state.tracer.classify(object) == ObjectClass::kSymbolic;
}

bool is_symbolic_float(CaptureState& state, PyObject* object) {
  return is_symbolic(state, object) &&
         state.tracer.symbolic_type(object) ==
             reinterpret_cast<PyObject*>(&PyFloat_Type);
}

bool is_stand_in(CaptureState& state, PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return false;
  return state.tracer.classify(object) == ObjectClass::kStandIn;
}

Result<Ref> plain_scalar(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyFloat_Type ||
      type == &PyUnicode_Type || PyBool_Check(object)) {
    return Ref::borrow(object);
  }
  if (PyLong_Check(object))
    return from_api(_PyLong_Copy(reinterpret_cast<PyLongObject*>(object)));
  if (PyFloat_Check(object)) {
    return from_api(PyFloat_FromDouble(PyFloat_AS_DOUBLE(object)));
  }
  if (PyUnicode_Check(object)) return from_api(PyUnicode_FromObject(object));
  return Ref::borrow(object);
}

}  // namespace framejit::bytecode
