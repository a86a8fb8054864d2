// The invariants of a Graph, checked after every pass in debug builds and
// under FRAMEJIT_VERIFY: values are defined before they are used, use lists
// agree with the arguments, ATen calls have one argument per schema argument.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/ir/ir.h"

namespace framejit::graph {

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  std::string run() {
    bool past_placeholders = false;
    size_t position = 0, count = graph_.block().nodes.size();
    for (const auto& node : graph_.block().nodes) {
      ++position;
      if (node->op == Opcode::kPlaceholder) {
        if (past_placeholders) fail(*node, "placeholder behind other nodes");
      } else {
        past_placeholders = true;
      }
      if (node->op == Opcode::kOutput && position != count)
        fail(*node, "output node is not the last one");
      check_node(*node);
    }
    check_uses();
    check_interface();
    return error_;
  }

 private:
  void fail(const Node& node, const std::string& what) {
    if (error_.empty()) error_ = node.target_name() + ": " + what;
  }

  void check_node(const Node& node) {
    if (node.block != &graph_.block()) fail(node, "wrong block");
    if (node.position->get() != &node) fail(node, "stale list position");
    auto use = [&](Value* value) {
      if (!value) return fail(node, "null value");
      if (!defined_.count(value))
        return fail(node, "uses %" + std::to_string(value->id) +
                              " before its definition");
      ++uses_[value][&node];
    };
    for (const Arg& arg : node.args) for_each_value(arg, use);
    for (const auto& [name, arg] : node.kwargs) for_each_value(arg, use);
    int index = 0;
    for (const auto& value : node.outputs) {
      if (value->node != &node || value->index != index++)
        fail(node, "output does not point back to its node");
      if (!ids_.insert(value->id).second)
        fail(node, "duplicate id %" + std::to_string(value->id));
      if (value->kind == Value::Kind::kTensor &&
          value->meta.sizes.size() != value->meta.strides.size())
        fail(node, "sizes and strides differ in length");
      defined_.insert(value.get());
    }
    check_target(node);
  }

  void check_target(const Node& node) {
    switch (node.op) {
      case Opcode::kCallFunction:
        if (node.aten.has_value() == static_cast<bool>(node.callable))
          fail(node, "needs a Python callable or an ATen operator");
        if (node.aten) {
          if (node.args.size() != node.aten->schema().arguments().size())
            fail(node, "wrong number of arguments for its schema");
          if (!node.kwargs.empty())
            fail(node, "keyword arguments on an ATen call");
        }
        break;
      case Opcode::kCallMethod:
        if (node.method.empty() || node.args.empty())
          fail(node, "method call without a name or self");
        break;
      case Opcode::kStateEnter:
      case Opcode::kStateExit:
        if (!node.callable) fail(node, "state write without a callable");
        break;
      case Opcode::kGetAttr:
        if (node.method.empty() &&
            (node.args.size() != 1 || !node.args[0].is<Ref>()))
          fail(node, "get_attr without an object");
        break;
      case Opcode::kPlaceholder:
        if (node.outputs.size() != 1) fail(node, "placeholder has one output");
        break;
      case Opcode::kCallModule:
      case Opcode::kOutput:
        break;
    }
  }

  void check_uses() {
    for (const auto& node : graph_.block().nodes) {
      for (const auto& value : node->outputs) {
        std::unordered_map<const Node*, int> listed;
        for (Node* user : value->users) ++listed[user];
        if (listed != uses_[value.get()])
          fail(*node, "use list of %" + std::to_string(value->id) +
                          " does not agree with the arguments");
      }
    }
  }

  void check_interface() {
    std::unordered_set<const Value*> seen;
    for (Value* input : graph_.inputs) {
      if (!defined_.count(input) || input->node->op != Opcode::kPlaceholder ||
          !seen.insert(input).second) {
        if (error_.empty()) error_ = "an input is not a placeholder";
        return;
      }
    }
    size_t placeholders = std::count_if(
        graph_.block().nodes.begin(), graph_.block().nodes.end(),
        [](const auto& node) { return node->op == Opcode::kPlaceholder; });
    if (placeholders != graph_.inputs.size() && error_.empty())
      error_ = "a placeholder is not listed as an input";
    for (const auto& mutation : graph_.mutations) {
      if (mutation.input < 0 ||
          mutation.input >= static_cast<int>(graph_.inputs.size()) ||
          !defined_.count(mutation.value)) {
        if (error_.empty()) error_ = "a mutation names no input or value";
      }
    }
    for (const Arg& output : graph_.outputs) {
      for_each_value(output, [&](Value* value) {
        if (!defined_.count(value) && error_.empty())
          error_ = "an output is not defined";
      });
    }
    if (!graph_.outputs.empty()) {
      const auto& nodes = graph_.block().nodes;
      if (nodes.empty() || nodes.back()->op != Opcode::kOutput ||
          nodes.back()->args.size() != graph_.outputs.size()) {
        if (error_.empty()) error_ = "outputs and output node differ";
      }
    }
  }

  const Graph& graph_;
  std::string error_;
  std::unordered_set<const Value*> defined_;
  std::unordered_set<int> ids_;
  std::unordered_map<const Value*, std::unordered_map<const Node*, int>> uses_;
};

}  // namespace

std::string verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace framejit::graph
