#include "backend/lowering/node.h"

#include <c10/util/TypeCast.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/lowering/lower.h"
#include "graph/tensors/memory_places.h"
#include "guards/result.h"

namespace framejit::backend {

using codegen::DType;
using graph::Arg;
using graph::Value;

DType compute_type(DType type) {
  return codegen::is_small_float(type) ? DType::kF32 : type;
}

std::optional<DType> element_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return DType::kBool;
    case c10::ScalarType::Byte:
      return DType::kU8;
    case c10::ScalarType::Char:
      return DType::kI8;
    case c10::ScalarType::Short:
      return DType::kI16;
    case c10::ScalarType::Int:
      return DType::kI32;
    case c10::ScalarType::Long:
      return DType::kI64;
    case c10::ScalarType::Half:
      return DType::kF16;
    case c10::ScalarType::BFloat16:
      return DType::kBF16;
    case c10::ScalarType::Float:
      return DType::kF32;
    case c10::ScalarType::Double:
      return DType::kF64;
    default:
      return std::nullopt;
  }
}

DType known_type(c10::ScalarType type) {
  auto out = element_type(type);
  require(out.has_value(), "a type without loops");
  return *out;
}

Expr less(const Expr& a, const Expr& b) {
  if (!a.is_float() && !b.is_float()) return expr_lt(a, b);
  return Expr::make(ExprOp::kFloatLt, {as_float(a), as_float(b)});
}

Expr at_most(const Expr& a, const Expr& b) {
  if (!a.is_float() && !b.is_float()) return expr_le(a, b);
  return Expr::make(ExprOp::kFloatLe, {as_float(a), as_float(b)});
}

// ---- arguments

namespace {

Arg arg_of(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isIntList()) {
    Arg::List list;
    for (int64_t item : value.toIntVector()) list.items.emplace_back(item);
    return Arg(std::move(list));
  }
  require(value.isNone(), "a default of another type");
  return Arg();
}

bool is_number(const Arg& arg) {
  return arg.is<bool>() || arg.is<int64_t>() || arg.is<double>() ||
         arg.is<Expr>() ||
         (arg.is<Value*>() && arg.get<Value*>()->kind == Value::Kind::kInt);
}

Expr expr_of(const Arg& arg) {
  if (arg.is<bool>()) return Expr(static_cast<int64_t>(arg.get<bool>()));
  if (arg.is<int64_t>()) return Expr(arg.get<int64_t>());
  if (arg.is<double>()) return Expr::real(arg.get<double>());
  if (arg.is<Expr>()) return arg.get<Expr>();
  require(is_number(arg), "an argument that is no number");
  return arg.get<Value*>()->expr;
}

const std::vector<Arg>& items_of(const Arg& arg) {
  if (arg.is<Arg::Tuple>()) return arg.get<Arg::Tuple>().items;
  require(arg.is<Arg::List>(), "an argument that is no list");
  return arg.get<Arg::List>().items;
}

}  // namespace

Arg NodeLowering::arg(size_t i) const {
  if (i < node_.args.size()) return node_.args[i];
  const auto& arguments = node_.aten->schema().arguments();
  FJ_CHECK(i < arguments.size(), "an argument the schema does not have");
  const auto& value = arguments[i].default_value();
  require(value.has_value(), "an argument is missing");
  return arg_of(*value);
}

bool NodeLowering::has(size_t i) const { return !arg(i).is<Arg::None>(); }

bool NodeLowering::is_tensor(size_t i) const {
  const Arg value = arg(i);
  return value.is<Value*>() &&
         value.get<Value*>()->kind == Value::Kind::kTensor;
}

TensorView NodeLowering::view_of(const Value* value) const {
  auto found = views_.find(value);
  require(found != views_.end(), "a tensor without a buffer");
  require(!found->second.is_opaque, "a type without loops");
  return found->second;
}

TensorView NodeLowering::tensor(size_t i) const {
  require(is_tensor(i), "an argument that is no tensor");
  return view_of(arg(i).get<Value*>());
}

std::optional<TensorView> NodeLowering::optional_tensor(size_t i) const {
  if (!has(i)) return std::nullopt;
  return tensor(i);
}

std::vector<TensorView> NodeLowering::tensors(size_t i) const {
  std::vector<TensorView> out;
  const Arg list = arg(i);
  for (const Arg& item : items_of(list)) {
    require(
        item.is<Value*>() && item.get<Value*>()->kind == Value::Kind::kTensor,
        "a list of other things");
    out.push_back(view_of(item.get<Value*>()));
  }
  return out;
}

