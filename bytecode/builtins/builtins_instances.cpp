// Making instances: type.__call__, and __new__ and __init__ of classes of C.
#include <algorithm>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

struct CallArguments {
  Ref tuple;
  Ref keywords;  // dict or empty
};

Result<CallArguments> pack(const std::vector<PyObject*>& args,
                           PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  size_t count = args.size() - keywords;
  CallArguments packed{Ref::steal(PyTuple_New(count)), Ref()};
  if (!packed.tuple) return Result<CallArguments>::raised();
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(packed.tuple.get(), i, Py_NewRef(args[i]));
  }
  if (keywords) {
    packed.keywords = Ref::steal(PyDict_New());
    if (!packed.keywords) return Result<CallArguments>::raised();
    for (size_t i = 0; i < keywords; ++i) {
      if (PyDict_SetItem(packed.keywords.get(), PyTuple_GET_ITEM(kwnames, i),
                         args[count + i]) < 0) {
        return Result<CallArguments>::raised();
      }
    }
  }
  return packed;
}

PyTypeObject* exception_root() {
  return reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
}

// What __new__ and __init__ of C do with their arguments.
enum Takes : uint8_t {
  kUnknown,
  kIgnored,
  kStored,
  kDeep,      // looks into them
  kElements,  // looks at their elements
  kIterable,  // iterates over them
  kListed     // iterates over them, and asks how many there will be
};
constexpr Takes kNewTakes[] = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, iterate, \
                rebuild, make, fill, new_takes, ...)                   \
  new_takes,
#include "bytecode/objects/builtin_types.def"
};
constexpr Takes kInitTakes[] = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, iterate, \
                rebuild, make, fill, new_takes, init_takes, ...)       \
  init_takes,
#include "bytecode/objects/builtin_types.def"
};

Takes new_takes(PyTypeObject* owner) {
  if (owner->tp_new == exception_root()->tp_new) return kStored;
  if (PyType_IsSubtype(owner, exception_root())) return kDeep;
  return kNewTakes[size_t(builtin_type(owner))];
}

Takes init_takes(PyTypeObject* owner) {
  if (PyType_IsSubtype(owner, exception_root())) return kStored;
  BuiltinType row = builtin_type(owner);
  if (row != BuiltinType::kOther) return kInitTakes[size_t(row)];
  // A class of C that is derived from a container.
  bool known = kInitTakes[size_t(builtin_base(owner))] != kUnknown;
  return known ? kElements : kUnknown;
}

// The argument as C code of that kind may have it.
Result<Ref> taken(CaptureState& state, Takes takes, PyObject* arg,
                  Reads reads) {
  if (takes == kListed) return sized_iterable(state, arg);
  if (takes == kIterable) return native_iterable(state, arg);
  return prepare(state, arg, reads);
}

// `maker` is the C __new__ that the class finds: object's, list's, ... It gets
// arguments that it does not look into, or that were prepared for it, and makes
// its own check that the class's layout is its own.
Result<Ref> native_new(CaptureState& state, PyObject* maker, PyTypeObject* type,
                       const std::vector<PyObject*>& args, PyObject* kwnames) {
  if (raw_lookup(type, "__del__")) {
    return state.make_break(BreakReason::kFinalizerObject, type->tp_name);
  }
  PyObject* self =
      maker && PyCFunction_Check(maker) ? PyCFunction_GET_SELF(maker) : nullptr;
  if (!self || !PyType_Check(self)) {
    return state.make_break(BreakReason::kUnknownCallee,
                            std::string("__new__ of ") + type->tp_name);
  }
  auto* owner = reinterpret_cast<PyTypeObject*>(self);
  if (owner == &PyBaseObject_Type) {
    // No instance of an abstract class: so this is what its flag says.
    FJ_CHECK_OK(state.type_lookup(type, interned("__abstractmethods__")));
  }
  std::vector<PyObject*> values{as_object(type)};
  std::vector<Ref> keep;
  switch (new_takes(owner)) {
    case kIgnored:
      kwnames = nullptr;
      break;
    case kStored:
      values.insert(values.end(), args.begin(), args.end());
      break;
    case kUnknown:
      return state.make_break(BreakReason::kUnknownCallee,
                              std::string("C class ") + owner->tp_name);
    default:
      for (PyObject* arg : args) {
        FJ_TRY(Ref plain, taken(state, new_takes(owner), arg, Reads::kDeep));
        values.push_back(plain.get());
        keep.push_back(std::move(plain));
      }
  }
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  return state.after_native(PyObject_Vectorcall(
      maker, values.data(), values.size() - keywords, kwnames));
}

