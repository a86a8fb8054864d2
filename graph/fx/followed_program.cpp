// A program that runs in CPython while a tracer follows it.
//
// The frame hook shows every Python frame that is entered. Calls of modules and
// reads of what modules hold are answered here, by what the tracer says they
// mean; nothing is patched, so no class changes and no other thread notices.
// Other frames run, those of the program from code whose calls the tracer is
// asked about first (framejit/fx/_rewriting.py).
#include <unordered_set>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "graph/fx/module_parts.h"
#include "graph/fx/recording.h"

namespace framejit::graph::fx {

namespace {

class Program {
 public:
  Program(PyObject* tracer, PyObject* rewrite, PyObject* autowrapped)
      : tracer_(Ref::borrow(tracer)), rewrite_(Ref::borrow(rewrite)) {
    Ref ids = checked(PySequence_List(autowrapped));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids.get()); ++i)
      autowrapped_.insert(PyLong_AsVoidPtr(PyList_GET_ITEM(ids.get(), i)));
    if (PyErr_Occurred()) throw Raised{};
  }

  Ref run(PyObject* call, PyObject* args) {
    // Each of many small collections would walk over the whole graph.
    NoCollection steady;
    CaptureCallbackScope scope(
        [this](PyObject* function, PyObject* const* slots, size_t count,
               PyObject** result) {
          return look(function, slots, count, result);
        },
        CaptureCallbackScope::kOffered);
    Program* outer = std::exchange(current, this);
    PyObject* result = PyObject_Call(call, args, nullptr);
    current = outer;
    if (result && !CaptureCallbackScope::keep_hook()) {
      Py_DECREF(result);
      raise(PyExc_RuntimeError,
            "another frame hook came on top of the tracer's: calls of modules "
            "may have been missed");
    }
    return checked(result);
  }

  // The next call of this module is let through.
  static Ref call_through(PyObject* module, PyObject* args, PyObject* kwargs) {
    if (!current) raise(PyExc_RuntimeError, "the trace has ended");
    return current->run_module(module, args, kwargs);
  }

  // Calls what is not the program's.
  static Ref unfollowed(PyObject* call, PyObject* args, PyObject* kwargs) {
    if (!current) return checked(PyObject_Call(call, args, kwargs));
    Program* program = current;
    bool outer = std::exchange(program->is_paused_, true);
    PyObject* result = PyObject_Call(call, args, kwargs);
    program->is_paused_ = outer;
    return checked(result);
  }

