// warnings.warn and logging: effects whose place in the program is part of what
// they say. The place is known to the capture (the frames it interprets), the
// rest happens natively after the graph: filters, registries, handlers.
//
// What the capture relies on is one fact about each call, guarded: the warning
// does not raise, and neither it nor the record reaches code of the program
// that might look at what is not done yet.
#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/builtins/effects.h"
#include "bytecode/builtins/streams.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/fact_object.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

#include <frameobject.h>

namespace framejit::bytecode {

namespace {

// Where the text of an effect goes.
enum Outlet : long {
  kNowhereOrStream = 0,
  kList = 1,  // warnings.catch_warnings(record=True)
  kRaises = 2,
  kCode = 3,
};

Break side_effect(CaptureState& state, const char* what) {
  return state.make_break(BreakReason::kSideEffectCallee, what);
}

PyObject* module_dict(const char* name) {
  Ref text = Ref::steal(PyUnicode_FromString(name));
  Ref module = text ? Ref::steal(PyImport_GetModule(text.get())) : Ref();
  // sys.modules keeps it.
  return module && PyModule_Check(module.get()) ? PyModule_GetDict(module.get())
                                                : nullptr;
}

PyObject* item(PyObject* dict, const char* name) {
  return dict ? PyDict_GetItemString(dict, name) : nullptr;
}

bool is_function_of(PyObject* object, PyObject* globals) {
  return object && PyFunction_Check(object) &&
         PyFunction_GET_GLOBALS(object) == globals;
}

// ---- warnings

// The frame `levels` callers up from the innermost real one (1: itself).
Ref real_frame(int levels) {
  Ref frame = Ref::steal(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame && --levels > 0) {
    frame = Ref::steal(reinterpret_cast<PyObject*>(
        PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.get()))));
  }
  return frame;
}

class WarningFact final : public Fact {
 public:
  Ref category, text, module;
  long line = 0;
  int beyond = 0;  // levels above the captured frames; 0: within them

  Ref read(FactName name) override {
    Ref list;
    long outlet = find(&list);
    if (name == FactName::warning_list) return list;
    return Ref::steal(PyLong_FromLong(outlet));
  }

 private:
  // As CPython's get_filter(); kCode where it would run code of the program.
  long find(Ref* list) {
    PyObject* dict = module_dict("warnings");
    PyObject* filters = item(dict, "filters");
    if (!filters || !PyList_CheckExact(filters)) return kCode;
    if (beyond && !locate()) return kCode;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters); ++i) {
      PyObject* filter = PyList_GET_ITEM(filters, i);
      if (!PyTuple_CheckExact(filter) || PyTuple_GET_SIZE(filter) != 5) {
        return kCode;
      }
      int fits = matches(filter);
      if (fits < 0) return kCode;
      if (fits) return outlet_of(PyTuple_GET_ITEM(filter, 0), dict, list);
    }
    return outlet_of(item(dict, "defaultaction"), dict, list);
  }

  bool locate() {
    Ref frame = real_frame(beyond);
    if (!frame) return false;
    auto* object = reinterpret_cast<PyFrameObject*>(frame.get());
    line = PyFrame_GetLineNumber(object);
    Ref globals = Ref::steal(PyFrame_GetGlobals(object));
    PyObject* name = item(globals.get(), "__name__");
    if (!name || !PyUnicode_Check(name)) return false;
    module = Ref::borrow(name);
    return true;
  }

  int matches(PyObject* filter) {
    PyObject* wanted = PyTuple_GET_ITEM(filter, 2);
    if (!PyType_Check(wanted) || !Py_IS_TYPE(wanted, &PyType_Type)) return -1;
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(category.get()),
                          reinterpret_cast<PyTypeObject*>(wanted))) {
      return 0;
    }
    PyObject* wanted_line = PyTuple_GET_ITEM(filter, 4);
    if (!PyLong_CheckExact(wanted_line)) return -1;
    long number = PyLong_AsLong(wanted_line);
    if (number != 0 && number != line) return 0;
    int module_fits = text_matches(PyTuple_GET_ITEM(filter, 3), module.get());
    if (module_fits <= 0) return module_fits;
    return text_matches(PyTuple_GET_ITEM(filter, 1), text.get());
  }

  static int text_matches(PyObject* pattern, PyObject* subject) {
    if (pattern == Py_None) return 1;
    if (PyUnicode_CheckExact(pattern)) {
      return PyUnicode_Compare(pattern, subject) == 0;
    }
    if (!kPattern.is_type_of(pattern)) return -1;
    Ref match = Ref::steal(
        PyObject_CallMethodOneArg(pattern, interned("match"), subject));
    if (!match) return -1;
    return match.get() != Py_None;
  }

  static long outlet_of(PyObject* action, PyObject* dict, Ref* list) {
    if (!action || !PyUnicode_Check(action)) return kCode;
    auto is = [&](const char* name) {
      return PyUnicode_CompareWithASCIIString(action, name) == 0;
    };
    if (is("error")) return kRaises;
    if (is("ignore")) return kNowhereOrStream;
    PyObject* show = item(dict, "showwarning");
    PyObject* format = item(dict, "formatwarning");
    if (!show || show != item(dict, "_showwarning_orig") || !format ||
        format != item(dict, "_formatwarning_orig")) {
      return kCode;
    }
    PyObject* sink = item(dict, "_showwarnmsg_impl");
    if (is_function_of(sink, dict))
      return standard_writes_in_c_now("stderr") ? kNowhereOrStream : kCode;
    if (sink && PyCFunction_Check(sink) && PyCFunction_GET_SELF(sink) &&
        PyList_CheckExact(PyCFunction_GET_SELF(sink)) &&
        std::strcmp(reinterpret_cast<PyCFunctionObject*>(sink)->m_ml->ml_name,
                    "append") == 0) {
      *list = Ref::borrow(PyCFunction_GET_SELF(sink));
      return kList;
    }
    return kCode;
  }
};

