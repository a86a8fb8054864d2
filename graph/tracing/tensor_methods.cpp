#include "graph/tracing/tensor_methods.h"

#include "frame_hook/cpython_internals.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {

namespace {

// Of C: what `function` says of a method, and any special method.
bool is_written_in_c(PyObject* found, const PyMethodDef* function) {
  if (Py_IS_TYPE(found, &PyMethodDescr_Type))
    return !function ||
           reinterpret_cast<PyMethodDescrObject*>(found)->d_method == function;
  return !function && Py_IS_TYPE(found, &PyWrapperDescr_Type);
}

// The first class of the tensor's that has it as a method of C.
Status find_descriptor(TensorMethod* method, const PyMethodDef* function) {
  Ref name = Ref::steal(PyUnicode_FromStringAndSize(
      method->name.data(), static_cast<Py_ssize_t>(method->name.size())));
  if (!name) return Status::raised();
  PyObject* classes = Py_TYPE(method->self.get())->tp_mro;
  method->is_found_by_name = true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(classes, i));
    Ref names = internals::own_dict(type);
    PyObject* found =
        names ? PyDict_GetItemWithError(names.get(), name.get()) : nullptr;
    if (!found) {
      if (PyErr_Occurred()) return Status::raised();
      continue;
    }
    if (is_written_in_c(found, function)) {
      method->descriptor = Ref::borrow(found);
      return ok_status();
    }
    method->is_found_by_name = false;
  }
  PyErr_SetObject(PyExc_AttributeError, name.get());
  return Status::raised();
}

}  // namespace

Result<TensorMethod> method_of(PyObject* callable,
                               const std::vector<PyObject*>& args) {
  TensorMethod method;
  const PyMethodDef* function = nullptr;
  PyObject* self = nullptr;
  Ref of_wrapper;
  if (PyCFunction_Check(callable)) {
    self = PyCFunction_GET_SELF(callable);
    if (!self || !is_tensor_object(self)) return method;
    function = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    method.name = function->ml_name;
  } else if (Py_IS_TYPE(callable, internals::method_wrapper_type())) {
    of_wrapper = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
    Ref name = Ref::steal(PyObject_GetAttrString(callable, "__name__"));
    if (!of_wrapper || !name) return Result<TensorMethod>::raised();
    self = of_wrapper.get();
    if (!is_tensor_object(self)) return method;
    const char* text = PyUnicode_AsUTF8(name.get());
    if (!text) return Result<TensorMethod>::raised();
    method.name = text;
  } else if (Py_IS_TYPE(callable, &PyMethodDescr_Type) && !args.empty() &&
             is_tensor_object(args[0])) {
    function = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
    method.name = function->ml_name;
    self = args[0];
  } else {
    return method;
  }
  method.self = Ref::borrow(self);
  if (!Py_IS_TYPE(callable, &PyMethodDescr_Type)) method.args.push_back(self);
  method.args.insert(method.args.end(), args.begin(), args.end());
  FJ_CHECK_OK(find_descriptor(&method, function));
  return method;
}

Result<TensorMethod> tensor_method(PyObject* self, const char* name) {
  TensorMethod method;
  method.name = name;
  method.self = Ref::borrow(self);
  FJ_CHECK_OK(find_descriptor(&method, nullptr));
  return method;
}

}  // namespace framejit::graph
