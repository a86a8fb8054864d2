#include "graph/tensors/sym_objects.h"

#include <c10/core/SymBool.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "graph/tensors/sym_node.h"

namespace framejit::graph {

bool is_symbolic_object(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return type == torch::get_symint_class().ptr() ||
         type == torch::get_symbool_class().ptr() ||
         type == torch::get_symfloat_class().ptr();
}

PyTypeObject* plain_type_of(PyObject* symbolic) {
  py::handle handle(symbolic);
  return torch::is_symint(handle)    ? &PyLong_Type
         : torch::is_symbool(handle) ? &PyBool_Type
                                     : &PyFloat_Type;
}

Ref sym_int_object(const c10::SymInt& value) {
  return Ref::steal(py::cast(value).release().ptr());
}

Ref sym_number_object(const Expr& expr) {
  if (!expr.is_float()) return sym_int_object(to_sym_int(expr));
  if (expr.is_float_const()) return Ref::steal(PyFloat_FromDouble(expr.real()));
  // (torch's own conversion knows only nodes written in Python.)
  py::object node = py::cast(to_sym_float(expr).toSymNodeImpl());
  return Ref::steal(torch::get_symfloat_class()(node).release().ptr());
}

bool is_sym_float(PyObject* object) {
  return torch::is_symfloat(py::handle(object));
}

std::optional<c10::SymInt> sym_int_of(PyObject* object) {
  py::handle handle(object);
  if (!torch::is_symint(handle)) return std::nullopt;
  return handle.cast<c10::SymInt>();
}

c10::SymNode node_of(PyObject* symbolic) {
  py::handle handle(symbolic);
  if (torch::is_symint(handle)) {
    auto value = handle.cast<c10::SymInt>();
    return value.is_symbolic() ? value.toSymNode() : c10::SymNode();
  }
  if (torch::is_symbool(handle)) {
    auto value = handle.cast<c10::SymBool>();
    return value.is_heap_allocated() ? value.toSymNodeImpl() : c10::SymNode();
  }
  if (torch::is_symfloat(handle)) {
    auto value = handle.cast<c10::SymFloat>();
    return value.is_symbolic() ? value.toSymNodeImpl() : c10::SymNode();
  }
  return {};
}

std::optional<Expr> expr_of(PyObject* symbolic) {
  c10::SymNode node = node_of(symbolic);
  return node ? to_expr(node) : std::nullopt;
}

Result<Ref> concrete_value(PyObject* symbolic) {
  c10::SymNode node = node_of(symbolic);
  py::handle handle(symbolic);
  if (torch::is_symint(handle)) {
    int64_t value = node ? node->guard_int(__FILE__, __LINE__)
                         : handle.cast<c10::SymInt>().expect_int();
    return from_api(PyLong_FromLongLong(value));
  }
  if (torch::is_symbool(handle)) {
    bool value = node ? node->guard_bool(__FILE__, __LINE__)
                      : handle.cast<c10::SymBool>().expect_bool();
    return from_api(PyBool_FromLong(value));
  }
  double value = node ? node->guard_float(__FILE__, __LINE__)
                      : handle.cast<c10::SymFloat>().expect_float();
  return from_api(PyFloat_FromDouble(value));
}

}  // namespace framejit::graph
