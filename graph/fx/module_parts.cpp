#include "graph/fx/module_parts.h"

#include <cstring>
#include <unordered_set>

#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

ModuleParts g_parts;

namespace {

// ---- where modules and their state are

// What Tracer._find_state finds, for modules that enumerate themselves as
// nn.Module does.
class Modules {
 public:
  Modules(PyObject* paths, PyObject* tensors)
      : paths_(paths), tensors_(tensors) {}

  // False: a class has a method of its own.
  bool find(PyObject* module, const Ref& path) {
    static PyObject* const enumerate = interned("named_modules");
    int is_known = PyDict_Contains(paths_, module);
    checked(is_known);
    if (is_known) return true;
    PyTypeObject* type = Py_TYPE(module);
    if (!PyType_IsSubtype(type, g_parts.module) ||
        !has_own(type, enumerate, g_parts.named_modules))
      return false;
    checked(PyDict_SetItem(paths_, module, path.get()));
    Ref attributes = attributes_of(module);
    tensors(attributes.get(), path.get());
    PyObject* children =
        PyDict_GetItemWithError(attributes.get(), holder_name(kModules));
    if (!children || !PyDict_Check(children)) {
      if (PyErr_Occurred()) throw Raised{};
      return false;
    }
    if (Py_EnterRecursiveCall(" in the modules of a root")) throw Raised{};
    bool done = true;
    Py_ssize_t position = 0;
    PyObject *name, *child;
    while (done && PyDict_Next(children, &position, &name, &child))
      if (child != Py_None) done = find(child, joined(path.get(), name));
    Py_LeaveRecursiveCall();
    return done;
  }

 private:
  static Ref joined(PyObject* path, PyObject* name) {
    if (!PyUnicode_Check(name)) raise(PyExc_TypeError, "names are strings");
    if (!PyUnicode_GET_LENGTH(path)) return Ref::borrow(name);
    if (!PyUnicode_IS_ASCII(path) || !PyUnicode_IS_ASCII(name))
      return checked(PyUnicode_FromFormat("%U.%U", path, name));
    Py_ssize_t first = PyUnicode_GET_LENGTH(path);
    Py_ssize_t second = PyUnicode_GET_LENGTH(name);
    Ref made = checked(PyUnicode_New(first + 1 + second, 127));
    auto* text = PyUnicode_1BYTE_DATA(made.get());
    std::memcpy(text, PyUnicode_1BYTE_DATA(path), first);
    text[first] = '.';
    std::memcpy(text + first + 1, PyUnicode_1BYTE_DATA(name), second);
    return made;
  }

  // Tensors that are attributes like any other.
  void tensors(PyObject* attributes, PyObject* path) {
    Py_ssize_t position = 0;
    PyObject *name, *value;
    while (PyDict_Next(attributes, &position, &name, &value)) {
      if (PyDict_Check(value) || PyBool_Check(value)) continue;
      if (PyObject_TypeCheck(value, g_parts.tensor))
        checked(PyDict_SetItem(tensors_, value, joined(path, name).get()));
    }
  }

  PyObject *paths_, *tensors_;
};

PyObject* find_modules(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 3 || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
      raise(PyExc_TypeError, "find_modules takes a module and two dicts");
    NoCollection steady;
    Ref no_path = text_object("");
    bool found = Modules(args[1], args[2]).find(args[0], no_path);
    return Ref::borrow(found ? Py_True : Py_False);
  });
}

// ---- modules that graphs call, put into a module that is made

class Parts {
 public:
  explicit Parts(PyObject* made) : made_(made) {}

  // Puts the module at a path of `root` to the same path, with modules in
  // between as needed. False: what is there is not as nn.Module has it.
  bool take_over(PyObject* root, PyObject* path) {
    std::string text = text_of(path);
    if (!known_.insert(text).second) return true;
    size_t dot = text.rfind('.');
    std::string prefix = dot == std::string::npos ? "" : text.substr(0, dot);
    auto known_pair = pairs_.find(prefix);
    if (known_pair == pairs_.end()) {
      Pair pair = pair_at(root, prefix);
      if (pair.is_shared) return true;  // a parent was taken over whole
      if (!pair.ours) return false;
      known_pair = pairs_.emplace(prefix, std::move(pair)).first;
    }
    auto& [theirs, ours, shared] = known_pair->second;
    Ref name =
        part_name(dot == std::string::npos ? text : text.substr(dot + 1));
    PyObject* part = child(theirs.get(), name.get());
    if (!part) return false;
    if (child(ours.get(), name.get()) == part) return true;
    if (!may_get(ours.get(), name.get())) return false;
    put(ours.get(), name.get(), part);
    return true;
  }