// __init__ of C on a fresh object.
Result<Ref> native_init(CaptureState& state, PyObject* object,
                        const std::vector<PyObject*>& args, PyObject* kwnames) {
  if (state.is_input(object)) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            "C __init__ of an input object");
  }
  PyTypeObject* base = solid_base(Py_TYPE(object));
  initproc init = base->tp_init;
  if (!init || init == PyBaseObject_Type.tp_init) return none();
  const Takes takes = init_takes(base);
  if (takes == kUnknown) {
    return state.make_break(BreakReason::kUnknownCallee,
                            std::string("C __init__ of ") + base->tp_name);
  }
  std::vector<Ref> keep;
  std::vector<PyObject*> values = args;
  for (PyObject*& value : values) {
    if (takes == kStored) break;
    FJ_TRY(Ref plain, taken(state, takes, value, Reads::kElements));
    value = plain.get();
    keep.push_back(std::move(plain));
  }
  FJ_TRY(CallArguments packed, pack(values, kwnames));
  if (init(object, packed.tuple.get(), packed.keywords.get()) < 0) {
    return state.after_native(nullptr);
  }
  return none();
}

std::vector<PyObject*> with_first(PyObject* first,
                                  const std::vector<PyObject*>& rest) {
  std::vector<PyObject*> all{first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

Result<Ref> type_call(CaptureState& state, PyTypeObject* type,
                      const std::vector<PyObject*>& args, PyObject* kwnames) {
  FJ_TRY(Ref maker, state.type_lookup(type, interned("__new__")));
  // object.__new__ takes arguments where this is the class's own.
  FJ_CHECK_OK(state.type_lookup(type, interned("__init__")));
  PyObject* function = maker.get();
  Ref inner;
  if (function && Py_IS_TYPE(function, &PyStaticMethod_Type)) {
    inner = Ref::steal(PyObject_GetAttrString(function, "__func__"));
    if (!inner) return Result<Ref>::raised();
    function = inner.get();
  }
  Ref object;
  if (PyType_IsSubtype(type, &PyType_Type) &&
      !(function && PyFunction_Check(function))) {
    FJ_TRY(object, make_class(state, as_object(type), args, kwnames));
  } else if (function && PyFunction_Check(function)) {
    FJ_TRY(object, state.caller.call(
                       function, with_first(as_object(type), args), kwnames));
  } else {
    FJ_TRY(object, state.tracer.make_instance(as_object(type), args, kwnames));
    if (!object) {
      FJ_TRY(object, native_new(state, function, type, args, kwnames));
    }
  }
  if (!PyObject_TypeCheck(object.get(), type)) return object;
  FJ_TRY(Ref init,
         state.type_lookup(Py_TYPE(object.get()), interned("__init__")));
  if (init && PyFunction_Check(init.get())) {
    FJ_TRY(
        Ref result,
        state.caller.call(init.get(), with_first(object.get(), args), kwnames));
    if (result.get() != Py_None) {
      PyErr_Format(PyExc_TypeError,
                   "__init__() should return None, not '%.200s'",
                   Py_TYPE(result.get())->tp_name);
      return Result<Ref>::raised();
    }
    return object;
  }
  if (PyType_Check(object.get()) || is_stand_in(state, object.get())) {
    return object;
  }
  FJ_CHECK_OK(native_init(state, object.get(), args, kwnames));
  return object;
}

}  // namespace

Result<Ref> call_type(CaptureState& state, PyTypeObject* type,
                      const std::vector<PyObject*>& args, PyObject* kwnames) {
  if (is_heap_type(Py_TYPE(type))) {
    // `__call__ = dict` of TypedDict: a class is no method.
    FJ_TRY(Ref raw, state.type_lookup(Py_TYPE(type), interned("__call__")));
    if (raw && PyType_Check(raw.get())) {
      return state.caller.call(raw.get(), args, kwnames);
    }
  }
  FJ_TRY(Ref special, state.python_special(as_object(type), "__call__"));
  if (special) {
    return state.caller.call(special.get(), with_first(as_object(type), args),
                             kwnames);
  }
  bool exception = PyType_IsSubtype(type, exception_root());
  bool struct_sequence = is_struct_sequence(type);
  if (struct_sequence && args.size() == 1 && !kwnames) {
    FJ_TRY(std::vector<Ref> items, state.elements(args[0]));
    Ref fields = Ref::steal(PyTuple_New(items.size()));
    if (!fields) return Result<Ref>::raised();
    for (size_t i = 0; i < items.size(); ++i) {
      PyTuple_SET_ITEM(fields.get(), i, items[i].release());
    }
    return from_api(PyObject_CallOneArg(as_object(type), fields.get()));
  }
  if (!is_heap_type(type) && !exception) return Ref();
  if (type == &PyType_Type) {
    return make_class(state, as_object(type), args, kwnames);
  }
  return type_call(state, type, args, kwnames);
}

// type.__call__(cls, ...), as super().__call__() of a metaclass reaches it.
Result<Ref> model_type_call(BuiltinCall& call) {
  if (call.args.empty() || !PyType_Check(call.args[0])) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  auto* type = reinterpret_cast<PyTypeObject*>(call.args[0]);
  if (!is_heap_type(type)) {
    return call.state.caller.call(call.args[0], rest, call.kwnames);
  }
  return type_call(call.state, type, rest, call.kwnames);
}

Result<Ref> model_object(BuiltinCall& call) {
  if (!call.args.empty()) return call.native(Reads::kNothing);
  return from_api(PyObject_CallNoArgs(call.callable));
}

// object.__init__ takes nothing when the class has an __init__ of its own.
Result<Ref> model_object_init(BuiltinCall& call) {
  if (call.args.size() > 1) {
    PyTypeObject* type = Py_TYPE(call.args[0]);
    if (type->tp_init != PyBaseObject_Type.tp_init) {
      PyErr_SetString(PyExc_TypeError,
                      "object.__init__() takes exactly one argument (the "
                      "instance to initialize)");
      return Result<Ref>::raised();
    }
    if (type->tp_new == PyBaseObject_Type.tp_new) return call.unknown();
  }
  return none();
}

// __new__ of object, list, dict, set, tuple, exceptions.
Result<Ref> model_new(BuiltinCall& call) {
  if (call.positional() < 1 || !PyType_Check(call.args[0])) {
    return call.native(Reads::kNothing);
  }
  auto* type = reinterpret_cast<PyTypeObject*>(call.args[0]);
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  return native_new(call.state, call.callable, type, rest, call.kwnames);
}

Result<Ref> model_native_init(BuiltinCall& call) {
  if (call.args.empty()) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  return native_init(call.state, call.args[0], rest, call.kwnames);
}

Result<Ref> model_method_type(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  FJ_CHECK_OK(know_callable(call.state, call.args[0]));
  return from_api(PyObject_Vectorcall(call.callable, call.args.data(),
                                      call.args.size(), nullptr));
}

}  // namespace framejit::bytecode
