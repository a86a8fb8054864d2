#include "framejit/csrc/other_compilers.h"

#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"

namespace framejit {
namespace {

PyObject* get_callback = nullptr;  // of Dynamo, for this thread

bool dynamo_is_active() {
  ErrorGuard error;
  Ref callback = Ref::steal(PyObject_CallNoArgs(get_callback));
  if (!callback) drop_error();
  return callback && callback.get() != Py_None;
}

}  // namespace

bool watch_other_compilers() {
  if (get_callback) return true;
  Ref torch = Ref::steal(PyImport_ImportModule("torch._C"));
  for (const char* part :
       {"_dynamo", "eval_frame", "get_eval_frame_callback"}) {
    if (torch) torch = Ref::steal(PyObject_GetAttrString(torch.get(), part));
  }
  if (!torch) return false;
  get_callback = torch.release();
  set_other_compiler(dynamo_is_active);
  return true;
}

bool belongs_to_other_compiler(PyObject* function) {
  PyObject* marks = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  // functools.wraps copies the marks; this one says whose they are.
  PyObject* id =
      marks ? PyDict_GetItemString(marks, "_torchdynamo_wrapper_id") : nullptr;
  return id && PyLong_Check(id) && PyLong_AsVoidPtr(id) == function;
}

}  // namespace framejit
