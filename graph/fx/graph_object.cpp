// The type under framejit.fx.Graph: nodes are made, found, copied and erased.
#include "graph/fx/arguments.h"
#include "graph/fx/graph_checks.h"

namespace framejit::graph::fx {

namespace {

PyObject* make_graph(PyTypeObject* type, PyObject*, PyObject*) {
  return object_or_null([&] {
    Ref made = checked(type->tp_alloc(type, 0));
    reinterpret_cast<GraphObject*>(made.get())->state = new GraphState;
    return made;
  });
}

// The IR may have other owners (a pass that runs): then its references are not
// this object's to show.
bool owns_alone(const GraphState& state) { return state.ir.use_count() == 1; }

int traverse_graph(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  GraphState* state = reinterpret_cast<GraphObject*>(self)->state;
  if (!state) return 0;
  Py_VISIT(state->root.get());
  Py_VISIT(state->insert_at.get());
  for (const auto& [target, candidate] : state->candidates)
    Py_VISIT(candidate.target.get());
  if (!owns_alone(*state)) return 0;
  for (const auto& node : state->ir->block().nodes) {
    Py_VISIT(static_cast<PyObject*>(node->face.object()));
    if (int stop = visit_node(*node, visit, arg)) return stop;
  }
  return 0;
}

// Whoever still has a node finds it gone, before anything is let go of.
int clear_graph(PyObject* self) {
  auto* object = reinterpret_cast<GraphObject*>(self);
  GraphState* state = object->state;
  if (!state) return 0;
  if (!owns_alone(*state)) return 0;
  std::unique_ptr<GraphState> old(std::exchange(object->state, new GraphState));
  for (const auto& node : old->ir->block().nodes) {
    if (auto* face = static_cast<NodeObject*>(node->face.object())) {
      face->state = NodeObject::kGone;
      face->node = nullptr;
    }
  }
  return 0;
}

void deallocate_graph(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto* object = reinterpret_cast<GraphObject*>(self);
  clear_graph(self);
  delete std::exchange(object->state, nullptr);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// ---- making

Block::Nodes::iterator insertion_place(PyObject* self) {
  GraphState& state = state_of(self);
  auto& nodes = state.ir->block().nodes;
  if (!state.insert_at) return nodes.end();
  NodeObject* at = as_node(state.insert_at.get());
  if (at->state == NodeObject::kErased) at = neighbour(at, false);
  if (at->state != NodeObject::kInGraph) {  // the root
    bool at_front = state.insert_after &&
                    as_node(state.insert_at.get())->state == NodeObject::kRoot;
    return at_front ? nodes.begin() : nodes.end();
  }
  auto place = at->node->position;
  bool after = state.insert_after && as_object(at) == state.insert_at.get();
  return after ? std::next(place) : place;
}

std::string new_name(GraphState& state, const NewNode& made) {
  if (made.name && made.name != Py_None)
    return state.names.create(text_of(made.name));
  if (!PyUnicode_Check(made.target))
    return state.names.next(candidate_of(state, made.target).names);
  std::string text = text_of(made.target);
  if (text.size() >= 4 && text.starts_with("__") && text.ends_with("__"))
    text = text.substr(2, text.size() - 4);
  return state.names.create(snake_case(text));
}

}  // namespace

void check_target(PyObject* self, Opcode op, PyObject* target) {
  bool wants_callable = op == Opcode::kCallFunction;
  if (wants_callable ? PyCallable_Check(target) : PyUnicode_Check(target))
    return;
  Ref graph = checked(PyObject_Str(self));
  raise(PyExc_ValueError,
        std::string("Node [graph = ") + text_of(graph.get()) + "] target " +
            text_of(checked(PyObject_Str(target)).get()) + " has type " +
            Py_TYPE(target)->tp_name + " but a " +
            (wants_callable ? "Callable" : "str") + " is expected");
}

Ref add_node(PyObject* self, const NewNode& made, Arguments arguments) {
  GraphState& state = state_of(self);
  auto node = std::make_unique<Node>();
  node->op = made.op;
  set_target(*node, made.target);
  if (made.type && made.type != Py_None) node->type = Ref::borrow(made.type);
  node->args = std::move(arguments.args);
  node->kwargs = std::move(arguments.kwargs);
  Value* value = state.ir->add_output(node.get(), Value::Kind::kOther);
  value->name = new_name(state, made);
  auto at = insertion_place(self);
  Node* placed = state.ir->insert(at, std::move(node));
  state.index.add(placed);
  return Ref::borrow(as_object(face_of(self, placed)));
}

namespace {

Ref create(PyObject* self, const NewNode& made, PyObject* args,
           PyObject* kwargs) {
  check_target(self, made.op, made.target);
  return add_node(self, made, to_arguments(self, args, kwargs));
}

PyObject* create_node(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                      PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"op",     "target", "args",
                                         "kwargs", "name",   "type_expr"};
    PyObject* in[6];
    read_arguments("create_node", kNames, 6, 2, args, nargs, kwnames, in);
    Opcode op;
    if (!parse_opcode(in[0], &op))
      raise(PyExc_AssertionError,
            "op " + text_of(checked(PyObject_Repr(in[0])).get()) +
                " is none of a graph's");
    // (An empty list or dict, or other nothing, is no argument.)
    auto given = [](PyObject* object) {
      if (!object) return object;
      int is_true = PyObject_IsTrue(object);
      checked(is_true);
      return is_true ? object : nullptr;
    };
    return create(self, {op, in[1], in[4], in[5]}, given(in[2]), given(in[3]));
  });
}

