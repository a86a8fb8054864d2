#include "backend/schedule.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "backend/lowerings.h"

namespace framejit::backend {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Value;

namespace {

constexpr int kMaxGroupCost = 400;
constexpr size_t kMaxGroupInputs = 14;
// How many units may lie between two that join. It bounds the search for a
// way between them, and how long results wait for their use.
constexpr int kMaxDistance = 512;

struct OperandShape {
  Walk walk;
  int split;  // kColumn, kRow: dims before it are rows
};

// How an operand of sizes `small` moves over a result of sizes `big`.
std::optional<OperandShape> classify(const std::vector<Expr>& small,
                                     const std::vector<Expr>& big) {
  if (small.size() > big.size()) return std::nullopt;
  const size_t missing = big.size() - small.size();
  // Of each dim of the result: does the operand have it, may it lack it?
  std::vector<bool> equal(big.size()), one(big.size());
  bool all_equal = true, all_one = true;
  for (size_t i = 0; i < big.size(); ++i) {
    Expr size = i < missing ? Expr(1) : small[i - missing];
    equal[i] = size == big[i];
    one[i] = size.is_const(1);
    if (!equal[i] && !one[i]) return std::nullopt;
    all_equal &= equal[i];
    all_one &= one[i];
  }
  if (all_equal) return OperandShape{Walk::kElement, -1};
  if (all_one) return OperandShape{Walk::kScalar, -1};
  size_t split = 0;
  while (split < big.size() && one[split]) ++split;
  if (std::all_of(equal.begin() + split, equal.end(),
                  [](bool e) { return e; })) {
    return OperandShape{Walk::kColumn, static_cast<int>(split)};
  }
  split = big.size();
  while (split > 0 && one[split - 1]) --split;
  if (std::all_of(equal.begin(), equal.begin() + split,
                  [](bool e) { return e; })) {
    return OperandShape{Walk::kRow, static_cast<int>(split)};
  }
  return std::nullopt;
}

// Random operators must stay in the program's order.
bool has_effect(const Node& node) {
  return node.must_keep ||
         (node.aten && node.aten->hasTag(at::Tag::nondeterministic_seeded));
}

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph) : graph_(graph) {}
  std::vector<ScheduleUnit> run();

 private:
  // A node on its own, or a group that becomes a kernel.
  struct Unit {
    std::vector<int> members;  // node numbers, ascending
    std::vector<Expr> sizes;
    int split = -1;
    int cost = 0;
    bool fusible = false;
    bool emitted = false;
    int position = 0;  // behind every unit that it needs
  };

  void collect();
  void group();
  std::optional<int> required_split(const Node& node) const;
  bool joinable(int unit, const Unit& other) const;
  bool reaches(int from, int unit, int without);
  void place_joined(int unit, int low, int high);
  bool merge(int target, int source);
  size_t count_inputs(const Unit& unit) const;
  void emit(int unit);
  void emit_alone(int unit);
  std::unique_ptr<FusedKernel> build_kernel(const Unit& unit,
                                            ScheduleUnit* out) const;

  const Graph& graph_;
  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, int> number_;
  std::vector<std::vector<int>> inputs_;  // node -> nodes it needs
  std::vector<const LoweringRow*> rows_;
  std::vector<Unit> units_;
  std::vector<int> unit_of_;
  std::unordered_set<const Value*> graph_results_;
  std::vector<ScheduleUnit> result_;
  std::vector<int> unit_at_;  // by position; -1: joined another
  std::vector<int> visited_;  // per unit: the last search that met it
  int visit_ = 0;
};

