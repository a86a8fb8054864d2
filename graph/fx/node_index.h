// Nodes by what they do, for Graph.find_nodes.
//
// Made when it is first asked, kept by every edit through Python from then on.
// (Whoever edits the IR of a graph in other ways forgets it.)
#pragma once

#include <Python.h>

#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::graph::fx {

class NodeIndex {
 public:
  void add(Node* node) {
    if (is_made_) list_of(key_of(*node)).push_back(node);
  }
  void remove(Node* node) {
    if (is_made_) list_of(key_of(*node)).remove(node);
  }
  // Nodes with this op; of calls of functions those of `target`.
  // In the order of the graph.
  std::vector<Node*> find(Graph& graph, Opcode op, PyObject* target);
  void forget() {
    lists_.clear();
    last_list_ = nullptr;
    is_made_ = false;
  }

 private:
  static size_t key_of(Opcode op) { return static_cast<size_t>(op) + 1; }
  // That of the op, or the address of the function (0: it has none yet).
  static size_t key_of(const Node& node) {
    return node.op == Opcode::kCallFunction
               ? reinterpret_cast<size_t>(node.callable.get())
               : key_of(node.op);
  }
  // Nodes that do the same mostly come in a row.
  UseList& list_of(size_t key) {
    if (!last_list_ || last_key_ != key) {
      last_key_ = key;
      last_list_ = &lists_[key];
    }
    return *last_list_;
  }
  void append(std::vector<Node*>& nodes, size_t key) const;
  // Those of functions that equal `target`.
  std::vector<size_t> keys_of(PyObject* target) const;

  bool is_made_ = false;
  std::unordered_map<size_t, UseList> lists_;
  size_t last_key_ = 0;
  UseList* last_list_ = nullptr;
};

}  // namespace framejit::graph::fx