// Through create_node where a class of the program has its own.
Ref create_call(PyObject* self, Opcode op, PyObject** in, PyObject* name) {
  if (Py_IS_TYPE(self, g_classes.graph))
    return create(self, {op, in[0], name, in[3]}, in[1], in[2]);
  auto given = [](PyObject* object) { return object ? object : Py_None; };
  Ref method = checked(PyObject_GetAttrString(self, "create_node"));
  return checked(PyObject_CallFunctionObjArgs(
      method.get(), opcode_name(op), in[0], given(in[1]), given(in[2]),
      given(name), given(in[3]), nullptr));
}

PyObject* call_function(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"the_function", "args", "kwargs",
                                         "type_expr", "name"};
    PyObject* in[5];
    read_arguments("call_function", kNames, 5, 1, args, nargs, kwnames, in);
    return create_call(self, Opcode::kCallFunction, in, in[4]);
  });
}
PyObject* call_method(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                      PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"method_name", "args", "kwargs",
                                         "type_expr"};
    PyObject* in[4];
    read_arguments("call_method", kNames, 4, 1, args, nargs, kwnames, in);
    return create_call(self, Opcode::kCallMethod, in, nullptr);
  });
}

// ---- erasing

void warn_erased(NodeObject* object) {
  std::string text = "erase_node(" + object->node->outputs[0]->name +
                     ") on an already erased node";
  checked(PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1));
}

PyObject* erase_node(PyObject* self, PyObject* to_erase) {
  return object_or_null([&]() -> Ref {
    NodeObject* object = expect_live(to_erase);
    Value& value = *object->node->outputs[0];
    if (!value.users.empty()) {
      Ref users = checked(PyObject_Str(users_view(object).get()));
      raise(PyExc_RuntimeError,
            "Tried to erase Node " + value.name + " but it still had " +
                std::to_string(value.users.num_users()) +
                " users in the graph: " + text_of(users.get()) + "!");
    }
    if (object->graph != self)
      raise(PyExc_RuntimeError,
            "Attempting to remove " + value.name + " from wrong graph!");
    if (object->state == NodeObject::kErased) {
      warn_erased(object);
      return Ref::borrow(Py_None);
    }
    Ref next = Ref::borrow(as_object(neighbour(object, false)));
    Ref prev = Ref::borrow(as_object(neighbour(object, true)));
    state_of(self).index.remove(object->node);
    Ref old_args = std::move(object->node->python_args);
    Ref old_kwargs = std::move(object->node->python_kwargs);
    std::unique_ptr<Node> node = ir_of(self).detach(object->node);
    // The object, which the IR has owned, owns the node.
    Ref face = Ref::steal(static_cast<PyObject*>(node->face.release()));
    object->state = NodeObject::kErased;
    object->node = node.release();
    object->next = next.release();
    object->prev = prev.release();
    return Ref::borrow(Py_None);
  });
}

// ---- looking

PyObject* num_nodes(PyObject* self, PyObject*) {
  return object_or_null([&] {
    return checked(PyLong_FromSize_t(ir_of(self).block().nodes.size()));
  });
}

