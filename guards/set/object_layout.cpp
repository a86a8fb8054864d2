#include "guards/set/object_layout.h"

#include <cstring>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"

namespace framejit {
namespace {

template <class T>
T load(const void* base, ptrdiff_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof(T));
  return value;
}

// Comparison slots that are C code and look at nothing but the two values.
bool has_native_compare(PyObject* object) {
  richcmpfunc compare = Py_TYPE(object)->tp_richcompare;
  return compare == PyBaseObject_Type.tp_richcompare ||
         compare == PyUnicode_Type.tp_richcompare ||
         compare == PyLong_Type.tp_richcompare ||
         compare == PyFloat_Type.tp_richcompare ||
         compare == PyComplex_Type.tp_richcompare ||
         compare == PyBytes_Type.tp_richcompare ||
         compare == PyCFunction_Type.tp_richcompare ||
         compare == internals::method_wrapper_type()->tp_richcompare ||
         compare == PyType_Type.tp_richcompare;
}

}  // namespace

int64_t DictKeys::index_at(size_t slot) const {
  const char* indices = reinterpret_cast<const char*>(this) + 32;
  switch (log2_index_bytes - log2_size) {
    case 0:
      return load<int8_t>(indices, slot);
    case 1:
      return load<int16_t>(indices, slot * 2);
    case 2:
      return load<int32_t>(indices, slot * 4);
    default:
      return load<int64_t>(indices, slot * 8);
  }
}

PyObject** dict_split_values(PyObject* dict) {
  auto* values = reinterpret_cast<PyDictObject*>(dict)->ma_values;
  if (!values) return nullptr;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(values) +
                                      kSplitValuesOffset);
}

Py_ssize_t keys_find(const DictKeys* keys, PyObject* key) {
  for (Py_ssize_t i = 0; i < keys->num_entries; ++i) {
    if (keys->key_at(i) == key) return i;
  }
  if (keys->kind == DictKeys::kGeneral || !PyUnicode_CheckExact(key)) return -1;
  for (Py_ssize_t i = 0; i < keys->num_entries; ++i) {
    PyObject* other = keys->key_at(i);
    if (other && PyUnicode_GET_LENGTH(other) == PyUnicode_GET_LENGTH(key) &&
        PyUnicode_Compare(other, key) == 0)
      return i;
  }
  return -1;
}

int safe_equal(PyObject* a, PyObject* b) {
  if (a == b) return 1;
  if (PyTuple_CheckExact(a) && PyTuple_CheckExact(b)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return 0;
    if (native_stack_low()) return -1;
    int result = 1;
    for (Py_ssize_t i = 0; result == 1 && i < PyTuple_GET_SIZE(a); ++i)
      result = safe_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    return result;
  }
  // A tuple never equals an object that compares natively.
  bool a_tuple = PyTuple_CheckExact(a), b_tuple = PyTuple_CheckExact(b);
  if ((a_tuple || has_native_compare(a)) &&
      (b_tuple || has_native_compare(b))) {
    if (a_tuple || b_tuple) return 0;
    int result = PyObject_RichCompareBool(a, b, Py_EQ);
    if (result < 0) drop_error();
    return result;
  }
  if (Py_TYPE(a) == Py_TYPE(b) && is_foreign_constant(a) &&
      is_foreign_constant(b)) {
    int result = PyObject_RichCompareBool(a, b, Py_EQ);
    if (result < 0) drop_error();
    return result;
  }
  return -1;
}

namespace {

// Tensors, too: their own __hash__ is id().
bool is_hashed_by_address(PyObject* key) {
  if (Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash) {
    return Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  }
  const TensorLayout* layout = tensor_layout();
  if (!layout || !layout->is_tensor || !layout->is_tensor(key)) return false;
  // A class derived from it may have another one.
  static PyObject* name = PyUnicode_InternFromString("__hash__");
  PyObject* hash = _PyType_Lookup(Py_TYPE(key), name);
  return !hash || !PyFunction_Check(hash) || hash == layout->hash_function;
}

}  // namespace

Lookup dict_find(PyObject* dict, PyObject* key, PyObject** value,
                 PyObject** stored_key) {
  const DictKeys* keys = dict_keys(dict);
  PyObject** split = dict_split_values(dict);
  bool unknown = false;
  auto found = [&](Py_ssize_t entry) {
    *value = split ? split[entry] : keys->value_at(entry);
    if (stored_key) *stored_key = keys->key_at(entry);
    return *value ? Lookup::kFound : Lookup::kAbsent;
  };
  if (keys->kind != DictKeys::kGeneral && PyUnicode_CheckExact(key) &&
      !stored_key) {
    // All keys are exact str: CPython's own look-up runs no user code.
    *value = PyDict_GetItemWithError(dict, key);
    if (*value) return Lookup::kFound;
    if (!PyErr_Occurred()) return Lookup::kAbsent;
    drop_error();
    return Lookup::kUnknown;
  }
  for (Py_ssize_t i = 0; i < keys->num_entries; ++i) {
    if (keys->key_at(i) == key) return found(i);
  }
  // What is hashed by its address equals nothing else.
  if (is_hashed_by_address(key)) return Lookup::kAbsent;
  for (Py_ssize_t i = 0; i < keys->num_entries; ++i) {
    PyObject* other = keys->key_at(i);
    if (!other || is_hashed_by_address(other)) continue;
    int equal = safe_equal(other, key);
    if (equal == 1) return found(i);
    if (equal < 0) unknown = true;
  }
  return unknown ? Lookup::kUnknown : Lookup::kAbsent;
}

