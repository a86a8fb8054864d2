#include "graph/tracing/tensor_constructors.h"

#include <torch/csrc/Size.h>

#include <string_view>

#include "frame_hook/native_stack.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tensors/torch_types.h"
#include "graph/tracing/number_tensors.h"

namespace framejit::graph {

namespace {

// torch.<name>(argument, dtype=..., device=..., [requires_grad=...])
Result<Ref> make(Recorder& recorder, const char* name, PyObject* argument,
                 PyObject* dtype, PyObject* device,
                 PyObject* requires_grad = nullptr) {
  FJ_TRY(Ref callable, torch_attribute(name));
  std::vector<PyObject*> args{argument, dtype, device};
  Ref names;
  if (requires_grad) {
    args.push_back(requires_grad);
    names =
        Ref::steal(Py_BuildValue("(sss)", "dtype", "device", "requires_grad"));
  } else {
    names = Ref::steal(Py_BuildValue("(ss)", "dtype", "device"));
  }
  if (!names) return Result<Ref>::raised();
  return recorder.record_call(callable.get(), args, names.get());
}

bool is_int(PyObject* object) {
  return PyLong_CheckExact(object) || is_symbolic_object(object);
}

bool is_size(PyObject* object) { return THPSize_Check(object); }

bool are_numbers(PyObject* data) {
  if (PyBool_Check(data) || PyLong_CheckExact(data) || PyFloat_CheckExact(data))
    return true;
  if (!PyList_CheckExact(data) && !PyTuple_CheckExact(data)) return false;
  if (native_stack_low()) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data); ++i) {
    if (!are_numbers(PySequence_Fast_GET_ITEM(data, i))) return false;
  }
  return true;
}

Result<Ref> legacy_call(Recorder& recorder,
                        const std::vector<PyObject*>& arguments,
                        PyObject* kwnames, PyObject* dtype, PyObject* device) {
  if (kwnames && PyTuple_GET_SIZE(kwnames) > 0)
    return unsupported(recorder, "a legacy tensor constructor with keywords");
  bool sizes = true;
  for (PyObject* argument : arguments) sizes = sizes && is_int(argument);
  if (sizes) {
    Ref list = Ref::steal(PyList_New(0));
    if (!list) return Result<Ref>::raised();
    for (PyObject* argument : arguments) {
      if (PyList_Append(list.get(), argument) < 0) return Result<Ref>::raised();
    }
    // torch.Tensor() has no element, torch.empty([]) has one.
    if (arguments.empty()) {
      Ref zero = Ref::steal(PyLong_FromLong(0));
      if (!zero || PyList_Append(list.get(), zero.get()) < 0)
        return Result<Ref>::raised();
    }
    return make(recorder, "empty", list.get(), dtype, device);
  }
  if (arguments.size() != 1)
    return unsupported(recorder, "a legacy tensor constructor");
  PyObject* data = arguments[0];
  if (is_size(data)) return make(recorder, "empty", data, dtype, device);
  if ((PyList_CheckExact(data) || PyTuple_CheckExact(data)) &&
      are_numbers(data)) {
    return make(recorder, "tensor", data, dtype, device);
  }
  return unsupported(recorder, "a legacy tensor constructor of an object");
}

struct Options {
  Ref dtype, device;
};

Result<Options> options_of(PyObject* tensor) {
  Options options;
  options.dtype = Ref::steal(PyObject_GetAttrString(tensor, "dtype"));
  options.device = Ref::steal(PyObject_GetAttrString(tensor, "device"));
  if (!options.dtype || !options.device) return Result<Options>::raised();
  return options;
}

}  // namespace

bool is_tensor_type(PyObject* callable) {
  return callable == THPVariableClass || is_legacy_tensor_type(callable);
}

Result<Ref> call_tensor_type(Recorder& recorder, PyObject* type,
                             const std::vector<PyObject*>& args,
                             PyObject* kwnames) {
  Options options;
  if (type == THPVariableClass) {
    // What torch.set_default_dtype says now, which is guarded.
    FJ_TRY(Ref getter, torch_attribute("get_default_dtype"));
    options.dtype = Ref::steal(PyObject_CallNoArgs(getter.get()));
    FJ_TRY(Ref device, torch_attribute("device"));
    options.device =
        Ref::steal(PyObject_CallFunction(device.get(), "s", "cpu"));
  } else {
    options.dtype = Ref::steal(PyObject_GetAttrString(type, "dtype"));
    Ref is_cuda = Ref::steal(PyObject_GetAttrString(type, "is_cuda"));
    Ref is_sparse = Ref::steal(PyObject_GetAttrString(type, "is_sparse"));
    if (!is_cuda || !is_sparse) return Result<Ref>::raised();
    if (is_cuda.get() == Py_True || is_sparse.get() == Py_True)
      return unsupported(recorder, "a legacy tensor type of a device");
    FJ_TRY(Ref device, torch_attribute("device"));
    options.device =
        Ref::steal(PyObject_CallFunction(device.get(), "s", "cpu"));
  }
  if (!options.dtype || !options.device) return Result<Ref>::raised();
  return legacy_call(recorder, args, kwnames, options.dtype.get(),
                     options.device.get());
}

