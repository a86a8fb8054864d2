#include "backend/lowerings.h"

#include <c10/util/TypeCast.h>

#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

#include "backend/kernel_math.h"

namespace framejit::backend {

using graph::Arg;
using graph::Node;
using graph::Value;

namespace {

bool is_number(const Arg& arg) {
  return arg.is<bool>() || arg.is<int64_t>() || arg.is<double>();
}

double number_of(const Arg& arg) {
  if (arg.is<bool>()) return arg.get<bool>();
  if (arg.is<int64_t>()) return static_cast<double>(arg.get<int64_t>());
  return arg.get<double>();
}

// Of one that does not fit into a float, each operator has its own opinion.
bool is_fitting_number(const Arg& arg) {
  return is_number(arg) && !c10::overflows<float>(number_of(arg));
}

// A number argument: known, or an expression over the floats of the call.
class Number {
 public:
  Number(double value) : expr_(Expr::real(value)) {}
  explicit Number(Expr expr) : expr_(std::move(expr)) {}
  bool known() const { return expr_.is_float_const(); }
  double value() const { return expr_.real(); }
  const Expr& expr() const { return expr_; }
  // Is it known to be?
  bool operator==(double value) const {
    return known() && expr_.real() == value;
  }

 private:
  Expr expr_;
};

Number operator*(const Number& a, const Number& b) {
  return Number(Expr::make(ExprOp::kFloatMul, {a.expr(), b.expr()}));
}

}  // namespace

bool is_float_parameter(const Arg& arg) {
  return arg.is<Expr>() && arg.get<Expr>().is_float();
}

// The arguments of one node as a row sees them.
class LoweringArgs {
 public:
  LoweringArgs(const Node& node, KernelBody& body, const char* pattern,
               const std::function<Lane(const Value*)>& lane_of,
               const std::function<Lane(const Expr&)>& param_of)
      : node_(node),
        body_(body),
        pattern_(pattern),
        lane_of_(lane_of),
        param_of_(param_of) {}

  bool has(size_t i) const {
    return i < node_.args.size() && !node_.args[i].is<Arg::None>();
  }
  Number number(size_t i) const {
    if (has(i) && is_float_parameter(node_.args[i]))
      return Number(node_.args[i].get<Expr>());
    if (has(i)) return number_of(node_.args[i]);
    const auto& value = node_.aten->schema().arguments()[i].default_value();
    return value && value->isScalar() ? value->toScalar().toDouble() : 0;
  }
  Lane scalar(const Number& number) const {
    return number.known() ? body_.constant(static_cast<float>(number.value()))
                          : param_of_(number.expr());
  }
  std::string text(size_t i) const {
    if (has(i)) return node_.args[i].get<std::string>();
    const auto& value = node_.aten->schema().arguments()[i].default_value();
    return value && value->isString() ? value->toStringRef() : "";
  }
  Lane lane(size_t i) const {
    bool number = is_number(node_.args[i]) || is_float_parameter(node_.args[i]);
    if (number) return scalar(this->number(i));
    Lane lane = lane_of_(node_.args[i].get<Value*>());
    // Promotion of a bool tensor in arithmetic.
    if (pattern_[i] == 'f' && body_.type(lane) == LaneType::kMask) {
      return body_.select(lane, body_.constant(1.f), body_.constant(0.f));
    }
    return lane;
  }