// Deprecated since 3.12 and there until 3.13.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
const int kDictVersionOffset = offsetof(PyDictObject, ma_version_tag);
#pragma GCC diagnostic pop
uint64_t dict_version(PyObject* dict) {
  return load<uint64_t>(dict, kDictVersionOffset);
}

// ---- instances

#if PY_VERSION_HEX < 0x030C0000
const int kInlineValuesOffset = -4 * static_cast<int>(sizeof(void*));
#elif PY_VERSION_HEX < 0x030D0000
const int kInlineValuesOffset = -3 * static_cast<int>(sizeof(void*));
#else
// The values follow the object's head: capacity, size, embedded, valid bytes.
const int kInlineValuesOffset = static_cast<int>(sizeof(PyObject)) + 3;
#endif
const int kManagedDictOffset = -3 * static_cast<int>(sizeof(void*));
#if PY_VERSION_HEX < 0x030D0000
const int kSplitValuesOffset = 0;
#else
const int kSplitValuesOffset = static_cast<int>(sizeof(void*));
#endif

InstanceStorage instance_storage(PyObject* object) {
  InstanceStorage storage;
  PyTypeObject* type = Py_TYPE(object);
  if (!(type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) {
    if (type->tp_dictoffset == 0) return storage;
    PyObject** slot =
        type->tp_dictoffset > 0
            ? reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) +
                                           type->tp_dictoffset)
            : _PyObject_GetDictPtr(object);
    if (slot) storage.dict = *slot;
    return storage;
  }
  auto* keys = reinterpret_cast<const DictKeys*>(
      reinterpret_cast<PyHeapTypeObject*>(type)->ht_cached_keys);
#if PY_VERSION_HEX < 0x030C0000
  storage.values = load<PyObject**>(object, kInlineValuesOffset);
  storage.dict = load<PyObject*>(object, kManagedDictOffset);
#elif PY_VERSION_HEX < 0x030D0000
  uintptr_t word = load<uintptr_t>(object, kInlineValuesOffset);
  if (word & 1) {
    storage.values = reinterpret_cast<PyObject**>(word + 1);
  } else {
    storage.dict = reinterpret_cast<PyObject*>(word);
  }
#else
  storage.dict = load<PyObject*>(object, kManagedDictOffset);
  if ((type->tp_flags & Py_TPFLAGS_INLINE_VALUES) &&
      load<uint8_t>(object, kInlineValuesOffset)) {
    storage.values = reinterpret_cast<PyObject**>(
        reinterpret_cast<char*>(object) + sizeof(PyObject) + sizeof(void*));
  }
#endif
  if (storage.values) storage.keys = keys;
  return storage;
}

Lookup instance_find(PyObject* object, PyObject* name, PyObject** value) {
  InstanceStorage storage = instance_storage(object);
  if (storage.values) {
    Py_ssize_t entry = storage.keys ? keys_find(storage.keys, name) : -1;
    *value = entry < 0 ? nullptr : storage.values[entry];
    return *value ? Lookup::kFound : Lookup::kAbsent;
  }
  if (!storage.dict) return Lookup::kAbsent;
  if (!PyDict_Check(storage.dict)) return Lookup::kUnknown;
  return dict_find(storage.dict, name, value);
}

bool has_no_instance_attrs(PyObject* object) {
  InstanceStorage storage = instance_storage(object);
  if (storage.values && storage.keys) {
    for (Py_ssize_t i = 0; i < storage.keys->num_entries; ++i) {
      if (storage.values[i]) return false;
    }
    return true;
  }
  return !storage.dict ||
         (PyDict_Check(storage.dict) && PyDict_GET_SIZE(storage.dict) == 0);
}

// ---- tensors

TensorFields tensor_fields(PyObject* object) {
  TensorFields fields;
  const TensorLayout* layout = tensor_layout();
  if (!layout || !layout->is_tensor || !layout->is_tensor(object))
    return fields;
  const char* impl = load<const char*>(object, layout->tensor_impl);
  if (!impl) return fields;
  fields.impl = impl;
  fields.storage = load<const void*>(impl, layout->storage);
  fields.key_set = load<uint64_t>(impl, layout->key_set);
  fields.dtype = load<int16_t>(impl, layout->data_type);
  // std::optional<Device>: two bytes and whether they are there.
  if (!load<uint8_t>(impl, layout->device + 2)) return fields;
  fields.device_type = load<int8_t>(impl, layout->device);
  fields.device_index = load<int8_t>(impl, layout->device + 1);
  const char* autograd = load<const char*>(impl, layout->autograd_meta);
  fields.requires_grad =
      autograd &&
      (load<uint8_t>(autograd, layout->requires_grad) ||
       load<const void*>(autograd, layout->grad_fn) ||
       (layout->is_view >= 0 && load<uint8_t>(autograd, layout->is_view) &&
        layout->view_requires_grad(impl)));
  fields.has_forward_grad = autograd && layout->forward_grad >= 0 &&
                            load<const void*>(autograd, layout->forward_grad) &&
                            layout->in_forward_mode();
  fields.storage_offset = load<int64_t>(impl, layout->storage_offset);
  // c10::impl::SizesAndStrides: the dim, then inline arrays or one pointer.
  const char* shape = impl + layout->sizes_and_strides;
  fields.dim = load<int64_t>(shape, 0);
  if (fields.dim <= layout->storage_inline_dims) {
    fields.sizes = reinterpret_cast<const int64_t*>(shape + 8);
    fields.strides = fields.sizes + layout->storage_inline_dims;
  } else {
    fields.sizes = load<const int64_t*>(shape, 8);
    fields.strides = fields.sizes + fields.dim;
  }
  fields.valid = true;
  return fields;
}

}  // namespace framejit
