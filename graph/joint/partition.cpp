// Joint graph -> forward and backward graphs.
//
// The forward must compute the user's outputs; the backward the gradients. What
// lies between is free: a value can be saved by the forward or computed again.
// The choice is a minimum cut. Every value is an edge whose capacity is its
// bytes; every operation joins its arguments' edges to its results'. Inputs and
// operations that must not run twice hang on the source, values that the
// backward reads on the sink. The values whose edges are cut are saved.
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/ir/torch_level.h"
#include "graph/joint/joint.h"
#include "graph/joint/min_cut.h"
#include "graph/joint/reader_reach.h"
#include "graph/joint/value_numbers.h"
#include "graph/passes/passes.h"

namespace framejit::graph {

namespace {

// A size at capture; what is not known counts as this.
constexpr int64_t kUnknownSize = 64;

// More than any tensor costs: where nothing else can be saved.
constexpr int64_t kExposed = int64_t{1} << 53;

// The saved values that each value is computed from, by way of values that are
// not saved. Nodes are added in order. Chains share one set, so that this costs
// little however long they are.
class SavedPlaces {
 public:
  using Places = std::vector<size_t>;  // sorted
  using Set = std::shared_ptr<const Places>;

  SavedPlaces() = default;
  explicit SavedPlaces(const std::unordered_map<const Value*, size_t>& saved) {
    for (const auto& [value, place] : saved)
      saved_.emplace(value, std::make_shared<const Places>(Places{place}));
  }

  // `node` reads `value`.
  void add(const Node& node, const Value& value) { add(node, of(value)); }
  // `node` makes what is saved there, and may be run again.
  void add(const Node& node, size_t place) {
    add(node, std::make_shared<const Places>(Places{place}));
  }

  const Set& of(const Value& value) const {
    auto saved = saved_.find(&value);
    if (saved != saved_.end()) return saved->second;
    auto found = of_node_.find(value.node);
    return found == of_node_.end() ? none_ : found->second;
  }

 private:
  void add(const Node& node, const Set& more) {
    Set& set = of_node_.try_emplace(&node, none_).first->second;
    if (more == set || includes(*set, *more)) return;
    if (includes(*more, *set)) {
      set = more;
      return;
    }
    auto both = std::make_shared<Places>();
    std::set_union(set->begin(), set->end(), more->begin(), more->end(),
                   std::back_inserter(*both));
    set = std::move(both);
  }
  static bool includes(const Places& all, const Places& some) {
    return std::includes(all.begin(), all.end(), some.begin(), some.end());
  }

  const Set none_ = std::make_shared<const Places>();
  std::unordered_map<const Value*, Set> saved_;
  std::unordered_map<const Node*, Set> of_node_;
};

class Partitioner {
 public:
  explicit Partitioner(JointGraph joint)
      : joint_(std::move(joint)), graph_(*joint_.graph) {}

  Result<AotGraphs> run() {
    AotGraphs result;
    const ValueNumbers numbers(graph_, joint_.num_primals,
                               joint_.num_user_outputs);
    find_forward_reads(numbers);
    result.readers = readers();
    reach_ = ReaderReach(graph_, joint_.num_primals, joint_.num_user_outputs);
    drop_unread_statistics();
    run_passes(graph_);
    if (joint_.has_backward && has_gradients()) {
      find_tangent_users();
      find_backward_needs();
      find_forward_needs();
      find_clobbered();
      find_exposed();
      find_apart(numbers);
      if (!cut())
        return torch_level_only(TorchLevel::kOldValue, places_of_writes());
      result.read_inputs = find_read_inputs();
      for (Value* value : saved_) {
        saved_places_[value] = saved_inputs_.size();
        add_saved_input(numbers.of(value), *value);
      }
      result.cut = {saved_inputs_, numbers.forward_fingerprint(),
                    numbers.texts()};
      result.saved_readers = find_saved_readers(numbers);
      result.backward = make_backward();
    }
    result.num_saved_tensors = saved_.size();
    result.forward = make_forward();
    result.num_user_outputs = joint_.num_user_outputs;
    result.outputs = std::move(joint_.outputs);
    result.tangent_of = std::move(joint_.tangent_of);
    result.symbol_hints = std::move(joint_.symbol_hints);
    result.facts = std::move(joint_.facts);
    result.touched = std::move(joint_.touched);
    result.made_leaves = std::move(joint_.made_leaves);
    result.differentiates = joint_.differentiates;
    result.num_autograd_nodes = joint_.num_autograd_nodes;
    result.held_inputs = std::move(joint_.held_inputs);
    result.held_outputs = std::move(joint_.held_outputs);
    check(*result.forward);
    if (result.backward) check(*result.backward);
    return result;
  }

