#include "backend/lowering/lower.h"

#include <algorithm>
#include <set>

#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"
#include "graph/ops/alias_analysis.h"
#include "graph/ops/node_traits.h"
#include "graph/tensors/memory_places.h"
#include "guards/result.h"

namespace framejit::backend {

using codegen::BufferId;
using codegen::Definition;
using codegen::DefinitionKind;
using codegen::DType;
using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::TensorMeta;
using graph::Value;

namespace {

// The graph is run otherwise.
struct Refused {
  std::string reason;
};

// Elements as a buffer has them: `parts` of this type each.
struct Carrier {
  DType type;
  int64_t parts;
};

Carrier carrier_of(c10::ScalarType type) {
  if (auto plain = element_type(type)) return {*plain, 0};
  switch (type) {
    case c10::ScalarType::ComplexFloat:
      return {DType::kF32, 2};
    case c10::ScalarType::ComplexDouble:
      return {DType::kF64, 2};
    default:
      return {DType::kU8, static_cast<int64_t>(c10::elementSize(type))};
  }
}

struct SureCall {
  std::string_view name;
  int probability;  // the argument; -1: none
};
constexpr SureCall kSureCalls[] = {
#define FJ_SURE_CALL(name, probability) {name, probability},
#include "backend/lowering/sure_calls.def"
#undef FJ_SURE_CALL
};

const SureCall* sure_call(const Node& node) {
  const auto& name = node.aten->operator_name();
  if (!name.overload_name.empty() || !name.name.starts_with("aten::"))
    return nullptr;
  for (const SureCall& row : kSureCalls)
    if (row.name == std::string_view(name.name).substr(6)) return &row;
  return nullptr;
}

// A random operator that draws nothing.
bool is_certain(const Node& node) {
  const SureCall* row = sure_call(node);
  if (!row || row->probability < 0 || node.must_keep) return false;
  const auto at = static_cast<size_t>(row->probability);
  return at >= node.args.size() ||
         (node.args[at].is<double>() && node.args[at].get<double>() == 0);
}

bool is_sure(const Node& node) {
  if (!sure_call(node)) return false;
  bool fits = true;
  std::optional<c10::ScalarType> type;
  for (const Arg& arg : node.args)
    graph::for_each_value(arg, [&](Value* value) {
      if (value->kind != Value::Kind::kTensor) return;
      if (!type) type = value->meta.dtype;
      fits &= value->meta.dtype == *type;
    });
  return fits && type && c10::isFloatingType(*type);
}

class Lowering {
 public:
  Lowering(const Graph& graph, const LoweringRequest& request)
      : graph_(graph),
        request_(request),
        conditions_{{}, request.hints},
        builder_(out_.loops, conditions_) {}

  LoweredGraph run() {
    choose_device();
    const DivisorChecks checks(out_.device.is_cpu());
    for (const auto& node : graph_.block().nodes) {
      add(*node);
      out_.node_of.resize(out_.loops.buffers.size(), node.get());
    }
    std::set<const Value*> seen;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (i < request_.has_output.size() && request_.has_output[i]) continue;
      graph::for_each_value(graph_.outputs[i], [&](Value* value) {
        if (is_seen(i)) check_views_of(value);
        if (seen.insert(value).second) add_output(value);
      });
    }
    // What lies in an input when the graph has run is not read before.
    for (const auto& mutation : graph_.mutations) seen.insert(mutation.value);
    std::set<const Value*> written;
    for (const auto& mutation : graph_.mutations) {
      const Value* input = graph_.inputs[mutation.input];
      if (!written.insert(mutation.value).second) continue;
      const size_t before = out_.outputs.size();
      if (!is_output(mutation.value) && !seen.contains(input))
        add_placed(mutation.value, input);
      if (out_.outputs.size() == before && !is_output(mutation.value))
        add_output(mutation.value);
    }
    out_.node_of.resize(out_.loops.buffers.size(), nullptr);
    out_.conditions = std::move(conditions_.all);
    return std::move(out_);
  }

