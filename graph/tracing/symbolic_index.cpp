#include "graph/tracing/symbolic_index.h"

#include <torch/csrc/autograd/python_variable.h>

#include <optional>

#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/tensor_classes.h"

namespace framejit::graph {

namespace {

bool is_symbolic_integer(PyObject* item) {
  std::optional<c10::SymInt> value = sym_int_of(item);
  return value && !value->maybe_as_int();
}

// An item that goes along one dim.
bool is_of_one_dim(PyObject* item) {
  return PyLong_CheckExact(item) || PySlice_Check(item) ||
         is_symbolic_integer(item);
}

}  // namespace

Result<SelectedItem> select_symbolic_items(Recorder& recorder, PyObject* tensor,
                                           PyObject* index) {
  const bool is_tuple = PyTuple_CheckExact(index);
  Ref items =
      is_tuple ? Ref::borrow(index) : Ref::steal(PyTuple_Pack(1, index));
  if (!items) return Result<SelectedItem>::raised();
  const Py_ssize_t size = PyTuple_GET_SIZE(items.get());
  int64_t specified = 0;
  Py_ssize_t last = -1;  // symbolic integer
  bool has_ellipsis = false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (is_symbolic_integer(item)) last = i;
    if (is_of_one_dim(item)) {
      ++specified;
    } else if (item == Py_Ellipsis && !has_ellipsis) {
      has_ellipsis = true;
    } else if (item != Py_None) {
      return SelectedItem();
    }
  }
  const int64_t between = unpack_tensor(tensor).dim() - specified;
  if (between < 0) return SelectedItem();  // raises
  if (last < 0 || is_of_subclass(tensor)) return SelectedItem();

  SelectedItem result{Ref::borrow(tensor), Ref()};
  auto record = [&](const char* method, int64_t dim,
                    PyObject* number) -> Status {
    Ref callee = Ref::steal(PyObject_GetAttrString(THPVariableClass, method));
    Ref place = Ref::steal(PyLong_FromLongLong(dim));
    if (!callee || !place) return Status::raised();
    std::vector<PyObject*> args{result.tensor.get(), place.get()};
    if (number) args.push_back(number);
    FJ_TRY(result.tensor,
           recorder.record_call(callee.get(), args, nullptr, method));
    return ok_status();
  };
  Ref whole = Ref::steal(PySlice_New(nullptr, nullptr, nullptr));
  if (!whole) return Result<SelectedItem>::raised();
  std::vector<PyObject*> rest;
  bool is_done = true;
  int64_t dim = 0;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (is_symbolic_integer(item)) {
      FJ_CHECK_OK(record("select", dim, item));
      continue;
    }
    if (item == Py_None && i < last) {
      FJ_CHECK_OK(record("unsqueeze", dim, nullptr));
      item = whole.get();
    } else {
      is_done = false;
    }
    rest.push_back(item);
    dim += item == Py_Ellipsis ? between : 1;
  }
  if (is_done) return result;
  result.index = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(rest.size())));
  if (!result.index) return Result<SelectedItem>::raised();
  for (size_t i = 0; i < rest.size(); ++i) {
    PyTuple_SET_ITEM(result.index.get(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(rest[i]));
  }
  return result;
}

}  // namespace framejit::graph
