#include "graph/tracing/number_operations.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {

namespace {

bool is_of_module(PyObject* function, const char* module) {
  if (!PyCFunction_Check(function)) return false;
  PyObject* name = reinterpret_cast<PyCFunctionObject*>(function)->m_module;
  return name && PyUnicode_Check(name) &&
         PyUnicode_CompareWithASCIIString(name, module) == 0;
}

// A float among the operands, or as the result; empty: none.
Result<Ref> operate_with_floats(Recorder& recorder, PyObject* function,
                                std::string_view name,
                                const std::vector<PyObject*>& operands) {
  std::vector<Expr> exprs;
  bool floats = name == "truediv" || !is_of_module(function, "_operator");
  bool numbers = true;
  for (PyObject* operand : operands) {
    auto expr =
        is_symbolic_object(operand) ? expr_of(operand) : number_expr(operand);
    floats = floats || PyFloat_Check(operand) || is_sym_float(operand);
    numbers = numbers && expr && !(expr->is_boolean() && !expr->is_const());
    if (expr) exprs.push_back(*std::move(expr));
  }
  if (!floats) return Ref();
  PyTypeObject* type = nullptr;
  std::optional<Expr> result;
  if (numbers)
    result = operate_on_floats(name, function, exprs, recorder.guards(), &type);
  if (result && type == &PyBool_Type)
    return Ref::borrow(result->is_const(0) ? Py_False : Py_True);
  if (result) return sym_number_object(*result);
  // The numbers themselves, and what Python says to them.
  std::vector<Ref> values;
  std::vector<PyObject*> args;
  for (PyObject* operand : operands) {
    Ref value = Ref::borrow(operand);
    if (is_symbolic_object(operand)) {
      FJ_TRY(value, concrete_value(operand));
    }
    args.push_back(value.get());
    values.push_back(std::move(value));
  }
  return from_api(
      PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
}

bool may_grow(const char* name) {
  static const char* const kGrowing[] = {"add",  "iadd", "sub",  "isub", "mul",
                                         "imul", "pow",  "ipow", "neg"};
  return std::any_of(std::begin(kGrowing), std::end(kGrowing),
                     [&](const char* row) { return !std::strcmp(name, row); });
}

// What Python says to the integers as they are now; empty: not integers.
Result<Ref> value_now(PyObject* function,
                      const std::vector<PyObject*>& operands) {
  std::vector<Ref> values;
  std::vector<PyObject*> args;
  for (PyObject* operand : operands) {
    Ref value = Ref::borrow(operand);
    if (std::optional<c10::SymInt> symbolic = sym_int_of(operand)) {
      value = Ref::steal(PyLong_FromLongLong(hint_of(*symbolic)));
      if (!value) return Result<Ref>::raised();
    }
    if (!PyLong_Check(value.get())) return Ref();
    args.push_back(value.get());
    values.push_back(std::move(value));
  }
  Ref result = Ref::steal(
      PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
  if (!result) PyErr_Clear();
  return result && PyLong_Check(result.get()) ? std::move(result) : Ref();
}

bool is_large(PyObject* number) {
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow || value > kLargestInteger || value < -kLargestInteger;
}

void keep_within_64_bits(const Recorder& recorder, PyObject* result) {
  std::optional<c10::SymInt> number = sym_int_of(result);
  if (!number || !number->is_symbolic()) return;
  std::optional<Expr> expr = to_expr(number->toSymNode());
  if (expr) keep_within(kLargestInteger, *expr, recorder.guards());
}

}  // namespace

Result<Ref> operate_on_numbers(Recorder& recorder, PyObject* function,
                               std::vector<PyObject*> operands) {
  const char* name =
      PyCFunction_Check(function)
          ? reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name
          : "";
  auto is = [&](const char* row) { return !std::strcmp(name, row); };
  if (is("abs") && operands.size() == 1 && sym_int_of(operands[0])) {
    // The sign is a guard, the size stays symbolic.
    c10::SymInt value = *sym_int_of(operands[0]);
    if (value.sym_ge(0).guard_bool(__FILE__, __LINE__)) {
      return Ref::borrow(operands[0]);
    }
    Ref size = sym_int_object(-value);
    if (!size) return Result<Ref>::raised();
    keep_within_64_bits(recorder, size.get());
    return size;
  }
  FJ_TRY(Ref number, operate_with_floats(recorder, function, name, operands));
  if (number) return number;
  static const char* const kNoExpression[] = {
      "and_",   "iand",    "or_", "ior",    "xor",
      "ixor",   "invert",  "inv", "lshift", "ilshift",
      "rshift", "irshift", "abs", "matmul", "imatmul"};
  bool is_concrete =
      std::any_of(std::begin(kNoExpression), std::end(kNoExpression), is);
  if (is("floordiv") || is("ifloordiv") || is("mod") || is("imod")) {
    // The least integer by -1, and what has more than 64 bits.
    is_concrete |= std::ranges::any_of(operands, [](PyObject* operand) {
      return PyLong_CheckExact(operand) && is_large(operand);
    });
  }
  std::vector<Ref> concrete;
  if (is_concrete) {
    for (PyObject*& operand : operands) {
      if (!is_symbolic_object(operand)) continue;
      FJ_TRY(Ref value, concrete_value(operand));
      operand = value.get();
      concrete.push_back(std::move(value));
    }
  }
  if (!may_grow(name)) {
    return recorder.run_unrecorded(function, operands, nullptr);
  }
  FJ_TRY(Ref value, value_now(function, operands));
  if (value && is_large(value.get())) {
    for (PyObject* operand : operands) {
      if (is_symbolic_object(operand)) FJ_CHECK_OK(concrete_value(operand));
    }
    return value;
  }
  FJ_TRY(Ref result, recorder.run_unrecorded(function, operands, nullptr));
  keep_within_64_bits(recorder, result.get());
  return result;
}

}  // namespace framejit::graph