 private:
  void add(const Node& node) {
    switch (node.op) {
      case Opcode::kPlaceholder:
      case Opcode::kGetAttr:
        for (const auto& value : node.outputs)
          if (value->kind == Value::Kind::kTensor) add_input(value.get());
        return;
      case Opcode::kOutput:
        return;
      case Opcode::kCallFunction:
        if (node.aten) return add_call(node);
        break;
      default:
        break;
    }
    throw Refused{"not an ATen call: " + node.target_name()};
  }

  // A gradient that was not asked for is nothing, and nobody reads it.
  bool is_absent(const Value& value) const {
    bool is_read = value.kind != Value::Kind::kOther || !value.users.empty();
    if (is_read) return false;
    for (const Arg& output : graph_.outputs)
      graph::for_each_value(
          output, [&](const Value* read) { is_read |= read == &value; });
    return !is_read;
  }

  // That of a tensor on another one than the CPU, if there is one.
  void choose_device() {
    for (const auto& node : graph_.block().nodes)
      for (const auto& value : node->outputs)
        if (value->kind == Value::Kind::kTensor && out_.device.is_cpu())
          out_.device = value->meta.device;
  }

  // Elements that loops do not compute with.
  bool is_opaque(const TensorMeta& meta) const {
    return carrier_of(meta.dtype).parts != 0 || meta.is_conj || meta.is_neg ||
           meta.device != out_.device;
  }

  void check(const Value& value) const {
    if (is_absent(value)) return;
    if (value.kind != Value::Kind::kTensor)
      throw Refused{"a result that is no tensor"};
    const TensorMeta& meta = value.meta;
    if (!meta.device.is_cpu() && !meta.device.is_cuda())
      throw Refused{"a tensor on " + meta.device.str()};
    if (meta.sizes.size() != meta.strides.size())
      throw Refused{"a tensor without strides"};
    for (const Expr& size : meta.sizes)
      if (size.is_const() && size.constant() < 0)
        throw Refused{"a tensor of unknown size"};
  }

  // Sizes and strides of the buffer that holds such a tensor.
  static std::vector<Expr> buffer_sizes(const TensorMeta& meta) {
    std::vector<Expr> out = meta.sizes;
    if (int64_t parts = carrier_of(meta.dtype).parts) out.push_back(parts);
    return out;
  }
  static std::vector<Expr> buffer_strides(const TensorMeta& meta) {
    std::vector<Expr> out = meta.strides;
    if (int64_t parts = carrier_of(meta.dtype).parts) {
      for (Expr& stride : out) stride = stride * parts;
      out.push_back(1);
    }
    return out;
  }

  void add_input(const Value* value) {
    check(*value);
    const TensorMeta& meta = value->meta;
    TensorView view =
        builder_.input(carrier_of(meta.dtype).type, buffer_sizes(meta),
                       buffer_strides(meta), value->name);
    view.is_opaque = is_opaque(meta);
    views_[value] = std::move(view);
    out_.inputs.push_back(value);
  }

  // How much there is of the graph, to go back to.
  struct Mark {
    size_t buffers, definitions, numbers, conditions;
  };
  Mark mark() const {
    return {out_.loops.buffers.size(), out_.loops.definitions.size(),
            out_.loops.numbers.size(), conditions_.all.size()};
  }
  void back_to(const Mark& mark) {
    out_.loops.buffers.resize(mark.buffers);
    out_.loops.definitions.resize(mark.definitions);
    out_.loops.numbers.resize(mark.numbers);
    conditions_.all.resize(mark.conditions);
  }

  // Behind the program's outputs come values for the backward, which nobody
  // looks at.
  bool is_seen(size_t output) const {
    return request_.has_output.empty() || output < request_.has_output.size();
  }

  // Its results share memory, although its schema does not say so: views as
  // long as nobody outside sees them.
  bool is_unsafe_view(const Node& node) const {
    if (!node.aten->operator_name().name.starts_with("aten::unsafe_split"))
      return false;
    for (size_t i = 0; i < graph_.outputs.size(); ++i)
      graph::for_each_value(graph_.outputs[i], [&](const Value* value) {
        if (value->node == &node && is_seen(i))
          throw Refused{"a result that shares memory without saying so"};
      });
    return true;
  }

