#include "graph/fx/objects.h"

#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

Classes g_classes;
PyTypeObject* g_node_base = nullptr;
PyTypeObject* g_graph_base = nullptr;

void raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw Raised{};
}

Ref text_object(const std::string& text) {
  return checked(PyUnicode_FromStringAndSize(text.data(), text.size()));
}

std::string text_of(PyObject* text) {
  if (!PyUnicode_Check(text))
    raise(PyExc_TypeError,
          std::string("a str is expected, got ") + Py_TYPE(text)->tp_name);
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (!utf8) throw Raised{};
  return std::string(utf8, size);
}

namespace {

struct OpcodeRow {
  Opcode op;
  const char* name;
};
constexpr OpcodeRow kOpcodes[] = {
    {Opcode::kPlaceholder, "placeholder"},
    {Opcode::kGetAttr, "get_attr"},
    {Opcode::kCallFunction, "call_function"},
    {Opcode::kCallMethod, "call_method"},
    {Opcode::kCallModule, "call_module"},
    {Opcode::kStateEnter, "call_function"},
    {Opcode::kStateExit, "call_function"},
    {Opcode::kOutput, "output"},
};
constexpr size_t kNumOpcodes = std::size(kOpcodes);

PyObject* const* opcode_names() {
  static PyObject** names = [] {
    auto** made = new PyObject*[kNumOpcodes];
    for (const OpcodeRow& row : kOpcodes)
      made[static_cast<size_t>(row.op)] = PyUnicode_InternFromString(row.name);
    return made;
  }();
  return names;
}

}  // namespace

PyObject* opcode_name(Opcode op) {
  return opcode_names()[static_cast<size_t>(op)];
}

bool parse_opcode(PyObject* name, Opcode* op) {
  for (const OpcodeRow& row : kOpcodes) {
    if (name == opcode_name(row.op)) {
      *op = row.op;
      return true;
    }
  }
  if (!PyUnicode_Check(name)) return false;
  for (const OpcodeRow& row : kOpcodes) {
    if (PyUnicode_CompareWithASCIIString(name, row.name) == 0) {
      *op = row.op;
      return true;
    }
  }
  return false;
}

NodeObject* expect_node(PyObject* object) {
  if (!is_node(object))
    raise(PyExc_TypeError,
          std::string("a Node is expected, got ") + Py_TYPE(object)->tp_name);
  return as_node(object);
}

NodeObject* expect_live(PyObject* object) {
  NodeObject* node = expect_node(object);
  if (!node->node)
    raise(PyExc_RuntimeError,
          node->state == NodeObject::kRoot
              ? "the root of a graph's list is no node of the graph"
              : "the graph of this node is gone");
  return node;
}

NodeObject* expect_in_graph(PyObject* object) {
  NodeObject* node = expect_live(object);
  if (node->state != NodeObject::kInGraph)
    raise(PyExc_RuntimeError, "node " + node->node->outputs[0]->name +
                                  " was erased from its graph");
  return node;
}

namespace {

Ref new_node(PyObject* graph, NodeObject::State state, Node* node) {
  FJ_CHECK(g_classes.node, "framejit.fx is not loaded");
  Ref made = checked(g_classes.node->tp_alloc(g_classes.node, 0));
  NodeObject* object = as_node(made.get());
  object->state = state;
  object->node = node;
  object->graph = graph;
  Py_INCREF(graph);
  return made;
}

void node_is_gone(void* face) {
  auto* object = static_cast<NodeObject*>(face);
  object->state = NodeObject::kGone;
  object->node = nullptr;
  Py_DECREF(as_object(object));
}

}  // namespace

NodeObject* face_of(PyObject* graph, Node* node) {
  if (void* known = node->face.object()) return static_cast<NodeObject*>(known);
  Ref made = new_node(graph, NodeObject::kInGraph, node);
  node->face.set(made.get(), node_is_gone);
  return as_node(made.release());
}

NodeObject* root_of(PyObject* graph) {
  GraphState& state = state_of(graph);
  if (!state.root) state.root = new_node(graph, NodeObject::kRoot, nullptr);
  return as_node(state.root.get());
}

NodeObject* neighbour(NodeObject* node, bool backwards) {
  while (node->state == NodeObject::kErased) {
    node = as_node(backwards ? node->prev : node->next);
    if (node->state != NodeObject::kErased) return node;
  }
  if (node->state == NodeObject::kGone)
    raise(PyExc_RuntimeError, "the graph of this node is gone");
  Graph& graph = ir_of(node->graph);
  auto& nodes = graph.block().nodes;
  auto at =
      node->state == NodeObject::kRoot ? nodes.end() : node->node->position;
  if (backwards) {
    if (at == nodes.begin()) return root_of(node->graph);
    --at;
  } else {
    at = at == nodes.end() ? nodes.begin() : std::next(at);
  }
  if (at == nodes.end()) return root_of(node->graph);
  return face_of(node->graph, at->get());
}

