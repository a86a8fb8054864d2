#include "frame_hook/program_code.h"

#include "frame_hook/code_cache.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/python_text.h"

namespace framejit {
namespace {
thread_local DecoratedNames* names = nullptr;
}  // namespace

// Of the innermost; empty: of another code.
Ref owner_in_names(PyObject* code) {
  return names && names->code_ == code ? names->owner_ : Ref();
}

namespace {

// What the code stands for: a class or a function; empty: nothing, or it died.
Ref owner_of(PyObject* code) {
  const CodeMemory* memory =
      PyCode_Check(code) ? find_code_memory(code) : nullptr;
  if (!memory || !memory->stands_for) return owner_in_names(code);
  return internals::weak_referent(memory->stands_for.get());
}

PyObject* code_of_function(PyObject* object) {
  if (object && is_compiled_function(object)) {
    object = reinterpret_cast<CompiledFunction*>(object)->function;
  }
  return object && PyFunction_Check(object) ? PyFunction_GET_CODE(object)
                                            : nullptr;
}

}  // namespace

bool stand_for(PyObject* code, PyObject* owner, int first_passed) {
  Ref weak = Ref::steal(PyWeakref_NewRef(owner, nullptr));
  CodeMemory* memory = weak ? code_memory(code) : nullptr;
  if (!memory) {
    if (!PyErr_Occurred()) PyErr_NoMemory();
    return false;
  }
  memory->stands_for = std::move(weak);
  memory->first_passed = static_cast<int8_t>(first_passed);
  return true;
}

void stand_for_same(PyObject* made, PyObject* code) {
  const CodeMemory* memory = find_code_memory(code);
  if (!memory || !memory->stands_for) return;
  if (CodeMemory* other = code_memory(made))
    other->stands_for = memory->stands_for;
}

Ref program_code(PyObject* code) {
  Ref owner = owner_of(code);
  if (!owner) return Ref::borrow(code);
  PyObject* function = owner.get();
  if (PyType_Check(function)) {
    static PyObject* forward = PyUnicode_InternFromString("forward");
    function =
        _PyType_Lookup(reinterpret_cast<PyTypeObject*>(function), forward);
  }
  PyObject* found = code_of_function(function);
  return Ref::borrow(found ? found : code);
}

bool stands_for_other(PyObject* code) {
  return program_code(code).get() != code;
}

bool passes_arguments_on(PyObject* code) {
  constexpr int kBoth = CO_VARARGS | CO_VARKEYWORDS;
  auto* object = reinterpret_cast<PyCodeObject*>(code);
  if ((object->co_flags & kBoth) != kBoth || !stands_for_other(code))
    return false;
  return !owner_in_names(code) ||
         object->co_argcount + object->co_kwonlyargcount == 0;
}

int first_passed_parameter(PyObject* code) {
  const CodeMemory* memory = find_code_memory(code);
  return memory ? memory->first_passed : 0;
}

std::string program_name(PyObject* code) {
  Ref owner = owner_of(code);
  Ref program = program_code(code);
  auto* object = reinterpret_cast<PyCodeObject*>(program.get());
  if (owner && PyType_Check(owner.get()) && program.get() != code) {
    auto* type = reinterpret_cast<PyHeapTypeObject*>(owner.get());
    if (PyType_HasFeature(&type->ht_type, Py_TPFLAGS_HEAPTYPE)) {
      return text_of(type->ht_qualname, "?") + "." +
             text_of(object->co_name, "?");
    }
  }
  return text_of(object->co_qualname, "?");
}

std::string describe_code(PyObject* code) {
  Ref program = program_code(code);
  auto* object = reinterpret_cast<PyCodeObject*>(program.get());
  return program_name(code) + " (" + text_of(object->co_filename, "?") + ":" +
         std::to_string(object->co_firstlineno) + ")";
}

Ref decorated_function(PyObject* function) {
  // As far as decorators nest, and not in circles.
  constexpr int kMaxDepth = 64;
  PyObject* at = function;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    PyObject* dict = reinterpret_cast<PyFunctionObject*>(at)->func_dict;
    PyObject* inner =
        dict ? PyDict_GetItemString(dict, "__wrapped__") : nullptr;
    if (inner && is_compiled_function(inner))
      inner = reinterpret_cast<CompiledFunction*>(inner)->function;
    if (!inner || !PyFunction_Check(inner)) break;
    at = inner;
  }
  return at == function ? Ref() : Ref::borrow(at);
}

std::string describe_function(PyObject* function) {
  DecoratedNames decorated(function);
  PyObject* code = PyFunction_GET_CODE(function);
  if (stands_for_other(code)) return describe_code(code);
  auto* object = reinterpret_cast<PyCodeObject*>(code);
  return text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname) +
         " (" + text_of(object->co_filename) + ":" +
         std::to_string(object->co_firstlineno) + ")";
}

DecoratedNames::DecoratedNames(PyObject* function)
    : DecoratedNames(PyFunction_GET_CODE(function),
                     decorated_function(function).get()) {}

DecoratedNames::DecoratedNames(PyObject* code, PyObject* owner)
    : code_(code), owner_(Ref::borrow(owner)), outer_(names) {
  if (owner) names = this;
}

DecoratedNames::~DecoratedNames() {
  if (names == this) names = outer_;
}

}  // namespace framejit