  void add_call(const Node& node) {
    for (const auto& value : node.outputs) check(*value);
    const Mark before = mark();
    std::string reason;
    try {
      auto refused = request_.calls.find(&node);
      if (refused != request_.calls.end()) throw NotLowered{refused->second};
      lower(node);
      out_.lowered.push_back(&node);
      return;
    } catch (const NotLowered& failure) {
      reason = failure.reason;
    }
    back_to(before);
    add_extern(node, reason);
  }

  void lower(const Node& node) {
    const auto& name = node.aten->operator_name();
    require(name.name.starts_with("aten::"), "not ATen's");
    std::string row_name = name.name.substr(6);
    if (!name.overload_name.empty()) row_name += "." + name.overload_name;
    for (const auto& value : node.outputs) {
      require(!value->meta.is_conj && !value->meta.is_neg,
              "a lazy conjugate or negative");
      require(is_absent(*value) || value->meta.device == out_.device,
              "a tensor on another device");
    }
    // Its arguments are looked at all the same: by ATen.
    require(
        node.outputs.empty() ||
            !std::all_of(node.outputs.begin(), node.outputs.end(),
                         [&](const auto& value) { return is_empty(*value); }),
        "no result with elements");
    require(!wants_pinned_memory(node), "pinned memory");
    NodeLowering lowering(node, views_, out_.loops, conditions_);
    const size_t known = out_.loops.buffers.size();
    require(lower_node(row_name, lowering), "no row");
    const bool owns =
        graph::aliased_arguments(node).empty() && !is_unsafe_view(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const auto& result = lowering.results()[i];
      require(result.has_value() || node.outputs[i]->users.empty(),
              "a result that is not computed");
      if (!result) continue;
      const bool is_new =
          static_cast<size_t>(out_.loops.root(result->buffer)) >= known;
      views_[node.outputs[i].get()] =
          owns && !is_new ? own_copy(lowering, *result, node.outputs[i]->meta)
                          : *result;
    }
  }

  bool is_empty(const Value& value) const {
    if (is_absent(value)) return true;
    const std::vector<Expr>& sizes = value.meta.sizes;
    return std::any_of(sizes.begin(), sizes.end(),
                       [](const Expr& size) { return size.is_const(0); });
  }

  static bool wants_pinned_memory(const Node& node) {
    const auto& arguments = node.aten->schema().arguments();
    for (size_t i = 0; i < node.args.size() && i < arguments.size(); ++i)
      if (arguments[i].name() == "pin_memory" && node.args[i].is<bool>() &&
          node.args[i].get<bool>())
        return true;
    return false;
  }

  // Counts from the beginning of eager's storage, and may go beyond the tensor:
  // what is not the caller's lies elsewhere.
  static void check_storage(const Node& node) {
    if (!node.aten->operator_name().name.starts_with("aten::as_strided"))
      return;
    const Opcode op = node.args[0].get<Value*>()->node->op;
    if (op != Opcode::kPlaceholder && op != Opcode::kGetAttr)
      throw Refused{"strides into the storage of a result"};
  }

  // An operator whose row says which elements its result has may still promise
  // memory of its own (roll, flip, the *_copy operators).
  static TensorView own_copy(NodeLowering& lowering, const TensorView& view,
                             const TensorMeta& meta) {
    const bool dense = graph::is_dense(meta.sizes, meta.strides);
    return lowering.copy(view, view.type, dense ? &meta.strides : nullptr);
  }

  void add_extern(const Node& node, std::string reason) {
    check_storage(node);
    Definition definition;
    // It runs although nobody may need its results, and in the program's order.
    definition.ordered = !is_certain(node) &&
                         (graph::has_effect(node) || graph::is_custom(node));
    definition.sure = !definition.ordered && is_sure(node);
    // Whom the graph reads it by may be loops that nobody reads.
    definition.kept =
        !definition.ordered && !definition.sure && graph::must_run(node);
    definition.kind = DefinitionKind::kExtern;
    definition.callee = static_cast<int>(out_.callees.size());
    LoweredGraph::Callee callee{&node, {}, std::move(reason)};
    std::set<const Value*> seen;
    for (const Arg& arg : node.args) {
      graph::for_each_value(arg, [&](Value* value) {
        if (value->kind != Value::Kind::kTensor || !seen.insert(value).second)
          return;
        callee.operands.push_back(value);
        definition.operands.push_back(memory_of(value));
      });
    }
    for (const auto& value : node.outputs) {
      if (is_absent(*value)) continue;
      const TensorMeta& meta = value->meta;
      codegen::Buffer buffer;
      buffer.type = carrier_of(meta.dtype).type;
      buffer.sizes = buffer_sizes(meta);
      buffer.strides = buffer_strides(meta);
      BufferId id = out_.loops.add_buffer(std::move(buffer));
      definition.results.push_back(id);
      TensorView view = builder_.whole(id);
      view.is_opaque = is_opaque(meta);
      views_[value.get()] = std::move(view);
    }
    out_.loops.definitions.push_back(std::move(definition));
    out_.callees.push_back(std::move(callee));
  }

