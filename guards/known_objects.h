// Objects that are known by name: found once, and kept for good.
//
// A type is always recognised by its type object, never by the name in it: a
// class of the program may have any name.
#pragma once

#include <Python.h>

namespace framejit {

inline PyObject* as_object(PyTypeObject* type) {
  return reinterpret_cast<PyObject*>(type);
}
// A unicode object that lives forever. One per literal.
PyObject* interned(const char* text);
// An attribute of an importable module, looked up once ("collections.deque").
// Borrowed, or null with an error set.
PyObject* library_object(const char* module, const char* name);

// A type that a module of the standard library has under this name. While the
// module is not loaded there is none, and no object is of it.
class LibraryType {
 public:
  constexpr LibraryType(const char* module, const char* name)
      : module_(module), name_(name) {}
  PyTypeObject* get() const;  // null: none; no error is set
  // Exactly of this type.
  bool is_type_of(PyObject* object) const {
    return Py_TYPE(object) == get();  // an object's type is never null
  }
  bool is_base_of(PyTypeObject* type) const {
    PyTypeObject* base = get();
    return base && PyType_IsSubtype(type, base);
  }

 private:
  const char* module_;
  const char* name_;
  mutable PyTypeObject* type_ = nullptr;
};
// Does the module have this very object, under the object's own name?
bool is_type_of_module(PyTypeObject* type, const char* module);
bool is_function_of_module(PyObject* function, const char* module);  // of C

// Types that several files ask for.
extern const LibraryType kDeque, kDefaultDict, kPartial, kLruCache, kPattern,
    kMatch, kEnumMeta, kUnion, kItemGetter, kAttrGetter, kMethodCaller,
    kSimpleNamespace;

}  // namespace framejit