  // In the globals of a function that is entered.
  void wrap_functions(PyObject* globals) {
    static PyObject* const wrap = interned("_wrap_functions");
    if (!globals || !seen_globals_.insert(globals).second) return;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(globals, &position, &key, &value)) {
      if (!autowrapped_.contains(value)) continue;
      checked(PyObject_CallMethodOneArg(tracer_.get(), wrap, globals));
      return;
    }
  }

  static thread_local Program* current;

 private:
  TracerObject& tracer() {
    return *reinterpret_cast<TracerObject*>(tracer_.get());
  }
  bool ours(TracerMethod method) {
    return !tracer().by_methods && is_ours(tracer_.get(), method);
  }

  bool look(PyObject* function, PyObject* const* slots, size_t count,
            PyObject** result) {
    if (is_paused_) return false;
    if (function == g_parts.call && count == 3) {
      if (passed_ == slots[0]) {
        passed_ = nullptr;
        return false;
      }
      *result = object_or_null(
          [&] { return call_module(slots[0], slots[1], slots[2]); });
      return true;
    }
    if (function == g_parts.getattr && count == 2)
      return read(slots[0], slots[1], result);
    return rewritten(function, slots, result);
  }

  // ---- reads

  bool read(PyObject* module, PyObject* name, PyObject** result) {
    bool found = true;
    *result = object_or_null([&]() -> Ref {
      Holder holder;
      PyObject* held = held_by(module, name, &holder);
      if (!held) {
        found = false;  // CPython raises
        return Ref::borrow(Py_None);
      }
      return meaning_of(name, Ref::borrow(held), holder);
    });
    if (!found) Py_CLEAR(*result);
    return found;
  }

  Ref meaning_of(PyObject* name, const Ref& held, Holder holder) {
    static PyObject* const parameters = interned("_parameters");
    if (!ours(TracerMethod::kGetattr)) {
      Ref method = Ref::borrow(method_name(TracerMethod::kGetattr));
      Ref cache = checked(PyObject_GetAttr(tracer_.get(), parameters));
      return checked(PyObject_CallMethodObjArgs(
          tracer_.get(), method.get(), name, held.get(), cache.get(), nullptr));
    }
    if (holder == kModules || held.get() == Py_None) return held;
    // Once for each parameter; then the proxy is found by its path.
    PyObject* paths = tracer().state_paths;
    PyObject* path = nullptr;
    if (paths && PyDict_Check(paths)) {
      Ref id = checked(PyLong_FromVoidPtr(held.get()));
      path = PyDict_GetItemWithError(paths, id.get());
    }
    if (path && tracer().parameters)
      if (PyObject* known = PyDict_GetItemWithError(tracer().parameters, path))
        return Ref::borrow(known);
    if (PyErr_Occurred()) throw Raised{};
    Ref method = Ref::borrow(method_name(TracerMethod::kGetattr));
    Ref cache = checked(PyObject_GetAttr(tracer_.get(), parameters));
    return checked(PyObject_CallMethodObjArgs(
        tracer_.get(), method.get(), name, held.get(), cache.get(), nullptr));
  }

  // ---- calls of modules

  Ref call_module(PyObject* module, PyObject* args, PyObject* kwargs) {
    static PyObject* const forward = interned("forward");
    PyObject* method = _PyType_Lookup(Py_TYPE(module), forward);
    if (method && PyFunction_Check(method))
      wrap_functions(PyFunction_GET_GLOBALS(method));
    if (!ours(TracerMethod::kCallModule) || !tracer().module_stack ||
        !tracer().num_calls || !tracer().submodule_paths)
      return call_by_method(module, args, kwargs);
    Ref path = path_of(module);
    bool asks_nobody =
        ours(TracerMethod::kIsLeafModule) && records_here(tracer_.get());
    if (asks_nobody && is_leaf_of_torch(module)) {
      // Nobody looks at the stack of modules until the node is there.
      Entered entered(*this, module, path, false);
      return record_call(path, args, kwargs);
    }
    Entered entered(*this, module, path, true);
    if (asks_nobody || !is_leaf(module, path))
      return run_module(module, args, kwargs);
    return record_call(path, args, kwargs);
  }

  Ref record_call(const Ref& path, PyObject* args, PyObject* kwargs) {
    return record(tracer_.get(),
                  {Opcode::kCallModule, path.get(), &PyTuple_GET_ITEM(args, 0),
                   static_cast<size_t>(PyTuple_GET_SIZE(args)), kwargs});
  }

  Ref call_by_method(PyObject* module, PyObject* args, PyObject* kwargs) {
    static PyObject* const call = interned("_call_of_module");
    return checked(PyObject_CallMethodObjArgs(tracer_.get(), call, module, args,
                                              kwargs, nullptr));
  }

  Ref path_of(PyObject* module) {
    if (ours(TracerMethod::kPathOfModule))
      if (PyObject* path =
              PyDict_GetItemWithError(tracer().submodule_paths, module))
        return Ref::borrow(path);
    if (PyErr_Occurred()) throw Raised{};
    Ref method = Ref::borrow(method_name(TracerMethod::kPathOfModule));
    return checked(
        PyObject_CallMethodOneArg(tracer_.get(), method.get(), module));
  }

  bool is_leaf(PyObject* module, const Ref& path) {
    if (ours(TracerMethod::kIsLeafModule)) return is_leaf_of_torch(module);
    Ref method = Ref::borrow(method_name(TracerMethod::kIsLeafModule));
    Ref answer = checked(PyObject_CallMethodObjArgs(
        tracer_.get(), method.get(), module, path.get(), nullptr));
    int is_true = PyObject_IsTrue(answer.get());
    checked(is_true);
    return is_true;
  }

  // Tracer.is_leaf_module.
  bool is_leaf_of_torch(PyObject* module) {
    static PyObject* const attribute = interned("__module__");
    int has_own_name = PyDict_Contains(attributes_of(module).get(), attribute);
    checked(has_own_name);
    if (has_own_name) return names_a_leaf(module, attribute);
    auto known = leaves_.find(Py_TYPE(module));
    if (known != leaves_.end()) return known->second;
    return leaves_[Py_TYPE(module)] = names_a_leaf(module, attribute);
  }
  static bool names_a_leaf(PyObject* module, PyObject* attribute) {
    Ref home = checked(PyObject_GetAttr(module, attribute));
    std::string text = text_of(home.get());
    return (text.starts_with("torch.nn") || text.starts_with("torch.ao.nn")) &&
           !PyObject_TypeCheck(module, g_parts.sequential);
  }

  // A module's call is on the stack of those that nodes are traced in.
  class Entered {
   public:
    // `shows`: on the stack that Python sees, too.
    Entered(Program& program, PyObject* module, const Ref& path, bool shows)
        : program_(program),
          stack_(Ref::borrow(program.tracer().module_stack)) {
      PyObject* counts = program.tracer().num_calls;
      PyObject* before = PyDict_GetItemWithError(counts, path.get());
      if (!before && PyErr_Occurred()) throw Raised{};
      long calls = before ? PyLong_AsLong(before) : 0;
      Ref after = checked(PyLong_FromLong(calls + 1));
      checked(PyDict_SetItem(counts, path.get(), after.get()));
      key_ = calls == 0
                 ? path
                 : checked(PyUnicode_FromFormat("%U@%ld", path.get(), calls));
      Ref entry = checked(PyTuple_Pack(
          2, path.get(), reinterpret_cast<PyObject*>(Py_TYPE(module))));
      PyObject* outer = program.tracer().stack_chain;
      bool is_whole = outer || PyDict_GET_SIZE(stack_.get()) == 0;
      shows_ = shows || !is_whole;
      if (shows_)
        checked(PyDict_SetItem(stack_.get(), key_.get(), entry.get()));
      Ref chain = is_whole ? checked(PyTuple_Pack(3, outer ? outer : Py_None,
                                                  key_.get(), entry.get()))
                           : Ref();
      outer_ = Ref::steal(
          std::exchange(program.tracer().stack_chain, chain.release()));
    }
    ~Entered() {
      ErrorGuard error;
      Ref chain = Ref::steal(
          std::exchange(program_.tracer().stack_chain, outer_.release()));
      if (!shows_) return;
      if (PyDict_DelItem(stack_.get(), key_.get()) < 0) PyErr_Clear();
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Program& program_;
    Ref stack_, key_, outer_;
    bool shows_ = false;
  };

  // nn.Module.__call__, which without hooks is `forward`.
  Ref run_module(PyObject* module, PyObject* args, PyObject* kwargs) {
    static PyObject* const forward = interned("forward");
    if (calls_forward_alone(module)) {
      Ref method = checked(PyObject_GetAttr(module, forward));
      return checked(PyObject_Call(method.get(), args, kwargs));
    }
    Ref all = checked(PyTuple_New(PyTuple_GET_SIZE(args) + 1));
    PyTuple_SET_ITEM(all.get(), 0, Py_NewRef(module));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i)
      PyTuple_SET_ITEM(all.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
    passed_ = module;
    Ref result = Ref::steal(PyObject_Call(g_parts.call, all.get(), kwargs));
    passed_ = nullptr;
    if (!result) throw Raised{};
    return result;
  }

  static bool calls_forward_alone(PyObject* module) {
    static PyObject* const impl = interned("_call_impl");
    static PyObject* const compiled = interned("_compiled_call_impl");
    static PyObject* const hooks[] = {
        interned("_backward_hooks"), interned("_backward_pre_hooks"),
        interned("_forward_hooks"), interned("_forward_pre_hooks")};
    if (_PyType_Lookup(Py_TYPE(module), impl) != g_parts.call_impl)
      return false;
    for (PyObject* table : g_parts.call_hooks)
      if (PyDict_GET_SIZE(table)) return false;
    Ref attributes = checked(PyObject_GenericGetDict(module, nullptr));
    for (PyObject* name : hooks) {
      PyObject* table = PyDict_GetItemWithError(attributes.get(), name);
      if (!table || !PyDict_Check(table) || PyDict_GET_SIZE(table)) {
        if (PyErr_Occurred()) throw Raised{};
        return false;
      }
    }
    if (PyDict_GetItemWithError(attributes.get(), impl) || PyErr_Occurred())
      return false;
    Ref own = checked(PyObject_GetAttr(module, compiled));
    if (own.get() != Py_None) return false;
    Ref state = checked(PyObject_CallNoArgs(g_parts.tracing_state));
    return state.get() == Py_None;
  }

  // ---- the program's own frames

  bool rewritten(PyObject* function, PyObject* const* slots,
                 PyObject** result) {
    if (rewrite_.get() == Py_None || function == skipped_) {
      skipped_ = nullptr;
      return false;
    }
    auto* object = reinterpret_cast<PyFunctionObject*>(function);
    // Most have nothing to rewrite: known by the code and what it looks into.
    auto key = std::make_pair(object->func_code, object->func_globals);
    auto known = plain_.find(key.first);
    if (known != plain_.end() && known->second.contains(key.second))
      return false;
    bool answered = true;
    *result = object_or_null([&]() -> Ref {
      is_paused_ = true;
      Ref twin = Ref::steal(PyObject_CallOneArg(rewrite_.get(), function));
      is_paused_ = false;
      if (!twin) throw Raised{};
      if (twin.get() == Py_None) {
        answered = false;
        kept_.push_back(Ref::borrow(key.first));
        kept_.push_back(Ref::borrow(key.second));
        plain_[key.first].insert(key.second);
        return twin;
      }
      return call_twin(twin.get(), slots);
    });
    if (!answered) Py_CLEAR(*result);
    return answered;
  }

  // With what the frame was to begin with.
  Ref call_twin(PyObject* twin, PyObject* const* slots) {
    auto* code = reinterpret_cast<PyCodeObject*>(
        reinterpret_cast<PyFunctionObject*>(twin)->func_code);
    std::vector<PyObject*> args(slots, slots + code->co_argcount);
    size_t at = code->co_argcount + code->co_kwonlyargcount;
    if (code->co_flags & CO_VARARGS) {
      PyObject* more = slots[at++];
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(more); ++i)
        args.push_back(PyTuple_GET_ITEM(more, i));
    }
    size_t num_args = args.size();
    Ref names = checked(PyList_New(0));
    for (int i = 0; i < code->co_kwonlyargcount; ++i) {
      checked(PyList_Append(
          names.get(),
          PyTuple_GET_ITEM(code->co_localsplusnames, code->co_argcount + i)));
      args.push_back(slots[code->co_argcount + i]);
    }
    if (code->co_flags & CO_VARKEYWORDS) {
      Py_ssize_t position = 0;
      PyObject *key, *value;
      while (PyDict_Next(slots[at], &position, &key, &value)) {
        checked(PyList_Append(names.get(), key));
        args.push_back(value);
      }
    }
    Ref keywords = checked(PyList_AsTuple(names.get()));
    skipped_ = twin;
    Ref result = Ref::steal(PyObject_Vectorcall(
        twin, args.data(), num_args,
        PyTuple_GET_SIZE(keywords.get()) ? keywords.get() : nullptr));
    skipped_ = nullptr;
    if (!result) throw Raised{};
    return result;
  }

  Ref tracer_, rewrite_;
  bool is_paused_ = false;
  PyObject* passed_ = nullptr;   // a module whose call is let through
  PyObject* skipped_ = nullptr;  // a function whose frame runs as it is
  // By class, which the modules of the root keep.
  std::unordered_map<PyTypeObject*, bool> leaves_;
  std::unordered_set<void*> autowrapped_;
  std::unordered_set<PyObject*> seen_globals_;
  // Code with nothing to rewrite, in these globals; and what keeps both.
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> plain_;
  std::vector<Ref> kept_;
};

