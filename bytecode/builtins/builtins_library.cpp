// Rows of the standard library that are neither containers nor iteration:
// descriptors called by name, exceptions, context variables, copying,
// signatures.
#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/fact_object.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

// ---- descriptors: function.__get__(object, type), property.__get__ ...
Result<Ref> model_descriptor_get(BuiltinCall& call) {
  if (!call.plain(2, 3)) return call.native(Reads::kNothing);
  PyObject* object = call.args[1] == Py_None ? nullptr : call.args[1];
  PyObject* type = call.args.size() > 2 ? call.args[2] : Py_None;
  if (!object && type == Py_None) return call.native(Reads::kNothing);
  Ref owner = type == Py_None ? call.state.type_of(object) : Ref::borrow(type);
  if (!PyType_Check(owner.get())) return call.unknown();
  return bind_descriptor(call.state, call.args[0], object,
                         reinterpret_cast<PyTypeObject*>(owner.get()),
                         interned("__get__"));
}

// ---- exceptions
Result<Ref> model_exception_method(BuiltinCall& call) {
  if (!call.plain(2, 2) || call.state.is_input(call.args[0])) {
    return call.unknown();
  }
  if (is_opaque(call.args[1], OpaqueKind::kTraceback)) {
    // with_traceback()
    FJ_CHECK_OK(set_traceback(call.state, call.args[0], call.args[1]));
    return Ref::borrow(call.args[0]);
  }
  return call.native(Reads::kNothing);
}

Result<Ref> model_exc_info(BuiltinCall& call) {
  if (!call.plain(0, 0)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  Ref handled = handled_exception();
  if (!handled) {
    FJ_TRY(bool outside, is_handled_outside(state));
    if (!outside) return from_api(PyTuple_Pack(3, Py_None, Py_None, Py_None));
    // Which one is no input of the capture.
    FJ_TRY(Ref unknown, make_opaque(state, OpaqueKind::kUnknown));
    return from_api(
        PyTuple_Pack(3, unknown.get(), unknown.get(), unknown.get()));
  }
  FJ_TRY(Ref traceback, traceback_of(state, handled.get()));
  return from_api(
      PyTuple_Pack(3, Py_TYPE(handled.get()), handled.get(), traceback.get()));
}

// ---- numbers of the interpreter: guarded facts
namespace {

class InterpreterFact final : public Fact {
 public:
  Ref read(FactName name) override {
    if (name == FactName::recursion_limit) {
      return Ref::steal(PyLong_FromLong(Py_GetRecursionLimit()));
    }
    return Ref::steal(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
  }
};

Result<Ref> interpreter_number(BuiltinCall& call, FactName name,
                               const char* what) {
  if (!call.plain(0, 0)) return call.native(Reads::kNothing);
  if (reads_late(call.state)) note_late_number(call.state, what);
  FJ_TRY(Ref object, make_fact(std::make_unique<InterpreterFact>()));
  Ref value = read_fact(object.get(), name);
  if (!value) return Result<Ref>::raised();
  call.state.guard(GuardKind::kEquals,
                   fact_source(call.state, object.get(), name), value.get());
  return value;
}

}  // namespace

Result<Ref> model_recursion_limit(BuiltinCall& call) {
  return interpreter_number(call, FactName::recursion_limit,
                            "the recursion limit");
}

Result<Ref> model_thread_ident(BuiltinCall& call) {
  return interpreter_number(call, FactName::thread_ident, "the running thread");
}

// ---- id(): equal for one object, unequal for two; not a number (opaque)
namespace {

// Inputs whose id() was taken, canonical: no two of them may become one.
struct Identities {
  std::vector<PyObject*> objects;
};

}  // namespace

Result<Ref> model_id(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* object = state.unshadow(call.args[0]);
  if (is_symbolic(state, object)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "id() of a symbolic number");
  }
  std::vector<PyObject*>& known = state.table<Identities>().objects;
  bool seen = false;
  for (PyObject* other : known) seen |= other == object;
  bool input = state.is_input(object) ||
               (is_stand_in(state, object) && state.tracer.source_of(object));
  if (!seen && input && !state.is_constant(object)) {
    constexpr size_t kMaxIdentities = 256;
    if (known.size() > kMaxIdentities) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "id() of very many objects");
    }
    for (PyObject* other : known) {
      if (Py_TYPE(other) == Py_TYPE(object)) {
        FJ_CHECK_OK(state.is_same(other, object));
      }
    }
    known.push_back(object);
    state.keep_alive(object);
  }
  return make_opaque(state, OpaqueKind::kIdentity, object);
}

