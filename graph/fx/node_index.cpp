#include "graph/fx/node_index.h"

#include <algorithm>

#include "graph/fx/objects.h"

namespace framejit::graph::fx {

namespace {

// Objects of these types are equal only to themselves.
bool is_itself_alone(PyObject* function) {
  return PyFunction_Check(function) || PyType_Check(function) ||
         Py_IS_TYPE(function, &PyMethodDescr_Type);
}

}  // namespace

void NodeIndex::append(std::vector<Node*>& nodes, size_t key) const {
  auto found = lists_.find(key);
  if (found == lists_.end()) return;
  for (const UseList::Entry& entry : found->second.entries())
    if (entry.node) nodes.push_back(entry.node);
}

std::vector<size_t> NodeIndex::keys_of(PyObject* target) const {
  std::vector<size_t> keys = {reinterpret_cast<size_t>(target)};
  if (is_itself_alone(target)) return keys;
  std::vector<Ref> others;
  for (const auto& [key, list] : lists_) {
    if (list.empty() || (*list.begin())->op != Opcode::kCallFunction) continue;
    const Ref& other = (*list.begin())->callable;
    if (other && other.get() != target &&
        Py_TYPE(other.get()) == Py_TYPE(target))
      others.push_back(other);
  }
  for (const Ref& other : others) {
    // (It may be a program's `__eq__`, which may do anything.)
    int same = PyObject_RichCompareBool(other.get(), target, Py_EQ);
    checked(same);
    if (same) keys.push_back(reinterpret_cast<size_t>(other.get()));
  }
  return keys;
}

std::vector<Node*> NodeIndex::find(Graph& graph, Opcode op, PyObject* target) {
  if (!is_made_) {
    is_made_ = true;
    for (const auto& node : graph.block().nodes) add(node.get());
  }
  std::vector<Node*> nodes;
  if (op != Opcode::kCallFunction) {
    append(nodes, key_of(op));
  } else {
    for (size_t key : keys_of(target)) append(nodes, key);
  }
  if (nodes.size() > 1) {
    graph.is_before(nodes[0], nodes[1]);  // numbers them, where it must
    auto before = [](Node* a, Node* b) { return a->order < b->order; };
    if (!std::is_sorted(nodes.begin(), nodes.end(), before))
      std::sort(nodes.begin(), nodes.end(), before);
  }
  return nodes;
}

}  // namespace framejit::graph::fx
