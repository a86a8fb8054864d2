// Effects that the outside world sees: print, streams, locks. What they get is
// known during the capture; they are entries of the write log, so they happen
// after the graph, in their order.
#include "bytecode/builtins/effects.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "bytecode/builtins/builtins.h"
#include "bytecode/builtins/streams.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/deferred_effects.h"
#include "bytecode/objects/late_text.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"
#include "guards/set/set_table.h"

namespace framejit::bytecode {

namespace {

Ref copy_content(PyObject* shadow) {
  if (PyList_Check(shadow)) {
    Ref copy = Ref::steal(PyList_GetSlice(shadow, 0, PY_SSIZE_T_MAX));
    if (!copy) return copy;
    auto* list = reinterpret_cast<PyListObject*>(shadow);
    if (list->allocated == kNoListStorage) {
      reinterpret_cast<PyListObject*>(copy.get())->allocated = kNoListStorage;
    }
    return copy;
  }
  if (PyDict_Check(shadow) && !PyODict_Check(shadow)) {
    return Ref::steal(PyDict_Copy(shadow));
  }
  if (PySet_Check(shadow)) return copy_set_table(shadow);
  return Ref::steal(PyObject_CallMethod(shadow, "copy", nullptr));
}

// Contents that are written as a whole are written as they are now, and again
// behind the effect if they change: it may look at them, or be the last.
Status write_contents_before(CaptureState& state) {
  auto& log = state.table<WriteLog>().entries;
  state.table<DeferredEffects>().entries.insert(log.size());
  for (auto write = log.rbegin(); write != log.rend(); ++write) {
    if (write->kind != Write::Kind::kReplace) continue;
    ContainerState& entry =
        state.table<Containers>().states[write->object.get()];
    // Another value: the content at an effect before.
    if (!entry.replaced || write->value.get() != entry.shadow.get()) continue;
    write->value = copy_content(entry.shadow.get());
    if (!write->value) return Status::raised();
    entry.replaced = false;
  }
  return ok_status();
}

}  // namespace

Status defer(CaptureState& state, PyObject* callable,
             const std::vector<PyObject*>& args) {
  if (state.caller.would_handle_failure()) {
    return state.make_break(
        BreakReason::kSideEffectCallee,
        "an effect that may fail where the program handles it");
  }
  FJ_CHECK_OK(write_contents_before(state));
  Ref packed = Ref::steal(PyTuple_New(args.size()));
  if (!packed) return Status::raised();
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SET_ITEM(packed.get(), i, Py_NewRef(args[i]));
  }
  WriteLog::add(state, Write::Kind::kCall, callable, nullptr, packed.get());
  return ok_status();
}

PyObject* effect_function(PyMethodDef* method) {
  static std::unordered_map<PyMethodDef*, PyObject*> functions;
  PyObject*& function = functions[method];
  if (!function) function = PyCFunction_New(method, nullptr);
  return function;
}

