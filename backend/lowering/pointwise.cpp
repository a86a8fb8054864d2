#include "backend/lowering/pointwise.h"

#include <c10/core/DefaultDtype.h>

#include <cmath>
#include <cstring>

#include "backend/lowering/lower.h"
#include "backend/lowering/pointwise_math.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

using codegen::DType;
using codegen::DTypeClass;

c10::ScalarType promoted_type(const NodeLowering& node,
                              const std::vector<size_t>& arguments) {
  // Of these, a category counts only where a lower one has no say.
  std::optional<c10::ScalarType> with_dims, without, numbers;
  auto join = [](std::optional<c10::ScalarType>& to, c10::ScalarType type) {
    to = to ? c10::promoteTypes(*to, type) : type;
  };
  for (size_t i : arguments) {
    if (node.is_tensor(i)) {
      const graph::TensorMeta& meta = node.meta_of(i);
      join(meta.sizes.empty() ? without : with_dims, meta.dtype);
      continue;
    }
    Expr value = node.number(i);
    const graph::Arg arg = node.arg(i);
    join(numbers, arg.is<bool>()     ? c10::ScalarType::Bool
                  : value.is_float() ? c10::get_default_dtype_as_scalartype()
                                     : c10::ScalarType::Long);
  }
  auto rank = [](c10::ScalarType type) {
    return c10::isComplexType(type)        ? 3
           : c10::isFloatingType(type)     ? 2
           : type == c10::ScalarType::Bool ? 0
                                           : 1;
  };
  std::optional<c10::ScalarType> out = with_dims;
  for (const auto& lower : {without, numbers}) {
    if (!lower) continue;
    if (!out) {
      out = lower;
    } else if (rank(*lower) > rank(*out)) {
      out = c10::promoteTypes(*out, *lower);
    }
  }
  require(out.has_value(), "no operand");
  return *out;
}

namespace {

// Operands that promote.
std::vector<size_t> promoting(const NodeLowering& node,
                              const PointwiseRow& row) {
  std::vector<size_t> out;
  for (size_t i = 0; row.arguments[i]; ++i)
    if (std::strchr("tps?", row.arguments[i]) && node.has(i)) out.push_back(i);
  return out;
}

void check_arguments(const NodeLowering& node, const PointwiseRow& row) {
  const size_t count = node.node().aten->schema().arguments().size();
  const size_t known = std::strlen(row.arguments);
  for (size_t i = 0; i < count; ++i) {
    char kind = i < known ? row.arguments[i] : '-';
    if (kind == '-') require(!node.has(i), "an argument of another value");
  }
}

DType common_type(const NodeLowering& node, const PointwiseRow& row) {
  std::vector<size_t> operands = promoting(node, row);
  if (operands.empty()) return DType::kBool;  // masks only
  c10::ScalarType type = promoted_type(node, operands);
  if (row.types == PointwiseTypes::kFloat && !c10::isFloatingType(type) &&
      !c10::isComplexType(type))
    return node.out_type();
  return known_type(type);
}

bool takes(const PointwiseRow& row, DType type) {
  char letter = type == DType::kBool      ? 'b'
                : codegen::is_float(type) ? 'f'
                                          : 'i';
  return std::strchr(row.takes, letter) != nullptr;
}

}  // namespace

// Eager has none of bools for numbers, nor of fractions for integers.
Term PointwiseOperands::number(size_t i) {
  require(type_ == DType::kBool || !node_.arg(i).is<bool>(), "a bool's number");
  require(codegen::is_float(type_) || !node_.number(i).is_float(),
          "a fraction for an integer");
  return node_.number(elements_, i, type_);
}

PointwiseOperands::PointwiseOperands(NodeLowering& node,
                                     const PointwiseRow& row)
    : node_(node),
      row_(row),
      elements_(node, node.out().sizes),
      common_(common_type(node, row)),
      type_(compute_type(common_)) {
  check_arguments(node, row);
  require(takes(row, common_), "a type the row does not take");
}

Term PointwiseOperands::operand(size_t i) {
  const char kind = row_.arguments[i];
  if (kind == 'b') {
    TensorView mask = node_.tensor(i);
    require(mask.type == DType::kBool, "a mask that is not of bools");
    return elements_.load_broadcast(mask);
  }
  if (kind == 'm') {
    Term mask = node_.is_tensor(i) ? elements_.load_broadcast(node_.tensor(i))
                                   : node_.number(elements_, i, DType::kF64);
    return cast(DType::kBool, mask);
  }
  if (!node_.is_tensor(i))
    return kind == 'p' ? node_.wide_number(elements_, i, type_)
                       : cast(type_, node_.number(elements_, i, common_));
  TensorView view = node_.tensor(i);
  Term value = elements_.load_broadcast(view);
  if (kind == 'p' && view.rank() == 0) return cast(type_, value);
  return cast(type_, cast(common_, value));
}

Term PointwiseOperands::bound(size_t i) {
  if (node_.has(i) && !node_.is_tensor(i)) {
    const Expr number = node_.number(i);
    const bool is_number = !number.is_float() || number.is_float_const();
    require(is_number || FJ_TORCH_213, "a bound that may be NaN");
    require(!number.is_float_const() || !std::isnan(number.real()),
            "a bound that is NaN");
  }
  return optional(i);
}

namespace {

#define FJ_POINTWISE(name, types, takes, arguments, expression)               \
  {{name, PointwiseTypes::types, takes, arguments},                           \
   [](PointwiseOperands& operands, NodeLowering& node) -> Term {              \
     [[maybe_unused]] auto x = [&](size_t i) { return operands.operand(i); }; \
     [[maybe_unused]] auto n = [&](size_t i) { return operands.number(i); };  \
     [[maybe_unused]] auto optional = [&](size_t i) {                         \
       return operands.optional(i);                                           \
     };                                                                       \
     [[maybe_unused]] auto bound = [&](size_t i) {                            \
       return operands.bound(i);                                              \
     };                                                                       \
     return expression;                                                       \
   }},

struct PointwiseEntry {
  PointwiseRow row;
  Term (*expression)(PointwiseOperands&, NodeLowering&);
};
const PointwiseEntry kPointwiseRows[] = {
#include "backend/lowering/pointwise.def"
};
#undef FJ_POINTWISE

}  // namespace

bool lower_pointwise(const std::string& name, NodeLowering& node) {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string, const PointwiseEntry*>;
    for (const PointwiseEntry& row : kPointwiseRows)
      (*out)[row.row.name] = &row;
    return out;
  }();
  auto found = rows->find(name);
  if (found == rows->end()) return false;
  PointwiseOperands operands(node, found->second->row);
  Term value = found->second->expression(operands, node);
  node.set_map(0, operands.take(), value);
  return true;
}

}  // namespace framejit::backend