 private:
  // What is at a path in either module.
  struct Pair {
    Ref theirs, ours;  // `ours` null: not as nn.Module has it
    bool is_shared = false;
  };

  // Interned, as attributes are: found by their identity.
  static Ref part_name(const std::string& text) {
    PyObject* name = text_object(text).release();
    PyUnicode_InternInPlace(&name);
    return Ref::steal(name);
  }

  Pair pair_at(PyObject* root, const std::string& path) {
    Pair at{Ref::borrow(root), Ref::borrow(made_)};
    for (size_t begin = 0; !path.empty() && begin != std::string::npos;) {
      size_t dot = path.find('.', begin);
      Ref name = part_name(path.substr(begin, dot - begin));
      begin = dot == std::string::npos ? dot : dot + 1;
      PyObject* inner = child(at.theirs.get(), name.get());
      PyObject* own = child(at.ours.get(), name.get());
      if (!inner || (!own && !may_get(at.ours.get(), name.get()))) return {};
      if (own == inner) return {{}, {}, true};
      Ref next = own ? Ref::borrow(own) : new_module();
      if (!own) put(at.ours.get(), name.get(), next.get());
      at = {Ref::borrow(inner), std::move(next)};
    }
    return at;
  }

  // The submodule that getattr gives; null: it may be something else.
  static PyObject* child(PyObject* module, PyObject* name) {
    static PyObject* const getattr = interned("__getattr__");
    PyTypeObject* type = Py_TYPE(module);
    if (!has_own(type, getattr, g_parts.getattr) || _PyType_Lookup(type, name))
      return nullptr;
    Ref attributes = attributes_of(module);
    int has = PyDict_Contains(attributes.get(), name);
    checked(has);
    if (has) return nullptr;
    Holder holder;
    PyObject* found = held_by(module, name, &holder);
    bool is_module = found && holder == kModules &&
                     PyObject_TypeCheck(found, g_parts.module);
    return is_module ? found : nullptr;
  }

  // setattr of a module would do no more than put it into _modules.
  static bool may_get(PyObject* module, PyObject* name) {
    static PyObject* const setattr = interned("__setattr__");
    for (PyObject* table : g_parts.register_hooks)
      if (PyDict_GET_SIZE(table)) return false;
    if (!has_own(Py_TYPE(module), setattr, g_parts.setattr) ||
        _PyType_Lookup(Py_TYPE(module), name))
      return false;
    Ref attributes = attributes_of(module);
    int has = PyDict_Contains(attributes.get(), name);
    checked(has);
    Holder holder;
    PyObject* held = held_by(module, name, &holder);
    return !has && (!held || holder == kModules);
  }

  static void put(PyObject* module, PyObject* name, PyObject* part) {
    Ref attributes = attributes_of(module);
    PyObject* modules =
        PyDict_GetItemWithError(attributes.get(), holder_name(kModules));
    if (!modules || !PyDict_Check(modules))
      raise(PyExc_AttributeError,
            "cannot assign module before Module.__init__() call");
    checked(PyDict_SetItem(modules, name, part));
  }

  // nn.Module(), whose __init__ takes a while: its attributes once more.
  Ref new_module() {
    if (!pattern_) {
      Ref plain = checked(
          PyObject_CallNoArgs(reinterpret_cast<PyObject*>(g_parts.module)));
      pattern_ = checked(PyDict_Copy(attributes_of(plain.get()).get()));
      Py_ssize_t position = 0;
      PyObject *name, *value;
      while (PyDict_Next(pattern_.get(), &position, &name, &value))
        if (is_container(value)) containers_.push_back(name);
      return plain;
    }
    static PyObject* const no_args = PyTuple_New(0);
    Ref made =
        checked(g_parts.module->tp_new(g_parts.module, no_args, nullptr));
    Ref attributes = checked(PyDict_Copy(pattern_.get()));
    for (PyObject* name : containers_) {
      PyObject* value = PyDict_GetItemWithError(pattern_.get(), name);
      if (!value) raise(PyExc_RuntimeError, "nn.Module has changed");
      Ref fresh = empty_like(value);
      checked(PyDict_SetItem(attributes.get(), name, fresh.get()));
    }
    checked(PyObject_GenericSetDict(made.get(), attributes.get(), nullptr));
    return made;
  }

  static bool is_container(PyObject* value) {
    return PyDict_Check(value) || PySet_Check(value) || PyList_Check(value);
  }
  static Ref empty_like(PyObject* value) {
    if (PyODict_CheckExact(value)) return checked(PyODict_New());
    if (PyDict_CheckExact(value)) return checked(PyDict_New());
    return checked(
        PyObject_CallNoArgs(reinterpret_cast<PyObject*>(Py_TYPE(value))));
  }