void Scheduler::collect() {
  int last_effect = -1;
  for (const auto& node : graph_.block().nodes) {
    int number = static_cast<int>(nodes_.size());
    number_[node.get()] = number;
    nodes_.push_back(node.get());
    rows_.push_back(nullptr);
    std::vector<int> inputs;
    for (const Arg& arg : node->args) {
      graph::for_each_value(arg, [&](Value* value) {
        inputs.push_back(number_.at(value->node));
      });
    }
    if (has_effect(*node)) {
      if (last_effect >= 0) inputs.push_back(last_effect);
      last_effect = number;
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    inputs_.push_back(std::move(inputs));
  }
  for (const Arg& output : graph_.outputs) {
    graph::for_each_value(output, [&](Value* v) { graph_results_.insert(v); });
  }
  for (const auto& mutation : graph_.mutations) {
    graph_results_.insert(mutation.value);
  }
}

// The split the node's operands ask for (-1: any), or nothing when the node
// cannot be part of a kernel.
std::optional<int> Scheduler::required_split(const Node& node) const {
  const graph::TensorMeta& meta = node.outputs[0]->meta;
  if (!graph::is_contiguous(meta)) return std::nullopt;
  int split = -1;
  for (const Arg& arg : node.args) {
    if (!arg.is<Value*>()) continue;
    const Value* value = arg.get<Value*>();
    if (value->kind != Value::Kind::kTensor) return std::nullopt;
    if (!graph::is_contiguous(value->meta)) return std::nullopt;
    auto shape = classify(value->meta.sizes, meta.sizes);
    if (!shape) return std::nullopt;
    if (shape->split < 0) continue;
    if (split >= 0 && split != shape->split) return std::nullopt;
    split = shape->split;
  }
  return split;
}

// Does `from` need `unit` (through units other than `without`)? The numbers of
// the nodes say nothing: a unit on the way may have later members that do. But
// no unit needs one at a later position.
bool Scheduler::reaches(int from, int unit, int without) {
  ++visit_;
  std::vector<int> stack{from};
  visited_[from] = visit_;
  while (!stack.empty()) {
    int current = stack.back();
    stack.pop_back();
    if (current == unit) return true;
    for (int member : units_[current].members) {
      for (int input : inputs_[member]) {
        int next = unit_of_[input];
        if (next == without || visited_[next] == visit_ ||
            units_[next].position < units_[unit].position)
          continue;
        visited_[next] = visit_;
        stack.push_back(next);
      }
    }
  }
  return false;
}

size_t Scheduler::count_inputs(const Unit& unit) const {
  std::unordered_set<const Value*> inputs;
  for (int member : unit.members) {
    for (const Arg& arg : nodes_[member]->args) {
      if (!arg.is<Value*>()) continue;
      const Value* value = arg.get<Value*>();
      if (!std::count(unit.members.begin(), unit.members.end(),
                      number_.at(value->node))) {
        inputs.insert(value);
      }
    }
  }
  std::vector<Expr> parameters;
  for (int member : unit.members) {
    for (const Arg& arg : nodes_[member]->args) {
      if (!is_float_parameter(arg)) continue;
      const Expr& expr = arg.get<Expr>();
      if (!std::count(parameters.begin(), parameters.end(), expr))
        parameters.push_back(expr);
    }
  }
  return inputs.size() + parameters.size();
}

bool Scheduler::joinable(int unit, const Unit& other) const {
  const Unit& mine = units_[unit];
  return mine.fusible && other.fusible && mine.sizes == other.sizes &&
         mine.cost + other.cost <= kMaxGroupCost &&
         (mine.split < 0 || other.split < 0 || mine.split == other.split);
}

// Puts `source`'s nodes into `target`, unless a third unit lies between them.
bool Scheduler::merge(int target, int source) {
  if (target == source || !joinable(target, units_[source])) return false;
  auto [low, high] =
      std::minmax({units_[target].position, units_[source].position});
  if (high - low > kMaxDistance) return false;
  for (auto [from, to] : {std::pair{target, source}, {source, target}}) {
    for (int member : units_[from].members) {
      for (int input : inputs_[member]) {
        int next = unit_of_[input];
        if (next == from || next == to) continue;
        if (reaches(next, to, from)) return false;
      }
    }
  }
  Unit joined = units_[target];
  const Unit& other = units_[source];
  joined.members.insert(joined.members.end(), other.members.begin(),
                        other.members.end());
  std::sort(joined.members.begin(), joined.members.end());
  joined.cost += other.cost;
  joined.split = std::max(joined.split, other.split);
  if (count_inputs(joined) > kMaxGroupInputs) return false;
  for (int member : other.members) unit_of_[member] = target;
  units_[source].members.clear();
  units_[source].emitted = true;
  units_[target] = std::move(joined);
  place_joined(target, low, high);
  return true;
}

// Between the positions of the two that joined: what the unit needs comes
// before it, the others behind.
void Scheduler::place_joined(int unit, int low, int high) {
  ++visit_;
  std::vector<int> stack{unit};
  visited_[unit] = visit_;
  while (!stack.empty()) {
    int current = stack.back();
    stack.pop_back();
    for (int member : units_[current].members) {
      for (int input : inputs_[member]) {
        int next = unit_of_[input];
        if (visited_[next] == visit_ || units_[next].position < low) continue;
        visited_[next] = visit_;
        stack.push_back(next);
      }
    }
  }
  std::vector<int> needed, others;
  for (int i = low; i <= high; ++i) {
    int at = unit_at_[i];
    if (at < 0 || at == unit || units_[at].members.empty()) continue;
    (visited_[at] == visit_ ? needed : others).push_back(at);
  }
  int position = low;
  auto put = [&](int at) {
    units_[at].position = position;
    unit_at_[position++] = at;
  };
  for (int at : needed) put(at);
  put(unit);
  for (int at : others) put(at);
  while (position <= high) unit_at_[position++] = -1;
}

void Scheduler::group() {
  visited_.resize(nodes_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    unit_of_.push_back(static_cast<int>(units_.size()));
    Unit unit;
    unit.members = {static_cast<int>(i)};
    unit.position = static_cast<int>(i);
    unit_at_.push_back(unit_of_.back());
    rows_[i] = find_lowering(node);
    std::optional<int> split;
    if (rows_[i]) split = required_split(node);
    if (split) {
      unit.fusible = true;
      unit.sizes = node.outputs[0]->meta.sizes;
      unit.split = *split;
      unit.cost = rows_[i]->cost;
    }
    units_.push_back(std::move(unit));
    if (!split) continue;
    for (int input : inputs_[i]) {
      int producer = unit_of_[input];
      int current = unit_of_[i];
      if (producer != current) merge(producer, current);
    }
  }
}

std::unique_ptr<FusedKernel> Scheduler::build_kernel(const Unit& unit,
                                                     ScheduleUnit* out) const {
  Kernel kernel;
  std::unordered_map<const Value*, Lane> lanes;
  auto lane_of = [&](const Value* value) -> Lane {
    auto found = lanes.find(value);
    if (found != lanes.end()) return found->second;
    bool is_float = value->meta.dtype == c10::ScalarType::Float;
    auto shape = classify(value->meta.sizes, unit.sizes);
    FJ_CHECK(shape);
    int operand = static_cast<int>(kernel.operands.size());
    kernel.operands.push_back(
        {is_float ? OperandType::kF32 : OperandType::kBool, shape->walk});
    out->operands.push_back(value);
    Lane lane =
        kernel.body.emit(is_float ? KernelOp::kLoadF : KernelOp::kLoadMask,
                         {-1, -1, -1}, operand);
    lanes[value] = lane;
    return lane;
  };
  FusedKernel::Shape shape;
  auto param_of = [&](const Expr& expr) -> Lane {
    int operand = -1;
    for (const auto& [known, value] : shape.parameters) {
      if (value == expr) operand = known;
    }
    if (operand < 0) {
      operand = static_cast<int>(kernel.operands.size());
      kernel.operands.push_back({OperandType::kF32, Walk::kScalar});
      shape.parameters.emplace_back(operand, expr);
    }
    return kernel.body.emit(KernelOp::kLoadF, {-1, -1, -1}, operand);
  };
  for (int member : unit.members) {
    const Node& node = *nodes_[member];
    Lane lane = lower(*rows_[member], node, kernel.body, lane_of, param_of);
    if (lane < 0) return nullptr;
    lanes[node.outputs[0].get()] = lane;
  }
  kernel.num_inputs = kernel.operands.size();
  for (int member : unit.members) {
    const Value* value = nodes_[member]->outputs[0].get();
    bool needed = graph_results_.count(value) > 0;
    for (const Node* user : value->users) {
      auto number = number_.find(user);
      // The output node is covered by graph_results_.
      if (number == number_.end() || user->op == Opcode::kOutput) continue;
      needed |= unit_of_[number->second] != unit_of_[member];
    }
    if (!needed) continue;
    int operand = static_cast<int>(kernel.operands.size());
    bool is_float = value->meta.dtype == c10::ScalarType::Float;
    kernel.operands.push_back(
        {is_float ? OperandType::kF32 : OperandType::kBool, Walk::kElement});
    kernel.stores.push_back({operand, lanes.at(value)});
    out->results.push_back(value);
  }
  if (kernel.operands.size() > kMaxKernelOperands ||
      kernel.body.nodes().size() > kMaxKernelNodes || kernel.stores.empty()) {
    return nullptr;
  }
  shape.sizes = unit.sizes;
  shape.split = std::max(unit.split, 0);
  return std::make_unique<FusedKernel>(std::move(kernel), std::move(shape));
}

// What a unit needs comes first; usually it is there already. A stack of our
// own: chains of units are as long as graphs.
void Scheduler::emit(int index) {
  std::vector<std::pair<int, bool>> pending = {{index, false}};
  while (!pending.empty()) {
    auto [at, inputs_done] = pending.back();
    pending.pop_back();
    if (inputs_done) {
      emit_alone(at);
      continue;
    }
    Unit& unit = units_[at];
    if (unit.emitted) continue;
    unit.emitted = true;
    pending.emplace_back(at, true);
    size_t first = pending.size();
    for (int member : unit.members) {
      for (int input : inputs_[member]) {
        if (unit_of_[input] != at) pending.emplace_back(unit_of_[input], false);
      }
    }
    std::reverse(pending.begin() + first, pending.end());
  }
}

void Scheduler::emit_alone(int index) {
  Unit& unit = units_[index];
  if (unit.fusible) {
    ScheduleUnit out;
    out.kernel = build_kernel(unit, &out);
    if (out.kernel) {
      result_.push_back(std::move(out));
      return;
    }
    // Dead, or too large after all: one by one.
  }
  for (int member : unit.members) {
    ScheduleUnit out;
    out.node = nodes_[member];
    result_.push_back(std::move(out));
  }
}

std::vector<ScheduleUnit> Scheduler::run() {
  collect();
  group();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    int unit = unit_of_[i];
    // A group runs where its last member stood, or when it is needed.
    if (units_[unit].members.back() == static_cast<int>(i)) emit(unit);
  }
  return std::move(result_);
}

}  // namespace

std::vector<ScheduleUnit> make_schedule(const Graph& graph, bool fuse) {
  if (fuse) return Scheduler(graph).run();
  std::vector<ScheduleUnit> units;
  for (const auto& node : graph.block().nodes) {
    ScheduleUnit unit;
    unit.node = node.get();
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace framejit::backend