  // The backward of another pattern, from what the first trace saved.
  Result<PatternBackward> run_pattern(const ForwardCut& cut) {
    PatternBackward result;
    const ValueNumbers numbers(graph_, joint_.num_primals,
                               joint_.num_user_outputs, cut.texts.get());
    if (numbers.forward_fingerprint() != cut.fingerprint)
      return torch_level_only(TorchLevel::kUnexpected, "",
                              "another trace than the first");
    saved_inputs_ = cut.saved;
    std::unordered_map<int, size_t> places;  // by number
    for (size_t i = 0; i < cut.saved.size(); ++i)
      places.emplace(cut.saved[i].number, i);
    find_forward_reads(numbers);
    result.readers = readers();
    drop_unread_statistics();
    run_passes(graph_);
    if (!joint_.has_backward || !has_gradients()) return result;
    for (auto& node : graph_.block().nodes) {
      for (auto& value : node->outputs) {
        auto found = places.find(numbers.of(value.get()));
        if (found != places.end()) saved_places_[value.get()] = found->second;
      }
    }
    find_tangent_users();
    find_backward_needs();
    find_forward_needs();
    result.graph = make_backward();
    check(*result.graph);
    return result;
  }

 private:
  std::string places_of_writes() const {
    std::string places;
    for (const Graph::Mutation& mutation : graph_.mutations)
      places += (places.empty() ? "" : ", ") +
                place_of_written(graph_, mutation.input, joint_.written_at);
    return places;
  }

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

  // What each autograd node reads of the forward, by value number.
  void find_forward_reads(const ValueNumbers& numbers) {
    for (int64_t node : joint_.saving_nodes) forward_reads_[node];
    std::unordered_set<const Value*> tangents(
        graph_.inputs.begin() + static_cast<long>(joint_.num_primals),
        graph_.inputs.end());
    for (auto& node : graph_.block().nodes) {
      if (node->derivative_of < 0) continue;
      for_each_argument(*node, [&](Value* value) {
        if (value->kind == Value::Kind::kInt || value->node->is_backward ||
            tangents.contains(value))
          return;
        forward_reads_[node->derivative_of].insert(numbers.of(value));
      });
    }
  }

  std::vector<int64_t> readers() const {
    std::vector<int64_t> found;
    for (const auto& [reader, read] : forward_reads_) found.push_back(reader);
    return found;
  }

  // For each saved value the autograd nodes that read it, or what is computed
  // again from it.
  std::vector<std::vector<int64_t>> find_saved_readers(
      const ValueNumbers& numbers) {
    std::unordered_map<int, Value*> by_number;
    for (auto& node : graph_.block().nodes)
      for (auto& value : node->outputs)
        by_number.emplace(numbers.of(value.get()), value.get());
    SavedPlaces from(saved_places_);
    for (auto& node : graph_.block().nodes)
      for_each_argument(*node, [&](Value* value) { from.add(*node, *value); });
    std::vector<std::vector<int64_t>> found(saved_.size());
    for (const auto& [reader, read] : forward_reads_) {
      std::set<size_t> places;
      for (int number : read) {
        auto value = by_number.find(number);
        if (value == by_number.end()) continue;
        const SavedPlaces::Set& some = from.of(*value->second);
        places.insert(some->begin(), some->end());
      }
      for (size_t place : places) found[place].push_back(reader);
    }
    return found;
  }

