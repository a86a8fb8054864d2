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
  const int64_t rank = unpack_tensor(tensor).dim();
  std::vector<std::pair<int64_t, PyObject*>> selected;  // dim, index
  std::vector<PyObject*> rest;
  int64_t dim = 0, behind = 0;  // the ellipsis
  bool has_ellipsis = false, has_new_dim = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (item == Py_Ellipsis && !has_ellipsis) {
      has_ellipsis = true;
    } else if (is_of_one_dim(item)) {
      // torch makes the new dim first, and its stride of what is there then.
      if (has_new_dim && is_symbolic_integer(item)) return SelectedItem();
      has_ellipsis ? ++behind : ++dim;
    } else if (item == Py_None) {
      has_new_dim = true;
    } else {
      return SelectedItem();
    }
  }
  if (dim + behind > rank) return SelectedItem();  // raises
  dim = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (is_symbolic_integer(item))
      selected.emplace_back(dim, item);
    else
      rest.push_back(item);
    if (item == Py_Ellipsis) dim = rank - behind;
    if (is_of_one_dim(item)) ++dim;
  }
  if (selected.empty() || is_of_subclass(tensor)) return SelectedItem();

  Ref select = Ref::steal(PyObject_GetAttrString(THPVariableClass, "select"));
  if (!select) return Result<SelectedItem>::raised();
  SelectedItem result{Ref::borrow(tensor), Ref()};
  // From the last dim on, so that those before keep their numbers.
  for (size_t i = selected.size(); i-- > 0;) {
    Ref number = Ref::steal(PyLong_FromLongLong(selected[i].first));
    if (!number) return Result<SelectedItem>::raised();
    FJ_TRY(result.tensor,
           recorder.record_call(
               select.get(),
               {result.tensor.get(), number.get(), selected[i].second}, nullptr,
               "select"));
  }
  if (rest.empty()) return result;
  result.index = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(rest.size())));
  if (!result.index) return Result<SelectedItem>::raised();
  for (size_t i = 0; i < rest.size(); ++i) {
    PyTuple_SET_ITEM(result.index.get(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(rest[i]));
  }
  return result;
}

}  // namespace framejit::graph
