#include "backend/backward_code.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <unordered_set>

#include "backend/profiled.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/notices.h"
#include "frame_hook/python_text.h"
#include "graph/ir/torch_level.h"
#include "graph/ops/alias_analysis.h"
#include "graph/passes/passes.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::backend {

using graph::AliasAnalysis;
using graph::AotGraphs;
using graph::Arg;
using graph::BackwardPattern;
using graph::Graph;
using graph::Value;

namespace {

// Backwards after which a site is judged by what it is used for.
constexpr int kEnoughToJudge = 4;

std::vector<int> tensor_inputs_of(const Graph& graph) {
  std::vector<int> found;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i]->kind != Value::Kind::kInt)
      found.push_back(static_cast<int>(i));
  }
  return found;
}

// A replay needs more of what was saved than the program of a pattern does, and
// would raise where that has been written to since. So a compilation on another
// thread is waited for, but not for long: it may wait for this thread.
bool wait_for_others(std::optional<OnlyCompilation>* only) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kLongest{5};
  constexpr std::chrono::milliseconds kPause{1};
  const Clock::time_point end = Clock::now() + kLongest;
  while (true) {
    only->emplace();
    if ((*only)->ok()) return true;
    only->reset();
    if (OnlyCompilation::is_under_way_here() || Clock::now() > end)
      return false;
    PyThreadState* thread = PyEval_SaveThread();
    std::this_thread::sleep_for(kPause);
    PyEval_RestoreThread(thread);
  }
}

// One more than the last symbol the graph mentions.
size_t count_symbols(const Graph& graph) {
  std::vector<int> symbols;
  auto add = [&](const Expr& expr) { expr.collect_symbols(&symbols); };
  for (const auto& node : graph.block().nodes) {
    for (const Arg& arg : node->args) graph::for_each_expr(arg, add);
    for (const auto& output : node->outputs) graph::for_each_expr(*output, add);
  }
  size_t count = 0;
  for (int symbol : symbols) count = std::max<size_t>(count, symbol + 1);
  return count;
}

bool draws_numbers(const Graph& graph) {
  const auto& nodes = graph.block().nodes;
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const auto& node) { return graph::is_random(*node); });
}

// What is computed from this input of the graph.
std::unordered_set<const Value*> computed_from(const Graph& graph,
                                               const Value* input) {
  std::unordered_set<const Value*> found{input};
  for (const auto& node : graph.block().nodes) {
    bool reads = false;
    auto look = [&](const Value* value) { reads |= found.contains(value); };
    for (const Arg& arg : node->args) graph::for_each_value(arg, look);
    for (const auto& [name, arg] : node->kwargs)
      graph::for_each_value(arg, look);
    if (!reads) continue;
    for (const auto& output : node->outputs) found.insert(output.get());
  }
  return found;
}

// Must a gradient be copied, because what is saved or another one may share
// its memory?
bool shares_memory(const Graph& backward, size_t output, size_t num_saved,
                   const std::vector<int>& tensor_inputs,
                   const AliasAnalysis& aliases) {
  const Value* gradient = tensor_of(backward.outputs[output]);
  for (size_t i = 0; i < num_saved; ++i) {
    if (aliases.may_alias(gradient, backward.inputs[tensor_inputs[i]]))
      return true;
  }
  for (const Value* root : aliases.roots(gradient)) {
    if (root->node->op == graph::Opcode::kGetAttr) return true;
  }
  for (size_t i = 0; i < output; ++i) {
    const Value* other = tensor_of(backward.outputs[i]);
    if (other && other != gradient && aliases.may_alias(gradient, other))
      return true;
  }
  return false;
}

// For each user output the saved value that it is, or -1.
std::vector<int> outputs_saved_as(const AotGraphs& graphs) {
  const std::vector<Arg>& outputs = graphs.forward->outputs;
  std::vector<int> found(graphs.num_user_outputs, -1);
  int saved = 0;
  for (size_t i = graphs.num_user_outputs; i < outputs.size(); ++i) {
    const Value* value = tensor_of(outputs[i]);
    if (!value) continue;  // a symbol
    for (size_t j = 0; j < graphs.num_user_outputs; ++j)
      if (tensor_of(outputs[j]) == value) found[j] = saved;
    ++saved;
  }
  return found;
}

}  // namespace

