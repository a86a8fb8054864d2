#include "guards/set/iterators.h"

#include <cstring>

#include "frame_hook/interjections.h"

namespace framejit {
namespace {

// The heads of CPython's iterator objects (Objects/*.c), 3.11 to 3.13.
struct SequenceIterator {  // list, reversed list, tuple
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;
};
struct DictIterator {
  PyObject_HEAD PyObject* dict;
  Py_ssize_t used;
  Py_ssize_t position;
  PyObject* result;
  Py_ssize_t length;  // items it means to give yet
};
struct RangeIterator {
  PyObject_HEAD
#if PY_VERSION_HEX < 0x030C0000
      long index;
  long start;
#else
      long start;
#endif
  long step;
  long length;
};
struct EnumerateIterator {
  PyObject_HEAD Py_ssize_t index;
  PyObject* iterator;
  PyObject* result;
  PyObject* long_index;
};
struct ZipIterator {
  PyObject_HEAD Py_ssize_t size;
  PyObject* iterators;
  PyObject* result;
  int strict;
};
struct MapIterator {
  PyObject_HEAD PyObject* iterators;
  PyObject* function;
};
struct FilterIterator {
  PyObject_HEAD PyObject* function;
  PyObject* iterator;
};

template <class T>
T* as(PyObject* object) {
  return reinterpret_cast<T*>(object);
}

// tuple_iterator has no name in the C API.
PyTypeObject* tuple_iterator_type() {
  static PyTypeObject* type = made_once([] {
    Ref empty = Ref::steal(PyTuple_New(0));
    Ref iterator = empty ? Ref::steal(PyObject_GetIter(empty.get())) : nullptr;
    if (!iterator) drop_error();
    return iterator ? Py_TYPE(iterator.get()) : nullptr;
  });
  return type;
}

bool next_entry(PyObject* iterator, int64_t ahead, PyObject** key,
                PyObject** value) {
  auto* entries = as<DictIterator>(iterator);
  if (!entries->dict || !PyDict_Check(entries->dict) ||
      PyODict_Check(entries->dict) ||
      entries->used != PyDict_GET_SIZE(entries->dict))
    return false;
  Py_ssize_t position = entries->position;
  for (int64_t i = 0; i <= ahead; ++i) {
    if (!PyDict_Next(entries->dict, &position, key, value)) return false;
  }
  return true;
}

}  // namespace

IteratorLayout iterator_layout(PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyListIter_Type) return IteratorLayout::kList;
  if (type == &PyListRevIter_Type) return IteratorLayout::kReversed;
  if (type == tuple_iterator_type()) return IteratorLayout::kTuple;
  if (type == &PyRangeIter_Type) return IteratorLayout::kRange;
  if (type == &PyDictIterKey_Type || type == &PyDictIterValue_Type ||
      type == &PyDictIterItem_Type)
    return IteratorLayout::kDict;
  if (type == &PyEnum_Type) return IteratorLayout::kEnumerate;
  if (type == &PyZip_Type) return IteratorLayout::kZip;
  if (type == &PyMap_Type) return IteratorLayout::kMap;
  if (type == &PyFilter_Type) return IteratorLayout::kFilter;
  return IteratorLayout::kNone;
}

PyObject* iterator_part(PyObject* iterator, int64_t index) {
  auto item = [](PyObject* tuple, int64_t i) -> PyObject* {
    if (!tuple || !PyTuple_Check(tuple) || i < 0 ||
        i >= PyTuple_GET_SIZE(tuple))
      return nullptr;
    return PyTuple_GET_ITEM(tuple, i);
  };
  switch (iterator_layout(iterator)) {
    case IteratorLayout::kList:
    case IteratorLayout::kReversed:
      return index == 0 ? as<SequenceIterator>(iterator)->sequence : nullptr;
    case IteratorLayout::kDict:
      return index == 0 ? as<DictIterator>(iterator)->dict : nullptr;
    case IteratorLayout::kEnumerate:
      return index == 0 ? as<EnumerateIterator>(iterator)->iterator : nullptr;
    case IteratorLayout::kZip:
      return item(as<ZipIterator>(iterator)->iterators, index);
    case IteratorLayout::kMap:
      if (index == 0) return as<MapIterator>(iterator)->function;
      return item(as<MapIterator>(iterator)->iterators, index - 1);
    case IteratorLayout::kFilter:
      if (index > 1) return nullptr;
      return index == 0 ? as<FilterIterator>(iterator)->function
                        : as<FilterIterator>(iterator)->iterator;
    default:
      return nullptr;
  }
}