  // Inputs that the gradients are computed from, or that can make an operation
  // raise: to differentiate the torch level again takes the content of these.
  std::vector<bool> find_read_inputs() {
    std::vector<Value*> wanted;
    auto want = [&](Value* value) { wanted.push_back(value); };
    for (size_t i = joint_.num_user_outputs; i < graph_.outputs.size(); ++i)
      for_each_value(graph_.outputs[i], want);
    for (auto& node : graph_.block().nodes)
      if (node->op != Opcode::kPlaceholder && node->op != Opcode::kOutput &&
          must_run(*node))
        for_each_argument(*node, want);
    std::unordered_set<const Node*> visited;
    while (!wanted.empty()) {
      Node* node = wanted.back()->node;
      wanted.pop_back();
      if (visited.insert(node).second) for_each_argument(*node, want);
    }
    std::vector<bool> read(joint_.num_primals);
    for (size_t i = 0; i < read.size(); ++i)
      read[i] = visited.contains(graph_.inputs[i]->node);
    return read;
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
    std::unordered_set<const Value*> output_roots;
    for (size_t i = 0; i < joint_.num_primals; ++i)
      exposed_.insert(graph_.inputs[i]);
    for (size_t i = 0; i < joint_.num_user_outputs; ++i)
      for_each_value(graph_.outputs[i], [&](Value* value) {
        exposed_.insert(root_of(value));
        output_roots.insert(root_of(value));
      });
    for (const Value* value : read_by_backward_) exposed_.erase(root_of(value));
    // What autograd's formulas begin with.
    for (auto& node : graph_.block().nodes) {
      if (!node->is_backward) continue;
      for_each_argument(*node,
                        [&](Value* value) { exposed_.erase(root_of(value)); });
    }
    find_watched(output_roots);
  }

  // An output that a formula reads is saved in eager, too, and must not be
  // written to before the backward: computing it again would not tell.
  void find_watched(const std::unordered_set<const Value*>& output_roots) {
    auto look_at = [&](Value* value) {
      if (output_roots.contains(root_of(value)) && !clobbered_.contains(value))
        watched_.insert(value);
    };
    for (Value* value : read_by_backward_) look_at(value);
    for (auto& node : graph_.block().nodes)
      if (node->is_backward) for_each_argument(*node, look_at);
  }

  // What eager saves is what it looks at in the backward that reads it, and in
  // no other: with an input or an output that one autograd node has saved,
  // nothing is computed again for another one that runs without it. The program
  // may have written to that tensor then, and rightly.
  void find_apart(const ValueNumbers& numbers) {
    std::unordered_map<int, const Value*> by_number;
    std::unordered_map<const Value*, size_t> places;  // of visible roots
    auto see = [&](const Value* value) {
      if (value->kind == Value::Kind::kTensor)
        places.emplace(root_of(value), places.size());
    };
    for (size_t i = 0; i < joint_.num_primals; ++i) see(graph_.inputs[i]);
    for (size_t i = 0; i < joint_.num_user_outputs; ++i)
      for_each_value(graph_.outputs[i], see);
    SavedPlaces from;
    for (auto& node : graph_.block().nodes) {
      const bool again = !node->is_backward && is_recomputable(*node) &&
                         !from_tangents_.contains(node.get());
      if (again)
        for_each_argument(*node,
                          [&](Value* value) { from.add(*node, *value); });
      for (auto& value : node->outputs) {
        by_number.emplace(numbers.of(value.get()), value.get());
        if (auto root = places.find(value.get()); root != places.end())
          from.add(*node, root->second);
      }
    }
    std::vector<std::vector<int64_t>> direct(places.size());
    auto for_each_read = [&](auto f) {
      for (const auto& [reader, read] : forward_reads_)
        for (int number : read)
          if (auto value = by_number.find(number); value != by_number.end())
            f(reader, value->second);
    };
    for_each_read([&](int64_t reader, const Value* value) {
      auto root = places.find(root_of(value));
      if (root != places.end()) direct[root->second].push_back(reader);
    });
    std::vector<bool> apart(places.size());
    for_each_read([&](int64_t reader, const Value* value) {
      if (places.contains(root_of(value))) return;
      for (size_t place : *from.of(*value)) {
        apart[place] = apart[place] ||
                       std::none_of(direct[place].begin(), direct[place].end(),
                                    [&](int64_t by) {
                                      return reach_.accompanies(by, reader);
                                    });
      }
    });
    for (const auto& [root, place] : places)
      if (apart[place]) apart_.insert(root);
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
    bool primal =
        value->node->op == Opcode::kPlaceholder || watched_.contains(value);
    int64_t price = bytes * (primal ? 2 : 4) + (primal ? 1 : 64);
    return exposed_.contains(root_of(value)) ? price + kExposed : price;
  }

  bool makes_watched_output(const Node& node) const {
    return std::any_of(
        node.outputs.begin(), node.outputs.end(),
        [&](const auto& value) { return watched_.contains(value.get()); });
  }