bool BackwardProgram::holds(const int64_t* symbols) const {
  return std::all_of(
      conditions.begin(), conditions.end(), [&](const Expr& condition) {
        int64_t value = 0;
        return condition.try_evaluate(symbols, &value) && value != 0;
      });
}

bool BackwardProgram::reads(int saved_value) const {
  return std::any_of(saved.begin(), saved.end(), [&](const auto& read) {
    return read.second == saved_value;
  });
}

Result<std::shared_ptr<BackwardCode>> BackwardCode::build(
    std::shared_ptr<const graph::TorchGraph> torch_graph,
    const AotGraphs& graphs, const ProgramOptions& options,
    std::vector<bool> saved_last, std::vector<int> saved_as) {
  std::shared_ptr<BackwardCode> code(new BackwardCode);
  code->saved_last_ = std::move(saved_last);
  code->saved_as_ = std::move(saved_as);
  const Graph& backward = *graphs.backward;
  code->options_ = options;
  // What the trace did not predict is put right, or the call is replayed.
  code->options_.repair_strides = true;
  code->options_.level = "backward";
  code->options_.frees_inputs = true;
  code->options_.hints = graphs.symbol_hints;
  code->uses_random_ = torch_graph->uses_random;
  code->replay_ = TorchReplay::make(std::move(torch_graph));
  code->tangent_of_ = graphs.tangent_of;
  code->find_passed(graphs);
  code->read_inputs_ = graphs.read_inputs;
  code->held_inputs_ = graphs.held_inputs;
  code->held_inputs_.resize(graphs.forward->inputs.size());
  code->held_outputs_ = graphs.held_outputs;
  code->held_outputs_.resize(graphs.num_user_outputs);
  code->cut_ = graphs.cut;
  code->saved_readers_ = graphs.saved_readers;
  code->saved_readers_.resize(graphs.num_saved_tensors);
  for (size_t i = 0; i < code->held_inputs_.size(); ++i) {
    if (code->saved_as_.at(i) < 0) continue;
    auto& readers = code->saved_readers_.at(code->saved_as_[i]);
    const auto& more = code->held_inputs_[i].readers;
    readers.insert(readers.end(), more.begin(), more.end());
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  }
  code->output_saved_as_ = outputs_saved_as(graphs);
  for (int output : graphs.tangent_of)
    code->passages_.push_back(code->passage_of(graphs, output));
  code->num_inputs_ = graphs.forward->inputs.size();
  code->num_saved_ = graphs.num_saved_tensors;
  code->num_symbols_ =
      std::max(graphs.symbol_hints.size(), count_symbols(backward));
  code->num_autograd_nodes_ = graphs.num_autograd_nodes;
  code->symbol_hints_ = graphs.symbol_hints;
  code->facts_ = graphs.facts;
  std::vector<int> tensor_inputs = tensor_inputs_of(backward);
  const size_t num_tangents = graphs.tangent_of.size();
  FJ_CHECK(tensor_inputs.size() == code->num_saved() + num_tangents);
  std::vector<int> tangents;
  for (size_t i = 0; i < num_tangents; ++i) {
    const auto& meta =
        backward.inputs[tensor_inputs[code->num_saved() + i]]->meta;
    code->tangents_.push_back({meta.strides, graph::is_contiguous(meta)});
    tangents.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < backward.outputs.size(); ++i) {
    if (tensor_of(backward.outputs[i]))
      code->edge_inputs_.push_back(static_cast<int>(i));
  }
  code->find_parts(graphs);
  code->find_partial_inputs(backward, tensor_inputs);
  FJ_TRY(auto complete, code->make_program(backward, tangents));
  code->note_readers(graphs.readers, complete.get());
  code->complete_ = std::move(complete);
  return code;
}

