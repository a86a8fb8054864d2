#include "bytecode/code/code_extra.h"

#include <new>

#include "frame_hook/cpython_internals.h"

namespace framejit::bytecode {
namespace {

void free_extra(void* data) { delete static_cast<TableRegistry*>(data); }

Py_ssize_t extra_index() {
  static const Py_ssize_t index =
      internals::request_code_extra_index(free_extra);
  return index;
}

}  // namespace

TableRegistry* code_extra(PyObject* code) {
  if (!PyCode_Check(code) || extra_index() < 0) return nullptr;
  void* data = internals::code_extra(code, extra_index());
  if (data) return static_cast<TableRegistry*>(data);
  auto* extra = new (std::nothrow) TableRegistry;
  if (!extra) return nullptr;
  if (!internals::set_code_extra(code, extra_index(), extra)) {
    PyErr_Clear();
    delete extra;
    return nullptr;
  }
  return extra;
}

}  // namespace framejit::bytecode