PyObject* iterate(PyObject* self, PyObject* backwards) {
  return object_or_null([&] {
    int is_true = PyObject_IsTrue(backwards);
    checked(is_true);
    return node_iterator(self, is_true == 1);
  });
}

PyObject* find_nodes(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                     PyObject* kwnames) {
  return object_or_null([&] {
    static const char* const kNames[] = {"op", "target", "sort"};
    PyObject* in[3];
    read_arguments("find_nodes", kNames, 3, 1, args, nargs, kwnames, in);
    PyObject* target = in[1] == Py_None ? nullptr : in[1];
    Ref list = checked(PyList_New(0));
    Opcode op;
    if (!parse_opcode(in[0], &op)) return list;
    bool of_function = op == Opcode::kCallFunction;
    if (of_function && !target)
      raise(PyExc_AssertionError,
            "target must not be None for call_function op");
    std::string name;
    if (target && !of_function) {
      if (!PyUnicode_Check(target)) return list;
      name = text_of(target);
    }
    std::vector<Node*> found =
        state_of(self).index.find(ir_of(self), op, target);
    NoCollection steady;
    for (Node* node : found) {
      if (target && !of_function && node->method != name) continue;
      checked(PyList_Append(list.get(), as_object(face_of(self, node))));
    }
    return list;
  });
}

// {user: the nodes whose last use it is}.
PyObject* last_uses(PyObject* self, PyObject*) {
  return object_or_null([&] {
    NoCollection steady;
    std::unordered_map<const Value*, bool> seen;
    Ref result = checked(PyDict_New());
    auto& nodes = ir_of(self).block().nodes;
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
      Ref list;
      auto use = [&](Value* value) {
        if (!seen.emplace(value, true).second) return;
        if (!list) list = checked(PyList_New(0));
        checked(
            PyList_Append(list.get(), as_object(face_of(self, value->node))));
      };
      for (const Arg& arg : (*at)->args) for_each_value(arg, use);
      for (const auto& [name, arg] : (*at)->kwargs) for_each_value(arg, use);
      if (list)
        checked(PyDict_SetItem(
            result.get(), as_object(face_of(self, at->get())), list.get()));
    }
    return result;
  });
}

// ---- copying

// A copy of one node; values become what `val_map` has for them.
Ref copy_node(PyObject* self, PyObject* from, Node& node, PyObject* val_map) {
  auto mapped = [&](Value* value) {
    PyObject* key = as_object(face_of(from, value->node));
    PyObject* found = PyDict_GetItemWithError(val_map, key);
    if (!found) {
      if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
      throw Raised{};
    }
    return to_arg(self, found);
  };
  Arguments arguments;
  arguments.args.reserve(node.args.size());
  for (const Arg& arg : node.args)
    arguments.args.push_back(map_values(arg, mapped));
  for (const auto& [name, arg] : node.kwargs)
    arguments.kwargs.emplace_back(name, map_values(arg, mapped));
  Ref target = target_of(node), name = text_object(node.outputs[0]->name);
  Ref made =
      add_node(self, {node.op, target.get(), name.get(), node.type.get()},
               std::move(arguments));
  Ref& meta = as_node(made.get())->node->meta;
  if (node.meta && !PyDict_Check(node.meta.get()))
    meta = node.meta;  // nobody has asked for it yet
  else if (node.meta && PyDict_GET_SIZE(node.meta.get()))
    meta = checked(PyDict_Copy(node.meta.get()));
  return made;
}

PyObject* copy_nodes(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  return object_or_null([&] {
    if (nargs != 2 || !PyObject_TypeCheck(args[0], g_graph_base) ||
        !PyDict_Check(args[1]))
      raise(PyExc_TypeError, "_copy_nodes takes a Graph and a dict");
    PyObject *from = args[0], *val_map = args[1];
    for (NodeObject* object = neighbour(root_of(from), false);
         object->state == NodeObject::kInGraph;
         object = neighbour(object, false)) {
      if (object->node->op == Opcode::kOutput)
        return Ref::borrow(as_object(object));
      int known = PyDict_Contains(val_map, as_object(object));
      checked(known);
      if (known) continue;
      Ref kept = Ref::borrow(as_object(object));
      Ref made = copy_node(self, from, *object->node, val_map);
      checked(PyDict_SetItem(val_map, as_object(object), made.get()));
    }
    return Ref::borrow(Py_None);
  });
}