void BackwardCode::find_passed(const AotGraphs& graphs) {
  passed_ = tangent_of_;
  auto is_there = [&](int output) {
    return std::find(passed_.begin(), passed_.end(), output) != passed_.end();
  };
  for (int of : tangent_of_)
    for (int output : graphs.outputs[of].behind) {
      const graph::OutputInfo& info = graphs.outputs[output];
      // Not of what is spent.
      if (!is_there(output) && info.passes_base && is_there(info.base))
        passed_.push_back(output);
    }
}

void BackwardCode::find_parts(const AotGraphs& graphs) {
  auto contains = [](const std::vector<int>& all, int one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  const int num_tangents = static_cast<int>(tangent_of_.size());
  auto info = [&](int tangent) -> const graph::OutputInfo& {
    return graphs.outputs[tangent_of_[tangent]];
  };
  // A view leads to its base.
  auto behind = [&](int tangent) {
    std::vector<int> found = info(tangent).behind;
    for (int& output : found)
      if (graphs.outputs[output].passes_base)
        output = graphs.outputs[output].base;
    return found;
  };
  std::map<std::vector<int>, std::vector<int>> edges;
  for (size_t edge = 0; num_tangents > 1 && edge < edge_inputs_.size();
       ++edge) {
    std::vector<int> tangents;
    for (int i = 0; i < num_tangents; ++i)
      if (info(i).reached.empty() ||
          contains(info(i).reached, edge_inputs_[edge]))
        tangents.push_back(i);
    if (tangents.empty()) {  // not known
      tangents.resize(num_tangents);
      std::iota(tangents.begin(), tangents.end(), 0);
    }
    edges[std::move(tangents)].push_back(static_cast<int>(edge));
  }
  for (const auto& [tangents, of_part] : edges) {
    BackwardPart part{of_part, tangents, {}};
    for (int i : tangents)
      if (std::none_of(tangents.begin(), tangents.end(), [&](int other) {
            return contains(behind(i), tangent_of_[other]);
          }))
        part.direct.push_back(i);
    parts_.push_back(std::move(part));
  }
  const bool all_alike =
      parts_.size() == 1 &&
      parts_[0].tangents.size() == static_cast<size_t>(num_tangents);
  if (all_alike) parts_.clear();
}

void BackwardCode::find_partial_inputs(const Graph& backward,
                                       const std::vector<int>& tensor_inputs) {
  std::set<int> partial;
  for (size_t i = 0; tangent_of_.size() > 1 && i < tangent_of_.size(); ++i) {
    auto computed = computed_from(
        backward, backward.inputs[tensor_inputs[num_saved() + i]]);
    auto look = [&](int input) {
      if (!computed.contains(tensor_of(backward.outputs[input])))
        partial.insert(input);
    };
    for (const BackwardPart& part : parts_)
      if (std::find(part.tangents.begin(), part.tangents.end(), i) !=
          part.tangents.end())
        for (int edge : part.edges) look(edge_inputs_[edge]);
    if (parts_.empty())
      for (int input : edge_inputs_) look(input);
  }
  partial_inputs_.assign(partial.begin(), partial.end());
}

Passage BackwardCode::passage_of(const AotGraphs& graphs, int output) const {
  const graph::OutputInfo& info = graphs.outputs[output];
  Passage passage;
  for (size_t i = 0; i < info.behind.size(); ++i) {
    if (!std::count(passed_.begin(), passed_.end(), info.behind[i])) continue;
    passage.ways.push_back(looks_of(info.ways[i]));
    std::vector<int64_t>& nodes = passage.nodes.emplace_back();
    for (int64_t node : info.ways[i])
      if (std::binary_search(graphs.readers.begin(), graphs.readers.end(),
                             node))
        nodes.push_back(node);
  }
  passage.beside = looks_of(info.beside_ways);
  return passage;
}

// tangents: the outputs of the node whose tangents the graph gets.
Result<std::shared_ptr<BackwardProgram>> BackwardCode::make_program(
    const Graph& backward, const std::vector<int>& tangents) const {
  auto made = std::make_shared<BackwardProgram>();
  std::vector<int> tensor_inputs = tensor_inputs_of(backward);
  FJ_CHECK(tensor_inputs.size() == num_saved() + tangents.size());
  for (size_t i = 0; i < tensor_inputs.size(); ++i) {
    if (backward.inputs[tensor_inputs[i]]->users.empty()) continue;
    if (i < num_saved())
      made->saved.emplace_back(tensor_inputs[i], static_cast<int>(i));
    else
      made->tangents.emplace_back(tensor_inputs[i], tangents[i - num_saved()]);
  }
  AliasAnalysis aliases(backward);
  for (int input : edge_inputs_) {
    BackwardProgram::Gradient gradient;
    if (tensor_of(backward.outputs.at(input))) {
      gradient.output = input;
      gradient.copy =
          shares_memory(backward, input, num_saved(), tensor_inputs, aliases);
    }
    made->gradients.push_back(gradient);
  }
  made->uses_random = draws_numbers(backward);
  ProgramOptions options = options_;
  options.last_inputs.resize(backward.inputs.size());
  for (size_t i = 0; i < num_saved(); ++i)
    options.last_inputs[tensor_inputs[i]] = saved_last_.at(i);
  FJ_TRY(made->program, Program::build(backward, options));
  return made;
}

LooksAt BackwardCode::looks_of(const std::vector<int64_t>& readers) const {
  const std::unordered_set<int64_t> known(readers.begin(), readers.end());
  LooksAt found;
  auto look = [&](const std::vector<graph::HeldTensor>& held,
                  const std::vector<int>& saved_as, std::vector<bool>* looks) {
    for (size_t i = 0; i < held.size(); ++i) {
      looks->push_back(
          std::any_of(held[i].readers.begin(), held[i].readers.end(),
                      [&](int64_t reader) { return known.contains(reader); }));
      if (looks->back() && saved_as.at(i) >= 0)
        found.saved.push_back(saved_as[i]);
    }
  };
  look(held_inputs_, saved_as_, &found.inputs);
  look(held_outputs_, output_saved_as_, &found.outputs);
  return found;
}

void BackwardCode::note_readers(std::vector<int64_t> readers,
                                BackwardProgram* program) const {
  program->looks_at = looks_of(readers);
  program->readers = std::move(readers);
}

Result<std::shared_ptr<const BackwardProgram>> BackwardCode::trace(
    const BackwardPattern& pattern) const {
  BackwardPattern of_graph{pattern.tangents, std::vector<bool>(num_inputs_),
                           pattern.casts, pattern.default_dtype};
  for (size_t i = 0; i < edge_inputs_.size(); ++i)
    of_graph.inputs[edge_inputs_[i]] = pattern.inputs[i];
  std::vector<int> tangents;
  for (size_t i = 0; i < pattern.tangents.size(); ++i)
    if (pattern.tangents[i]) tangents.push_back(static_cast<int>(i));

  FJ_CHECK(symbol_hints_.size() == num_symbols_, "sizes without a hint");
  CompilingScope compiling;
  ForwardState state(*replay_, {});
  GuardSet guards;
  for (size_t i = 0; i < symbol_hints_.size(); ++i)
    guards.add_symbol(guards.sources().arg(static_cast<int>(i)),
                      symbol_hints_[i]);
  for (const Expr& fact : facts_) guards.add_expr(fact);
  const size_t num_known = guards.guards().size();
  FJ_TRY(graph::JointGraph joint,
         graph::trace_joint(replay_->graph(), &guards, &of_graph));
  FJ_TRY(graph::PatternBackward backward,
         graph::partition_backward(std::move(joint), cut_));
  auto made = std::make_shared<BackwardProgram>();
  made->gradients.resize(edge_inputs_.size());
  if (backward.graph) {
    FJ_TRY(made, make_program(*backward.graph, tangents));
  }
  note_readers(std::move(backward.readers), made.get());
  for (size_t i = num_known; i < guards.guards().size(); ++i) {
    const Guard& guard = guards.guards()[i];
    FJ_CHECK(guard.kind == GuardKind::kShapeExpr);
    made->conditions.push_back(guard.expr);
  }
  return std::shared_ptr<const BackwardProgram>(std::move(made));
}

std::shared_ptr<const BackwardProgram> BackwardCode::find(
    BackwardPattern pattern, const int64_t* symbols) {
  auto usable = [&](const std::shared_ptr<const BackwardProgram>& program) {
    return program && program->holds(symbols) ? program : nullptr;
  };
  auto made_before = [&](std::shared_ptr<const BackwardProgram>* program) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Made& made : made_) {
      if (made.pattern != pattern) continue;
      made.last_use = ++uses_;
      *program = made.program;
      return true;
    }
    return false;
  };
  std::shared_ptr<const BackwardProgram> program;
  if (made_before(&program)) return usable(program);
  {
    // Whatever holds Python objects dies before the GIL is given back.
    graph::HoldGil gil;
    std::optional<OnlyCompilation> only;
    if (!wait_for_others(&only)) return nullptr;
    if (made_before(&program)) return usable(program);
    ErrorGuard error;
    Interjections interjections;
    try {
      auto traced = trace(pattern);
      if (traced.ok())
        program = traced.take();
      else if (interrupted())
        return nullptr;
      else
        log("no backward for this use of it: " +
            (traced.broke() ? format_break(traced.brk()) : take_error_text()));
    } catch (const InternalError& failure) {
      log("no backward for this use of it: " + failure.message());
    } catch (const std::exception& failure) {
      log(std::string("no backward for this use of it: ") + failure.what());
    }
  }
  std::vector<Made> dropped;  // dies behind the lock
  std::lock_guard<std::mutex> lock(mutex_);
  if (made_.size() >= kMaxPrograms) {
    auto oldest = std::min_element(
        made_.begin(), made_.end(),
        [](const Made& a, const Made& b) { return a.last_use < b.last_use; });
    dropped.push_back(std::move(*oldest));
    made_.erase(oldest);
  }
  made_.push_back({std::move(pattern), program, ++uses_});
  return usable(program);
}