int64_t iterator_left(PyObject* iterator) {
  switch (iterator_layout(iterator)) {
    case IteratorLayout::kList: {
      auto* it = as<SequenceIterator>(iterator);
      if (!it->sequence) return 0;
      Py_ssize_t left = PyList_GET_SIZE(it->sequence) - it->index;
      return left > 0 ? left : 0;
    }
    case IteratorLayout::kReversed: {
      auto* it = as<SequenceIterator>(iterator);
      if (!it->sequence || it->index < 0 ||
          it->index >= PyList_GET_SIZE(it->sequence))
        return 0;
      return it->index + 1;
    }
    case IteratorLayout::kTuple: {
      auto* it = as<SequenceIterator>(iterator);
      return it->sequence ? PyTuple_GET_SIZE(it->sequence) - it->index : 0;
    }
    case IteratorLayout::kRange: {
      auto* it = as<RangeIterator>(iterator);
#if PY_VERSION_HEX < 0x030C0000
      return it->length - it->index;
#else
      return it->length;
#endif
    }
    case IteratorLayout::kDict: {
      auto* it = as<DictIterator>(iterator);
      if (!it->dict) return 0;
      if (it->used != PyDict_GET_SIZE(it->dict) || PyODict_Check(it->dict))
        return -1;
      int64_t left = 0;
      PyObject *key, *value;
      Py_ssize_t position = it->position;
      while (PyDict_Next(it->dict, &position, &key, &value)) ++left;
      // Keys came and went since it was made: in the end it raises.
      return left > it->length ? -1 : left;
    }
    default:
      return -1;
  }
}

PyObject* iterator_item(PyObject* iterator, int64_t ahead, int which) {
  IteratorLayout layout = iterator_layout(iterator);
  if (layout == IteratorLayout::kDict) {
    PyObject *key, *value;
    if (!next_entry(iterator, ahead, &key, &value)) return nullptr;
    return which == 0 ? key : value;
  }
  if (ahead < 0 || ahead >= iterator_left(iterator)) return nullptr;
  auto* it = as<SequenceIterator>(iterator);
  switch (layout) {
    case IteratorLayout::kList:
      return PyList_GET_ITEM(it->sequence, it->index + ahead);
    case IteratorLayout::kReversed:
      return PyList_GET_ITEM(it->sequence, it->index - ahead);
    case IteratorLayout::kTuple:
      return PyTuple_GET_ITEM(it->sequence, it->index + ahead);
    default:
      return nullptr;
  }
}

bool iterator_number(PyObject* iterator, int64_t ahead, int64_t* out) {
  switch (iterator_layout(iterator)) {
    case IteratorLayout::kRange: {
      if (ahead < 0 || ahead >= iterator_left(iterator)) return false;
      auto* it = as<RangeIterator>(iterator);
      int64_t steps = ahead;
#if PY_VERSION_HEX < 0x030C0000
      steps += it->index;
#endif
      *out = it->start + steps * it->step;
      return true;
    }
    case IteratorLayout::kEnumerate: {
      auto* it = as<EnumerateIterator>(iterator);
      if (it->index > PY_SSIZE_T_MAX - ahead - 1) return false;
      *out = it->index + ahead;
      return true;
    }
    default:
      return false;
  }
}

bool is_strict_zip(PyObject* iterator) {
  return iterator_layout(iterator) == IteratorLayout::kZip &&
         as<ZipIterator>(iterator)->strict != 0;
}

}  // namespace framejit