  // A buffer with the value, lying as eager's tensor does.
  BufferId memory_of(const Value* value) {
    auto found = views_.find(value);
    if (found == views_.end()) throw Refused{"a value without a buffer"};
    std::vector<Expr> strides = buffer_strides(value->meta);
    try {
      return builder_.buffer_of(found->second, &strides);
    } catch (const NotLowered& failure) {
      throw Refused{failure.reason};
    }
  }

  // Views that are calls are copied out of memory that others hold; how far the
  // elements of a result lie from the start of eager's storage would be lost.
  void check_views_of(const Value* value) const {
    while (value->node->op == Opcode::kCallFunction && value->node->aten) {
      const auto bases = graph::aliased_arguments(*value->node);
      if (bases.empty()) return;
      for (const auto& callee : out_.callees)
        if (callee.node == value->node)
          throw Refused{"a result that is a view made by " +
                        value->node->target_name()};
      value = bases[0];
    }
  }

  void add_output(const Value* value) {
    if (value->kind != Value::Kind::kTensor) return;
    if (value->node->op == Opcode::kPlaceholder ||
        value->node->op == Opcode::kGetAttr)
      return;
    out_.loops.outputs.push_back(memory_of(value));
    out_.outputs.push_back(value);
    out_.layouts.push_back(value);
  }

  bool is_output(const Value* value) const {
    return std::count(out_.outputs.begin(), out_.outputs.end(), value) > 0;
  }

  // The new content of an input, lying as that does: it can be made there.
  // Nothing is added if it does not.
  void add_placed(const Value* value, const Value* input) {
    auto found = views_.find(value), place = views_.find(input);
    if (found == views_.end() || place == views_.end() ||
        value->node->op != Opcode::kCallFunction)
      return;
    const TensorMeta &from = value->meta, &to = input->meta;
    if (from.dtype != to.dtype || from.sizes != to.sizes ||
        from.device != out_.device || to.device != out_.device ||
        from.is_conj != to.is_conj || from.is_neg != to.is_neg)
      return;
    // Each element has its own place: of mutated inputs it was made sure.
    std::vector<Expr> strides = buffer_strides(to);
    for (const Expr& stride : strides)
      if (stride.is_const() && stride.constant() < 1) return;
    const Mark before = mark();
    try {
      const BufferId buffer = builder_.buffer_of(found->second, &strides);
      const codegen::Buffer& made = out_.loops.buffers[buffer];
      const BufferId target = place->second.buffer;
      if (made.strides != out_.loops.buffers[target].strides)
        return back_to(before);
      out_.loops.places.resize(out_.loops.outputs.size(), codegen::kNoBuffer);
      out_.loops.places.push_back(target);
      out_.loops.outputs.push_back(buffer);
      out_.outputs.push_back(value);
      out_.layouts.push_back(input);
    } catch (const NotLowered&) {
      back_to(before);
    }
  }

  const Graph& graph_;
  const LoweringRequest& request_;
  LoweredGraph out_;
  Conditions conditions_;
  LoopBuilder builder_;
  ViewIndex views_;
};

}  // namespace

std::optional<LoweredGraph> lower_to_loops(const Graph& graph,
                                           const LoweringRequest& request,
                                           std::string* reason) {
  try {
    LoweredGraph out = Lowering(graph, request).run();
    std::string wrong = verify(out.loops);
    if (!wrong.empty()) throw Refused{"malformed loops: " + wrong};
    return out;
  } catch (const Refused& refused) {
    *reason = refused.reason;
    return std::nullopt;
  }
}

}  // namespace framejit::backend
