// The Python objects of `framejit.fx`: what `Graph` and `Node` are in memory.
//
// The graph IR is the only store. A Python Graph owns a graph::Graph; a Python
// Node is the face of one graph::Node, made at most once, so that `is` works.
//
//   Graph object ──owns──► graph::Graph ──► graph::Node ──face──► Node object
//        ▲                                                             │
//        └─────────────────────────── graph ───────────────────────────┘
//
// While a node is in its graph the IR owns its object (the face holds a
// reference), and the cycle is the collector's. A node that is erased changes
// hands: its object owns the graph::Node, which has no arguments by then, and
// remembers its neighbours, so that those who iterate find the way back.
//
// Both types are made to be derived from: the classes that users see are
// Python's (framejit/fx), and add what need not be fast.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <unordered_map>

#include "graph/fx/names.h"
#include "graph/fx/node_index.h"
#include "graph/ir/ir.h"

namespace framejit::graph::fx {

// A failed C-API call: the error is set.
struct Raised {};

inline Ref checked(PyObject* object) {
  if (!object) throw Raised{};
  return Ref::steal(object);
}
inline void checked(int status) {
  if (status < 0) throw Raised{};
}
[[noreturn]] void raise(PyObject* type, const std::string& text);

// For a static: a name that is looked up.
inline PyObject* interned(const char* text) {
  return PyUnicode_InternFromString(text);
}

// Runs f; no exception leaves it. `failed` is what tells CPython of an error.
template <class T, class F>
T guarded(T failed, const F& f) {
  try {
    return f();
  } catch (const Raised&) {
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return failed;
}
template <class F>
PyObject* object_or_null(const F& f) {
  return guarded<PyObject*>(nullptr, [&] { return f().release(); });
}

// While this lives nothing is collected: allocating Python objects would run
// finalizers of the program, which may edit what is being walked over.
class NoCollection {
 public:
  NoCollection() : was_enabled_(PyGC_Disable()) {}
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;
  ~NoCollection() {
    if (was_enabled_) PyGC_Enable();
  }

 private:
  bool was_enabled_;
};

// For tables of methods.
constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
template <class F>
PyCFunction as_function(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

struct NodeObject {
  PyObject_HEAD enum State : uint8_t {
    kInGraph,
    kErased,  // owns `node`
    kRoot,    // before the first node and behind the last: no `node`
    kGone,    // the collector has cleared the graph: no `node`
  };
  State state;
  Node* node;
  PyObject* graph;  // owned
  // Of an erased node (owned): where it was.
  PyObject *next, *prev;
  // What programs hang on it (owned), made when they do.
  PyObject* attributes;
  PyObject* weak_references;
};

struct GraphState {
  std::shared_ptr<Graph> ir = std::make_shared<Graph>();
  Names names;
  NodeIndex index;
  // What names of nodes are made from, by target. Holds the target.
  struct Candidate {
    Ref target;
    Names::Series names;
  };
  std::unordered_map<PyObject*, Candidate> candidates;
  Ref root;  // made when asked for
  // Where create_node inserts: next to this node; empty: at the end.
  Ref insert_at;
  bool insert_after = false;
};

struct GraphObject {
  PyObject_HEAD GraphState* state;
};

// The classes users see, and the containers in arguments; set once by
// framejit/fx before anything else is called.
struct Classes {
  PyTypeObject* node = nullptr;
  PyTypeObject* graph = nullptr;
  PyTypeObject* list = nullptr;
  PyTypeObject* dict = nullptr;
  PyObject* no_kwargs = nullptr;  // an empty one of those
};
extern Classes g_classes;
extern PyTypeObject* g_node_base;
extern PyTypeObject* g_graph_base;

inline bool is_node(PyObject* object) {
  return Py_IS_TYPE(object, g_classes.node) ||
         PyObject_TypeCheck(object, g_node_base);
}
inline NodeObject* as_node(PyObject* object) {
  return reinterpret_cast<NodeObject*>(object);
}
inline PyObject* as_object(NodeObject* node) {
  return reinterpret_cast<PyObject*>(node);
}
// Raises unless it is a Node.
NodeObject* expect_node(PyObject* object);
NodeObject* expect_live(PyObject* object);      // and has a graph::Node
NodeObject* expect_in_graph(PyObject* object);  // and was not erased

inline GraphState& state_of(PyObject* graph) {
  return *reinterpret_cast<GraphObject*>(graph)->state;
}
inline Graph& ir_of(PyObject* graph) { return *state_of(graph).ir; }

// The object of a node of `graph`, borrowed.
NodeObject* face_of(PyObject* graph, Node* node);
NodeObject* root_of(PyObject* graph);
// What follows (or precedes): erased nodes are passed over, the last is the
// root. Borrowed.
NodeObject* neighbour(NodeObject* node, bool backwards);

// "call_function" <-> kCallFunction.
PyObject* opcode_name(Opcode op);  // borrowed, interned
bool parse_opcode(PyObject* name, Opcode* op);

Ref text_object(const std::string& text);
std::string text_of(PyObject* text);
// Only of a string; raises nothing.
Ref target_of(const Node& node);
void set_target(Node& node, PyObject* target);
// How nodes that call `target` are named.
GraphState::Candidate& candidate_of(GraphState& state, PyObject* target);

// The dict of a node. A node that a trace has made has something shorter until
// it is asked for: where it stands in the modules that were being called, a
// chain of tuples (the outer chain or None, key, entry).
Ref& meta_of(Node& node);

// What the collector asks of a graph::Node.
int visit_node(const Node& node, visitproc visit, void* arg);

// The arguments of a METH_FASTCALL | METH_KEYWORDS function, by name: `out` has
// one (borrowed) object a name, null where none was given.
void read_arguments(const char* function, const char* const* names,
                    size_t count, size_t required, PyObject* const* args,
                    Py_ssize_t nargs, PyObject* kwnames, PyObject** out);

// Each adds its types or functions to the module.
void add_node_type(PyObject* module);
void add_graph_type(PyObject* module);
void add_views(PyObject* module);
void add_argument_functions(PyObject* module);

void add_source_writer(PyObject* module);
// What a `Names` of Python holds; raises where it is none.
Names& names_in(PyObject* object);

// The live view of a node's users.
Ref users_view(NodeObject* node);
// `backwards`: from the last to the first.
Ref node_iterator(PyObject* graph, bool backwards);
Ref input_list(NodeObject* node);  // without repetition, in order
// How nodes are changed (node_edits.cpp); methods of Node.
extern PyMethodDef g_edit_methods[];

}  // namespace framejit::graph::fx