// ---- the insertion point, and names

PyObject* insert_point(PyObject* self, PyObject*) {
  return object_or_null([&] {
    GraphState& state = state_of(self);
    PyObject* at = state.insert_at ? state.insert_at.get() : Py_None;
    return checked(
        Py_BuildValue("(OO)", at, state.insert_after ? Py_True : Py_False));
  });
}

PyObject* set_insert_point(PyObject* self, PyObject* const* args,
                           Py_ssize_t nargs) {
  return object_or_null([&] {
    if (nargs != 2)
      raise(PyExc_TypeError, "_set_insert_point takes a node and a bool");
    GraphState& state = state_of(self);
    state.insert_at = args[0] == Py_None
                          ? Ref()
                          : Ref::borrow(as_object(expect_node(args[0])));
    state.insert_after = args[1] == Py_True;
    return Ref::borrow(Py_None);
  });
}

PyObject* create_name(PyObject* self, PyObject* candidate) {
  return object_or_null([&] {
    return text_object(state_of(self).names.create(text_of(candidate)));
  });
}

PyObject* lint_nodes(PyObject* self, PyObject*) {
  return object_or_null([&] {
    std::string wrong = what_is_wrong(self);
    if (!wrong.empty()) {
      Ref text = checked(PyObject_Str(self));
      raise(PyExc_RuntimeError, wrong + "\n" + text_of(text.get()));
    }
    return Ref::borrow(Py_None);
  });
}

PyObject* check_uses(PyObject* self, PyObject*) {
  return object_or_null([&] { return text_object(wrong_uses(ir_of(self))); });
}

PyObject* ir_text(PyObject* self, PyObject*) {
  return object_or_null([&] {
    ir_of(self).update_interface();
    return text_object(ir_of(self).str());
  });
}

PyObject* get_root(PyObject* self, void*) {
  return object_or_null([&] { return Ref::borrow(as_object(root_of(self))); });
}

PyMethodDef g_graph_methods[] = {
    {"create_node", as_function(create_node), kFast,
     "Make a node and insert it at the insertion point.\n\n"
     "op: 'placeholder', 'get_attr', 'call_function', 'call_method', "
     "'call_module' or 'output'. target: a callable, or a str.\n"
     "name: what its name is made from; type_expr: an annotation."},
    {"call_function", as_function(call_function), kFast,
     "Insert a call of a Python callable."},
    {"call_method", as_function(call_method), kFast,
     "Insert a call of the method `method_name` of args[0]."},
    {"erase_node", erase_node, METH_O,
     "Take a node that has no users out of the graph."},
    {"find_nodes", as_function(find_nodes), kFast,
     "The nodes with this op and target, in the order of the graph."},
    {"_num_nodes", num_nodes, METH_NOARGS, nullptr},
    {"_iterate", iterate, METH_O, nullptr},
    {"_last_uses", last_uses, METH_NOARGS, nullptr},
    {"_copy_nodes", as_function(copy_nodes), METH_FASTCALL, nullptr},
    {"_insert_point", insert_point, METH_NOARGS, nullptr},
    {"_set_insert_point", as_function(set_insert_point), METH_FASTCALL,
     nullptr},
    {"_create_name", create_name, METH_O, nullptr},
    {"_lint_nodes", lint_nodes, METH_NOARGS, nullptr},
    {"_check_uses", check_uses, METH_NOARGS, nullptr},
    {"_ir_text", ir_text, METH_NOARGS, nullptr},
    {}};
PyGetSetDef g_graph_getset[] = {{"_root", get_root, nullptr, nullptr, nullptr},
                                {}};

PyType_Slot g_graph_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make_graph)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_graph)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_graph)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_graph)},
    {Py_tp_methods, g_graph_methods},
    {Py_tp_getset, g_graph_getset},
    {0, nullptr}};
PyType_Spec g_graph_spec = {
    "framejit._C._fx.GraphBase", sizeof(GraphObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    g_graph_slots};

}  // namespace

void add_graph_type(PyObject* module) {
  Ref type = checked(PyType_FromSpec(&g_graph_spec));
  g_graph_base = reinterpret_cast<PyTypeObject*>(type.get());
  checked(PyModule_AddObjectRef(module, "GraphBase", type.get()));
  type.release();  // for good
}

}  // namespace framejit::graph::fx
