// Methods of Node that change it: its place, its arguments, who uses it.
//
// User code runs in between (callbacks, finalizers of what is let go of), and
// may edit the graph: what is still to be done is held by references, and each
// node is looked at again before it is changed.
#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

namespace {

// ---- place

void move_beside(PyObject* self, PyObject* other, bool after) {
  NodeObject* here = expect_node(self);
  NodeObject* moved = expect_in_graph(other);
  if (moved->graph != here->graph)
    raise(PyExc_AssertionError,
          "Attempting to move a Node into a different "
          "Graph");
  if (moved == here) return;
  Graph& graph = ir_of(here->graph);
  auto& nodes = graph.block().nodes;
  if (here->state == NodeObject::kRoot) {
    graph.move(moved->node, after ? nodes.begin() : nodes.end());
    return;
  }
  auto at = expect_in_graph(self)->node->position;
  if (after) ++at;
  graph.move(moved->node, at);
}

PyObject* prepend(PyObject* self, PyObject* other) {
  return object_or_null([&] {
    move_beside(self, other, false);
    return Ref::borrow(Py_None);
  });
}
PyObject* append(PyObject* self, PyObject* other) {
  return object_or_null([&] {
    move_beside(self, other, true);
    return Ref::borrow(Py_None);
  });
}

// ---- uses

// What a node is replaced with: mostly a node of the same graph, but any
// argument will do.
struct Replacement {
  Value* from;
  Arg to;
};

void replace_in(PyObject* graph, Node* user, const Replacement& replacement) {
  Graph& ir = ir_of(graph);
  if (auto* to = std::get_if<Value*>(&replacement.to.value)) {
    Ref args = std::move(user->python_args);  // goes when all is done
    ir.replace_input(user, replacement.from, *to);
    return;
  }
  auto swap = [&](Value* value) {
    return value == replacement.from ? replacement.to : Arg(value);
  };
  std::vector<Arg> args;
  for (const Arg& arg : user->args) args.push_back(map_values(arg, swap));
  auto kwargs = user->kwargs;
  for (auto& [name, arg] : kwargs) arg = map_values(arg, swap);
  ir.set_arguments(user, std::move(args), std::move(kwargs));
}

// The objects of those that use it now.
Ref user_list(NodeObject* object) {
  NoCollection steady;
  if (object->state != NodeObject::kInGraph) return checked(PyList_New(0));
  const UseList& users = object->node->outputs[0]->users;
  Ref list = checked(PyList_New(users.num_users()));
  Py_ssize_t at = 0;
  for (const UseList::Entry& entry : users.entries()) {
    if (!entry.node) continue;
    PyObject* user = as_object(face_of(object->graph, entry.node));
    PyList_SET_ITEM(list.get(), at++, Py_NewRef(user));
  }
  return list;
}

void copy_meta(PyObject* from, PyObject* to) {
  Ref target = checked(PyObject_GetAttrString(to, "meta"));
  if (PyObject_Size(target.get()) != 0)
    raise(PyExc_AssertionError,
          "Called node.replace_all_uses_with(replace_with, "
          "propagate_meta=True), but replace_with already has .meta keys");
  Ref source = checked(PyObject_GetAttrString(from, "meta"));
  checked(PyDict_Update(target.get(), source.get()));
}

// `callback`: asked for each user, or null.
Ref replace_all(NodeObject* object, PyObject* with, PyObject* callback) {
  Ref users = user_list(object);
  if (!callback && is_node(with) && object->state == NodeObject::kInGraph) {
    NodeObject* other = as_node(with);
    if (other->state == NodeObject::kInGraph && other->graph == object->graph) {
      ir_of(object->graph)
          .replace_all_inputs(object->node->outputs[0].get(),
                              other->node->outputs[0].get());
      return users;
    }
  }
  Ref result = callback ? checked(PyList_New(0)) : users;
  Ref graph = Ref::borrow(object->graph);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(users.get()); ++i) {
    PyObject* user = PyList_GET_ITEM(users.get(), i);
    if (callback) {
      Ref answer = checked(PyObject_CallOneArg(callback, user));
      int yes = PyObject_IsTrue(answer.get());
      checked(yes);
      if (!yes) continue;
      checked(PyList_Append(result.get(), user));
    }
    if (as_node(user)->state != NodeObject::kInGraph ||
        object->state != NodeObject::kInGraph)
      continue;
    Replacement replacement{object->node->outputs[0].get(),
                            to_arg(graph.get(), with)};
    replace_in(graph.get(), as_node(user)->node, replacement);
  }
  return result;
}