Result<Ref> call_new(Recorder& recorder, const std::vector<PyObject*>& args,
                     PyObject* kwnames) {
  FJ_TRY(Options options, options_of(args[0]));
  return legacy_call(recorder, {args.begin() + 1, args.end()}, kwnames,
                     options.dtype.get(), options.device.get());
}

Result<Ref> call_new_tensor(Recorder& recorder,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  size_t positional = args.size() - keywords;
  FJ_TRY(Options options, options_of(args[0]));
  PyObject* data = positional > 1 ? args[1] : nullptr;
  PyObject* requires_grad = Py_False;
  if (positional > 2) return unsupported(recorder, "torch.Tensor.new_tensor");
  for (size_t i = 0; i < keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    PyObject* value = args[positional + i];
    auto is = [&](const char* text) {
      return PyUnicode_CompareWithASCIIString(name, text) == 0;
    };
    if (is("data")) {
      data = value;
    } else if (is("dtype")) {
      if (value != Py_None) options.dtype = Ref::borrow(value);
    } else if (is("device")) {
      if (value != Py_None) options.device = Ref::borrow(value);
    } else if (is("requires_grad")) {
      requires_grad = value;
    } else {
      return unsupported(recorder, "torch.Tensor.new_tensor");
    }
  }
  if (data && requires_grad == Py_False && has_symbols(data)) {
    return tensor_of_symbols(recorder, data, options.dtype.get(),
                             options.device.get());
  }
  if (!data || !are_numbers(data))
    return unsupported(recorder, "torch.Tensor.new_tensor");
  return make(recorder, "tensor", data, options.dtype.get(),
              options.device.get(), requires_grad);
}

Result<Ref> call_one_hot(Recorder& recorder, const std::vector<PyObject*>& args,
                         PyObject* kwnames) {
  if (kwnames && PyTuple_GET_SIZE(kwnames) == 1 && args.size() == 2 &&
      PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0),
                                       "num_classes") == 0) {
    kwnames = nullptr;
  }
  bool plain = !kwnames && args.size() == 2 && PyLong_CheckExact(args[1]) &&
               is_tensor_object(args[0]);
  if (!plain || PyLong_AsLong(args[1]) <= 0) {
    PyErr_Clear();
    return Ref();
  }
  PyObject* index = args[0];
  if (unpack_tensor(index).scalar_type() != at::kLong) return Ref();
  Ref shape = Ref::steal(PyObject_GetAttrString(index, "shape"));
  Ref sizes = Ref::steal(shape ? PySequence_List(shape.get()) : nullptr);
  FJ_TRY(Options options, options_of(index));
  if (!sizes || PyList_Append(sizes.get(), args[1]) < 0)
    return Result<Ref>::raised();
  FJ_TRY(Ref zeros, make(recorder, "zeros", sizes.get(), options.dtype.get(),
                         options.device.get()));
  Ref last = Ref::steal(PyLong_FromLong(-1));
  Ref one = Ref::steal(PyLong_FromLong(1));
  auto method = [](PyObject* tensor, const char* name) {
    return from_api(PyObject_GetAttrString(
        reinterpret_cast<PyObject*>(Py_TYPE(tensor)), name));
  };
  FJ_TRY(Ref unsqueeze, method(index, "unsqueeze"));
  FJ_TRY(Ref scatter, method(zeros.get(), "scatter_"));
  FJ_TRY(Ref column, recorder.record_call(unsqueeze.get(), {index, last.get()},
                                          nullptr, "unsqueeze"));
  return recorder.record_call(
      scatter.get(), {zeros.get(), last.get(), column.get(), one.get()},
      nullptr, "scatter_");
}

Result<bool> is_instance_of_type(PyObject* stand_in, PyObject* type) {
  if (!is_legacy_tensor_type(type)) {
    int yes = PyObject_IsInstance(stand_in, type);
    if (yes < 0) return Result<bool>::raised();
    return yes == 1;
  }
  // The type's own check asks for a dispatch key, which is ours here.
  Ref own = Ref::steal(PyObject_CallMethod(stand_in, "type", nullptr));
  Ref module = Ref::steal(PyObject_GetAttrString(type, "__module__"));
  Ref name = Ref::steal(PyObject_GetAttrString(type, "__name__"));
  if (!own || !module || !name) return Result<bool>::raised();
  Ref wanted =
      Ref::steal(PyUnicode_FromFormat("%U.%U", module.get(), name.get()));
  if (!wanted) return Result<bool>::raised();
  return PyUnicode_Compare(own.get(), wanted.get()) == 0;
}

}  // namespace framejit::graph
