#include "frame_hook/follower.h"

#include <structmember.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "frame_hook/compiled_function.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/interjections.h"
#include "frame_hook/notices.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"

namespace framejit {
namespace {

PyObject* deriver = nullptr;  // of set_follower_deriver()

PyObject* get_attribute(PyObject* self, PyObject* name);

// The slots are the last members of an instance, in this order.
struct Slots {
  PyObject* asked;  // before the first call: name of a method -> how often
  PyObject* call;
  PyObject* followed;  // the class of the original, when last asked
  PyObject* original;
};
Slots& slots_of(PyObject* self) {
  char* end = reinterpret_cast<char*>(self) + Py_TYPE(self)->tp_basicsize;
  return reinterpret_cast<Slots*>(end)[-1];
}

// Whose behaviour an instance without an original has.
PyTypeObject* base_class(PyObject* self) {
  PyObject* bases = Py_TYPE(self)->tp_bases;
  return reinterpret_cast<PyTypeObject*>(
      PyTuple_GET_ITEM(bases, PyTuple_GET_SIZE(bases) - 1));
}

bool is_special(const std::string& name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

// What the follower has itself.
bool is_own(const std::string& name) {
  return name == "__call__" || name.starts_with("__framejit_") ||
         name.starts_with("_framejit_");
}

// The original's class is another than the one followed.
bool take_class(PyObject* self, PyObject* original) {
  if (!deriver) return true;
  Ref followed = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(original)));
  Ref pair = Ref::steal(PyObject_CallFunctionObjArgs(
      deriver, followed.get(), reinterpret_cast<PyObject*>(Py_TYPE(self)),
      nullptr));
  if (!pair) return false;
  PyObject *type = nullptr, *call = nullptr;
  if (!PyArg_ParseTuple(pair.get(), "O!O", &PyType_Type, &type, &call)) {
    return false;
  }
  auto* new_type = reinterpret_cast<PyTypeObject*>(type);
  PyTypeObject* old_type = Py_TYPE(self);
  if (!is_follower_class(new_type) ||
      new_type->tp_basicsize != old_type->tp_basicsize) {
    PyErr_Format(PyExc_TypeError,
                 "the object made by framejit.compile cannot follow to class "
                 "%.200s: its layout differs",
                 Py_TYPE(original)->tp_name);
    return false;
  }
  Py_INCREF(type);
  Py_SET_TYPE(self, new_type);
  Py_DECREF(old_type);
  Py_SETREF(slots_of(self).call, Py_NewRef(call));
  Py_SETREF(slots_of(self).followed, followed.release());
  return true;
}

bool take_dict(PyObject* self, PyObject* original) {
  PyObject** theirs = _PyObject_GetDictPtr(original);
  PyObject** ours = _PyObject_GetDictPtr(self);
  if (theirs && ours && *theirs && *theirs == *ours) [[likely]]
    return true;
  Ref dict = Ref::steal(PyObject_GenericGetDict(original, nullptr));
  return dict && internals::set_instance_dict(self, dict.get());
}

bool follow(PyObject* self, PyObject* original) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(original)) != slots_of(self).followed)
      [[unlikely]] {
    if (!take_class(self, original)) return false;
  }
  return take_dict(self, original);
}

// A method that the class of the original gave, bound to it.
bool is_method_of_class(PyObject* value, PyObject* original, PyObject* name) {
  if (!PyMethod_Check(value) || PyMethod_GET_SELF(value) != original ||
      is_special(text_of(name))) {
    return false;
  }
  PyObject** dict = _PyObject_GetDictPtr(original);
  if (!dict || !*dict) return true;
  bool own = PyDict_GetItemWithError(*dict, name) != nullptr;
  drop_error();
  return !own;
}

bool is_forward(PyObject* name) {
  return PyUnicode_Check(name) &&
         PyUnicode_CompareWithASCIIString(name, "forward") == 0;
}

// The CompiledFunction of the follower's calls; null: of another kind.
CompiledFunction* call_of(PyObject* self) {
  PyObject* call = slots_of(self).call;
  return call && is_compiled_function(call)
             ? reinterpret_cast<CompiledFunction*>(call)
             : nullptr;
}

// What the original has for a forward, compiled like calls of the follower.
Ref compiled_forward(PyObject* self, Ref value) {
  CompiledFunction* call = call_of(self);
  bool bound = PyMethod_Check(value.get());
  PyObject* function = bound ? PyMethod_GET_FUNCTION(value.get()) : value.get();
  if (!call || !PyFunction_Check(function)) return value;
  Ref made = Ref::steal(
      make_compiled_function(function, call->options, call->options_owner));
  if (!made || !bound) return made;
  return Ref::steal(PyMethod_New(made.get(), PyMethod_GET_SELF(value.get())));
}