  bool cut() {
    MinCut flow(2);
    constexpr int kSource = 0, kSink = 1;
    struct Ends {
      int in, out;
      int again;  // for what is computed again from it
    };
    std::unordered_map<const Value*, Ends> ends;
    for (auto& node : graph_.block().nodes) {
      if (node->op == Opcode::kOutput || from_tangents_.contains(node.get()))
        continue;
      int operation = flow.add_vertex();
      bool input = node->op == Opcode::kPlaceholder;
      if (input || (forward_nodes_.contains(node.get()) &&
                    (!is_recomputable(*node) || makes_watched_output(*node))))
        flow.add_edge(kSource, operation, MinCut::kInfinite);
      for_each_argument(*node, [&](Value* value) {
        if (value->kind == Value::Kind::kInt) return;
        const Ends& from = ends.at(value);
        flow.add_edge(node->is_backward ? from.out : from.again, operation,
                      MinCut::kInfinite);
      });
      for (auto& value : node->outputs) {
        Ends pair{flow.add_vertex(), flow.add_vertex(), 0};
        pair.again = pair.out;
        flow.add_edge(operation, pair.in, MinCut::kInfinite);
        const int64_t price = cost(value.get());
        flow.add_edge(pair.in, pair.out, price);
        if (apart_.contains(root_of(value.get()))) {
          pair.again = flow.add_vertex();
          flow.add_edge(pair.in, pair.again,
                        std::min(price + kExposed, MinCut::kInfinite));
        }
        ends[value.get()] = pair;
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
        const auto& side = flow.source_side();
        const Ends& at = found->second;
        if (side[at.in] && (!side[at.out] || !side[at.again]))
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

  void add_saved_input(int number, const Value& value) {
    std::string name = value.name.empty()
                           ? "saved" + std::to_string(saved_inputs_.size())
                           : value.name;
    saved_inputs_.push_back({number, std::move(name), value.meta});
  }

  std::unique_ptr<Graph> make_backward() {
    auto backward = std::make_unique<Graph>();
    std::vector<Value*> inputs;
    for (const ForwardCut::Saved& saved : saved_inputs_)
      inputs.push_back(backward->add_input(saved.name, saved.meta));
    std::unordered_map<const Value*, Value*> map;
    for (const auto& [value, place] : saved_places_) map[value] = inputs[place];
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
      if (copied_.contains(node)) {
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
      FJ_CHECK(from_tangents_.contains(node) ||
                   !forward_nodes_.contains(node) || is_recomputable(*node),
               "an operation that must not run twice");
      copied_.insert(node);
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
      for_each_expr(value, collect);
    };
    auto visit = [&](const Arg& arg) {
      for_each_expr(arg, collect);
      for_each_value(arg, [&](Value* value) { collect_meta(*value); });
    };
    std::unordered_set<const Node*> visited;
    std::vector<Node*> wanted(backward_nodes_.begin(), backward_nodes_.end());
    for (Value* value : read_by_backward_) {
      collect_meta(*value);
      if (!saved_places_.contains(value)) wanted.push_back(value->node);
    }
    while (!wanted.empty()) {
      Node* node = wanted.back();
      wanted.pop_back();
      if (!visited.insert(node).second) continue;
      for (const Arg& arg : node->args) visit(arg);
      for (auto& value : node->outputs) collect_meta(*value);
      for_each_argument(*node, [&](Value* value) {
        if (!saved_places_.contains(value)) wanted.push_back(value->node);
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
  std::unordered_set<const Value*> watched_;
  std::unordered_set<const Value*> apart_;  // roots
  ReaderReach reach_;
  std::vector<Value*> saved_;
  // The saved values as the backward gets them, and which values they are.
  std::vector<ForwardCut::Saved> saved_inputs_;
  std::unordered_map<const Value*, size_t> saved_places_;
  std::unordered_set<const Node*> copied_;
  std::map<int64_t, std::set<int>> forward_reads_;
};

}  // namespace

Result<AotGraphs> partition(JointGraph joint) {
  return Partitioner(std::move(joint)).run();
}

Result<PatternBackward> partition_backward(JointGraph joint,
                                           const ForwardCut& cut) {
  return Partitioner(std::move(joint)).run_pattern(cut);
}

}  // namespace framejit::graph
