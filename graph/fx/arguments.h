// Arguments of nodes: Python objects <-> the IR's trees.
//
// Any object is an argument. Nodes become Values, plain numbers, strings and
// torch's own constants what the IR has for them, tuples, lists, dicts and
// slices trees; everything else stays an object. Lists and dicts come back as
// the immutable ones of framejit.fx: changing them would not change the node.
#pragma once

#include "graph/fx/objects.h"

namespace framejit::graph::fx {

struct Arguments {
  std::vector<Arg> args;
  std::vector<std::pair<std::string, Arg>> kwargs;
};

// Python objects -> arguments. A tracer's takes more (graph/fx/recording.cpp).
class ToArg {
 public:
  explicit ToArg(PyObject* graph) : graph_(graph) {}
  virtual ~ToArg() = default;
  virtual Arg convert(PyObject* object);

 protected:
  Arg node(PyObject* object) const;
  static Arg leaf(PyObject* object);
  Arg tree(PyObject* object);
  PyObject* graph_;
};
bool is_container(PyObject* object);

// Either may be null or None. A node of another graph, or one that is erased,
// stays an object: Graph.lint() names it.
Arguments to_arguments(PyObject* graph, PyObject* args, PyObject* kwargs);
Arg to_arg(PyObject* graph, PyObject* object);
Ref to_python(PyObject* graph, const Arg& arg);

// `node.args` and `node.kwargs`: made once, until they change.
Ref python_args(PyObject* graph, Node& node);
Ref python_kwargs(PyObject* graph, Node& node);

struct NewNode {
  Opcode op;
  PyObject* target;
  PyObject* name = nullptr;  // null, None: after the target
  PyObject* type = nullptr;
};
// Raises unless a node with this op can have this target.
void check_target(PyObject* graph, Opcode op, PyObject* target);
// Makes a node and inserts it at the insertion point.
Ref add_node(PyObject* graph, const NewNode& made, Arguments arguments);

// A copy in which f has replaced Values.
Arg map_values(const Arg& arg, const std::function<Arg(Value*)>& f);

// Calls f for every object that is stored as such, in order.
void for_each_object(const Arg& arg, const std::function<void(PyObject*)>& f);

}  // namespace framejit::graph::fx
