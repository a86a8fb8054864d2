// Joint graph -> forward and backward graphs.
//
// The forward must compute the user's outputs; the backward the gradients. What
// lies between is free: a value can be saved by the forward or computed again.
// The choice is a minimum cut. Every value is an edge whose capacity is its
// bytes; every operation joins its arguments' edges to its results'. Inputs and
// operations that must not run twice hang on the source, values that the
// backward reads on the sink. The values whose edges are cut are saved.
#include <c10/core/ScalarType.h>

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/joint.h"
#include "graph/min_cut.h"
#include "graph/passes.h"

namespace framejit::graph {

namespace {

// A size at capture; what is not known counts as this.
constexpr int64_t kUnknownSize = 64;

// More than any tensor costs: where nothing else can be saved.
constexpr int64_t kExposed = int64_t{1} << 53;

class Partitioner {
 public:
  explicit Partitioner(JointGraph joint)
      : joint_(std::move(joint)), graph_(*joint_.graph) {}

  Result<AotGraphs> run() {
    drop_unread_statistics();
    run_passes(graph_);
    AotGraphs result;
    if (joint_.has_backward && has_gradients()) {
      find_tangent_users();
      find_backward_needs();
      find_forward_needs();
      find_clobbered();
      find_exposed();
      if (!cut())
        return Break{BreakReason::kBackendFailed,
                     "the backward needs the old value of an input that the "
                     "forward writes to",
                     {}};
      result.backward = make_backward();
    }
    result.num_saved_tensors = saved_.size();
    result.forward = make_forward();
    result.num_user_outputs = joint_.num_user_outputs;
    result.outputs = std::move(joint_.outputs);
    result.tangent_of = std::move(joint_.tangent_of);
    check(*result.forward);
    if (result.backward) check(*result.backward);
    return result;
  }

 private:
  static void check(const Graph& graph) {
    std::string wrong = verify(graph);
    if (!wrong.empty())
      throw InternalError(__FILE__, __LINE__, "partition: " + wrong);
  }

  bool has_gradients() const {
    for (size_t i = joint_.num_user_outputs; i < graph_.outputs.size(); ++i)
      if (!graph_.outputs[i].is<Arg::None>()) return true;
    return false;
  }

  // batch norm's backward in training does not read the running statistics,
  // which the forward has overwritten by then.
  void drop_unread_statistics() {
    for (auto& node : graph_.block().nodes) {
      if (!node->aten ||
          node->aten->schema().name() != "aten::native_batch_norm_backward")
        continue;
      bool training = node->args.size() > 7 && node->args[7].is<bool>() &&
                      node->args[7].get<bool>();
      if (!training) continue;
      node->args[3] = Arg();
      node->args[4] = Arg();
    }
    graph_.rebuild_uses();
  }

  void find_tangent_users() {
    for (size_t i = joint_.num_primals; i < graph_.inputs.size(); ++i)
      from_tangents_.insert(graph_.inputs[i]->node);
    for (auto& node : graph_.block().nodes) {
      for_each_argument(*node, [&](Value* value) {
        if (from_tangents_.contains(value->node))
          from_tangents_.insert(node.get());
      });
    }
  }

  template <class F>
  static void for_each_argument(Node& node, const F& f) {
    if (node.op == Opcode::kOutput) return;
    for (const Arg& arg : node.args)
      for_each_value(arg, [&](Value* value) { f(value); });
  }

  // Nodes that run in the backward for sure, and the values they read.
  void find_backward_needs() {
    std::vector<Value*> wanted;
    for (size_t i = joint_.num_user_outputs; i < graph_.outputs.size(); ++i)
      for_each_value(graph_.outputs[i],
                     [&](Value* value) { wanted.push_back(value); });
    while (!wanted.empty()) {
      Value* value = wanted.back();
      wanted.pop_back();
      if (!from_tangents_.contains(value->node)) {
        read_by_backward_.insert(value);
        continue;
      }
      if (!backward_nodes_.insert(value->node).second) continue;
      for_each_argument(*value->node,
                        [&](Value* arg) { wanted.push_back(arg); });
    }
  }