// `m.forward = m.forward`, or put back what was read: not as compiled_forward()
// made it, the module itself stays eager.
Ref without_compiled_forward(PyObject* self, PyObject* name, PyObject* value) {
  Ref given = Ref::borrow(value);
  CompiledFunction* call = call_of(self);
  if (!call || !value || !is_forward(name) || !PyMethod_Check(value) ||
      PyMethod_GET_SELF(value) != slots_of(self).original ||
      !is_compiled_function(PyMethod_GET_FUNCTION(value))) {
    return given;
  }
  auto* made =
      reinterpret_cast<CompiledFunction*>(PyMethod_GET_FUNCTION(value));
  if (made->options != call->options) return given;
  return Ref::steal(PyMethod_New(made->function, PyMethod_GET_SELF(value)));
}

// ---- modules that are not called

std::string package_of(PyObject* module_name) {
  std::string name = text_of(module_name);
  return name.substr(0, name.find('.'));
}

// Is it a method of the class's own program, for the public? Not of the library
// that says what a module is, and what calling one means.
bool is_of_program(PyObject* function, PyObject* original, PyObject* name) {
  static PyObject* const call = PyUnicode_InternFromString("__call__");
  if (!PyFunction_Check(function) || text_of(name).starts_with("_"))
    return false;
  PyTypeObject* type = Py_TYPE(original);
  PyObject* calls = _PyType_Lookup(type, call);
  Ref module = Ref::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__"));
  if (!module) drop_error();
  if (!calls || !PyFunction_Check(calls)) return false;
  auto home = [](PyObject* of) {
    return package_of(reinterpret_cast<PyFunctionObject*>(of)->func_module);
  };
  return home(function) == package_of(module.get()) &&
         home(function) != home(calls);
}

// A program that reads a method again and again, and has never called the
// follower, works with the method. Said once.
void note_asked(PyObject* self, PyObject* original, PyObject* function,
                PyObject* name) {
  constexpr long kOften = 16;
  CompiledFunction* call = call_of(self);
  if (!call || call->cache) return;  // it was called
  ErrorGuard keep;
  if (!is_of_program(function, original, name)) return;
  PyObject*& asked = slots_of(self).asked;
  if (!asked) asked = PyDict_New();
  PyObject* known = asked ? PyDict_GetItemWithError(asked, name) : nullptr;
  long count = known ? PyLong_AsLong(known) + 1 : 1;
  Ref number = Ref::steal(PyLong_FromLong(count));
  if (asked && number) PyDict_SetItem(asked, name, number.get());
  drop_error();
  if (count != kOften) return;
  std::string method = text_of(name);
  log_notice(Notice::kNeverCalled, PyFunction_GET_CODE(call->function),
             "not compiled: " + describe_code(PyFunction_GET_CODE(function)) +
                 ", called on a compiled module that is never called itself"
                 "\n  hint: only calls of the module and of its forward are "
                 "compiled; compile this method, too (m." +
                 method + " = framejit.compile(m." + method +
                 ")), or the modules that it calls");
}

PyObject* get_attribute(PyObject* self, PyObject* name) {
  Ref original = Ref::borrow(slots_of(self).original);
  if (!original) return base_class(self)->tp_getattro(self, name);
  if (!follow(self, original.get())) return nullptr;
  if (is_own(text_of(name))) return PyObject_GenericGetAttr(self, name);
  Ref value = Ref::steal(PyObject_GetAttr(original.get(), name));
  if (value && is_forward(name))
    return compiled_forward(self, std::move(value)).release();
  if (!value || !is_method_of_class(value.get(), original.get(), name))
    return value.release();
  PyObject* function = PyMethod_GET_FUNCTION(value.get());
  note_asked(self, original.get(), function, name);
  return PyMethod_New(function, self);
}

int set_attribute(PyObject* self, PyObject* name, PyObject* value) {
  Ref original = is_follower_class(Py_TYPE(self))
                     ? Ref::borrow(slots_of(self).original)
                     : Ref();
  if (!original) {
    auto* base = reinterpret_cast<PyObject*>(base_class(self));
    Ref done = Ref::steal(
        value
            ? PyObject_CallMethod(base, "__setattr__", "OOO", self, name, value)
            : PyObject_CallMethod(base, "__delattr__", "OO", self, name));
    return done ? 0 : -1;
  }
  int failed = 0;
  if (value) {
    Ref plain = without_compiled_forward(self, name, value);
    failed = plain ? PyObject_SetAttr(original.get(), name, plain.get()) : -1;
  } else {
    failed = PyObject_DelAttr(original.get(), name);
  }
  if (failed < 0) return -1;
  return follow(self, original.get()) ? 0 : -1;
}

