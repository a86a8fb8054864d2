// What a trace writes into its graph: one node for each operation of a program
// on proxies.
//
// Tracers are Python objects whose methods (create_proxy, create_arg, ...) say
// what an operation means, and programs derive from them. Where a tracer has
// only methods that framejit.fx gave it, what they do is done here without
// calling them; where it has one of its own, all goes through its methods.
#pragma once

#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

// Under framejit.fx.TracerBase: what is looked at for every operation.
struct TracerObject {
  PyObject_HEAD
      // All owned; `graph` may be null, the others are dicts, None or null.
      PyObject *graph,
      *module_stack, *num_calls, *submodule_paths, *state_paths, *parameters;
  // Of `module_stack`, where nobody but us changes it: see meta_of(). Owned.
  PyObject* stack_chain;
  // An attribute of the instance is one of its methods.
  char by_methods;
};

// Under framejit.fx.Proxy: a value of a graph in the hands of a program.
struct ProxyObject {
  PyObject_HEAD PyObject* tracer;  // owned
  PyObject* node;         // owned; of an attribute: null until it is asked for
  PyObject *root, *attr;  // of an attribute (owned): `attr` of the proxy `root`
  PyObject* attributes;   // __dict__
  PyObject* weak_references;
};

extern PyTypeObject* g_tracer_base;
extern PyTypeObject* g_proxy_base;

inline bool is_proxy(PyObject* object) {
  return PyObject_TypeCheck(object, g_proxy_base);
}
inline ProxyObject* as_proxy(PyObject* object) {
  return reinterpret_cast<ProxyObject*>(object);
}
// Inserts the read of an attribute where there is none yet.
Ref node_of_proxy(PyObject* proxy);

// The methods of tracers that may be theirs alone.
enum class TracerMethod : uint8_t {
  kCreateProxy,
  kCreateNode,
  kCreateArg,
  kProxy,
  kCallModule,
  kIsLeafModule,
  kPathOfModule,
  kGetattr,
  kCount,
};
// Is it one that framejit.fx gave it?
bool is_ours(PyObject* tracer, TracerMethod method);
PyObject* method_name(TracerMethod method);  // borrowed, interned
// Does record() call none of the tracer's methods (but for odd arguments)?
bool records_here(PyObject* tracer);

struct Operation {
  Opcode op;
  PyObject* target;
  PyObject* const* args = nullptr;
  size_t count = 0;
  PyObject* kwargs = nullptr;  // a dict, or null
  PyObject* name = nullptr;    // what the node is named after; null: the target
};
// Inserts the node of an operation; its proxy.
Ref record(PyObject* tracer, const Operation& operation);

// Adds the types and functions of tracers and proxies to the module.
void add_tracing(PyObject* module);
void add_proxy_type(PyObject* module);
void add_followed_programs(PyObject* module);

}  // namespace framejit::graph::fx