  // Nodes that the forward runs for the user's sake.
  void find_forward_needs() {
    std::vector<Node*> wanted;
    auto want = [&](Value* value) { wanted.push_back(value->node); };
    for (size_t i = 0; i < joint_.num_user_outputs; ++i)
      for_each_value(graph_.outputs[i], want);
    for (const auto& mutation : graph_.mutations) want(mutation.value);
    for (auto& node : graph_.block().nodes)
      if (node->op != Opcode::kPlaceholder && node->op != Opcode::kOutput &&
          must_run(*node) && !from_tangents_.contains(node.get()))
        wanted.push_back(node.get());
    while (!wanted.empty()) {
      Node* node = wanted.back();
      wanted.pop_back();
      if (!forward_nodes_.insert(node).second) continue;
      for_each_argument(*node,
                        [&](Value* value) { wanted.push_back(value->node); });
    }
  }

  // The memory of an input that the forward commits to holds something else
  // when the backward runs: neither it nor a view of it may be saved.
  void find_clobbered() {
    for (const auto& mutation : graph_.mutations)
      clobbered_.insert(graph_.inputs[mutation.input]);
    if (clobbered_.empty()) return;
    for (auto& node : graph_.block().nodes) {
      for (Value* value : aliased_arguments(*node)) {
        if (!clobbered_.contains(value)) continue;
        for (auto& result : node->outputs) clobbered_.insert(result.get());
      }
    }
  }

  // What shares memory with it is written to with it.
  const Value* root_of(const Value* value) const {
    auto found = roots_.find(value);
    return found == roots_.end() ? value : found->second;
  }

  // The program can write to an input or an output before the backward runs,
  // which autograd then refuses, as in eager: but only where eager saves it,
  // too (a backward reads it, and not something that is computed of it).
  void find_exposed() {
    for (auto& node : graph_.block().nodes) {
      auto sources = aliased_arguments(*node);
      if (sources.empty()) continue;
      for (auto& result : node->outputs)
        roots_[result.get()] = root_of(sources[0]);
    }
    for (size_t i = 0; i < joint_.num_primals; ++i)
      exposed_.insert(graph_.inputs[i]);
    for (size_t i = 0; i < joint_.num_user_outputs; ++i)
      for_each_value(graph_.outputs[i],
                     [&](Value* value) { exposed_.insert(root_of(value)); });
    for (const Value* value : read_by_backward_) exposed_.erase(root_of(value));
    // What autograd's formulas begin with.
    for (auto& node : graph_.block().nodes) {
      if (!node->is_backward) continue;
      for_each_argument(*node,
                        [&](Value* value) { exposed_.erase(root_of(value)); });
    }
  }

  int64_t evaluate(const Expr& expr) const {
    if (expr.is_const()) return expr.constant();
    std::vector<int> used;
    expr.collect_symbols(&used);
    std::vector<int64_t> hints = joint_.symbol_hints;
    if (!used.empty() && used.back() >= static_cast<int>(hints.size()))
      hints.resize(used.back() + 1, kUnknownSize);
    int64_t value = 0;
    return expr.try_evaluate(hints.data(), &value) ? value : kUnknownSize;
  }

  int64_t cost(Value* value) const {
    if (value->kind == Value::Kind::kInt) return 0;  // from symbols
    if (value->kind == Value::Kind::kOther || clobbered_.contains(value))
      return MinCut::kInfinite;
    int64_t bytes = c10::elementSize(value->meta.dtype);
    for (const Expr& size : value->meta.sizes) {
      bytes *= std::max<int64_t>(evaluate(size), 1);
      bytes = std::min<int64_t>(bytes, int64_t{1} << 50);
    }
    // The caller holds the inputs in any case (parameters always); a computed
    // value is alive only because it was saved. The constant makes one tensor
    // better than two of half the size.
    bool primal = value->node->op == Opcode::kPlaceholder;
    int64_t price = bytes * (primal ? 2 : 4) + (primal ? 1 : 64);
    return exposed_.contains(root_of(value)) ? price + kExposed : price;
  }

