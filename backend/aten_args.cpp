#include "backend/aten_args.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::backend {

using graph::Arg;

namespace {

Break mismatch(const c10::Argument& argument, const std::string& why) {
  return Break{BreakReason::kBackendFailed,
               "argument " + argument.name() + ": " + why,
               {}};
}

at::Tensor wrapped_number(const c10::Scalar& scalar) {
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

class Converter {
 public:
  Converter(const c10::Argument& argument, const RegisterIndex& registers)
      : argument_(argument), registers_(registers) {}

  Result<AtenArg> convert(const Arg& arg, const c10::TypePtr& declared) {
    c10::TypePtr type = declared;
    if (type->kind() == c10::TypeKind::OptionalType) {
      if (arg.is<Arg::None>()) return constant(c10::IValue());
      type = type->castRaw<c10::OptionalType>()->getElementType();
    }
    if (arg.is<Arg::None>()) {
      // An absent tensor is an undefined tensor.
      if (type->kind() == c10::TypeKind::TensorType) {
        return constant(c10::IValue(at::Tensor()));
      }
      return constant(c10::IValue());
    }
    if (arg.is<Arg::List>()) return list(arg.get<Arg::List>().items, type);
    if (arg.is<Arg::Tuple>()) return list(arg.get<Arg::Tuple>().items, type);
    if (arg.is<graph::Value*>()) return value(arg.get<graph::Value*>(), type);
    if (arg.is<Expr>()) return expr(arg.get<Expr>(), type);
    // int[2] accepts one number for all.
    if (type->kind() == c10::TypeKind::ListType) {
      size_t count = std::max<int>(1, argument_.N().value_or(1));
      return list(std::vector<Arg>(count, arg), type);
    }
    return scalar(arg, type);
  }

 private:
  Result<AtenArg> constant(c10::IValue value) {
    AtenArg result;
    result.constant = std::move(value);
    return result;
  }

  Result<AtenArg> value(const graph::Value* value, const c10::TypePtr& type) {
    auto found = registers_.find(value);
    if (found != registers_.end()) {
      AtenArg result;
      result.kind = AtenArg::Kind::kRegister;
      result.reg = found->second;
      return result;
    }
    if (value->kind != graph::Value::Kind::kInt) {
      return mismatch(argument_, "value without a register");
    }
    return expr(value->expr, type);
  }

  Result<AtenArg> expr(const Expr& expr, const c10::TypePtr& type) {
    bool tensor = type->kind() == c10::TypeKind::TensorType;
    if (type->kind() == c10::TypeKind::ListType) {
      return list({Arg(expr)}, type);
    }
    if (expr.is_const() && type->kind() != c10::TypeKind::FloatType) {
      return tensor ? constant(wrapped_number(expr.constant()))
                    : constant(expr.constant());
    }
    bool wants_float = type->kind() == c10::TypeKind::FloatType;
    if (wants_float && !expr.is_float()) {
      return mismatch(argument_, "symbolic int where a float is expected");
    }
    if (expr.is_float() && !wants_float && !tensor &&
        type->kind() != c10::TypeKind::NumberType) {
      return mismatch(argument_, "symbolic float where an int is expected");
    }
    AtenArg result;
    result.kind = tensor ? AtenArg::Kind::kExprAsTensor : AtenArg::Kind::kExpr;
    result.expr = expr;
    return result;
  }

  Result<AtenArg> list(const std::vector<Arg>& items,
                       const c10::TypePtr& type) {
    const auto* list_type = type->castRaw<c10::ListType>();
    if (!list_type) return mismatch(argument_, "unexpected list");
    AtenArg result;
    result.kind = AtenArg::Kind::kList;
    result.element_type = list_type->getElementType();
    if (result.element_type->kind() == c10::TypeKind::SymIntType) {
      result.element_type = c10::IntType::get();
    }
    bool all_constant = true;
    for (const Arg& item : items) {
      FJ_TRY(AtenArg converted, convert(item, list_type->getElementType()));
      all_constant &= converted.kind == AtenArg::Kind::kConstant;
      result.items.push_back(std::move(converted));
    }
    if (!all_constant) return result;
    return constant(build_aten_arg(result, nullptr, nullptr));
  }

  Result<AtenArg> scalar(const Arg& arg, const c10::TypePtr& type) {
    if (arg.is<std::string>()) return constant(arg.get<std::string>());
    if (arg.is<c10::Device>()) return constant(arg.get<c10::Device>());
    if (arg.is<c10::ScalarType>()) {
      return constant(static_cast<int64_t>(arg.get<c10::ScalarType>()));
    }
    if (arg.is<c10::Layout>()) {
      return constant(static_cast<int64_t>(arg.get<c10::Layout>()));
    }
    if (arg.is<c10::MemoryFormat>()) {
      return constant(static_cast<int64_t>(arg.get<c10::MemoryFormat>()));
    }
    if (arg.is<Ref>()) {
      PyObject* object = arg.get<Ref>().get();
      if (!graph::is_tensor_object(object)) {
        return mismatch(argument_, "opaque Python object");
      }
      return constant(graph::unpack_tensor(object));
    }
    c10::Scalar number;
    if (arg.is<bool>()) {
      number = arg.get<bool>();
    } else if (arg.is<int64_t>()) {
      number = arg.get<int64_t>();
    } else if (arg.is<double>()) {
      number = arg.get<double>();
    } else if (arg.is<c10::complex<double>>()) {
      number = arg.get<c10::complex<double>>();
    } else {
      return mismatch(argument_, "constant of an unexpected kind");
    }
    switch (type->kind()) {
      case c10::TypeKind::TensorType:
        return constant(wrapped_number(number));
      case c10::TypeKind::FloatType:
        return constant(number.toDouble());
      case c10::TypeKind::BoolType:
        return constant(number.toBool());
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        if (!number.isIntegral(true)) break;
        return constant(number.toLong());
      default:
        return constant(c10::IValue(number));
    }
    return mismatch(argument_, "float where an int is expected");
  }

  const c10::Argument& argument_;
  const RegisterIndex& registers_;
};

}  // namespace

Result<std::vector<AtenArg>> make_aten_args(const c10::FunctionSchema& schema,
                                            const std::vector<Arg>& args,
                                            const RegisterIndex& registers) {
  const auto& declared = schema.arguments();
  std::vector<AtenArg> result;
  if (args.size() > declared.size()) {
    return Break{BreakReason::kBackendFailed,
                 "too many arguments for " + schema.name(),
                 {}};
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    if (i < args.size()) {
      Converter converter(declared[i], registers);
      // real_type: ScalarType, Layout and the like are ints to a kernel, and
      // SymInt stays SymInt.
      FJ_TRY(AtenArg arg, converter.convert(args[i], declared[i].real_type()));
      result.push_back(std::move(arg));
      continue;
    }
    if (!declared[i].default_value()) {
      return mismatch(declared[i], "missing for " + schema.name());
    }
    AtenArg arg;
    arg.constant = *declared[i].default_value();
    result.push_back(std::move(arg));
  }
  return result;
}

c10::IValue build_aten_arg(const AtenArg& arg, c10::IValue* registers,
                           const int64_t* symbols) {
  switch (arg.kind) {
    case AtenArg::Kind::kConstant:
      return arg.constant;
    case AtenArg::Kind::kRegister:
      return registers[arg.reg];
    case AtenArg::Kind::kMoveRegister:
      return std::move(registers[arg.reg]);
    case AtenArg::Kind::kExpr:
      if (arg.expr.is_float()) return arg.expr.evaluate_float(symbols);
      return arg.expr.evaluate(symbols);
    case AtenArg::Kind::kExprAsTensor:
      return arg.expr.is_float()
                 ? wrapped_number(arg.expr.evaluate_float(symbols))
                 : wrapped_number(arg.expr.evaluate(symbols));
    case AtenArg::Kind::kList: {
      c10::impl::GenericList list(arg.element_type);
      list.reserve(arg.items.size());
      for (const AtenArg& item : arg.items) {
        list.push_back(build_aten_arg(item, registers, symbols));
      }
      return list;
    }
  }
  return {};
}

void collect_registers(const AtenArg& arg, std::vector<int>* out) {
  if (arg.reg >= 0) out->push_back(arg.reg);
  for (const AtenArg& item : arg.items) collect_registers(item, out);
}

}  // namespace framejit::backend