std::string BackwardCode::line(const std::string& text) const {
  std::string where;
  for (const auto& node : replay_->graph().graph->block().nodes) {
    // Not the line of no_grad() itself.
    const bool is_state = node->op == graph::Opcode::kStateEnter ||
                          node->op == graph::Opcode::kStateExit;
    if (where.empty() && node->span.code && !is_state)
      where = graph::line_in_program(node->span, node->caller);
  }
  return "gradient of the graph at " + (where.empty() ? "?" : where) + ": " +
         text;
}

void BackwardCode::log(const std::string& text) const {
  log_event(Channel::k_fallbacks, line(text));
}

void BackwardCode::tell(const std::string& why) const {
  *reason_of_calls_ = why;
  log_notice(Notice::kAsCaptured, line(why));
}

void BackwardCode::count(Use use) {
  if (use == Use::kPlain) {
    plain_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const bool watched = use == Use::kWatched;
  const int replayed = ++replayed_;
  const bool first = !logged_.exchange(true);
  const bool judged = replayed >= kEnoughToJudge && replayed > 2 * plain_ &&
                      !prefers_torch_level_.exchange(true);
  if (!first && !judged) return;
  graph::HoldGil gil;
  if (first)
    log(std::string(watched ? "somebody looks at what passes through an output"
                            : "it is differentiated itself") +
        "; the captured calls run again at torch level for that");
  if (judged)
    tell(std::string(watched ? "so it is with most of them"
                             : "most are differentiated themselves") +
         "; calls run at torch level from now on");
}

void BackwardCode::give_up(const std::string& why) {
  if (prefers_torch_level_.exchange(true)) return;
  graph::HoldGil gil;
  tell(why + "; calls run at torch level from now on");
}

}  // namespace framejit::backend