// ---- types.MappingProxyType over a dict of the program
Result<Ref> model_mappingproxy(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  // One over another, or over the attributes of a class.
  if (Py_IS_TYPE(call.args[0], &PyDictProxy_Type)) return call.unknown();
  if (!PyDict_Check(call.args[0])) return call.native(Reads::kNothing);
  FJ_TRY(Ref proxy, from_api(PyDictProxy_New(call.args[0])));
  call.state.keep_alive(proxy.get());
  call.state.table<Proxies>().dicts[proxy.get()] = Ref::borrow(call.args[0]);
  return proxy;
}

Result<Ref> model_mappingproxy_view(BuiltinCall& call) {
  if (call.args.empty()) return call.native(Reads::kNothing);
  auto& proxies = call.state.table<Proxies>().dicts;
  auto found = proxies.find(call.args[0]);
  auto class_dict = call.state.table<ClassDicts>().classes.find(call.args[0]);
  if (class_dict != call.state.table<ClassDicts>().classes.end() &&
      call.plain(1, 1) &&
      std::strcmp(reinterpret_cast<PyMethodDescrObject*>(call.callable)
                      ->d_method->ml_name,
                  "keys") == 0) {
    // The names; what else a view can do is not needed of them.
    return class_names(call.state, class_dict->second);
  }
  if (found == proxies.end()) {
    return call.state.is_input(call.args[0]) ? Result<Ref>(call.unknown())
                                             : call.native(Reads::kNothing);
  }
  const char* name =
      reinterpret_cast<PyMethodDescrObject*>(call.callable)->d_method->ml_name;
  FJ_TRY(Ref method, call.state.get_attr(found->second.get(), interned(name)));
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  return call.state.caller.call(method.get(), rest, call.kwnames);
}

// ---- collections.Counter's counting loop
Result<Ref> model_count_elements(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* mapping = call.args[0];
  FJ_TRY(Ref get, state.get_attr(mapping, interned("get")));
  FJ_TRY(Ref iterator, state.iter(call.args[1]));
  Ref zero = Ref::steal(PyLong_FromLong(0)),
      one = Ref::steal(PyLong_FromLong(1));
  while (true) {
    FJ_TRY(Ref key, state.next(iterator.get()));
    if (!key) return none();
    FJ_TRY(Ref count, state.caller.call(get.get(), {key.get(), zero.get()}));
    FJ_TRY(count, state.binary(0, false, count.get(), one.get()));
    FJ_CHECK_OK(state.set_item(mapping, key.get(), count.get()));
  }
}

// ---- heapq, bisect.insort: a list whose elements C code compares
Result<Ref> model_heap(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (call.args.empty() || call.has_keywords() ||
      !PyList_CheckExact(call.args[0]) || state.is_input(call.args[0])) {
    return call.unknown();
  }
  std::vector<Ref> keep;
  std::vector<PyObject*> values;
  for (PyObject* arg : call.args) {
    FJ_TRY(Ref plain, prepare(state, arg, Reads::kDeep));
    // A copy would take the change.
    if (plain.get() != arg) return call.unknown();
    values.push_back(arg);
    keep.push_back(std::move(plain));
  }
  return state.after_native(PyObject_Vectorcall(call.callable, values.data(),
                                                values.size(), nullptr));
}

// ---- functools.singledispatch: the inner dispatch(cls)
namespace {

PyObject* closure_item(PyObject* function, const char* name) {
  PyObject* code = PyFunction_GET_CODE(function);
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  Ref names =
      Ref::steal(PyCode_GetFreevars(reinterpret_cast<PyCodeObject*>(code)));
  if (!names || !closure) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names.get(), i),
                                         name) == 0) {
      return PyTuple_GET_ITEM(closure, i);
    }
  }
  return nullptr;
}

