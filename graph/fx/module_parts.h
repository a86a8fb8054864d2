// What torch.nn.Module is made of, as framejit.fx reads and makes modules.
#pragma once

#include "graph/fx/objects.h"

namespace framejit::graph::fx {

struct ModuleParts {
  PyTypeObject* module = nullptr;
  PyTypeObject* sequential = nullptr;
  PyTypeObject* tensor = nullptr;
  // Functions of nn.Module.
  PyObject* call = nullptr;
  PyObject* getattr = nullptr;
  PyObject* setattr = nullptr;
  PyObject* call_impl = nullptr;
  PyObject* named_modules = nullptr;
  // The tables of hooks on calls of all modules, and of those that are asked
  // when a module gets a part: dicts of torch.nn.modules.module.
  std::vector<PyObject*> call_hooks, register_hooks;
  PyObject* tracing_state = nullptr;  // torch._C._get_tracing_state
};
// Set once by framejit/fx.
extern ModuleParts g_parts;

// Where a module keeps what it holds, in the order in which it is looked for.
enum Holder : uint8_t { kParameters, kBuffers, kModules, kNumHolders };
PyObject* holder_name(Holder holder);  // borrowed, interned

// The module's __dict__.
Ref attributes_of(PyObject* module);
// What nn.Module.__getattr__ finds. Borrowed; null: nothing.
PyObject* held_by(PyObject* module, PyObject* name, Holder* holder);
// Does the class have the function that nn.Module has under this name?
bool has_own(PyTypeObject* type, PyObject* name, PyObject* function);

void add_module_parts(PyObject* module);

}  // namespace framejit::graph::fx
