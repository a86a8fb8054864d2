// The type under framejit.fx.Node: what a node is, and where it stands.
// node_edits.cpp has what changes it.
#include <structmember.h>

#include <algorithm>
#include <unordered_set>

#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

namespace {

int traverse_node(PyObject* self, visitproc visit, void* arg) {
  NodeObject* node = as_node(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(node->graph);
  Py_VISIT(node->next);
  Py_VISIT(node->prev);
  Py_VISIT(node->attributes);
  // Before, the graph owns it.
  if (node->state == NodeObject::kErased && node->node)
    return visit_node(*node->node, visit, arg);
  return 0;
}

// An erased node owns its graph::Node.
void drop_owned(NodeObject* node) {
  if (node->state != NodeObject::kErased) return;
  std::unique_ptr<Node> owned(std::exchange(node->node, nullptr));
  node->state = NodeObject::kGone;
}

int clear_node(PyObject* self) {
  NodeObject* node = as_node(self);
  drop_owned(node);
  Py_CLEAR(node->next);
  Py_CLEAR(node->prev);
  Py_CLEAR(node->attributes);
  // The graph stays until the end where the IR has this object for a face.
  if (node->state != NodeObject::kInGraph) Py_CLEAR(node->graph);
  return 0;
}

// (Chains of erased nodes are long: what derives from this type is a class of
// Python, whose deallocation nests to a limited depth only.)
void deallocate_node(PyObject* self) {
  PyObject_GC_UnTrack(self);
  NodeObject* node = as_node(self);
  if (node->weak_references) PyObject_ClearWeakRefs(self);
  drop_owned(node);
  Py_CLEAR(node->next);
  Py_CLEAR(node->prev);
  Py_CLEAR(node->attributes);
  Py_CLEAR(node->graph);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* representation(PyObject* self) {
  return object_or_null([&] {
    NodeObject* node = as_node(self);
    if (!node->node) return text_object("");
    return text_object(node->node->outputs[0]->name);
  });
}

bool stands_before(NodeObject* a, NodeObject* b) {
  if (!a->node || !b->node) return !a->node && b->node;  // the root
  if (a->state == NodeObject::kInGraph && b->graph == a->graph)
    return ir_of(a->graph).is_before(a->node, b->node);
  return a->node->order < b->node->order;
}

PyObject* compare_node(PyObject* left, PyObject* right, int op) {
  return object_or_null([&]() -> Ref {
    bool answer;
    if (op == Py_EQ || op == Py_NE) {
      if (left != right && !is_node(right))
        return Ref::borrow(Py_NotImplemented);
      answer = (left == right) == (op == Py_EQ);
    } else {
      if (!is_node(right)) return Ref::borrow(Py_NotImplemented);
      NodeObject *a = as_node(left), *b = as_node(right);
      answer = op == Py_LT   ? stands_before(a, b)
               : op == Py_GT ? stands_before(b, a)
               : op == Py_LE ? a == b || stands_before(a, b)
                             : a == b || stands_before(b, a);
    }
    return Ref::borrow(answer ? Py_True : Py_False);
  });
}

// (A type that compares does not inherit it.)
Py_hash_t hash_node(PyObject* self) { return PyBaseObject_Type.tp_hash(self); }

// ---- attributes

// Getters of what every live node has; the root has a few of its own.
template <class F>
PyObject* got(PyObject* self, const F& f) {
  return object_or_null([&]() -> Ref { return f(*expect_live(self)->node); });
}
template <class F>
int put(PyObject* self, PyObject* value, const char* name, const F& f) {
  return guarded<int>(-1, [&] {
    if (!value)
      raise(PyExc_AttributeError, std::string("cannot delete ") + name);
    f(*expect_live(self)->node);
    return 0;
  });
}

PyObject* get_op(PyObject* self, void*) {
  static PyObject* const root = PyUnicode_InternFromString("root");
  if (as_node(self)->state == NodeObject::kRoot) {
    Py_INCREF(root);
    return root;
  }
  return got(self,
             [](Node& node) { return Ref::borrow(opcode_name(node.op)); });
}
// f changes what a node does.
template <class F>
void change_what_it_does(PyObject* self, Node& node, const F& f) {
  NodeObject* object = as_node(self);
  bool in_graph = object->state == NodeObject::kInGraph;
  NodeIndex* index = in_graph ? &state_of(object->graph).index : nullptr;
  if (index) index->remove(&node);
  f();
  if (index) index->add(&node);
}

int set_op(PyObject* self, PyObject* value, void*) {
  return put(self, value, "op", [&](Node& node) {
    Opcode op;
    if (!parse_opcode(value, &op))
      raise(PyExc_ValueError, "no operation of a graph: " +
                                  text_of(checked(PyObject_Repr(value)).get()));
    change_what_it_does(self, node, [&] { node.op = op; });
  });
}

PyObject* get_target(PyObject* self, void*) {
  if (as_node(self)->state == NodeObject::kRoot)
    return PyUnicode_FromString("");
  return got(self, [](Node& node) { return target_of(node); });
}
int set_target(PyObject* self, PyObject* value, void*) {
  return put(self, value, "target", [&](Node& node) {
    // What it was goes when all is done.
    Ref old = node.callable;
    if (PyUnicode_Check(value)) text_of(value);  // or raises
    change_what_it_does(self, node, [&] { fx::set_target(node, value); });
  });
}

PyObject* get_name(PyObject* self, void*) { return representation(self); }
int set_name(PyObject* self, PyObject* value, void*) {
  return put(self, value, "name",
             [&](Node& node) { node.outputs[0]->name = text_of(value); });
}

PyObject* get_args(PyObject* self, void*) {
  if (!as_node(self)->node) return PyTuple_New(0);
  return got(self, [&](Node& node) {
    return python_args(as_node(self)->graph, node);
  });
}
PyObject* get_kwargs(PyObject* self, void*) {
  if (!as_node(self)->node) return PyDict_New();
  return got(self, [&](Node& node) {
    return python_kwargs(as_node(self)->graph, node);
  });
}
int set_args(PyObject* self, PyObject* value, void*) {
  return put(self, value, "args", [&](Node& node) {
    NodeObject* object = expect_in_graph(self);
    Ref graph = Ref::borrow(object->graph);
    Arguments made = to_arguments(graph.get(), value, nullptr);
    auto kwargs = node.kwargs;
    ir_of(graph.get())
        .set_arguments(&node, std::move(made.args), std::move(kwargs));
  });
}
int set_kwargs(PyObject* self, PyObject* value, void*) {
  return put(self, value, "kwargs", [&](Node& node) {
    Ref graph = Ref::borrow(expect_in_graph(self)->graph);
    Arguments made = to_arguments(graph.get(), nullptr, value);
    Ref kept = node.python_args;
    auto args = node.args;
    ir_of(graph.get())
        .set_arguments(&node, std::move(args), std::move(made.kwargs));
    node.python_args = std::move(kept);
  });
}

PyObject* get_users(PyObject* self, void*) {
  return object_or_null([&] { return users_view(expect_node(self)); });
}
PyObject* get_inputs(PyObject* self, void*) {
  return object_or_null([&] { return input_list(expect_node(self)); });
}
// torch.fx's name for them, as a dict.
PyObject* get_input_nodes(PyObject* self, void*) {
  return object_or_null([&] {
    Ref list = input_list(expect_node(self));
    Ref out = checked(PyDict_New());
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
      checked(
          PyDict_SetItem(out.get(), PyList_GET_ITEM(list.get(), i), Py_None));
    return out;
  });
}

PyObject* get_type(PyObject* self, void*) {
  return got(self, [](Node& node) {
    return node.type ? node.type : Ref::borrow(Py_None);
  });
}
int set_type(PyObject* self, PyObject* value, void*) {
  return put(self, value, "type", [&](Node& node) {
    node.type = value == Py_None ? Ref() : Ref::borrow(value);
  });
}
PyObject* get_meta(PyObject* self, void*) {
  return got(self, [](Node& node) { return meta_of(node); });
}
int set_meta(PyObject* self, PyObject* value, void*) {
  return put(self, value, "meta", [&](Node& node) {
    if (!PyDict_Check(value)) raise(PyExc_TypeError, "meta is a dict");
    node.meta = Ref::borrow(value);
  });
}

PyObject* get_graph(PyObject* self, void*) {
  PyObject* graph = as_node(self)->graph;
  if (!graph) graph = Py_None;
  Py_INCREF(graph);
  return graph;
}
PyObject* get_neighbour(PyObject* self, void* backwards) {
  return object_or_null([&] {
    return Ref::borrow(
        as_object(neighbour(as_node(self), backwards != nullptr)));
  });
}
PyObject* get_erased(PyObject* self, void*) {
  return PyBool_FromLong(as_node(self)->state == NodeObject::kErased);
}
PyObject* get_sort_key(PyObject* self, void*) {
  return object_or_null([&] {
    NodeObject* object = as_node(self);
    if (object->state == NodeObject::kInGraph)  // numbers them where needed
      ir_of(object->graph).is_before(object->node, object->node);
    return checked(Py_BuildValue(
        "(L)", object->node ? (long long)object->node->order : -1LL));
  });
}

constexpr char kBackwards[] = "backwards";

PyGetSetDef g_node_getset[] = {
    {"op", get_op, set_op,
     "The kind of node: 'placeholder', 'get_attr', 'call_function', "
     "'call_module', 'call_method' or 'output'.",
     nullptr},
    {"target", get_target, set_target,
     "What is called or read: a callable, or the name of a method, a path in "
     "the module, the name of a parameter.",
     nullptr},
    {"name", get_name, set_name, "The name of the value, unique in its graph.",
     nullptr},
    {"args", get_args, set_args,
     "The positional arguments. Assign a tuple to change them; users of the "
     "nodes in it are kept.",
     nullptr},
    {"kwargs", get_kwargs, set_kwargs,
     "The keyword arguments. Assign a dict to change them.", nullptr},
    {"users", get_users, nullptr,
     "The nodes that use this one, in the order of their first use: a live "
     "mapping whose values are None.",
     nullptr},
    {"all_input_nodes", get_inputs, nullptr,
     "The nodes in args and kwargs, each once, as a list.", nullptr},
    {"_input_nodes", get_input_nodes, nullptr, nullptr, nullptr},
    {"type", get_type, set_type,
     "The annotation of the value, or None; generated code repeats it.",
     nullptr},
    {"meta", get_meta, set_meta,
     "A dict of what passes know of the node; copies of it keep theirs.",
     nullptr},
    {"graph", get_graph, nullptr, "The graph it is, or was, a node of.",
     nullptr},
    {"next", get_neighbour, nullptr,
     "The node behind it; behind the last there is one whose op is 'root'.",
     nullptr},
    {"prev", get_neighbour, nullptr,
     "The node before it; before the first there is one whose op is 'root'.",
     const_cast<char*>(kBackwards)},
    {"_next", get_neighbour, nullptr, nullptr, nullptr},
    {"_prev", get_neighbour, nullptr, nullptr, const_cast<char*>(kBackwards)},
    {"_erased", get_erased, nullptr, nullptr, nullptr},
    {"_sort_key", get_sort_key, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr,
     nullptr},
    {}};

PyMemberDef g_node_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(NodeObject, attributes), READONLY,
     nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(NodeObject, weak_references),
     READONLY, nullptr},
    {}};

PyType_Slot g_node_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_node)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_node)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_node)},
    {Py_tp_repr, reinterpret_cast<void*>(representation)},
    {Py_tp_richcompare, reinterpret_cast<void*>(compare_node)},
    {Py_tp_hash, reinterpret_cast<void*>(hash_node)},
    {Py_tp_getset, g_node_getset},
    {Py_tp_members, g_node_members},
    {Py_tp_methods, g_edit_methods},
    {0, nullptr}};