 private:
  const Node& node_;
  KernelBody& body_;
  const char* pattern_;
  const std::function<Lane(const Value*)>& lane_of_;
  const std::function<Lane(const Expr&)>& param_of_;
};

namespace {

// The bounds come first: NaN in x passes through. ATen gives NaN for a NaN
// bound, which nobody writes on purpose: not lowered.
Lane clamp(KernelBody& b, Lane x, bool has_low, const Number& low_bound,
           bool has_high, const Number& high_bound) {
  double low = has_low ? low_bound.value() : 0;
  double high = has_high ? high_bound.value() : 0;
  if ((has_low && std::isnan(low)) || (has_high && std::isnan(high))) {
    return -1;
  }
  if (has_low) x = b.max(b.constant(static_cast<float>(low)), x);
  if (has_high) x = b.min(b.constant(static_cast<float>(high)), x);
  return x;
}

const LoweringRow kRows[] = {
#define FJ_LOWERING(name, overload, pattern, cost, expression)            \
  {name, overload, pattern, cost,                                         \
   [](KernelBody& b, const LoweringArgs& args) -> Lane {                  \
     [[maybe_unused]] auto x = [&](size_t i) { return args.lane(i); };    \
     [[maybe_unused]] auto n = [&](size_t i) { return args.number(i); };  \
     [[maybe_unused]] auto has = [&](size_t i) { return args.has(i); };   \
     [[maybe_unused]] auto text = [&](size_t i) { return args.text(i); }; \
     [[maybe_unused]] auto c = [&](const Number& value) {                 \
       return args.scalar(value);                                         \
     };                                                                   \
     return expression;                                                   \
   }},
#include "backend/lowerings.def"
#undef FJ_LOWERING
};

const std::unordered_map<std::string, const LoweringRow*>& row_map() {
  static const auto* map = [] {
    auto* result = new std::unordered_map<std::string, const LoweringRow*>;
    for (const LoweringRow& row : kRows) {
      (*result)[std::string("aten::") + row.name + "." + row.overload] = &row;
    }
    return result;
  }();
  return *map;
}

bool is_kernel_tensor(const Value& value) {
  return value.kind == Value::Kind::kTensor && value.meta.device.is_cpu() &&
         (value.meta.dtype == c10::ScalarType::Float ||
          value.meta.dtype == c10::ScalarType::Bool);
}

bool matches(const Arg& arg, char kind) {
  switch (kind) {
    case 'f':
      return is_fitting_number(arg) || is_float_parameter(arg) ||
             (arg.is<Value*>() && is_kernel_tensor(*arg.get<Value*>()));
    case 'm':
      return arg.is<Value*>() && is_kernel_tensor(*arg.get<Value*>()) &&
             arg.get<Value*>()->meta.dtype == c10::ScalarType::Bool;
    case 's':
      return is_fitting_number(arg) || is_float_parameter(arg);
    case 'k':
      return is_fitting_number(arg);
    case 'n':
      return is_fitting_number(arg) || arg.is<Arg::None>();
    case 't':
      return arg.is<std::string>();
    default:
      return arg.is<Arg::None>();
  }
}

}  // namespace

const LoweringRow* find_lowering(const Node& node) {
  if (!node.aten || node.outputs.size() != 1 || node.outputs_are_list ||
      !is_kernel_tensor(*node.outputs[0])) {
    return nullptr;
  }
  const auto& name = node.aten->operator_name();
  auto found = row_map().find(name.name + "." + name.overload_name);
  if (found == row_map().end()) return nullptr;
  const LoweringRow& row = *found->second;
  const auto& schema = node.aten->schema().arguments();
  size_t length = std::char_traits<char>::length(row.pattern);
  bool any_tensor = false;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (i >= node.args.size()) {
      // Missing: it has a default, which the row knows or ignores.
      if (!schema[i].default_value()) return nullptr;
      continue;
    }
    const Arg& arg = node.args[i];
    if (i >= length) {
      if (!arg.is<Arg::None>()) return nullptr;
      continue;
    }
    bool defaulted = arg.is<Arg::None>() && row.pattern[i] == 'n';
    if (!defaulted && !matches(arg, row.pattern[i])) return nullptr;
    any_tensor |= arg.is<Value*>();
  }
  return any_tensor ? &row : nullptr;
}

std::span<const LoweringRow> lowering_rows() { return kRows; }

Lane lower(const LoweringRow& row, const Node& node, KernelBody& body,
           const std::function<Lane(const Value*)>& lane_of,
           const std::function<Lane(const Expr&)>& param_of) {
  Lane lane = row.function(
      body, LoweringArgs(node, body, row.pattern, lane_of, param_of));
  if (lane < 0) return -1;
  bool is_mask = body.type(lane) == LaneType::kMask;
  bool wants_mask = node.outputs[0]->meta.dtype == c10::ScalarType::Bool;
  return is_mask == wants_mask ? lane : -1;
}

}  // namespace framejit::backend
