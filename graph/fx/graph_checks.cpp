#include "graph/fx/graph_checks.h"

#include <unordered_set>

#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

namespace {

class Checker {
 public:
  explicit Checker(PyObject* graph) : graph_(graph) {}

  std::string run() {
    for (const auto& node : ir_of(graph_).block().nodes) {
      const std::string& name = node->outputs[0]->name;
      for (const Arg& arg : node->args) check(name, arg);
      for (const auto& [keyword, arg] : node->kwargs) check(name, arg);
      defined_.insert(node.get());
      if (!names_.insert(name).second)
        fail("Node redefined name " + name + "!");
      if (!error_.empty()) break;
    }
    return error_;
  }

 private:
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  void check(const std::string& user, const Arg& arg) {
    for_each_value(arg, [&](Value* value) {
      if (!defined_.contains(value->node)) undefined(user, value->name);
    });
    // Nodes that are none of this graph.
    for_each_object(arg, [&](PyObject* object) {
      if (!is_node(object)) return;
      NodeObject* node = as_node(object);
      std::string name = node->node ? node->node->outputs[0]->name : "";
      if (node->graph == graph_) return undefined(user, name);
      fail("Argument '" + name + "' of Node '" + user +
           "' does not belong to this Graph, but was used as an argument! If "
           "you are copying nodes from another graph, make sure to use "
           "``arg_transform`` on node_copy() to remap values");
    });
  }

  void undefined(const std::string& user, const std::string& argument) {
    fail("Argument '" + argument + "' of Node '" + user +
         "' was used before it has been defined! Please check that Nodes in "
         "the graph are topologically ordered");
  }

  PyObject* graph_;
  std::string error_;
  std::unordered_set<const Node*> defined_;
  std::unordered_set<std::string> names_;
};

}  // namespace

std::string what_is_wrong(PyObject* graph) { return Checker(graph).run(); }

std::string wrong_uses(const Graph& graph) {
  std::unordered_map<const Value*, std::unordered_map<const Node*, int>> uses;
  for (const auto& node : graph.block().nodes) {
    auto use = [&](Value* value) { ++uses[value][node.get()]; };
    for (const Arg& arg : node->args) for_each_value(arg, use);
    for (const auto& [name, arg] : node->kwargs) for_each_value(arg, use);
  }
  for (const auto& node : graph.block().nodes) {
    const Value* value = node->outputs[0].get();
    std::unordered_map<const Node*, int> listed;
    for (Node* user : value->users) ++listed[user];
    if (listed != uses[value]) return "the users of " + value->name;
    if (value->users.num_users() != listed.size() || value->node != node.get())
      return "what is counted of " + value->name;
  }
  return "";
}

}  // namespace framejit::graph::fx
