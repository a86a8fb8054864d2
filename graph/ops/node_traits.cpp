// What passes ask about nodes, answered from the op table.
#include "graph/ops/node_traits.h"

#include <c10/util/TypeCast.h>

#include <optional>

#include "graph/ops/alias_analysis.h"
#include "graph/ops/op_facts.h"

namespace framejit::graph {

namespace {

// Meta functions let types pass that a kernel refuses: softplus of integers,
// a product of float and double, gcd of floats, an order of complex numbers.
// Sure are the types that the row names, or else ordinary floats of one type.
bool may_refuse_types(const Node& node, const OpFacts& op) {
  bool ordinary = true, same = true;
  std::optional<c10::ScalarType> first;
  auto look = [&](Value* value) {
    if (value->kind != Value::Kind::kTensor) return;
    c10::ScalarType type = value->meta.dtype;
    if (op.has(kAnyTypes)) {
      ordinary &= !c10::isComplexType(type);
    } else if (op.has(kIntegers)) {
      ordinary &= type == at::kLong || type == at::kInt;
    } else {
      ordinary &= type == at::kFloat || type == at::kDouble;
    }
    same &= !first || *first == type || op.has(kAnyTypes);
    first = type;
  };
  for (const Arg& arg : node.args) for_each_value(arg, look);
  return !ordinary || !same;
}

template <class To>
bool fits(const Arg& number) {
  return number.is<double>()
             ? !c10::overflows<To, double>(number.get<double>())
             : !c10::overflows<To, int64_t>(number.get<int64_t>());
}

// Does PyTorch convert the number to the type? (An unsigned one takes negative
// integers, and no other negative numbers.)
bool converts(const Arg& number, c10::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return fits<at::Half>(number);
    case at::kBFloat16:
      return fits<at::BFloat16>(number);
    case at::kFloat:
      return fits<float>(number);
    case at::kByte:
      return fits<uint8_t>(number);
    case at::kChar:
      return fits<int8_t>(number);
    case at::kShort:
      return fits<int16_t>(number);
    case at::kInt:
      return fits<int32_t>(number);
    case at::kLong:
      return fits<int64_t>(number);
    case at::kUInt16:
      return fits<uint16_t>(number);
    case at::kUInt32:
      return fits<uint32_t>(number);
    case at::kUInt64:
      return fits<uint64_t>(number);
    default:
      return true;
  }
}

// A symbolic number may be any.
bool always_converts(const Expr& number, c10::ScalarType type) {
  if (number.is_float()) return type == at::kDouble || type == at::kBool;
  return at::isFloatingType(type) ? type != at::kHalf
                                  : type == at::kLong || type == at::kBool;
}

// The number that the argument is, if it is a symbolic one.
const Expr* symbolic_number(const Arg& arg) {
  if (arg.is<Expr>()) return &arg.get<Expr>();
  if (!arg.is<Value*>()) return nullptr;
  const Value* value = arg.get<Value*>();
  return value->kind == Value::Kind::kInt ? &value->expr : nullptr;
}

// A number as an argument that the type of a result or argument may not hold:
// kernels refuse what the trace let pass.
bool may_refuse_numbers(const Node& node) {
  bool all_fit = true;
  for (const Arg& arg : node.args) {
    const Expr* symbolic = symbolic_number(arg);
    if (!symbolic && !arg.is<double>() && !arg.is<int64_t>()) continue;
    auto look = [&](const Value* value) {
      if (value->kind != Value::Kind::kTensor) return;
      const c10::ScalarType type = value->meta.dtype;
      all_fit &=
          symbolic ? always_converts(*symbolic, type) : converts(arg, type);
    };
    for (const auto& value : node.outputs) look(value.get());
    for (const Arg& other : node.args) for_each_value(other, look);
  }
  return !all_fit;
}

const OpFacts& facts(const Node& node) { return facts_of(*node.aten); }

// There is no largest of no numbers. Costs nothing to run.
bool reads_empty_tensor(const Node& node) {
  bool found = false;
  auto look = [&](Value* value) {
    for (const Expr& size : value->meta.sizes) found |= size.is_const(0);
  };
  for (const Arg& arg : node.args) for_each_value(arg, look);
  return found;
}

}  // namespace

bool is_random(const Node& node) {
  return node.aten && facts(node).has(kRandom);
}

bool writes_arguments(const Node& node) {
  return node.aten && !facts(node).written_arguments.empty();
}

bool is_custom(const Node& node) { return node.aten && facts(node).is_custom; }

bool may_keep_arguments(const Node& node) {
  if (!is_custom(node)) return false;
  const OpFacts& op = facts(node);
  return !op.row || op.has(kKeepsArguments);
}

bool has_effect(const Node& node) {
  switch (node.op) {
    case Opcode::kPlaceholder:
    case Opcode::kOutput:
    case Opcode::kStateEnter:
    case Opcode::kStateExit:
      return true;
    default:
      break;
  }
  if (node.must_keep) return true;
  if (!node.aten) return node.op != Opcode::kGetAttr;  // Python: who knows
  // Returns nothing, so it runs for its effect: _linalg_check_errors raises.
  if (facts(node).num_results == 0) return true;
  return is_random(node) || writes_arguments(node);
}

bool must_run(const Node& node) {
  if (has_effect(node)) return true;
  if (!node.aten || node.is_backward) return false;
  const OpFacts& op = facts(node);
  if (op.has(kRefuses)) return true;
  if (!op.aliased_arguments.empty()) return false;
  return reads_empty_tensor(node) || may_refuse_numbers(node) ||
         may_refuse_types(node, op);
}

bool is_view(const Node& node) {
  return node.aten && !facts(node).aliased_arguments.empty() &&
         !writes_arguments(node);
}

bool is_recomputable(const Node& node) {
  if (!node.aten || node.must_keep) return false;
  const OpFacts& op = facts(node);
  return !op.has(kRandom) && op.written_arguments.empty() &&
         (op.has(kPointwise | kCheap) || !op.aliased_arguments.empty());
}

}  // namespace framejit::graph