// Methods, not slots: object.__setattr__ refuses objects whose class has a slot
// of its own in C.
PyObject* set_attribute_method(PyObject* self, PyObject* const* args,
                               Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "__setattr__ takes two arguments");
    return nullptr;
  }
  return set_attribute(self, args[0], args[1]) < 0 ? nullptr
                                                   : Py_NewRef(Py_None);
}

PyObject* delete_attribute_method(PyObject* self, PyObject* name) {
  return set_attribute(self, name, nullptr) < 0 ? nullptr : Py_NewRef(Py_None);
}

PyMethodDef methods[] = {
    {"__setattr__",
     reinterpret_cast<PyCFunction>(
         reinterpret_cast<void (*)()>(set_attribute_method)),
     METH_FASTCALL, nullptr},
    {"__delattr__", delete_attribute_method, METH_O, nullptr},
};

bool add_methods(PyTypeObject* type) {
  for (PyMethodDef& method : methods) {
    Ref descriptor = Ref::steal(PyDescr_NewMethod(type, &method));
    if (!descriptor ||
        PyObject_SetAttrString(reinterpret_cast<PyObject*>(type),
                               method.ml_name, descriptor.get()) < 0) {
      return false;
    }
  }
  return true;
}

// function(first, *args, **kwargs)
PyObject* call_with(PyObject* function, PyObject* first, PyObject* args,
                    PyObject* kwargs) {
  size_t count = PyTuple_GET_SIZE(args);
  PyObject* few[8];
  std::vector<PyObject*> many;
  PyObject** stack = few;
  if (count + 2 > std::size(few)) {
    many.resize(count + 2);
    stack = many.data();
  }
  stack[0] = nullptr;  // room for who binds another argument
  stack[1] = first;
  std::copy_n(reinterpret_cast<PyTupleObject*>(args)->ob_item, count,
              stack + 2);
  return PyObject_VectorcallDict(function, stack + 1,
                                 (count + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 kwargs);
}

PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) {
  Ref original = Ref::borrow(follower_original(self));
  if (!original) {
    Ref plain = Ref::steal(PyObject_GetAttrString(
        reinterpret_cast<PyObject*>(base_class(self)), "__call__"));
    return plain ? call_with(plain.get(), self, args, kwargs) : nullptr;
  }
  if (!follow(self, original.get())) return nullptr;
  Ref compiled = Ref::borrow(slots_of(self).call);
  return call_with(compiled.get(), original.get(), args, kwargs);
}

}  // namespace

bool make_follower_class(PyTypeObject* type) {
  Py_ssize_t offset = type->tp_basicsize - Py_ssize_t(sizeof(Slots));
  for (const char* name : kFollowerSlots) {
    Ref member = Ref::steal(
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
    if (!member) return false;
    if (!Py_IS_TYPE(member.get(), &PyMemberDescr_Type) ||
        reinterpret_cast<PyMemberDescrObject*>(member.get())
                ->d_member->offset != offset) {
      PyErr_Format(PyExc_TypeError, "class %.200s has an unknown layout",
                   type->tp_name);
      return false;
    }
    offset += sizeof(PyObject*);
  }
  if (!add_methods(type)) return false;
  type->tp_getattro = get_attribute;
  type->tp_call = call;
  // The finalizer is for the original.
  type->tp_finalize = nullptr;
  type->tp_del = nullptr;
  PyType_Modified(type);
  return true;
}

void set_follower_deriver(PyObject* derive) {
  Py_XSETREF(deriver, Py_XNewRef(derive));
}

bool is_follower_class(PyTypeObject* type) {
  if (type->tp_call != call) return false;
  // Assigning Module.__getattr__, as torch.fx does for a while, sets this slot
  // of every subclass anew.
  if (type->tp_getattro != get_attribute) [[unlikely]] {
    type->tp_getattro = get_attribute;
    PyType_Modified(type);
  }
  return true;
}

PyObject* follower_original(PyObject* object) {
  return is_follower_class(Py_TYPE(object)) ? slots_of(object).original
                                            : nullptr;
}

Py_ssize_t follower_original_offset(PyTypeObject* type) {
  return type->tp_basicsize - Py_ssize_t(sizeof(PyObject*));
}

PyObject* make_follower(PyTypeObject* type, PyObject* original,
                        PyObject* compiled) {
  if (!is_follower_class(type)) {
    PyErr_SetString(PyExc_TypeError, "expected a class of followers");
    return nullptr;
  }
  Ref nothing = Ref::steal(PyTuple_New(0));
  Ref self =
      nothing
          ? Ref::steal(PyBaseObject_Type.tp_new(type, nothing.get(), nullptr))
          : Ref();
  if (!self) return nullptr;
  Slots& slots = slots_of(self.get());
  slots.call = Py_NewRef(compiled);
  slots.followed = Py_NewRef(Py_TYPE(original));
  slots.original = Py_NewRef(original);
  if (!take_dict(self.get(), original)) return nullptr;
  return self.release();
}

}  // namespace framejit