// (message, category, globals, file, line): what warnings.warn does once it has
// found its place.
PyObject* emit_warning(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyObject* globals = args[2];
  PyObject* name = interned("__warningregistry__");
  Ref registry = Ref::borrow(PyDict_GetItemWithError(globals, name));
  if (!registry) {
    if (PyErr_Occurred()) return nullptr;
    registry = Ref::steal(PyDict_New());
    if (!registry || PyDict_SetItem(globals, name, registry.get()) < 0) {
      return nullptr;
    }
  }
  PyObject* module = item(globals, "__name__");
  Ref other;
  if (!module || !PyUnicode_Check(module)) {
    other = Ref::steal(PyUnicode_FromString("<string>"));
    module = other.get();
  }
  if (PyErr_WarnExplicitObject(args[1], args[0], args[3],
                               int(PyLong_AsLong(args[4])), module,
                               registry.get()) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef kEmitWarning = {"emit_warning",
                            reinterpret_cast<PyCFunction>(emit_warning),
                            METH_FASTCALL, nullptr};

struct WarningText {
  Ref text;      // str; empty: not known
  Ref category;  // type
};

// A str, or an instance of a warning class made in this capture.
Result<WarningText> warning_text(CaptureState& state, PyObject* message,
                                 PyObject* category) {
  WarningText out;
  auto* root = reinterpret_cast<PyTypeObject*>(PyExc_Warning);
  if (PyObject_TypeCheck(message, root)) {
    PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(message)->args;
    PyObject* text = raw_lookup(Py_TYPE(message), "__str__");
    if (state.is_input(message) || !text ||
        !Py_IS_TYPE(text, &PyWrapperDescr_Type) ||
        PyTuple_GET_SIZE(args) != 1 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(args, 0))) {
      return out;
    }
    out.text = Ref::borrow(PyTuple_GET_ITEM(args, 0));
    out.category = Ref::borrow(as_object(Py_TYPE(message)));
    return out;
  }
  if (!PyUnicode_CheckExact(message)) return out;
  if (!category || category == Py_None) category = PyExc_UserWarning;
  if (!PyType_Check(category) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(category), root)) {
    return out;  // eager says what is wrong
  }
  out.category = Ref::borrow(category);
  out.text = Ref::borrow(message);
  return out;
}