  PyObject* made_;
  // The attributes of a new module, and which are containers (empty ones).
  Ref pattern_;
  std::vector<PyObject*> containers_;
  std::unordered_set<std::string> known_;
  std::unordered_map<std::string, Pair> pairs_;
};

// take_over(made, root, graph, leave): for each node that calls a module or
// reads an attribute; leave(path) does what is not done here.
PyObject* take_over(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 4 || !PyObject_TypeCheck(args[0], g_parts.module) ||
        !PyObject_TypeCheck(args[1], g_parts.module) ||
        !PyObject_TypeCheck(args[2], g_graph_base))
      raise(PyExc_TypeError, "take_over takes two modules and a graph");
    NoCollection steady;
    Parts parts(args[0]);
    std::vector<std::pair<Ref, bool>> paths;
    for (const auto& node : ir_of(args[2]).block().nodes) {
      bool calls = node->op == Opcode::kCallModule;
      if (calls || node->op == Opcode::kGetAttr)
        paths.emplace_back(target_of(*node), calls);
    }
    for (const auto& [path, calls] : paths)
      if (!calls || !parts.take_over(args[1], path.get()))
        checked(PyObject_CallOneArg(args[3], path.get()));
    return Ref::borrow(Py_None);
  });
}

// set_module_parts(Module, Sequential, Tensor, hooks on calls, hooks on parts,
// torch._C._get_tracing_state)
PyObject* set_module_parts(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 6 || !PyType_Check(args[0]) || !PyType_Check(args[1]) ||
        !PyType_Check(args[2]) || !PyTuple_Check(args[3]) ||
        !PyTuple_Check(args[4]))
      raise(PyExc_TypeError, "set_module_parts takes what modules are made of");
    ModuleParts made;
    auto type = [&](size_t at) {
      return reinterpret_cast<PyTypeObject*>(Py_NewRef(args[at]));
    };
    made.module = type(0);
    made.sequential = type(1);
    made.tensor = type(2);
    auto part = [&](const char* name) {
      return Py_XNewRef(PyDict_GetItemString(made.module->tp_dict, name));
    };
    made.call = part("__call__");
    made.getattr = part("__getattr__");
    made.setattr = part("__setattr__");
    made.call_impl = part("_call_impl");
    made.named_modules = part("named_modules");
    for (auto [at, list] :
         {std::pair{3, &made.call_hooks}, std::pair{4, &made.register_hooks}})
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[at]); ++i) {
        PyObject* table = PyTuple_GET_ITEM(args[at], i);
        if (!PyDict_Check(table)) raise(PyExc_TypeError, "hooks are in dicts");
        list->push_back(Py_NewRef(table));
      }
    made.tracing_state = Py_NewRef(args[5]);
    g_parts = std::move(made);  // for good
    return Ref::borrow(Py_None);
  });
}

PyMethodDef g_part_functions[] = {
    {"find_modules", as_function(find_modules), METH_FASTCALL,
     "Where the modules of a root are, and tensors that are attributes."},
    {"take_over", as_function(take_over), METH_FASTCALL,
     "Give a module the parts of another that a graph calls."},
    {"set_module_parts", as_function(set_module_parts), METH_FASTCALL,
     "What modules are made of, by framejit/fx."},
    {}};

}  // namespace

PyObject* holder_name(Holder holder) {
  static PyObject* const names[kNumHolders] = {
      interned("_parameters"), interned("_buffers"), interned("_modules")};
  return names[holder];
}

Ref attributes_of(PyObject* module) {
  return checked(PyObject_GenericGetDict(module, nullptr));
}

PyObject* held_by(PyObject* module, PyObject* name, Holder* holder) {
  Ref attributes = attributes_of(module);
  for (Holder at : {kParameters, kBuffers, kModules}) {
    *holder = at;
    PyObject* held = PyDict_GetItemWithError(attributes.get(), holder_name(at));
    if (held && PyDict_Check(held))
      if (PyObject* found = PyDict_GetItemWithError(held, name)) return found;
    if (PyErr_Occurred()) throw Raised{};
  }
  return nullptr;
}

bool has_own(PyTypeObject* type, PyObject* name, PyObject* function) {
  return function && _PyType_Lookup(type, name) == function;
}

void add_module_parts(PyObject* module) {
  checked(PyModule_AddFunctions(module, g_part_functions));
}

}  // namespace framejit::graph::fx
