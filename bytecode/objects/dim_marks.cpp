#include "bytecode/objects/dim_marks.h"

#include <limits>
#include <string_view>

#include "bytecode/library/library.h"

namespace framejit::bytecode {
namespace {

// A dim as a bit; negative ones count from the end and have none.
uint64_t bit_of(PyObject* index, int* dim) {
  if (!PyLong_CheckExact(index)) return 0;
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(index, &overflow);
  if (overflow || number < 0 || number >= 64) return 0;
  *dim = int(number);
  return uint64_t{1} << number;
}

int64_t bound(PyObject* object, int64_t otherwise) {
  if (!PyLong_CheckExact(object)) return otherwise;
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow ? otherwise : number;
}

// {dim: (kind, min, max)} of sizes or of strides, made by framejit/_dims.py.
void read_own(PyObject* dims, bool of_strides, DimMarks* marks) {
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dims, &position, &key, &value)) {
    int dim = 0;
    uint64_t bit = bit_of(key, &dim);
    if (!bit || !PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) != 3 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(value, 0))) {
      continue;
    }
    const char* kind = PyUnicode_AsUTF8(PyTuple_GET_ITEM(value, 0));
    if (!kind) continue;
    if (std::string_view(kind) == "dynamic") {
      (of_strides ? marks->dynamic_strides : marks->dynamic) |= bit;
      int64_t low = bound(PyTuple_GET_ITEM(value, 1), 0);
      int64_t high = bound(PyTuple_GET_ITEM(value, 2),
                           std::numeric_limits<int64_t>::max());
      marks->ranges.push_back({dim, of_strides, low, high});
    } else if (std::string_view(kind) == "static") {
      (of_strides ? marks->fixed_strides : marks->fixed) |= bit;
    } else if (!of_strides) {
      marks->maybe |= bit;
    }
  }
}

uint64_t read_set(PyObject* dict, PyObject* name) {
  PyObject* set = PyDict_GetItemWithError(dict, name);
  if (!set || !PySet_CheckExact(set)) return 0;
  uint64_t bits = 0;
  int dim = 0;
  // An exact set: iterating runs no code of the program.
  Ref iterator = Ref::steal(PyObject_GetIter(set));
  while (Ref item =
             Ref::steal(iterator ? PyIter_Next(iterator.get()) : nullptr))
    bits |= bit_of(item.get(), &dim);
  PyErr_Clear();
  return bits;
}

}  // namespace

DimMarks read_dim_marks(PyObject* tensor) {
  DimMarks marks;
  PyObject** where = _PyObject_GetDictPtr(tensor);
  if (!where || !*where || !PyDict_CheckExact(*where) ||
      PyDict_GET_SIZE(*where) == 0) {
    return marks;
  }
  ErrorGuard error;
  Ref dict = Ref::borrow(*where);
  for (bool of_strides : {false, true}) {
    PyObject* own = PyDict_GetItemString(
        dict.get(), of_strides ? "_framejit_strides" : "_framejit_dims");
    if (own && PyDict_CheckExact(own)) read_own(own, of_strides, &marks);
  }
  for (const DimMark& mark : dim_mark_rows()) {
    uint64_t bits = read_set(dict.get(), mark.name);
    switch (mark.kind) {
      case DimMarkRow::Kind::kDynamic:
        marks.dynamic |= bits;
        break;
      case DimMarkRow::Kind::kMaybeDynamic:
        marks.maybe |= bits;
        break;
      case DimMarkRow::Kind::kStatic:
        marks.fixed |= bits;
        break;
    }
  }
  PyErr_Clear();
  return marks;
}

}  // namespace framejit::bytecode
