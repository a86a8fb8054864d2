#include "guards/set/object_text.h"

#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"
#include "guards/set/guard_set.h"

namespace framejit {
namespace {

constexpr size_t kMaxText = 80;

std::string type_name(PyTypeObject* type) {
  std::string name = type->tp_name;
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    std::string qualified =
        string_text(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
    if (qualified != "?") return qualified;
  }
  return name;
}

bool is_plain_constant(PyObject* object) {
  if (object == Py_None || object == Py_Ellipsis || PyBool_Check(object) ||
      PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
      PyComplex_CheckExact(object) || PyUnicode_CheckExact(object) ||
      PyBytes_CheckExact(object) || PyRange_Check(object))
    return true;
  return is_foreign_constant(object);
}

// A text or bytes without what nobody will read.
Ref beginning(PyObject* object) {
  const auto most = static_cast<Py_ssize_t>(kMaxText);
  const bool is_long =
      (PyUnicode_CheckExact(object) && PyUnicode_GET_LENGTH(object) > most) ||
      (PyBytes_CheckExact(object) && PyBytes_GET_SIZE(object) > most);
  return is_long ? Ref::steal(PySequence_GetSlice(object, 0, most))
                 : Ref::borrow(object);
}

// The name of a member of an enum, without code of the program; "": it is none,
// or has no name (a flag made of several).
std::string member_name(PyObject* object) {
  if (!kEnumMeta.is_base_of(Py_TYPE(Py_TYPE(object)))) return "";
  Ref key = Ref::steal(PyUnicode_InternFromString("_name_"));
  Ref name =
      Ref::steal(key ? PyObject_GenericGetAttr(object, key.get()) : nullptr);
  if (!name) drop_error();
  return name && PyUnicode_CheckExact(name.get()) ? string_text(name.get())
                                                  : "";
}

std::string tuple_text(PyObject* tuple) {
  std::string text = "(";
  Py_ssize_t size = PyTuple_GET_SIZE(tuple);
  for (Py_ssize_t i = 0; i < size && text.size() < kMaxText; ++i) {
    if (i) text += ", ";
    text += object_text(PyTuple_GET_ITEM(tuple, i));
  }
  return text + (size == 1 ? ",)" : ")");
}

}  // namespace

std::string string_text(PyObject* unicode) { return text_of(unicode, "?"); }

std::string object_text(PyObject* object) {
  if (!object) return "nothing";
  ErrorGuard keep_error;
  std::string text;
  if (PyType_Check(object)) {
    text = type_name(reinterpret_cast<PyTypeObject*>(object));
  } else if (PyTuple_CheckExact(object)) {
    text = native_stack_low() ? "(...)" : tuple_text(object);
  } else if (is_plain_constant(object)) {
    Ref shown = beginning(object);
    Ref repr = Ref::steal(shown ? PyObject_Repr(shown.get()) : nullptr);
    text = string_text(repr.get());
    drop_error();
  } else if (PyFunction_Check(object)) {
    text =
        "function " +
        string_text(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  } else if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    drop_error();
    text = std::string("module ") + (name ? name : "?");
  } else if (std::string name = member_name(object); !name.empty()) {
    text = type_name(Py_TYPE(object)) + "." + name;
  } else {
    text = "this " + type_name(Py_TYPE(object));
  }
  if (text.size() > kMaxText) {
    size_t end = kMaxText - 3;
    // Not in the middle of a UTF-8 sequence.
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return text;
}

namespace {
TensorWords tensor_words{};
}  // namespace

void set_tensor_words(const TensorWords& words) { tensor_words = words; }

std::string dtype_text(int scalar_type) {
  if (tensor_words.dtype) return tensor_words.dtype(scalar_type);
  return "dtype " + std::to_string(scalar_type);
}

std::string device_text(int type, int index) {
  if (tensor_words.device) return tensor_words.device(type, index);
  return "device (" + std::to_string(type) + ", " + std::to_string(index) + ")";
}

std::string keys_text(const std::string& name, uint64_t expected,
                      uint64_t actual) {
  return tensor_words.keys ? tensor_words.keys(name, expected, actual) : "";
}

}  // namespace framejit