namespace {

// A C stream of the program (sys.stderr): what it does is not seen by Python.
bool is_c_stream(CaptureState& state, PyObject* object) {
  if (!state.is_input(object)) return false;
  PyObject* write = raw_lookup(Py_TYPE(object), "write");
  return write && Py_IS_TYPE(write, &PyMethodDescr_Type) &&
         is_type_of_module(PyDescr_TYPE(write), "_io");
}

// (print with its keywords, stream, text ...)
PyObject* print_to_stream(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Ref texts = Ref::steal(PyTuple_New(count - 2));
  Ref keywords = Ref::steal(PyDict_New());
  if (!texts || !keywords ||
      PyDict_SetItemString(keywords.get(), "file", args[1]) < 0) {
    return nullptr;
  }
  for (Py_ssize_t i = 2; i < count; ++i) {
    PyTuple_SET_ITEM(texts.get(), i - 2, Py_NewRef(args[i]));
  }
  return PyObject_Call(args[0], texts.get(), keywords.get());
}

PyMethodDef kPrintToStream = {"print_to_stream",
                              reinterpret_cast<PyCFunction>(print_to_stream),
                              METH_FASTCALL, nullptr};

// The keywords of a print, as far as they are known now.
struct PrintKeywords {
  Ref values;                  // all but the stream
  PyObject* stream = nullptr;  // borrowed; null: what sys.stdout is
};

Result<PrintKeywords> print_keywords(BuiltinCall& call) {
  PrintKeywords found{.values = Ref::steal(PyDict_New())};
  if (!found.values) return Result<PrintKeywords>::raised();
  for (size_t i = call.positional(); i < call.args.size(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(call.kwnames, i - call.positional());
    PyObject* value = call.args[i];
    if (PyUnicode_CompareWithASCIIString(name, "file") == 0 &&
        is_c_stream(call.state, value)) {
      found.stream = value;
      continue;
    }
    if (!is_builtin_constant(value)) {
      return call.state.make_break(BreakReason::kSideEffectCallee,
                                   "print to a file of the program");
    }
    // What print() refuses it refuses before it writes.
    const bool is_text = PyUnicode_CompareWithASCIIString(name, "sep") == 0 ||
                         PyUnicode_CompareWithASCIIString(name, "end") == 0;
    if (is_text && value != Py_None && !PyUnicode_Check(value))
      return call.unknown();
    if (PyDict_SetItem(found.values.get(), name, value) < 0) {
      return Result<PrintKeywords>::raised();
    }
  }
  return found;
}

// print with the keywords bound.
Result<Ref> bound_print(PyObject* print, PyObject* keywords) {
  if (PyDict_GET_SIZE(keywords) == 0) return Ref::borrow(print);
  Ref args = Ref::steal(PyTuple_Pack(1, print));
  PyObject* partial = library_object("functools", "partial");
  if (!args || !partial) return Result<Ref>::raised();
  return from_api(PyObject_Call(partial, args.get(), keywords));
}

// The keywords for the first texts of a print: a separator is behind them, and
// they are not flushed by themselves.
Result<Ref> keywords_of_part(PyObject* keywords) {
  Ref part = Ref::steal(PyDict_Copy(keywords));
  Ref end = Ref::borrow(part ? PyDict_GetItemString(keywords, "sep") : nullptr);
  if (part && (!end || end.get() == Py_None))
    end = Ref::steal(PyUnicode_FromString(" "));
  if (!end || PyDict_SetItemString(part.get(), "end", end.get()) < 0)
    return Result<Ref>::raised();
  if (PyDict_GetItemString(part.get(), "flush") &&
      PyDict_DelItemString(part.get(), "flush") < 0)
    return Result<Ref>::raised();
  return part;
}

// What one print, or the first part of it, writes.
struct PrintedTexts {
  std::vector<Ref> texts;
  std::vector<PyObject*> known;  // what of them is known now

  void add(Ref text) { texts.push_back(std::move(text)); }
};

// The texts are written once the graph has run.
Status print_late(CaptureState& state, PyObject* print,
                  const PrintKeywords& keywords, PyObject* bound,
                  const PrintedTexts& printed) {
  PyObject* stream = keywords.stream;
  bool fine =
      std::all_of(printed.known.begin(), printed.known.end(), is_encodable);
  if (stream) {
    FJ_TRY(fine, takes_text(state, stream, printed.known));
  } else {
    FJ_TRY(bool in_c, standard_writes_in_c(state, "stdout"));
    if (!in_c)
      return state.make_break(BreakReason::kSideEffectCallee,
                              "print to a stream of the program");
  }
  if (!fine) {
    return state.make_break(BreakReason::kSideEffectCallee,
                            "print to a stream that may refuse");
  }
  FJ_TRY(Ref callable, bound_print(print, bound));
  std::vector<PyObject*> values;
  if (stream) values = {callable.get(), stream};
  for (const Ref& text : printed.texts) values.push_back(text.get());
  // The function that prints is no value of the program.
  if (stream) state.pin(callable.get());
  return defer(state,
               stream ? effect_function(&kPrintToStream) : callable.get(),
               values);
}

}  // namespace

// What is printed is known now, as text, but for numbers that differ from call
// to call; a tensor's content is not. Each argument is asked for its text when
// those before it are written: its class may print, raise, or look at the
// stream.
Result<Ref> model_print(BuiltinCall& call) {
  CaptureState& state = call.state;
  FJ_TRY(PrintKeywords keywords, print_keywords(call));
  PrintedTexts printed;
  for (size_t i = 0; i < call.positional(); ++i) {
    PyObject* value = call.args[i];
    if (is_stand_in(state, value)) {
      return state.make_break(BreakReason::kSideEffectCallee,
                              "print of a tensor");
    }
    Ref late;
    if (is_late_text(value)) {
      late = Ref::borrow(value);
    } else if (is_symbolic(state, value)) {
      FJ_TRY(late, late_text_of_number(state, value, 1, nullptr));
    }
    if (late) {
      constants_of_late_text(late.get(), &printed.known);
      printed.add(std::move(late));
      continue;
    }
    if (i > 0 && !is_builtin_constant(value)) {
      FJ_TRY(Ref part, keywords_of_part(keywords.values.get()));
      FJ_CHECK_OK(
          print_late(state, call.callable, keywords, part.get(), printed));
      printed = {};
    }
    Result<Ref> text = state.format_value(value, 1, nullptr);
    if (text.broke()) {
      Break brk = text.take_break();
      brk.detail = "print: " + brk.detail;
      brk.reason = BreakReason::kSideEffectCallee;
      return brk;
    }
    if (!text.ok()) return text;
    // str() of a str subclass is its own business.
    FJ_TRY(Ref plain, plain_scalar(text.value().get()));
    printed.known.push_back(plain.get());
    printed.add(std::move(plain));
  }
  FJ_CHECK_OK(print_late(state, call.callable, keywords, keywords.values.get(),
                         printed));
  return none();
}

// sys.stdout.write(text)
Result<Ref> model_stream_write(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (!call.plain(2, 2) || !is_c_stream(state, call.args[0]) ||
      !PyUnicode_CheckExact(call.args[1])) {
    return call.unknown();
  }
  FJ_TRY(bool fine, takes_text(state, call.args[0], {call.args[1]}));
  if (!fine) return call.unknown();
  FJ_CHECK_OK(defer(state, call.callable, call.args));
  return from_api(PyLong_FromSsize_t(PyUnicode_GET_LENGTH(call.args[1])));
}

Result<Ref> model_stream_flush(BuiltinCall& call) {
  if (!call.plain(1, 1) || !is_c_stream(call.state, call.args[0]))
    return call.unknown();
  FJ_TRY(bool fine, takes_text(call.state, call.args[0], {}));
  if (!fine) return call.unknown();
  FJ_CHECK_OK(defer(call.state, call.callable, call.args));
  return none();
}

Result<Ref> model_effect(BuiltinCall& call) {
  Break brk = call.unknown();
  brk.reason = BreakReason::kSideEffectCallee;
  return brk;
}

// Python's own random numbers: another one at every call, so nothing that a
// graph could be made of.
Result<Ref> model_random(BuiltinCall& call) {
  Break brk = call.unknown();
  brk.reason = BreakReason::kTensorRandomState;
  return brk;
}

namespace {

// logging's own lock guards tables that its code looks up. To read them needs
// none, as long as nothing of the capture is written meanwhile.
struct LoggingLock {
  int depth = 0;
  size_t writes = 0;  // in the log when it was taken
};

bool is_logging_lock(PyObject* object) {
  Ref name = Ref::steal(PyUnicode_FromString("logging"));
  Ref module = name ? Ref::steal(PyImport_GetModule(name.get())) : Ref();
  return module && PyModule_Check(module.get()) &&
         PyDict_GetItemString(PyModule_GetDict(module.get()), "_lock") ==
             object;
}

// Is the frame that holds the lock one of logging's, called by one that is
// not? Then a break while it is held is a break at that call.
bool is_held_beneath_a_call(CaptureState& state) {
  PyObject* own = nullptr;
  for (int up = 0;; ++up) {
    PythonFrame at = state.caller.python_frame(up);
    if (!at.known || at.beyond) return false;
    if (up == 0) {
      own = at.globals;
      std::string name = text_of(PyDict_GetItemString(own, "__name__"));
      if (name != "logging") return false;
      std::string code = text_of(at.code->co_name);
      if (code == "_acquireLock" || code == "_releaseLock") {
        PythonFrame holder = state.caller.python_frame(1);
        if (!holder.known || holder.beyond || holder.globals != own) {
          return false;
        }
      }
    } else if (at.globals != own) {
      return true;
    }
  }
}

}  // namespace

// A lock orders threads: guards, reads, the graph and the writes of what it
// protects must happen while it is held, so each side of it is a place of its
// own.
Result<Ref> model_lock(BuiltinCall& call) {
  CaptureState& state = call.state;
  Break brk = state.make_break(BreakReason::kSideEffectCallee,
                               "a lock, which orders threads");
  if (call.args.empty() || call.has_keywords() ||
      !is_logging_lock(call.args[0]) || !is_held_beneath_a_call(state)) {
    return brk;
  }
  std::string_view name =
      Py_IS_TYPE(call.callable, &PyMethodDescr_Type)
          ? reinterpret_cast<PyMethodDescrObject*>(call.callable)
                ->d_method->ml_name
          : "";
  LoggingLock& lock = state.table<LoggingLock>();
  size_t writes = state.table<WriteLog>().entries.size();
  if ((name == "acquire" && call.args.size() == 1) || name == "__enter__") {
    if (lock.depth++ == 0) lock.writes = writes;
    return boolean(true);
  }
  if (lock.depth == 0 || writes != lock.writes) return brk;
  --lock.depth;
  return none();
}

}  // namespace framejit::bytecode