Ref target_of(const Node& node) {
  return node.callable ? node.callable : text_object(node.method);
}

void set_target(Node& node, PyObject* target) {
  if (PyUnicode_Check(target)) {
    node.method = text_of(target);
    node.callable.reset();
  } else {
    node.method.clear();
    node.callable = Ref::borrow(target);
  }
}

GraphState::Candidate& candidate_of(GraphState& state, PyObject* target) {
  auto known = state.candidates.find(target);
  if (known != state.candidates.end()) return known->second;
  Ref name = checked(PyObject_GetAttrString(target, "__name__"));
  Names::Series names = state.names.series(snake_case(text_of(name.get())));
  GraphState::Candidate& made = state.candidates[target];
  made.target = Ref::borrow(target);
  made.names = std::move(names);
  return made;
}

namespace {

int visit_arg(const Arg& arg, visitproc visit, void* data) {
  auto all = [&](const std::vector<Arg>& items) {
    for (const Arg& item : items)
      if (int stop = visit_arg(item, visit, data)) return stop;
    return 0;
  };
  if (auto* object = std::get_if<Ref>(&arg.value))
    return *object ? visit(object->get(), data) : 0;
  if (auto* list = std::get_if<Arg::List>(&arg.value)) return all(list->items);
  if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value)) {
    if (tuple->type)
      if (int stop = visit(tuple->type.get(), data)) return stop;
    return all(tuple->items);
  }
  if (auto* dict = std::get_if<Arg::Dict>(&arg.value)) {
    for (const auto& [key, item] : dict->items) {
      if (int stop = visit_arg(key, visit, data)) return stop;
      if (int stop = visit_arg(item, visit, data)) return stop;
    }
  }
  // A slice may be shared by two trees, which would visit it twice.
  if (auto* slice = std::get_if<std::shared_ptr<Arg::Slice>>(&arg.value)) {
    if (!*slice || slice->use_count() != 1) return 0;
    for (const Arg* part : {&(*slice)->start, &(*slice)->stop, &(*slice)->step})
      if (int stop = visit_arg(*part, visit, data)) return stop;
  }
  return 0;
}

}  // namespace

int visit_node(const Node& node, visitproc visit, void* arg) {
  for (PyObject* object : {node.callable.get(), node.type.get(),
                           node.meta.get(), node.python_args.get(),
                           node.python_kwargs.get(), node.span.code.get()}) {
    if (!object) continue;
    if (int stop = visit(object, arg)) return stop;
  }
  for (const Arg& item : node.args)
    if (int stop = visit_arg(item, visit, arg)) return stop;
  for (const auto& [name, item] : node.kwargs)
    if (int stop = visit_arg(item, visit, arg)) return stop;
  return 0;
}

Ref& meta_of(Node& node) {
  static PyObject* const key = interned("nn_module_stack");
  if (!node.meta) {
    node.meta = checked(PyDict_New());
  } else if (PyTuple_CheckExact(node.meta.get())) {
    std::vector<PyObject*> links;
    for (PyObject* link = node.meta.get(); link != Py_None;
         link = PyTuple_GET_ITEM(link, 0))
      links.push_back(link);
    Ref stack = checked(PyDict_New()), meta = checked(PyDict_New());
    for (size_t i = links.size(); i-- > 0;)
      checked(PyDict_SetItem(stack.get(), PyTuple_GET_ITEM(links[i], 1),
                             PyTuple_GET_ITEM(links[i], 2)));
    checked(PyDict_SetItem(meta.get(), key, stack.get()));
    node.meta = meta;
  }
  return node.meta;
}

void read_arguments(const char* function, const char* const* names,
                    size_t count, size_t required, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames, PyObject** out) {
  if (nargs > static_cast<Py_ssize_t>(count))
    raise(PyExc_TypeError, std::string(function) + "() takes at most " +
                               std::to_string(count) + " arguments (" +
                               std::to_string(nargs) + " given)");
  for (size_t i = 0; i < count; ++i)
    out[i] = i < static_cast<size_t>(nargs) ? args[i] : nullptr;
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t k = 0; k < keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    size_t i = 0;
    while (i < count &&
           PyUnicode_CompareWithASCIIString(keyword, names[i]) != 0)
      ++i;
    if (i == count || out[i])
      raise(PyExc_TypeError,
            std::string(function) +
                (i == count ? "() got an unexpected keyword argument '"
                            : "() got multiple values for argument '") +
                text_of(keyword) + "'");
    out[i] = args[nargs + k];
  }
  for (size_t i = 0; i < required; ++i) {
    if (!out[i])
      raise(PyExc_TypeError, std::string(function) +
                                 "() missing a required argument: '" +
                                 names[i] + "'");
  }
}

}  // namespace framejit::graph::fx