  bool cut() {
    MinCut flow(2);
    constexpr int kSource = 0, kSink = 1;
    struct Ends {
      int in, out;
    };
    std::unordered_map<const Value*, Ends> ends;
    for (auto& node : graph_.block().nodes) {
      if (node->op == Opcode::kOutput || from_tangents_.contains(node.get()))
        continue;
      int operation = flow.add_vertex();
      bool input = node->op == Opcode::kPlaceholder;
      if (input ||
          (forward_nodes_.contains(node.get()) && !is_recomputable(*node)))
        flow.add_edge(kSource, operation, MinCut::kInfinite);
      for_each_argument(*node, [&](Value* value) {
        if (value->kind != Value::Kind::kInt)
          flow.add_edge(ends.at(value).out, operation, MinCut::kInfinite);
      });
      for (auto& value : node->outputs) {
        Ends pair{flow.add_vertex(), flow.add_vertex()};
        ends[value.get()] = pair;
        flow.add_edge(operation, pair.in, MinCut::kInfinite);
        flow.add_edge(pair.in, pair.out, cost(value.get()));
        if (read_by_backward_.contains(value.get()))
          flow.add_edge(pair.out, kSink, MinCut::kInfinite);
      }
    }
    if (flow.solve(kSource, kSink) >= MinCut::kInfinite) return false;
    for (auto& node : graph_.block().nodes) {
      for (auto& value : node->outputs) {
        auto found = ends.find(value.get());
        if (found == ends.end() || value->kind != Value::Kind::kTensor)
          continue;
        if (flow.source_side()[found->second.in] &&
            !flow.source_side()[found->second.out])
          saved_.push_back(value.get());
      }
    }
    drop_unread_saved();
    return true;
  }

  // A cut edge that no path to the backward crosses is not saved (zero-cost
  // values lie on either side).
  void drop_unread_saved() {
    std::unordered_set<const Value*> cut(saved_.begin(), saved_.end()), read;
    std::unordered_set<const Node*> visited;
    std::vector<Value*> wanted(read_by_backward_.begin(),
                               read_by_backward_.end());
    while (!wanted.empty()) {
      Value* value = wanted.back();
      wanted.pop_back();
      if (cut.contains(value)) {
        read.insert(value);
        continue;
      }
      if (!visited.insert(value->node).second) continue;
      for_each_argument(*value->node,
                        [&](Value* arg) { wanted.push_back(arg); });
    }
    std::erase_if(saved_, [&](Value* value) { return !read.contains(value); });
  }

  // ---- the two graphs

  std::unique_ptr<Graph> make_forward() {
    std::vector<Arg> outputs(
        graph_.outputs.begin(),
        graph_.outputs.begin() + static_cast<long>(joint_.num_user_outputs));
    for (Value* value : saved_) outputs.push_back(Arg(value));
    graph_.set_outputs(std::move(outputs));
    // Tangents and all that follows from them.
    auto& nodes = graph_.block().nodes;
    for (auto at = nodes.end(); at != nodes.begin();) {
      --at;
      Node* node = at->get();
      if (node->op == Opcode::kOutput || !from_tangents_.contains(node))
        continue;
      ++at;
      graph_.erase(node);
    }
    while (graph_.inputs.size() > joint_.num_primals)
      graph_.erase(graph_.inputs.back()->node);
    remove_dead_code(graph_);
    for (auto& node : nodes) node->is_backward = false;
    return std::move(joint_.graph);
  }

  std::unique_ptr<Graph> make_backward() {
    auto backward = std::make_unique<Graph>();
    std::unordered_map<const Value*, Value*> map;
    for (size_t i = 0; i < saved_.size(); ++i) {
      std::string name = saved_[i]->name.empty() ? "saved" + std::to_string(i)
                                                 : saved_[i]->name;
      map[saved_[i]] = backward->add_input(name, saved_[i]->meta);
    }
    for (const auto& [index, symbol] : symbols_of_backward())
      backward->add_symbol_input(symbol.str(), symbol);
    for (size_t i = joint_.num_primals; i < graph_.inputs.size(); ++i) {
      Value* tangent = graph_.inputs[i];
      map[tangent] = backward->add_input(
          tangent->name.empty() ? "tangent" : tangent->name, tangent->meta);
    }
    for (auto& node : graph_.block().nodes)
      if (backward_nodes_.contains(node.get()) &&
          node->op != Opcode::kPlaceholder)
        copy_with_arguments(node.get(), *backward, map);
    std::vector<Arg> outputs(
        graph_.outputs.begin() + static_cast<long>(joint_.num_user_outputs),
        graph_.outputs.end());
    for (Arg& output : outputs) {
      for_each_value(static_cast<const Arg&>(output), [&](Value* value) {
        if (!map.contains(value))
          copy_with_arguments(value->node, *backward, map);
      });
      translate(output, map);
    }
    backward->set_outputs(std::move(outputs));
    backward->keep_alive = graph_.keep_alive;
    remove_dead_code(*backward);
    return backward;
  }