// -1: not a number that is known.
int stack_level(PyObject* value) {
  if (!value) return 1;
  if (!PyLong_CheckExact(value)) return -1;
  long level = PyLong_AsLong(value);
  if (level == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return -1;
  }
  return level < 1 ? 1 : level > 1000 ? -1 : int(level);
}

}  // namespace

Result<Ref> model_warn(BuiltinCall& call) {
  CaptureState& state = call.state;
  PyObject* message = call.argument(0, "message");
  int level = stack_level(call.argument(2, "stacklevel"));
  if (!message || level < 0 ||
      !call.takes({"message", "category", "stacklevel"})) {
    return side_effect(state, "warnings.warn");
  }
  FJ_TRY(WarningText warning,
         warning_text(state, message, call.argument(1, "category")));
  PythonFrame place = state.caller.python_frame(level - 1);
  if (!warning.text || !place.known ||
      is_fresh_class(state, warning.category.get()) ||
      (place.globals && !state.is_input(place.globals))) {
    return side_effect(state, "warnings.warn");
  }
  auto fact = std::make_unique<WarningFact>();
  fact->category = warning.category;
  fact->text = warning.text;
  fact->line = place.line;
  fact->beyond = place.beyond;
  if (place.globals) {
    FJ_TRY(Ref module, state.dict_get(place.globals, interned("__name__")));
    if (!module || !PyUnicode_CheckExact(module.get())) {
      return side_effect(state, "warnings.warn");
    }
    fact->module = std::move(module);
  }
  FJ_TRY(Ref object, make_fact(std::move(fact)));
  Ref outlet = read_fact(object.get(), FactName::warning_outlet);
  if (!outlet) return Result<Ref>::raised();
  long known = PyLong_AsLong(outlet.get());
  if (known == kRaises) {
    return side_effect(state, "a warning that is to be raised");
  }
  FJ_TRY(bool replaced, is_standard_replaced(state, "stderr"));
  if (known == kCode || replaced) {
    return side_effect(state, "a warning that is shown by the program");
  }
  state.guard(GuardKind::kEquals,
              fact_source(state, object.get(), FactName::warning_outlet),
              outlet.get());
  if (known == kList) {
    const Source* source =
        fact_source(state, object.get(), FactName::warning_list);
    Ref list = read_fact(object.get(), FactName::warning_list);
    state.table<EffectLists>().lists.push_back(
        {std::move(list), source, state.caller.place()});
  }
  if (place.beyond) {
    Ref levels = Ref::steal(PyLong_FromLong(place.beyond));
    if (!levels) return Result<Ref>::raised();
    FJ_CHECK_OK(defer(state, call.callable,
                      {message, warning.category.get(), levels.get()}));
    return none();
  }
  Ref line = Ref::steal(PyLong_FromLong(place.line));
  if (!line) return Result<Ref>::raised();
  FJ_CHECK_OK(defer(state, effect_function(&kEmitWarning),
                    {message, warning.category.get(), place.globals,
                     place.code->co_filename, line.get()}));
  return none();
}

// ---- logging
namespace {

class LogFact final : public Fact {
 public:
  Ref logger;
  long level = 0;

  Ref read(FactName) override { return Ref::steal(PyLong_FromLong(find())); }

 private:
  // Handlers of the library with formatters of the library, and no filters.
  long find() {
    PyObject* dict = module_dict("logging");
    PyObject* factory = item(dict, "_logRecordFactory");
    if (!factory || factory != item(dict, "LogRecord")) return kCode;
    Ref at = logger;
    bool any = false;  // or else it is for logging.lastResort
    for (int depth = 0; at && at.get() != Py_None; ++depth) {
      PyObject* fields = dict_of(at.get());
      PyObject* handlers = item(fields, "handlers");
      if (depth > 50 || !handlers || !PyList_CheckExact(handlers) ||
          !is_empty_list(item(fields, "filters"))) {
        return kCode;
      }
      any |= PyList_GET_SIZE(handlers) > 0;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(handlers); ++i) {
        if (!is_plain_handler(PyList_GET_ITEM(handlers, i), dict)) {
          return kCode;
        }
      }
      PyObject* propagate = item(fields, "propagate");
      int goes_on = propagate ? PyObject_IsTrue(propagate) : -1;
      if (goes_on < 0) return kCode;
      if (!goes_on) break;
      at = Ref::borrow(item(fields, "parent"));
    }
    if (!any && !standard_writes_in_c_now("stderr")) return kCode;
    return kNowhereOrStream;
  }

