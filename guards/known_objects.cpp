#include "guards/known_objects.h"

#include <cstring>
#include <string>
#include <unordered_map>

#include "frame_hook/frame_eval.h"
#include "frame_hook/py_ref.h"

namespace framejit {

PyObject* interned(const char* text) {
  // One object per literal: the address of the literal is the key.
  static std::unordered_map<const char*, PyObject*> cache;
  auto [entry, inserted] = cache.try_emplace(text, nullptr);
  if (!entry->second) entry->second = PyUnicode_InternFromString(text);
  return entry->second;
}

PyObject* library_object(const char* module, const char* name) {
  static std::unordered_map<std::string, PyObject*> cache;
  std::string path = std::string(module) + ":" + name;
  auto found = cache.find(path);
  if (found != cache.end()) return found->second;
  // The import system's own frames are not the program's: seen by the capture,
  // they would come back here.
  PauseHook pause;
  Ref imported = Ref::steal(PyImport_ImportModule(module));
  if (!imported) return nullptr;
  PyObject* object = PyObject_GetAttrString(imported.get(), name);
  if (object) cache.emplace(path, object);  // lives forever
  return object;
}

namespace {

// Of a loaded module, from its dict: nothing runs. New reference or empty.
Ref loaded_attribute(const char* module, const char* name) {
  ErrorGuard keep;
  Ref text = Ref::steal(PyUnicode_FromString(module));
  Ref loaded = Ref::steal(text ? PyImport_GetModule(text.get()) : nullptr);
  if (!loaded || !PyModule_Check(loaded.get())) return {};
  return Ref::borrow(
      PyDict_GetItemString(PyModule_GetDict(loaded.get()), name));
}

}  // namespace

PyTypeObject* LibraryType::get() const {
  if (!type_) {
    Ref found = loaded_attribute(module_, name_);
    if (found && PyType_Check(found.get())) {
      // Lives forever.
      type_ = reinterpret_cast<PyTypeObject*>(found.release());
    }
  }
  return type_;
}

bool is_type_of_module(PyTypeObject* type, const char* module) {
  const char* dot = std::strrchr(type->tp_name, '.');
  Ref found = loaded_attribute(module, dot ? dot + 1 : type->tp_name);
  return found.get() == as_object(type);
}

// From the C module, where there is one: programs patch the Python ones.
bool is_function_of_module(PyObject* function, const char* module) {
  if (!PyCFunction_Check(function)) return false;
  auto* object = reinterpret_cast<PyCFunctionObject*>(function);
  // A function of a module is bound to it.
  if (!object->m_self || !PyModule_Check(object->m_self)) return false;
  return loaded_attribute(module, object->m_ml->ml_name).get() == function;
}

const LibraryType kDeque("_collections", "deque");
const LibraryType kDefaultDict("_collections", "defaultdict");
const LibraryType kPartial("_functools", "partial");
const LibraryType kLruCache("_functools", "_lru_cache_wrapper");
const LibraryType kItemGetter("_operator", "itemgetter");
const LibraryType kAttrGetter("_operator", "attrgetter");
const LibraryType kMethodCaller("_operator", "methodcaller");
const LibraryType kUnion("types", "UnionType");
const LibraryType kSimpleNamespace("types", "SimpleNamespace");
const LibraryType kEnumMeta("enum", "EnumMeta");
const LibraryType kPattern("re", "Pattern");
const LibraryType kMatch("re", "Match");

}  // namespace framejit