PyObject* replace_all_uses_with(PyObject* self, PyObject* const* args,
                                Py_ssize_t nargs, PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"replace_with", "delete_user_cb",
                                         "propagate_meta"};
    PyObject* in[3];
    read_arguments("replace_all_uses_with", kNames, 3, 1, args, nargs, kwnames,
                   in);
    int propagate = in[2] ? PyObject_IsTrue(in[2]) : 0;
    checked(propagate);
    if (propagate) copy_meta(self, in[0]);
    return replace_all(expect_node(self), in[0],
                       in[1] == Py_None ? nullptr : in[1]);
  });
}

PyObject* replace_input_with(PyObject* self, PyObject* const* args,
                             Py_ssize_t nargs, PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"old_input", "new_input"};
    PyObject* in[2];
    read_arguments("replace_input_with", kNames, 2, 2, args, nargs, kwnames,
                   in);
    NodeObject* user = expect_in_graph(self);
    NodeObject* old = expect_node(in[0]);
    if (old->state == NodeObject::kInGraph && old->graph == user->graph) {
      Ref graph = Ref::borrow(user->graph);
      replace_in(graph.get(), user->node,
                 {old->node->outputs[0].get(), to_arg(graph.get(), in[1])});
    }
    return Ref::borrow(Py_None);
  });
}

// ---- arguments

void assign(PyObject* self, const char* name, const Ref& value) {
  checked(PyObject_SetAttrString(self, name, value.get()));
}

PyObject* update_arg(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                     PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"idx", "arg"};
    PyObject* in[2];
    read_arguments("update_arg", kNames, 2, 2, args, nargs, kwnames, in);
    Ref old = checked(PyObject_GetAttrString(self, "args"));
    Ref list = checked(PySequence_List(old.get()));
    checked(PyObject_SetItem(list.get(), in[0], in[1]));
    assign(self, "args", checked(PyList_AsTuple(list.get())));
    return Ref::borrow(Py_None);
  });
}

PyObject* update_kwarg(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"key", "arg"};
    PyObject* in[2];
    read_arguments("update_kwarg", kNames, 2, 2, args, nargs, kwnames, in);
    Ref old = checked(PyObject_GetAttrString(self, "kwargs"));
    Ref made = checked(PyDict_New());
    checked(PyDict_Update(made.get(), old.get()));
    checked(PyDict_SetItem(made.get(), in[0], in[1]));
    assign(self, "kwargs", made);
    return Ref::borrow(Py_None);
  });
}

// The uses it had keep their place.
PyObject* insert_arg(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                     PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"idx", "arg"};
    PyObject* in[2];
    read_arguments("insert_arg", kNames, 2, 2, args, nargs, kwnames, in);
    NodeObject* object = expect_in_graph(self);
    Py_ssize_t at = PyNumber_AsSsize_t(in[0], PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) throw Raised{};
    Node& node = *object->node;
    if (at < 0 || at > static_cast<Py_ssize_t>(node.args.size()))
      raise(PyExc_AssertionError,
            "insert_arg: the index is between 0 and len(args), not " +
                std::to_string(at));
    Arg made = to_arg(object->graph, in[1]);
    for_each_value(std::as_const(made),
                   [&](Value* value) { value->users.push_back(&node); });
    node.args.insert(node.args.begin() + at, std::move(made));
    node.drop_python_arguments();
    return Ref::borrow(Py_None);
  });
}

PyObject* rename_node(PyObject* self, PyObject* candidate) {
  return object_or_null([&] {
    NodeObject* object = expect_live(self);
    std::string wanted = text_of(candidate);
    std::string& name = object->node->outputs[0]->name;
    if (wanted != name) name = state_of(object->graph).names.create(wanted);
    return Ref::borrow(Py_None);
  });
}

}  // namespace

PyMethodDef g_edit_methods[] = {
    {"prepend", prepend, METH_O,
     "Move a node of the same graph to the place before this one."},
    {"append", append, METH_O,
     "Move a node of the same graph to the place behind this one."},
    {"replace_all_uses_with", as_function(replace_all_uses_with), kFast,
     "Let every user of this node use `replace_with` in its place.\n\n"
     "delete_user_cb: asked for each user; those it answers False for stay.\n"
     "propagate_meta: `replace_with`, whose meta is empty, gets this one's.\n"
     "Returns the users that changed."},
    {"replace_input_with", as_function(replace_input_with), kFast,
     "Replace `old_input` with `new_input` in the arguments of this node."},
    {"update_arg", as_function(update_arg), kFast,
     "Change one positional argument."},
    {"update_kwarg", as_function(update_kwarg), kFast,
     "Change or add one keyword argument."},
    {"insert_arg", as_function(insert_arg), kFast,
     "Insert a positional argument before that with index `idx`."},
    {"_rename", rename_node, METH_O,
     "Give the node this name, or one made unique from it."},
    {}};

}  // namespace framejit::graph::fx