thread_local Program* Program::current = nullptr;

// follow(tracer, rewrite, autowrapped ids, call, args)
PyObject* follow(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 5 || !PyObject_TypeCheck(args[0], g_tracer_base) ||
        !PyTuple_Check(args[4]))
      raise(PyExc_TypeError,
            "follow takes a tracer, rewrite, ids, call and args");
    Program program(args[0], args[1], args[2]);
    return program.run(args[3], args[4]);
  });
}

PyObject* call_through(PyObject*, PyObject* args, PyObject* kwargs) {
  return object_or_null([&] {
    if (PyTuple_GET_SIZE(args) < 1)
      raise(PyExc_TypeError, "call_through takes a module");
    Ref rest = checked(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
    return Program::call_through(PyTuple_GET_ITEM(args, 0), rest.get(), kwargs);
  });
}

PyObject* unfollowed(PyObject*, PyObject* args, PyObject* kwargs) {
  return object_or_null([&] {
    if (PyTuple_GET_SIZE(args) < 1)
      raise(PyExc_TypeError, "unfollowed takes a function");
    Ref rest = checked(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
    return Program::unfollowed(PyTuple_GET_ITEM(args, 0), rest.get(), kwargs);
  });
}

PyObject* set_builtins(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 2 || !PyFunction_Check(args[0]) || !PyDict_Check(args[1]))
      raise(PyExc_TypeError, "set_builtins takes a function and a dict");
    auto* function = reinterpret_cast<PyFunctionObject*>(args[0]);
    Ref old =
        Ref::steal(std::exchange(function->func_builtins, Py_NewRef(args[1])));
    return Ref::borrow(Py_None);
  });
}

PyMethodDef g_follow_functions[] = {
    {"unfollowed", as_function(unfollowed), METH_VARARGS | METH_KEYWORDS,
     "Call what is not the program's: no tracer is asked."},
    {"set_builtins", as_function(set_builtins), METH_FASTCALL,
     "Give a function that was just made other builtins."},
    {"follow", as_function(follow), METH_FASTCALL,
     "Run call(*args) under a tracer."},
    {"call_through", as_function(call_through), METH_VARARGS | METH_KEYWORDS,
     "Call a module, which the tracer is not asked about."},
    {}};

}  // namespace

void add_followed_programs(PyObject* module) {
  checked(PyModule_AddFunctions(module, g_follow_functions));
}

}  // namespace framejit::graph::fx