const graph::TensorMeta& NodeLowering::meta_of(size_t i) const {
  require(is_tensor(i), "an argument that is no tensor");
  return node_.args[i].get<Value*>()->meta;
}

Expr NodeLowering::number(size_t i) const {
  const Arg value = arg(i);
  require(is_number(value), "an argument that is no number");
  return expr_of(value);
}

Expr NodeLowering::integer(size_t i) const {
  Expr out = number(i);
  require(!out.is_float(), "a float for an int");
  return out;
}

int64_t NodeLowering::known_integer(size_t i) const {
  Expr out = integer(i);
  require(out.is_const(), "a symbol for a constant");
  return out.constant();
}

std::vector<Expr> NodeLowering::integers(size_t i) const {
  std::vector<Expr> out;
  const Arg value = arg(i);
  if (is_number(value)) return {expr_of(value)};
  for (const Arg& item : items_of(value)) {
    require(is_number(item), "a list of other things");
    out.push_back(expr_of(item));
  }
  return out;
}

bool NodeLowering::flag(size_t i) const {
  const Arg value = arg(i);
  if (value.is<int64_t>()) return value.get<int64_t>() != 0;
  require(value.is<bool>(), "an argument that is no bool");
  return value.get<bool>();
}

std::string NodeLowering::text(size_t i) const {
  const Arg value = arg(i);
  require(value.is<std::string>(), "an argument that is no text");
  return value.get<std::string>();
}

namespace {

template <class T>
bool fits_in(const Expr& value) {
  return value.is_float_const() ? !c10::overflows<T>(value.real())
                                : !c10::overflows<T>(value.constant());
}

// As ATen asks of a constant.
bool fits(const Expr& value, DType type) {
  switch (type) {
    case DType::kU8:
      return fits_in<uint8_t>(value);
    case DType::kI8:
      return fits_in<int8_t>(value);
    case DType::kI16:
      return fits_in<int16_t>(value);
    case DType::kI32:
      return fits_in<int32_t>(value);
    case DType::kI64:
      return fits_in<int64_t>(value);
    case DType::kF16:
      return fits_in<c10::Half>(value);
    case DType::kBF16:
      return fits_in<c10::BFloat16>(value);
    case DType::kF32:
      return fits_in<float>(value);
    case DType::kBool:
    case DType::kF64:
      return true;
  }
  return false;
}

// The least and the largest finite number.
std::pair<double, double> range_of(DType type) {
  switch (type) {
    case DType::kBool:
      return {0, 1};
    case DType::kU8:
      return {0, 255};
    case DType::kI8:
      return {-128, 127};
    case DType::kI16:
      return {-32768, 32767};
    case DType::kI32:
      return {-0x1p31, 0x1p31 - 1};
    case DType::kI64:  // of the doubles
      return {-0x1p63, 0x1.fffffffffffffp62};
    case DType::kF16:
      return {-65504, 65504};
    case DType::kBF16:
      return {-0x1.fep127, 0x1.fep127};
    case DType::kF32:
      return {-0x1.fffffep127, 0x1.fffffep127};
    case DType::kF64:
      return {-0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023};
  }
  return {0, 0};
}

}  // namespace

// Conditions are narrower than what ATen asks: it wraps some integers.
void NodeLowering::ensure_in_range(const Expr& value, DType type) const {
  const char* reason = "a number that its type does not hold";
  if (value.is_const() || value.is_float_const())
    return require(fits(value, type), reason);
  if (type == DType::kBool || type == DType::kF64) return;
  const auto [least, most] = range_of(type);
  if (!value.is_float()) {
    if (least <= -0x1p63) return;
    ensure(expr_le(static_cast<int64_t>(least), value), reason);
    ensure(expr_le(value, static_cast<int64_t>(most)), reason);
    return;
  }
  if (codegen::is_float(type)) {
    // Infinite is fine, and so is NaN.
    const Expr size = Expr::make(ExprOp::kFloatAbs, {value});
    const Expr beyond = less(Expr::real(most), size);
    const Expr finite = less(size, Expr::real(HUGE_VAL));
    ensure(expr_not(Expr::make(ExprOp::kAnd, {beyond, finite})), reason);
    return;
  }
  ensure(at_most(Expr::real(least), value), reason);
  ensure(at_most(value, Expr::real(most)), reason);
}

void NodeLowering::ensure_has_negative(size_t i) const {
  const char* reason = "a number without a negative";
  const Expr value = number(i);
  if (value.is_float() || value.is_float_const()) return;
  int64_t least = std::numeric_limits<int64_t>::min();
  const auto type = element_type(out().dtype);
  if (type && codegen::is_integer(*type) && *type != DType::kI64)
    least = static_cast<int64_t>(range_of(*type).first);
  if (value.is_const()) return require(value.constant() > least, reason);
  ensure(expr_le(Expr(least + 1), value), reason);
}

