#include "backend/aot_part.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace framejit::backend {

using torch::autograd::variable_list;

namespace {

torch::autograd::edge_list edges_of(const AotNode& whole,
                                    const BackwardPart& part) {
  torch::autograd::edge_list edges;
  for (int edge : part.edges) edges.push_back(whole.next_edge(edge));
  return edges;
}

// Torch lets a long history go node by node, by the edges. A part leads to the
// whole by no edge: nodes that die on the way to another one wait for that.
void let_go(graph::NodePtr<AotNode> node) {
  thread_local std::vector<graph::NodePtr<AotNode>>* waiting = nullptr;
  if (waiting) {
    waiting->push_back(std::move(node));
    return;
  }
  std::vector<graph::NodePtr<AotNode>> nodes;
  waiting = &nodes;
  node.reset();
  while (!nodes.empty()) {
    node = std::move(nodes.back());
    nodes.pop_back();
    node.reset();
  }
  waiting = nullptr;
}

}  // namespace

AotPart::AotPart(const graph::NodePtr<AotNode>& whole, size_t part)
    : Node(edges_of(*whole, whole->parts().at(part))),
      whole_(whole),
      part_(part) {}

AotPart::~AotPart() { let_go(std::move(whole_)); }

uint32_t AotPart::place_of(int tangent) const {
  const std::vector<int>& direct = whole_->parts().at(part_).direct;
  return static_cast<uint32_t>(
      std::find(direct.begin(), direct.end(), tangent) - direct.begin());
}

variable_list AotPart::apply(variable_list&& grads) {
  return whole_->gradients_of_part(part_, grads);
}

// ---- the node's share

AotNode::UnderWay* AotNode::under_way(int task) {
  auto found =
      std::find_if(under_way_.begin(), under_way_.end(),
                   [&](const UnderWay& row) { return row.task == task; });
  return found == under_way_.end() ? nullptr : &*found;
}

// Lives as long as the engine's task, whether that ends or raises: what is to
// be called at its end holds it.
std::weak_ptr<void> life_of_task() {
  auto token = std::make_shared<char>();
  torch::autograd::Engine::get_default_engine().queue_callback([token] {});
  return token;
}

AotNode::UnderWay& AotNode::note_under_way(int task,
                                           std::vector<UnderWay>* over) {
  if (UnderWay* found = under_way(task)) return *found;
  // Those that raised, and those that came to a gate only.
  for (size_t i = under_way_.size(); i > 0; --i) {
    if (!under_way_[i - 1].alive.expired()) continue;
    over->push_back(std::move(under_way_[i - 1]));
    under_way_.erase(under_way_.begin() + static_cast<ptrdiff_t>(i - 1));
  }
  UnderWay& row = under_way_.emplace_back();
  row.task = task;
  row.alive = life_of_task();
  row.arrived.resize(code_->tangent_of().size());
  row.tangents.resize(code_->tangent_of().size());
  row.done.resize(parts().size());
  return row;
}

void AotNode::arrive(size_t tangent, const at::Tensor& gradient) {
  bool any = false;
  for (size_t i = 0; i < num_outputs() && !any; ++i)
    any = task_should_compute_output(i);
  if (!any) return;  // no part runs
  std::vector<UnderWay> over;
  std::lock_guard<std::mutex> lock(mutex_);
  UnderWay& row =
      note_under_way(torch::autograd::get_current_graph_task_id(), &over);
  row.arrived[tangent] = true;
  row.tangents[tangent] = gradient;
}

// Will something come to these outputs yet?
std::vector<bool> AotNode::to_arrive(const std::vector<bool>& arrived) const {
  std::vector<bool> found(arrived.size());
  for (size_t i = 0; i < arrived.size(); ++i) {
    if (arrived[i]) continue;
    auto gate = gates_[i].lock();
    found[i] = gate && gate->will_run();
  }
  return found;
}

// Do all parts that run in this backward say so in the row?
bool AotNode::are_done(const UnderWay& row,
                       const std::vector<bool>& to_arrive) const {
  for (size_t i = 0; i < parts().size(); ++i) {
    const BackwardPart& part = parts()[i];
    const auto& edges = part.edges;
    if (row.done[i]) continue;
    if (std::any_of(
            edges.begin(), edges.end(),
            [&](int edge) { return task_should_compute_output(edge); }) &&
        std::any_of(part.tangents.begin(), part.tangents.end(),
                    [&](int i) { return row.arrived[i] || to_arrive[i]; }))
      return false;
  }
  return true;
}

variable_list AotNode::gradients_of_part(size_t number,
                                         const variable_list& direct) {
  const BackwardPart& part = parts().at(number);
  const int task = torch::autograd::get_current_graph_task_id();
  auto row_of_task = [&]() -> UnderWay& {  // under mutex_
    UnderWay* row = under_way(task);
    TORCH_CHECK(row || !released_, torch::autograd::ERR_BACKWARD_TWICE);
    TORCH_CHECK(row, "framejit: a backward came past the outputs of a call");
    return *row;
  };
  std::vector<bool> arrived;  // empty: all have
  variable_list tangents, results;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    UnderWay& row = row_of_task();
    // Hooks of this node may have changed them.
    for (size_t i = 0; i < part.direct.size(); ++i)
      row.tangents[part.direct[i]] = direct.at(i);
    auto is_used = [&](int i) { return row.used[i].is_same(row.tangents[i]); };
    if (std::find(row.arrived.begin(), row.arrived.end(), false) !=
        row.arrived.end())
      arrived = row.arrived;
    if (!row.used.empty() &&
        std::all_of(part.tangents.begin(), part.tangents.end(), is_used))
      results = take_part(part, row.results);
    else
      tangents = row.tangents;
  }
  const std::vector<bool> late = to_arrive(arrived);
  if (results.empty()) {
    const bool alone = std::find(late.begin(), late.end(), true) != late.end();
    for (size_t i = 0; alone && i < tangents.size(); ++i)
      if (std::find(part.tangents.begin(), part.tangents.end(), i) ==
          part.tangents.end())
        tangents[i] = at::Tensor();
    std::shared_ptr<const BackwardProgram> ran;
    variable_list all = gradients_of(tangents, alone ? &part : nullptr, &ran);
    results = take_part(part, all);
    std::lock_guard<std::mutex> lock(mutex_);
    UnderWay& row = row_of_task();
    row.ran.push_back(std::move(ran));
    if (!alone) {
      row.used = std::move(tangents);
      row.results = std::move(all);
    }
  }
  finish_part(number, task, late);
  return results;
}

variable_list AotNode::take_part(const BackwardPart& part,
                                 variable_list& all) const {
  variable_list found;
  found.reserve(part.edges.size());
  for (int edge : part.edges) found.push_back(std::move(all.at(edge)));
  return found;
}

// What has been read for the last time is let go.
void AotNode::finish_part(size_t number, int task,
                          const std::vector<bool>& late) {
  const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
  std::vector<std::shared_ptr<const BackwardProgram>> ran;
  UnderWay over;  // dies behind the lock
  {
    std::lock_guard<std::mutex> lock(mutex_);
    UnderWay* row = under_way(task);
    if (!row) return;
    row->done[number] = true;
    const bool done = are_done(*row, late);
    if (done || !row->used.empty()) ran = std::exchange(row->ran, {});
    if (done) {
      over = std::move(*row);
      under_way_.erase(under_way_.begin() + (row - under_way_.data()));
    }
  }
  if (keeps) return;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& program : ran) release(std::move(program));
}

}  // namespace framejit::backend
