// Symbolic numbers of the fake library: fake.SymInt, and what a tracer makes of
// operations on them.
#include "fake_tracer.h"
#include "guards/set/number_expr.h"

namespace framejit::fake {
namespace {

Ref operator_function(const char* name) {
  Ref module = Ref::steal(PyImport_ImportModule("operator"));
  return module ? Ref::steal(PyObject_GetAttrString(module.get(), name))
                : nullptr;
}
PyObject* sym_operate(const char* name, std::vector<PyObject*> operands) {
  Ref function = operator_function(name);
  return function ? trace_operation(function.get(), operands) : nullptr;
}
PyObject* sym_add(PyObject* a, PyObject* b) {
  return sym_operate("add", {a, b});
}
PyObject* sym_sub(PyObject* a, PyObject* b) {
  return sym_operate("sub", {a, b});
}
PyObject* sym_mul(PyObject* a, PyObject* b) {
  return sym_operate("mul", {a, b});
}
PyObject* sym_floordiv(PyObject* a, PyObject* b) {
  return sym_operate("floordiv", {a, b});
}
PyObject* sym_mod(PyObject* a, PyObject* b) {
  return sym_operate("mod", {a, b});
}
PyObject* sym_truediv(PyObject* a, PyObject* b) {
  return sym_operate("truediv", {a, b});
}
PyObject* sym_neg(PyObject* a) { return sym_operate("neg", {a}); }
PyObject* sym_compare(PyObject* a, PyObject* b, int op) {
  static const char* const kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  return sym_operate(kNames[op], {a, b});
}
int sym_truth(PyObject* self) {
  bool value;
  return sym_bool(self, &value) ? value : -1;
}
PyObject* sym_index(PyObject* self) { return sym_int(self); }
void sym_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<SymObject*>(self)->expr;
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* sym_repr(PyObject* self) {
  return PyUnicode_FromString(
      reinterpret_cast<SymObject*>(self)->expr->str().c_str());
}

}  // namespace

PyTypeObject* make_sym_type() {
  PyType_Slot slots[] = {{Py_nb_add, slot(sym_add)},
                         {Py_nb_subtract, slot(sym_sub)},
                         {Py_nb_multiply, slot(sym_mul)},
                         {Py_nb_floor_divide, slot(sym_floordiv)},
                         {Py_nb_remainder, slot(sym_mod)},
                         {Py_nb_true_divide, slot(sym_truediv)},
                         {Py_nb_negative, slot(sym_neg)},
                         {Py_nb_bool, slot(sym_truth)},
                         {Py_nb_index, slot(sym_index)},
                         {Py_nb_int, slot(sym_index)},
                         {Py_tp_richcompare, slot(sym_compare)},
                         {Py_tp_repr, slot(sym_repr)},
                         {Py_tp_dealloc, slot(sym_dealloc)},
                         {0, nullptr}};
  PyType_Spec spec = {"fake.SymInt", sizeof(SymObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

// ---- the tracer on symbolic values

Ref FakeTracer::make_sym(const Expr& expr, PyTypeObject* stands_for) {
  Ref object = Ref::steal(g_sym_int->tp_alloc(g_sym_int, 0));
  if (!object) return object;
  auto* sym = reinterpret_cast<SymObject*>(object.get());
  sym->expr = new Expr(expr);
  sym->stands_for = stands_for;
  return object;
}

Result<Ref> FakeTracer::make_symbolic(const Expr& expr) {
  if (expr.is_const()) return from_api(PyLong_FromLongLong(expr.constant()));
  if (expr.is_float_const()) return from_api(PyFloat_FromDouble(expr.real()));
  Ref sym = make_sym(expr, expr.is_boolean() ? &PyBool_Type
                           : expr.is_float() ? &PyFloat_Type
                                             : &PyLong_Type);
  if (!sym) return Result<Ref>::raised();
  return sym;
}

std::optional<Expr> FakeTracer::expr_of(PyObject* object) {
  if (!is_sym(object)) return std::nullopt;
  return expr_in(object);
}

PyObject* FakeTracer::symbolic_type(PyObject* object) {
  return reinterpret_cast<PyObject*>(
      reinterpret_cast<SymObject*>(object)->stands_for);
}

Result<Ref> FakeTracer::concretise(PyObject* object) {
  const Expr& expr = expr_in(object);
  int64_t value = hint(expr);
  if (reinterpret_cast<SymObject*>(object)->stands_for == &PyBool_Type) {
    guards_->add_expr(value ? expr : expr_not(expr));
    return from_api(PyBool_FromLong(value));
  }
  if (expr.is_float())
    return from_api(PyFloat_FromDouble(pin_float(expr, guards_)));
  guards_->add_expr(expr_eq(expr, Expr(value)));
  return from_api(PyLong_FromLongLong(value));
}

Result<Ref> FakeTracer::sym_operate(const std::string& name, PyObject* function,
                                    const std::vector<PyObject*>& operands) {
  struct Row {
    const char* name;
    Expr (*make)(const Expr&, const Expr&);
    bool boolean;
  };
  static const Row kRows[] = {
      {"add", [](const Expr& a, const Expr& b) { return a + b; }, false},
      {"sub", [](const Expr& a, const Expr& b) { return a - b; }, false},
      {"mul", [](const Expr& a, const Expr& b) { return a * b; }, false},
      {"neg", [](const Expr& a, const Expr&) { return Expr(0) - a; }, false},
      {"floordiv", floor_div, false},
      {"mod", mod, false},
      {"eq", expr_eq, true},
      {"ne",
       [](const Expr& a, const Expr& b) { return expr_not(expr_eq(a, b)); },
       true},
      {"lt", expr_lt, true},
      {"le", expr_le, true},
      {"gt", [](const Expr& a, const Expr& b) { return expr_lt(b, a); }, true},
      {"ge", [](const Expr& a, const Expr& b) { return expr_le(b, a); }, true}};
  std::vector<Expr> exprs;
  bool floats = name == "truediv" || name == "trunc" || name == "sqrt";
  for (PyObject* operand : operands) {
    auto expr = is_sym(operand) ? expr_in(operand) : number_expr(operand);
    floats = floats || (expr && expr->is_float());
    if (expr) exprs.push_back(*std::move(expr));
  }
  if (floats && exprs.size() == operands.size()) {
    PyTypeObject* type = nullptr;
    auto result = operate_on_floats(name, function, exprs, guards_, &type);
    if (result && type == &PyBool_Type)
      return from_api(PyBool_FromLong(result->constant()));
    if (result) return make_symbolic(*result);
  }
  exprs.clear();
  for (PyObject* operand : operands) {
    int overflow = 0;
    if (is_sym(operand)) {
      exprs.push_back(expr_in(operand));
    } else if (PyLong_Check(operand)) {
      exprs.push_back(Expr(PyLong_AsLongLongAndOverflow(operand, &overflow)));
      if (overflow) break;
    }
  }
  for (const Row& row : kRows) {
    std::string plain =
        name.size() > 1 && name[0] == 'i' ? name.substr(1) : name;
    if ((name != row.name && plain != row.name) ||
        exprs.size() != operands.size())
      continue;
    Expr right = exprs.size() > 1 ? exprs[1] : Expr(0);
    bool divides = name == "floordiv" || name == "mod";
    if (divides && hint(right) == 0) break;  // concretise; Python raises
    if (divides && !right.is_const())
      guards_->add_expr(expr_not(expr_eq(right, Expr(0))));
    Expr result = row.make(exprs[0], right);
    if (result.is_const() && row.boolean)
      return from_api(PyBool_FromLong(result.constant()));
    return make_symbolic(result);
  }
  // No expression for it: specialise and let Python compute.
  std::vector<Ref> values;
  std::vector<PyObject*> raw;
  for (PyObject* operand : operands) {
    if (is_sym(operand)) {
      FJ_TRY(Ref value, concretise(operand));
      values.push_back(value);
    } else {
      values.push_back(Ref::borrow(operand));
    }
    raw.push_back(values.back().get());
  }
  return from_api(
      PyObject_Vectorcall(function, raw.data(), raw.size(), nullptr));
}

}  // namespace framejit::fake