// The code object of singledispatch(f).dispatch.
PyObject* dispatch_code() {
  static PyObject* code = made_once([] {
    PauseHook pause;
    PyObject* make = library_object("functools", "singledispatch");
    PyObject* sample = library_object("functools", "reduce");
    Ref made = make ? Ref::steal(PyObject_CallOneArg(make, sample)) : Ref();
    Ref dispatch =
        made ? Ref::steal(PyObject_GetAttrString(made.get(), "dispatch"))
             : Ref();
    if (!dispatch || !PyFunction_Check(dispatch.get())) {
      PyErr_Clear();
      return static_cast<PyObject*>(nullptr);
    }
    return Py_NewRef(PyFunction_GET_CODE(dispatch.get()));
  });
  return code;
}

}  // namespace

// The registry is read as a whole; the cache beside it follows from it.
Result<Ref> call_dispatch(CaptureState& state, PyObject* function,
                          const std::vector<PyObject*>& args) {
  if (PyFunction_GET_CODE(function) != dispatch_code() || args.size() != 1 ||
      !PyType_Check(args[0])) {
    return Ref();
  }
  const Source* source = state.source_of(function);
  PyObject* cell = closure_item(function, "registry");
  if (!source || !cell) return Ref();
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i) {
    if (PyTuple_GET_ITEM(closure, i) != cell) continue;
    state.register_input(
        cell, state.guards.sources().make(SourceKind::kClosureCell, source,
                                          nullptr, i));
  }
  FJ_TRY(Ref registry, state.cell_get(cell));
  FJ_CHECK_OK(state.shadow(registry.get()));
  Ref found;
  {
    PauseHook pause;
    found = Ref::steal(PyObject_CallOneArg(function, args[0]));
  }
  if (!found) return Result<Ref>::raised();
  return found;
}

// ---- inspect.signature of a function or bound method
namespace {

// Everything the signature is made of, guarded. False: not that simple.
Result<bool> guard_signature(CaptureState& state, PyObject* function) {
  const Source* source = state.source_of(function);
  if (!source) {
    state.pin(function);
    source = state.source_of(function);
  }
  for (const char* name :
       {"__wrapped__", "__signature__", "__text_signature__"}) {
    FJ_TRY(Ref found, maybe_attr(state, function, interned(name)));
    if (found && found.get() != Py_None) return false;
  }
  if (!source) return state.caller.is_fresh_function(function);
  SourceArena& sources = state.guards.sources();
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  state.guard(GuardKind::kIs, sources.make(SourceKind::kFunctionCode, source),
              object->func_code);
  struct Part {
    const char* name;
    PyObject* value;
  } parts[] = {{"__defaults__", object->func_defaults},
               {"__kwdefaults__", object->func_kwdefaults},
               {"__annotations__", PyFunction_GetAnnotations(function)}};
  for (const Part& part : parts) {
    PyObject* value = part.value ? part.value : Py_None;
    const Source* place =
        sources.make(SourceKind::kGetSet, source, interned(part.name));
    FJ_TRY(Ref wrapped, state.wrap(value, place));
    if (PyTuple_Check(value)) {
      // Defaults are handed out: nothing that could be changed.
      if (!is_builtin_constant(value)) return false;
    } else if (PyDict_Check(value)) {
      bool annotations = part.value == parts[2].value;
      FJ_TRY(Ref content, state.shadow(value));
      Py_ssize_t position = 0;
      PyObject *key, *item;
      while (PyDict_Next(content.get(), &position, &key, &item)) {
        if (is_builtin_constant(item) || PyType_Check(item)) continue;
        if (!annotations) return false;
        state.guard(GuardKind::kIs,
                    sources.make(SourceKind::kDictItem, place, key), item);
      }
    }
  }
  return true;
}

}  // namespace

Result<Ref> model_signature(BuiltinCall& call) {
  if (!call.plain(1, 1)) return Ref();
  CaptureState& state = call.state;
  PyObject* subject = call.args[0];
  PyObject* function = subject;
  Ref keep;
  if (PyMethod_Check(subject)) {
    FJ_TRY(auto parts, state.method_parts(subject));
    keep = parts.first;
    function = keep.get();
  }
  if (!PyFunction_Check(function)) return Ref();
  FJ_TRY(bool known, guard_signature(state, function));
  if (!known) return Ref();
  Ref signature;
  {
    PauseHook pause;
    signature = Ref::steal(PyObject_CallOneArg(call.callable, subject));
  }
  if (!signature) return Result<Ref>::raised();
  return signature;
}

}  // namespace framejit::bytecode
