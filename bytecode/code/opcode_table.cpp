#include "bytecode/code/opcode_table.h"

#include <climits>
#include <cstring>

namespace framejit::bytecode {
namespace {

constexpr int kOpen = INT_MAX;
constexpr OpcodeRow kRows[] = {
#define FJ_OPCODE(name, first, last, lowering, kind, extra) \
  {#name, first, last, Lowering::lowering, MicroOpKind::k##kind, extra},
#include "bytecode/code/opcodes.def"
#undef FJ_OPCODE
};

// Inline cache units: a list by number up to 3.12, a dict by name from 3.13 on.
int read_caches(PyObject* entries, const char* name, int number) {
  PyObject* item = nullptr;
  if (PyList_Check(entries)) {
    if (number < PyList_GET_SIZE(entries))
      item = PyList_GET_ITEM(entries, number);
  } else if (PyDict_Check(entries)) {
    item = PyDict_GetItemString(entries, name);
  }
  long count = item ? PyLong_AsLong(item) : 0;
  if (count < 0) PyErr_Clear();
  return count < 0 ? 0 : static_cast<int>(count);
}

}  // namespace

OpcodeTable::OpcodeTable() {
  ErrorGuard keep_error;
  Ref module = Ref::steal(PyImport_ImportModule("opcode"));
  Ref numbers, caches;
  if (module) {
    numbers = Ref::steal(PyObject_GetAttrString(module.get(), "opmap"));
    caches = Ref::steal(
        PyObject_GetAttrString(module.get(), "_inline_cache_entries"));
  }
  if (!numbers || !caches || !PyDict_Check(numbers.get())) {
    PyErr_Clear();
    return;
  }
  for (const OpcodeRow& row : kRows) {
    if (PY_MINOR_VERSION < row.first || PY_MINOR_VERSION > row.last) continue;
    PyObject* item = PyDict_GetItemString(numbers.get(), row.name);
    long number = item ? PyLong_AsLong(item) : -1;
    if (number < 0 || number >= 256) continue;
    infos_[number].row = &row;
    infos_[number].caches = read_caches(caches.get(), row.name, number);
  }
  PyErr_Clear();
  extended_arg_ = number("EXTENDED_ARG");
  kw_names_ = number("KW_NAMES");
}

int OpcodeTable::number(const char* name) const {
  for (int i = 0; i < 256; ++i)
    if (infos_[i].row && std::strcmp(infos_[i].row->name, name) == 0) return i;
  return -1;
}

const OpcodeTable& opcode_table() {
  static const OpcodeTable table;
  return table;
}

}  // namespace framejit::bytecode