  static PyObject* dict_of(PyObject* object) {
    PyObject** dict = _PyObject_GetDictPtr(object);
    Ref made;
    if (!dict || !*dict) {
      // 3.11 on: values may be in the object until the dict is asked for.
      made = Ref::steal(PyObject_GenericGetDict(object, nullptr));
      dict = _PyObject_GetDictPtr(object);
    }
    return made ? made.get() : dict ? *dict : nullptr;
  }

  static bool is_empty_list(PyObject* object) {
    return object && PyList_CheckExact(object) && PyList_GET_SIZE(object) == 0;
  }

  static bool is_plain_handler(PyObject* handler, PyObject* dict) {
    PyTypeObject* type = Py_TYPE(handler);
    if (!is_type_of_module(type, "logging") &&
        !is_type_of_module(type, "logging.handlers")) {
      return false;
    }
    PyObject* fields = dict_of(handler);
    for (const char* name : {"emit", "handle", "format", "filter"}) {
      if (item(fields, name)) return false;
    }
    if (PyObject* stream = item(fields, "stream")) {
      // (A file that is opened late is none yet.)
      if (stream != Py_None && !writes_in_c_now(stream)) return false;
    } else if (!standard_writes_in_c_now("stderr")) {
      return false;  // _StderrHandler's
    }
    PyObject* formatter = item(fields, "formatter");
    if (!formatter || !is_empty_list(item(fields, "filters"))) return false;
    return formatter == Py_None ||
           as_object(Py_TYPE(formatter)) == item(dict, "Formatter");
  }
};

// (logger, level, file, line, function, message, arguments)
PyObject* emit_record(PyObject*, PyObject* const* args, Py_ssize_t) {
  Ref name = Ref::steal(PyObject_GetAttrString(args[0], "name"));
  if (!name) return nullptr;
  Ref record = Ref::steal(PyObject_CallMethod(
      args[0], "makeRecord", "OOOOOOOOOO", name.get(), args[1], args[2],
      args[3], args[5], args[6], Py_None, args[4], Py_None, Py_None));
  if (!record) return nullptr;
  return PyObject_CallMethod(args[0], "handle", "O", record.get());
}

PyMethodDef kEmitRecord = {"emit_record",
                           reinterpret_cast<PyCFunction>(emit_record),
                           METH_FASTCALL, nullptr};

// Known now, and the same when it is formatted after the graph.
bool is_plain_value(CaptureState& state, PyObject* value, int depth) {
  if (state.is_constant(value) || PyType_Check(value)) return true;
  if (is_symbolic(state, value)) return true;
  if (state.is_input(value) && !PyTuple_Check(value)) return false;
  if (!PyTuple_Check(value) || depth > 4) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
    if (!is_plain_value(state, PyTuple_GET_ITEM(value, i), depth + 1)) {
      return false;
    }
  }
  return true;
}

// The frame that logs: the first that is not the library's own.
PythonFrame logging_frame(CaptureState& state, int level) {
  PyObject* own = item(module_dict("logging"), "_srcfile");
  for (int up = 0;; ++up) {
    PythonFrame place = state.caller.python_frame(up);
    if (!own || !place.known || place.beyond || !place.code) return {};
    if (PyUnicode_Compare(place.code->co_filename, own) == 0) continue;
    if (--level == 0) return place;
  }
}

bool is_none_or_false(PyObject* value) {
  return !value || value == Py_None || value == Py_False;
}

}  // namespace