Term NodeLowering::number(Elements& elements, size_t i, DType type) const {
  const auto result = element_type(out().dtype);
  if (result && type != *result && type == compute_type(*result))
    ensure_in_range(number(i), *result);
  return wide_number(elements, i, type);
}

Term NodeLowering::wide_number(Elements& elements, size_t i, DType type) const {
  Expr value = number(i);
  ensure_in_range(value, type);
  // Rounded once, as eager's Scalar is.
  if (value.is_const()) return elements.integer(type, value.constant());
  if (value.is_float_const() && codegen::is_float(type))
    return elements.constant(type, value.real());
  return cast(type, elements.number(value));
}

Term NodeLowering::number(Elements& elements, const TensorView& view,
                          DType type) const {
  require(view.rank() == 0, "a number in a tensor with dims");
  Term value = elements.load(view, {});
  if (view.type == type || type == DType::kBool || type == DType::kF64)
    return cast(type, value);
  // What narrows is not worth a row, but for floats: a mask's -inf.
  const bool widens = codegen::is_integer(view.type) &&
                      (codegen::is_float(type) && type != DType::kF16);
  if (view.type == DType::kBool || widens) return cast(type, value);
  // (Elsewhere than on a CPU, a Check raises too late.)
  require(codegen::is_float(view.type) && codegen::is_float(type) &&
              node_.outputs[0]->meta.device.is_cpu(),
          "a number that may not fit");
  value = cast(compute_type(view.type), value);
  Term fits = (abs(value) <= range_of(type).second) | (abs(value) == HUGE_VAL) |
              (value != value);
  return cast(type, select(check(fits), value, 0));
}

int NodeLowering::dim(size_t i, int rank) const {
  int64_t out = known_integer(i);
  if (out < 0) out += std::max(rank, 1);
  require(out >= 0 && out < std::max(rank, 1), "a dim out of range");
  return static_cast<int>(out);
}

std::vector<int> NodeLowering::dims(size_t i, int rank) const {
  std::vector<int> out;
  if (has(i)) {
    for (const Expr& item : integers(i)) {
      require(item.is_const(), "a symbol for a dim");
      int64_t dim = item.constant() + (item.constant() < 0 ? rank : 0);
      if (rank == 0) continue;
      require(dim >= 0 && dim < rank, "a dim out of range");
      out.push_back(static_cast<int>(dim));
    }
  }
  if (out.empty())
    for (int dim = 0; dim < rank; ++dim) out.push_back(dim);
  std::sort(out.begin(), out.end());
  require(std::adjacent_find(out.begin(), out.end()) == out.end(),
          "a dim twice");
  return out;
}

// ---- what eager's kernel asks of them

void NodeLowering::ensure_sizes(const std::vector<Expr>& a,
                                const std::vector<Expr>& b,
                                const char* reason) const {
  require(a.size() == b.size(), reason);
  for (size_t dim = 0; dim < a.size(); ++dim)
    ensure_equal(a[dim], b[dim], reason);
}

void NodeLowering::require_one_type(
    std::initializer_list<size_t> arguments) const {
  std::optional<c10::ScalarType> type;
  for (size_t i : arguments) {
    if (!is_tensor(i)) continue;
    require(!type || *type == dtype_of(i), "tensors of different types");
    type = dtype_of(i);
  }
}

void NodeLowering::require_index(const TensorView& view, bool or_int32) const {
  require(view.type == DType::kI64 || (or_int32 && view.type == DType::kI32),
          "indices of another type");
}

// ---- results

DType NodeLowering::out_type(size_t i) const {
  return known_type(out(i).dtype);
}

void NodeLowering::set(size_t i, TensorView view) {
  require(view.type == out_type(i), "a result of another type");
  ensure_sizes(view.sizes, out(i).sizes, "a result of other sizes");
  results_[i] = std::move(view);
}

void NodeLowering::set_map(size_t i, Elements elements, Term value) {
  const graph::TensorMeta& meta = out(i);
  const DType from = value.type(), to = out_type(i);
  // What is computed is the result, but for the rounding of small floats.
  require(from == to || from == compute_type(to), "a result of another type");
  bool dense = graph::is_dense(meta.sizes, meta.strides);
  set(i, map(std::move(elements), value, to, dense ? &meta.strides : nullptr));
}

}  // namespace framejit::backend
