#include "bytecode/code_extra.h"

#include <new>

#include "bytecode/residual_cache.h"

namespace framejit::bytecode {
namespace {

void free_extra(void* data) { delete static_cast<CodeExtra*>(data); }

Py_ssize_t extra_index() {
#if PY_VERSION_HEX >= 0x030C0000
  static const Py_ssize_t index =
      PyUnstable_Eval_RequestCodeExtraIndex(free_extra);
#else
  static const Py_ssize_t index = _PyEval_RequestCodeExtraIndex(free_extra);
#endif
  return index;
}

int get_extra(PyObject* code, void** data) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Code_GetExtra(code, extra_index(), data);
#else
  return _PyCode_GetExtra(code, extra_index(), data);
#endif
}

int set_extra(PyObject* code, void* data) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Code_SetExtra(code, extra_index(), data);
#else
  return _PyCode_SetExtra(code, extra_index(), data);
#endif
}

}  // namespace

CodeExtra::CodeExtra() = default;
CodeExtra::~CodeExtra() {
  if (residual) residual->owner = nullptr;
}

CodeExtra* code_extra(PyObject* code) {
  if (!PyCode_Check(code) || extra_index() < 0) return nullptr;
  void* data = nullptr;
  if (get_extra(code, &data) < 0) {
    PyErr_Clear();
    return nullptr;
  }
  if (data) return static_cast<CodeExtra*>(data);
  auto* extra = new (std::nothrow) CodeExtra;
  if (!extra) return nullptr;
  if (set_extra(code, extra) < 0) {
    PyErr_Clear();
    delete extra;
    return nullptr;
  }
  return extra;
}

}  // namespace framejit::bytecode