// What a logger has not been asked yet it finds out under its lock and keeps.
// That is done here for good, as eager does it at this place; then the
// library's own code is interpreted, which finds it. (Empty: it goes on.)
Result<Ref> model_log_enabled(BuiltinCall& call) {
  PyObject* logger = call.argument(0, "self");
  PyObject* level = call.argument(1, "level");
  if (!logger || !level || !call.takes({"self", "level"}) ||
      !call.state.is_input(logger) || !PyLong_CheckExact(level) ||
      !is_type_of_module(Py_TYPE(logger), "logging")) {
    return Ref();
  }
  PyObject** dict = _PyObject_GetDictPtr(logger);
  if (!dict || !*dict) Py_XDECREF(PyObject_GenericGetDict(logger, nullptr));
  PyErr_Clear();
  PyObject* known = dict ? item(*dict, "_cache") : nullptr;
  PyObject* manager = dict ? item(*dict, "manager") : nullptr;
  if (!known || !manager || !PyDict_CheckExact(known) ||
      PyDict_Contains(known, level) != 0 ||
      !is_type_of_module(Py_TYPE(manager), "logging")) {
    return Ref();
  }
  // Levels that this capture has set are not in the objects yet.
  for (const Write& write : call.state.table<WriteLog>().entries) {
    if (write.part() == Write::Part::kAttributes) return Ref();
  }
  for (PyObject* at = logger; at && at != Py_None;) {
    if (!is_type_of_module(Py_TYPE(at), "logging")) return Ref();
    PyObject** fields = _PyObject_GetDictPtr(at);
    at = fields && *fields ? item(*fields, "parent") : nullptr;
  }
  PauseHook pause;
  Ref asked = Ref::steal(
      PyObject_CallFunctionObjArgs(call.callable, logger, level, nullptr));
  if (!asked) PyErr_Clear();
  return Ref();
}

Result<Ref> model_log(BuiltinCall& call) {
  CaptureState& state = call.state;
  PyObject* logger = call.argument(0, "self");
  PyObject* level = call.argument(1, "level");
  PyObject* message = call.argument(2, "msg");
  PyObject* values = call.argument(3, "args");
  int up = stack_level(call.argument(7, "stacklevel"));
  bool plain = logger && level && message && values && up > 0 &&
               call.takes({"self", "level", "msg", "args", "exc_info", "extra",
                           "stack_info", "stacklevel"}) &&
               state.is_input(logger) && PyLong_CheckExact(level) &&
               PyUnicode_CheckExact(message) && PyTuple_CheckExact(values) &&
               is_plain_value(state, values, 0) &&
               is_none_or_false(call.argument(4, "exc_info")) &&
               is_none_or_false(call.argument(5, "extra")) &&
               is_none_or_false(call.argument(6, "stack_info"));
  if (!plain) return side_effect(state, "a log record");
  PyObject* dict = module_dict("logging");
  for (const char* name : {"makeRecord", "handle", "callHandlers", "filter"}) {
    FJ_TRY(Ref own, state.type_lookup(Py_TYPE(logger), interned(name)));
    if (!is_function_of(own.get(), dict)) {
      return side_effect(state, "a log record of another kind of logger");
    }
  }
  PythonFrame place = logging_frame(state, up);
  if (!place.known) return side_effect(state, "a log record");
  auto fact = std::make_unique<LogFact>();
  fact->logger = Ref::borrow(logger);
  FJ_TRY(Ref object, make_fact(std::move(fact)));
  Ref outlet = read_fact(object.get(), FactName::log_outlet);
  if (!outlet) return Result<Ref>::raised();
  if (PyLong_AsLong(outlet.get()) != kNowhereOrStream) {
    return side_effect(state, "a log record that reaches the program's code");
  }
  state.pin(logger);
  state.guard(GuardKind::kEquals,
              fact_source(state, object.get(), FactName::log_outlet),
              outlet.get());
  Ref line = Ref::steal(PyLong_FromLong(place.line));
  if (!line) return Result<Ref>::raised();
  FJ_CHECK_OK(defer(state, effect_function(&kEmitRecord),
                    {logger, level, place.code->co_filename, line.get(),
                     place.code->co_name, message, values}));
  return none();
}

}  // namespace framejit::bytecode