PyType_Spec g_node_spec = {"framejit._C._fx.NodeBase", sizeof(NodeObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                               Py_TPFLAGS_BASETYPE |
                               Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           g_node_slots};

}  // namespace

Ref input_list(NodeObject* object) {
  NoCollection steady;
  Ref list = checked(PyList_New(0));
  if (!object->node) return list;
  std::vector<const Value*> seen;
  std::unordered_set<const Value*> known;  // of more than a few
  constexpr size_t kFew = 8;
  auto see = [&](Value* value) {
    if (seen.size() < kFew) {
      if (std::find(seen.begin(), seen.end(), value) != seen.end()) return;
    } else {
      if (known.empty()) known.insert(seen.begin(), seen.end());
      if (!known.insert(value).second) return;
    }
    seen.push_back(value);
  };
  for (const Arg& arg : object->node->args) for_each_value(arg, see);
  for (const auto& [name, arg] : object->node->kwargs) for_each_value(arg, see);
  for (const Value* value : seen) {
    NodeObject* face = face_of(object->graph, value->node);
    checked(PyList_Append(list.get(), as_object(face)));
  }
  return list;
}

void add_node_type(PyObject* module) {
  Ref type = checked(PyType_FromSpec(&g_node_spec));
  g_node_base = reinterpret_cast<PyTypeObject*>(type.get());
  checked(PyModule_AddObjectRef(module, "NodeBase", type.get()));
  type.release();  // for good
}

}  // namespace framejit::graph::fx