  // Integers are given as expressions: the executor knows the symbols.
  static void translate(Arg& arg,
                        const std::unordered_map<const Value*, Value*>& map) {
    if (arg.is<Value*>()) {
      Value* value = arg.get<Value*>();
      auto found = map.find(value);
      if (found != map.end()) {
        arg = Arg(found->second);
      } else {
        FJ_CHECK(value->kind == Value::Kind::kInt, "value not available");
        arg = Arg(value->expr);
      }
    } else if (auto* list = std::get_if<Arg::List>(&arg.value)) {
      for (Arg& item : list->items) translate(item, map);
    } else if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value)) {
      for (Arg& item : tuple->items) translate(item, map);
    }
  }

  // Copies a node and, before it, what it needs that is not there yet: so a
  // value is computed again just before its first use.
  void copy_with_arguments(Node* root, Graph& into,
                           std::unordered_map<const Value*, Value*>& map) {
    std::vector<Node*> stack{root};
    while (!stack.empty()) {
      Node* node = stack.back();
      if (!node->outputs.empty() && map.contains(node->outputs[0].get())) {
        stack.pop_back();
        continue;
      }
      size_t before = stack.size();
      for_each_argument(*node, [&](Value* value) {
        if (!map.contains(value) && value->kind != Value::Kind::kInt)
          stack.push_back(value->node);
      });
      if (stack.size() > before) continue;
      stack.pop_back();
      copy(*node, into, map);
    }
  }

  static void copy(Node& node, Graph& into,
                   std::unordered_map<const Value*, Value*>& map) {
    FJ_CHECK(node.op != Opcode::kPlaceholder, "input not saved");
    auto made = std::make_unique<Node>();
    made->op = node.op;
    made->callable = node.callable;
    made->aten = node.aten;
    made->args = node.args;
    made->outputs_are_list = node.outputs_are_list;
    made->span = node.span;
    made->is_backward = true;
    made->must_keep = node.must_keep;
    for (Arg& arg : made->args) translate(arg, map);
    Node* placed = into.append(std::move(made));
    for (auto& value : node.outputs) {
      Value* twin = into.add_output(placed, value->kind);
      twin->meta = value->meta;
      twin->expr = value->expr;
      // A saved result of a node that is also run again keeps its input.
      map.emplace(value.get(), twin);
    }
  }

  std::map<int, Expr> symbols_of_backward() {
    std::map<int, Expr> symbols;
    auto collect = [&](const Expr& expr) { expr.collect_symbols(&symbols); };
    auto collect_meta = [&](const Value& value) {
      collect(value.expr);
      for (const Expr& size : value.meta.sizes) collect(size);
      for (const Expr& stride : value.meta.strides) collect(stride);
      collect(value.meta.storage_offset);
    };
    std::function<void(const Arg&)> visit = [&](const Arg& arg) {
      if (arg.is<Expr>()) collect(arg.get<Expr>());
      if (arg.is<Value*>()) collect_meta(*arg.get<Value*>());
      if (arg.is<Arg::List>())
        for (const Arg& item : arg.get<Arg::List>().items) visit(item);
    };
    std::unordered_set<const Value*> saved(saved_.begin(), saved_.end());
    std::unordered_set<const Node*> visited;
    std::vector<Node*> wanted(backward_nodes_.begin(), backward_nodes_.end());
    for (Value* value : read_by_backward_) {
      collect_meta(*value);
      if (!saved.contains(value)) wanted.push_back(value->node);
    }
    while (!wanted.empty()) {
      Node* node = wanted.back();
      wanted.pop_back();
      if (!visited.insert(node).second) continue;
      for (const Arg& arg : node->args) visit(arg);
      for (auto& value : node->outputs) collect_meta(*value);
      for_each_argument(*node, [&](Value* value) {
        if (!saved.contains(value)) wanted.push_back(value->node);
      });
    }
    return symbols;
  }

  JointGraph joint_;
  Graph& graph_;
  std::unordered_set<const Node*> from_tangents_;
  std::unordered_set<Node*> backward_nodes_;
  std::unordered_set<const Node*> forward_nodes_;
  std::unordered_set<Value*> read_by_backward_;
  std::unordered_set<const Value*> clobbered_;
  std::unordered_map<const Value*, const Value*> roots_;
  std::unordered_set<const Value*> exposed_;  // roots
  std::vector<Value*> saved_;
};

}  // namespace

Result<AotGraphs> partition(JointGraph joint) {
  return Partitioner(std::move(joint)).run();
}

}  // namespace framejit::graph
