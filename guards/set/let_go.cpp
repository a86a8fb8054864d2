#include "guards/set/let_go.h"

#include <structmember.h>

#include <array>
#include <unordered_map>
#include <utility>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/interjections.h"
#include "guards/set/guard_set.h"
#include "guards/set/object_layout.h"
#include "guards/set/quiet_callbacks.h"

namespace framejit {
namespace {

// Objects looked at for one answer, those that others hold among them: who lets
// go of more is not quiet.
constexpr int kMaxObjects = 256;
constexpr int kMaxPlaces = 4096;

bool is_tensor(PyObject* object) {
  const TensorLayout* layout = tensor_layout();
  return layout && layout->is_tensor && layout->is_tensor(object);
}

bool is_seen_by_weak_references(PyObject* object, bool callbacks_only) {
  PyTypeObject* type = Py_TYPE(object);
  // Negative from 3.12 on, where the list lies before the object.
  if (type->tp_weaklistoffset == 0) return false;
  auto* reference = *reinterpret_cast<PyWeakReference**>(
      reinterpret_cast<char*>(object) + type->tp_weaklistoffset);
  for (; reference; reference = reference->wr_next) {
    PyObject* callback = reference->wr_callback;
    if (callback ? !is_quiet_callback(callback) : !callbacks_only) return true;
  }
  return false;
}

// How often each object that has more than one holder was met.
class Meetings {
 public:
  Py_ssize_t add(PyObject* object) {
    for (size_t i = 0; i < count_; ++i) {
      if (few_[i].first == object) return ++few_[i].second;
    }
    if (count_ < few_.size()) {
      few_[count_++] = {object, 1};
      return 1;
    }
    return ++many_[object];
  }

 private:
  std::array<std::pair<PyObject*, Py_ssize_t>, 16> few_;
  size_t count_ = 0;
  std::unordered_map<PyObject*, Py_ssize_t> many_;
};

class Walk {
 public:
  // An object that goes. So does all that it alone holds, and what has several
  // holders of which each one goes.
  bool visit(PyObject* object) {
    if (++seen_ > kMaxObjects) return false;
    PyTypeObject* type = Py_TYPE(object);
    if (is_quiet_type(type)) return true;
    if (type->tp_finalize || type->tp_del) return false;
    // Classes, functions and modules are registered all over the place.
    bool is_code = PyType_Check(object) || PyFunction_Check(object) ||
                   PyModule_Check(object);
    bool tensor = is_tensor(object);
    if (is_seen_by_weak_references(object, is_code)) return false;
    if (PyType_Check(object) || PyModule_Check(object)) return true;
    if (tensor) {
      auto* beneath = tensor_layout()->visit_beneath;
      if (beneath && beneath(object, visit_held, this) != 0) return false;
    }
    if (!PyObject_IS_GC(object) || !type->tp_traverse) return true;
    return type->tp_traverse(object, visit_held, this) == 0;
  }

  bool visit_content(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    if (!PyObject_IS_GC(object) || !type->tp_traverse) return true;
    return type->tp_traverse(object, visit_item, this) == 0;
  }

 private:
  static int visit_held(PyObject* object, void* walk) {
    auto* self = static_cast<Walk*>(walk);
    if (++self->places_ > kMaxPlaces) return 1;
    PyTypeObject* type = Py_TYPE(object);
    if (is_quiet_type(type) || PyType_Check(object) || PyModule_Check(object))
      return 0;
    const Py_ssize_t holders = Py_REFCNT(object);
    if (holders != 1 && self->met_.add(object) != holders) return 0;
    return !self->visit(object);
  }
  static int visit_item(PyObject* object, void* walk) {
    return PyType_Check(object) ? 0 : !static_cast<Walk*>(walk)->visit(object);
  }

  int seen_ = 0, places_ = 0;
  Meetings met_;
};

// In the class's or the instance's dict, a member of __slots__, or a tensor's
// gradient.
PyObject* attribute_of(PyObject* object, PyObject* name) {
  PyObject* value = nullptr;
  if (PyType_Check(object)) {
    Ref dict = internals::own_dict(reinterpret_cast<PyTypeObject*>(object));
    const bool found =
        dict && dict_find(dict.get(), name, &value) == Lookup::kFound;
    return found ? value : nullptr;
  }
  if (is_tensor(object) && tensor_layout()->grad_object &&
      PyUnicode_Check(name) &&
      PyUnicode_CompareWithASCIIString(name, "grad") == 0)
    return tensor_layout()->grad_object(object);
  if (instance_find(object, name, &value) == Lookup::kFound) return value;
  PyObject* found = _PyType_Lookup(Py_TYPE(object), name);
  if (!found || !Py_IS_TYPE(found, &PyMemberDescr_Type)) return nullptr;
  PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(found)->d_member;
  if (member->type != T_OBJECT_EX) return nullptr;
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) +
                                       member->offset);
}

PyObject* item_of(PyObject* object, PyObject* key) {
  PyObject* value = nullptr;
  if (PyDict_Check(object)) {
    return dict_find(object, key, &value) == Lookup::kFound ? value : nullptr;
  }
  if (!PyList_Check(object) || !PyLong_Check(key)) return nullptr;
  Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index == -1 && PyErr_Occurred()) {
    drop_error();
    return nullptr;
  }
  if (index < 0) index += PyList_GET_SIZE(object);
  bool is_in = index >= 0 && index < PyList_GET_SIZE(object);
  return is_in ? PyList_GET_ITEM(object, index) : nullptr;
}

}  // namespace

bool is_quiet_type(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyUnicode_Type || type == &PyBytes_Type ||
         type == &PyBool_Type || type == Py_TYPE(Py_None);
}

bool lets_go_quietly(LetGo what, PyObject* object, PyObject* key) {
  PyObject* value = nullptr;
  switch (what) {
    case LetGo::kNothing:
      return true;
    case LetGo::kObject:
      value = object;
      break;
    case LetGo::kAttribute:
      value = attribute_of(object, key);
      break;
    case LetGo::kItem:
      value = item_of(object, key);
      break;
    case LetGo::kContent:
      return Walk().visit_content(object);
  }
  return !value || Walk().visit(value);
}

}  // namespace framejit
