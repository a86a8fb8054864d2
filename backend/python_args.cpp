#include "backend/python_args.h"

#include "graph/ir/python_args.h"
#include "guards/set/number_expr.h"

namespace framejit::backend {

using graph::Arg;

namespace {

Result<PyArg> constant(PyObject* object) {
  if (!object) return Result<PyArg>::raised();
  PyArg arg;
  arg.constant = Ref::steal(object);
  return arg;
}

// The container's items; an immutable container of constants becomes one.
Result<PyArg> container(PyArg::Kind kind, std::vector<PyArg> items) {
  PyArg arg;
  arg.kind = kind;
  bool all_constant = true;
  for (const PyArg& item : items) {
    all_constant &= item.kind == PyArg::Kind::kConstant;
  }
  arg.items = std::move(items);
  if (!all_constant ||
      (kind != PyArg::Kind::kTuple && kind != PyArg::Kind::kSlice)) {
    return arg;
  }
  return constant(build_py_arg(arg, nullptr, nullptr));
}

Result<std::vector<PyArg>> convert(const std::vector<Arg>& args,
                                   const RegisterMap& registers) {
  std::vector<PyArg> items;
  for (const Arg& arg : args) {
    FJ_TRY(PyArg item, make_py_arg(arg, registers));
    items.push_back(std::move(item));
  }
  return items;
}

Result<PyArg> expr_arg(const Expr& expr) {
  if (!expr.uses_symbols()) return constant(number_object(expr, nullptr));
  PyArg arg;
  arg.kind = PyArg::Kind::kExpr;
  arg.expr = expr;
  return arg;
}

Result<PyArg> value_arg(const graph::Value* value,
                        const RegisterMap& registers) {
  auto found = registers.find(value);
  if (found != registers.end()) {
    PyArg arg;
    arg.kind = PyArg::Kind::kRegister;
    arg.reg = found->second;
    return arg;
  }
  FJ_CHECK(value->kind == graph::Value::Kind::kInt);
  return expr_arg(value->expr);
}

}  // namespace

Result<PyArg> make_py_arg(const Arg& arg, const RegisterMap& registers) {
  if (arg.is<graph::Value*>()) {
    return value_arg(arg.get<graph::Value*>(), registers);
  }
  if (arg.is<Expr>()) return expr_arg(arg.get<Expr>());
  if (arg.is<Arg::List>()) {
    FJ_TRY(auto items, convert(arg.get<Arg::List>().items, registers));
    return container(PyArg::Kind::kList, std::move(items));
  }
  if (arg.is<Arg::Tuple>()) {
    FJ_TRY(auto items, convert(arg.get<Arg::Tuple>().items, registers));
    return container(PyArg::Kind::kTuple, std::move(items));
  }
  if (arg.is<Arg::Dict>()) {
    std::vector<Arg> flat;
    for (const auto& [key, value] : arg.get<Arg::Dict>().items) {
      flat.push_back(key);
      flat.push_back(value);
    }
    FJ_TRY(auto items, convert(flat, registers));
    return container(PyArg::Kind::kDict, std::move(items));
  }
  if (arg.is<std::shared_ptr<Arg::Slice>>()) {
    const auto& slice = *arg.get<std::shared_ptr<Arg::Slice>>();
    FJ_TRY(auto items,
           convert({slice.start, slice.stop, slice.step}, registers));
    return container(PyArg::Kind::kSlice, std::move(items));
  }
  return constant(
      graph::to_python(arg, nullptr, static_cast<const int64_t*>(nullptr))
          .release());
}

PyObject* build_py_arg(const PyArg& arg, PyObject* const* registers,
                       const int64_t* symbols) {
  auto item = [&](size_t i) {
    return build_py_arg(arg.items[i], registers, symbols);
  };
  switch (arg.kind) {
    case PyArg::Kind::kConstant:
      return arg.constant.new_reference();
    case PyArg::Kind::kRegister:
      return Py_NewRef(registers[arg.reg]);
    case PyArg::Kind::kExpr:
      return number_object(arg.expr, symbols);
    case PyArg::Kind::kList:
    case PyArg::Kind::kTuple: {
      bool list = arg.kind == PyArg::Kind::kList;
      Py_ssize_t size = static_cast<Py_ssize_t>(arg.items.size());
      Ref result = Ref::steal(list ? PyList_New(size) : PyTuple_New(size));
      if (!result) return nullptr;
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* object = item(i);
        if (!object) return nullptr;
        if (list) {
          PyList_SET_ITEM(result.get(), i, object);
        } else {
          PyTuple_SET_ITEM(result.get(), i, object);
        }
      }
      return result.release();
    }
    case PyArg::Kind::kDict: {
      Ref result = Ref::steal(PyDict_New());
      if (!result) return nullptr;
      for (size_t i = 0; i + 1 < arg.items.size(); i += 2) {
        Ref key = Ref::steal(item(i));
        if (!key) return nullptr;
        Ref value = Ref::steal(item(i + 1));
        if (!value) return nullptr;
        if (PyDict_SetItem(result.get(), key.get(), value.get()) < 0) {
          return nullptr;
        }
      }
      return result.release();
    }
    case PyArg::Kind::kSlice: {
      Ref start = Ref::steal(item(0));
      Ref stop = start ? Ref::steal(item(1)) : Ref();
      Ref step = stop ? Ref::steal(item(2)) : Ref();
      if (!step) return nullptr;
      return PySlice_New(start.get(), stop.get(), step.get());
    }
  }
  return nullptr;
}

}  // namespace framejit::backend
