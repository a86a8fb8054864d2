// CPython's dicts, instance attributes and tensors, read without running code.
//
// The one place that knows how dict keys, inline attribute values (3.11, 3.12
// and 3.13 differ) and TensorImpl fields lie in memory. Look-ups here never
// call user code: where an `__eq__` or `__hash__` of the user would have to
// decide, the answer is kUnknown and the guard fails.
#pragma once

#include <cstdint>

#include "frame_hook/py_ref.h"
#include "guards/set/guard_set.h"

namespace framejit {

// Head of a dict's key table (equal in 3.11, 3.12 and 3.13 with the GIL).
struct DictKeys {
  Py_ssize_t refcount;
  uint8_t log2_size;
  uint8_t log2_index_bytes;
  uint8_t kind;
  uint8_t padding;
  uint32_t version;
  Py_ssize_t usable;
  Py_ssize_t num_entries;
  // int8/16/32/64 indices[1 << log2_size], then the entries

  static constexpr uint8_t kGeneral = 0;  // entries {hash, key, value}
  static constexpr uint8_t kUnicode = 1;  // entries {key, value}, all str keys
  static constexpr uint8_t kSplit = 2;    // like kUnicode, values elsewhere

  size_t entry_size() const { return kind == kGeneral ? 24 : 16; }
  size_t entries_offset() const { return 32 + (size_t{1} << log2_index_bytes); }
  // Byte offset of the key pointer of an entry; the value pointer follows it.
  size_t key_offset(Py_ssize_t entry) const {
    return entries_offset() + entry_size() * static_cast<size_t>(entry) +
           (kind == kGeneral ? 8 : 0);
  }
  PyObject* key_at(Py_ssize_t entry) const {
    return *reinterpret_cast<PyObject* const*>(
        reinterpret_cast<const char*>(this) + key_offset(entry));
  }
  PyObject* value_at(Py_ssize_t entry) const {  // not for kSplit
    return *reinterpret_cast<PyObject* const*>(
        reinterpret_cast<const char*>(this) + key_offset(entry) + 8);
  }
  int64_t index_at(size_t slot) const;  // -1 empty, -2 dummy
};

inline const DictKeys* dict_keys(PyObject* dict) {
  return reinterpret_cast<const DictKeys*>(
      reinterpret_cast<PyDictObject*>(dict)->ma_keys);
}
// Value array of a split dict, or null.
PyObject** dict_split_values(PyObject* dict);
// The entry (not hash slot) of `key`, by identity or as equal str; -1: absent.
Py_ssize_t keys_find(const DictKeys* keys, PyObject* key);

enum class Lookup { kFound, kAbsent, kUnknown };

// dict.get(key) of dict and its subclasses, ignoring overrides. *value and
// *stored_key are borrowed.
Lookup dict_find(PyObject* dict, PyObject* key, PyObject** value,
                 PyObject** stored_key = nullptr);
// 1 equal, 0 not equal, -1: only user code could tell.
int safe_equal(PyObject* a, PyObject* b);

// Where an instance keeps its attributes: inline values with their keys, or a
// dict, or (both null) nowhere yet.
struct InstanceStorage {
  PyObject** values = nullptr;
  const DictKeys* keys = nullptr;
  PyObject* dict = nullptr;
};
InstanceStorage instance_storage(PyObject* object);
Lookup instance_find(PyObject* object, PyObject* name, PyObject** value);

// ---- byte offsets for the emitter, from the start of the object
// 3.11: pointer to the values, or null. 3.12: tagged word. 3.13: the `valid`
// byte of the inline values.
extern const int kInlineValuesOffset;
extern const int kManagedDictOffset;
constexpr int kDictKeysOffset = offsetof(PyDictObject, ma_keys);
constexpr int kDictValuesOffset = offsetof(PyDictObject, ma_values);
constexpr int kDictUsedOffset = offsetof(PyDictObject, ma_used);
// Changes with every store; unique among dicts. (3.13.0: not for stores to an
// object whose inline values the dict shares.)
extern const int kDictVersionOffset;
uint64_t dict_version(PyObject* dict);
// From the pointer in ma_values to the first value.
extern const int kSplitValuesOffset;

// ---- tensors
// Fields of a live tensor; `valid` false: no layout, no tensor, undefined.
struct TensorFields {
  bool valid = false;
  const char* impl = nullptr;
  const void* storage = nullptr;
  uint64_t key_set = 0;
  int16_t dtype = 0;
  int8_t device_type = 0;
  int8_t device_index = -1;
  bool requires_grad = false;
  bool has_forward_grad = false;
  int64_t storage_offset = 0;
  int64_t dim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
};
TensorFields tensor_fields(PyObject* object);
// True when the tensor's __dict__ has no entry (or there is none).
bool has_no_instance_attrs(PyObject* object);

}  // namespace framejit
