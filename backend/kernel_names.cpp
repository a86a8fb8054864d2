#include "backend/kernel_names.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/ops/node_traits.h"

namespace framejit::backend {

using codegen::BufferId;
using codegen::Step;
using graph::Node;
using graph::Value;

namespace {

constexpr size_t kMostCharacters = 40;  // of the operators
constexpr size_t kMostNodes = 64;       // that are looked at for one name

// "aten._softmax.default" -> "softmax"
std::string operator_name(const Node& node) {
  std::string name = node.target_name();
  name.erase(0, name.find('.') + 1);
  name.resize(std::min(name.size(), name.find('.')));
  name.erase(0, std::min(name.size(), name.find_first_not_of('_')));
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

class Namer {
 public:
  Namer(const LoweredGraph& graph, const codegen::Schedule& schedule)
      : graph_(graph), schedule_(schedule) {
    for (size_t i = 0; i < graph.lowered.size(); ++i)
      place_[graph.lowered[i]] = i;
    for (const Step& step : schedule.steps)
      for (BufferId result : step.results)
        if (const Node* node = node_of(result)) in_memory_.insert(node);
  }

  std::vector<std::vector<const Node*>> nodes() const {
    std::vector<std::vector<const Node*>> found;
    for (const Step& step : schedule_.steps)
      found.push_back(step.kernel < 0 ? std::vector<const Node*>()
                                      : operators_of(step));
    return found;
  }

  // From the last step to the first: parts that a row or a pass made of an
  // operator (the maximum of a softmax) are named as what reads them is.
  std::vector<std::string> run() {
    std::vector<std::string> names(schedule_.steps.size());
    std::unordered_map<BufferId, std::string> reader;
    for (size_t i = names.size(); i-- > 0;) {
      const Step& step = schedule_.steps[i];
      if (step.kernel < 0) continue;
      std::string name = joined(operators_of(step));
      for (BufferId result : step.results)
        if (name.empty()) name = reader[root(result)];
      if (name.empty()) name = schedule_.kernels[step.kernel].name;
      for (BufferId argument : step.arguments) reader[root(argument)] = name;
      names[i] = std::move(name);
    }
    int number = 0;
    for (std::string& name : names)
      if (!name.empty())
        name = "fj::kernel " + name + "_" + std::to_string(number++);
    return names;
  }

 private:
  const Node* node_of(BufferId buffer) const {
    const auto i = static_cast<size_t>(buffer);
    return i < graph_.node_of.size() ? graph_.node_of[i] : nullptr;
  }
  BufferId root(BufferId buffer) const {
    const BufferId base = schedule_.buffers[buffer].alias_of;
    return base == codegen::kNoBuffer ? buffer : base;
  }

  // What made the results, and what was computed on the way from memory.
  std::vector<const Node*> operators_of(const Step& step) const {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> found;
    auto visit = [&](const Node* node) {
      if (node && found.size() < kMostNodes && place_.contains(node) &&
          seen.insert(node).second)
        found.push_back(node);
    };
    for (BufferId result : step.results) visit(node_of(result));
    for (size_t i = 0; i < found.size(); ++i) {
      auto look = [&](const Value* value) {
        if (!in_memory_.contains(value->node)) visit(value->node);
      };
      for (const graph::Arg& arg : found[i]->args)
        graph::for_each_value(arg, look);
    }
    std::sort(found.begin(), found.end(), [&](const Node* a, const Node* b) {
      return place_.at(a) < place_.at(b);
    });
    return found;
  }

  static std::string joined(const std::vector<const Node*>& nodes) {
    const bool all_views =
        std::all_of(nodes.begin(), nodes.end(),
                    [](const Node* node) { return graph::is_view(*node); });
    std::unordered_set<std::string> used;
    std::string text;
    for (const Node* node : nodes) {
      if (graph::is_view(*node) && !all_views) continue;
      std::string name = operator_name(*node);
      if (name.empty() || !used.insert(name).second) continue;
      if (text.size() + name.size() >= kMostCharacters) continue;
      text += (text.empty() ? "" : "_") + name;
    }
    return text;
  }

  const LoweredGraph& graph_;
  const codegen::Schedule& schedule_;
  std::unordered_map<const Node*, size_t> place_;  // of those that are loops
  std::unordered_set<const Node*> in_memory_;
};

}  // namespace

std::vector<std::vector<const Node*>> fused_nodes(
    const LoweredGraph& graph, const codegen::Schedule& schedule) {
  return Namer(graph, schedule).nodes();
}

std::vector<std::string> kernel_names(const LoweredGraph& graph,
                                      const codegen::Schedule& schedule) {
  return Namer(graph, schedule).run();
}

}  // namespace framejit::backend
