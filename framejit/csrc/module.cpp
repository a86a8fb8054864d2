// framejit._C: the Python bindings. Thin: what the package needs, no policy.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/block_cache.h"
#include "backend/isa.h"
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/objects/remade_functions.h"
#include "bytecode/residual/left_loops.h"
#include "frame_hook/argument_binding.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/follower.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/notices.h"
#include "frame_hook/options.h"
#include "frame_hook/program_code.h"
#include "frame_hook/script_mode.h"
#include "framejit/csrc/compile_options.h"
#include "framejit/csrc/cuda_kernels.h"
#include "framejit/csrc/export_capture.h"
#include "framejit/csrc/frame_choice.h"
#include "framejit/csrc/jit_compiler.h"
#include "framejit/csrc/operator_report.h"
#include "framejit/csrc/reports.h"
#include "framejit/csrc/trace_log.h"
#include "graph/fx/module.h"
#include "graph/joint/user_lowerings.h"
#include "graph/ops/trust.h"
#include "graph/tracing/region_calls.h"
#include "guards/emit/armed_guards.h"
#include "guards/emit/dict_epoch.h"
#include "guards/emit/machine_code.h"
#include "guards/set/quiet_callbacks.h"

namespace py = pybind11;

namespace framejit {
namespace {

py::object own(Ref object) {
  if (!object) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object.release());
}

std::unique_ptr<CompileOptions> make_options(py::object backend, bool fullgraph,
                                             py::object dynamic,
                                             const py::dict& own) {
  auto result = std::make_unique<CompileOptions>();
  if (py::isinstance<py::str>(backend)) {
    result->backend = backend.cast<std::string>();
  } else {
    result->backend_callable = Ref::borrow(backend.ptr());
  }
  result->fullgraph = fullgraph;
  result->dynamic = dynamic.is_none() ? -1 : int(dynamic.cast<bool>());
  for (auto [keyword, value] : own) {
    std::string error;
    if (!set_call_option(&result->own, keyword.cast<std::string>(),
                         py::str(value).cast<std::string>(), &error)) {
      throw py::value_error(error);
    }
  }
  return result;
}

py::object compile_function(py::object function, py::object options) {
  const auto* key = options.cast<const CompileOptions*>();
  return own(
      Ref::steal(make_compiled_function(function.ptr(), key, options.ptr())));
}

CompiledFunction* as_compiled(py::handle object) {
  if (!is_compiled_function(object.ptr())) {
    throw py::type_error("expected a function returned by framejit.compile");
  }
  return reinterpret_cast<CompiledFunction*>(object.ptr());
}

// compile(module) (framejit/_module.py).
void define_followers(py::module_& m) {
  m.def("make_follower_class", [](py::type cls) {
    if (!make_follower_class(reinterpret_cast<PyTypeObject*>(cls.ptr()))) {
      throw py::error_already_set();
    }
  });
  m.def("set_follower_deriver",
        [](py::object derive) { set_follower_deriver(derive.ptr()); });
  m.def(
      "make_follower", [](py::type cls, py::handle original, py::handle call) {
        as_compiled(call);  // or raises
        return own(
            Ref::steal(make_follower(reinterpret_cast<PyTypeObject*>(cls.ptr()),
                                     original.ptr(), call.ptr())));
      });
  m.def("stand_for", [](py::handle code, py::handle owner, int first_passed) {
    if (!stand_for(code.ptr(), owner.ptr(), first_passed))
      throw py::error_already_set();
  });
  m.def("follower_original", [](py::handle object) -> py::object {
    PyObject* original = follower_original(object.ptr());
    return original ? py::reinterpret_borrow<py::object>(original) : py::none();
  });
}

// The sink calls Python's logging; an error there must not reach the capture.
void set_sink(py::object sink) {
  if (sink.is_none()) {
    set_event_sink({});
    return;
  }
  Ref callback = Ref::borrow(sink.ptr());
  set_event_sink([callback](const Event& event) {
    ErrorGuard error;
    Ref channel = Ref::steal(PyUnicode_FromString(channel_name(event.channel)));
    Ref text = Ref::steal(PyUnicode_DecodeUTF8(
        event.text.data(), Py_ssize_t(event.text.size()), "replace"));
    PyObject* warning =
        event.severity == Severity::kWarning ? Py_True : Py_False;
    Ref done =
        channel && text
            ? Ref::steal(PyObject_CallFunctionObjArgs(
                  callback.get(), channel.get(), text.get(), warning, nullptr))
            : Ref();
    if (!done) drop_error();
  });
}

py::dict counters() {
  const EventCounters& counts = event_counters();
  py::dict result;
  result["compiles"] = counts.compiles;
  result["recompiles"] = counts.recompiles;
  result["breaks"] = counts.breaks;
  result["fallbacks"] = counts.fallbacks;
  result["failures"] = counts.failures;
  return result;
}

void set_option_checked(const std::string& keyword, const std::string& value) {
  std::string error;
  if (!set_option(keyword, value, &error)) throw py::value_error(error);
}

py::list break_reasons() {
  py::list rows;
  for (int i = 0; i < int(BreakReason::kCount); ++i) {
    const BreakReasonRow& row = break_reason_row(BreakReason(i));
    rows.append(py::make_tuple(row.name, row.id, row.title, row.hint));
  }
  return rows;
}

py::list notices() {
  py::list rows;
  for (int i = 0; i < int(Notice::kCount); ++i) {
    const NoticeRow& row = notice_row(Notice(i));
    rows.append(py::make_tuple(row.name, channel_name(row.channel), row.text));
  }
  return rows;
}

void log_notice_named(const std::string& name, py::handle code,
                      std::string text) {
  for (int i = 0; i < int(Notice::kCount); ++i) {
    if (name == notice_row(Notice(i)).name)
      return log_notice(Notice(i), code.ptr(), std::move(text));
  }
  throw py::value_error(name);
}

py::list option_table() {
  py::list rows;
  for (const OptionRow& row : option_rows()) {
    rows.append(py::make_tuple(
        row.environment, row.keyword, row.type, row.default_text,
        row.for_calls ? "call" : "process", accepted_text(row.accepted),
        accepted_words(row.accepted), row.help));
  }
  return rows;
}

py::list refused_values() {
  py::list values;
  for (const RefusedValue& refused : refused_environment()) {
    values.append(py::make_tuple(refused.row->environment, refused.value));
  }
  return values;
}

// Whole-script mode; its options live until the next start or stop.
void define_script_mode(py::module_& m) {
  static py::object* options = new py::object;
  m.def("start_script_mode", [](py::object key) {
    start_script_mode(key.cast<const CompileOptions*>(), script_policy());
    *options = std::move(key);
  });
  m.def("stop_script_mode", [] {
    stop_script_mode();
    *options = py::none();
  });
  m.def("script_mode", [] {
    return !in_script_mode() ? "off" : script_mode_sleeps() ? "asleep" : "on";
  });
  m.def("set_script_patience", &set_script_patience);
  m.def("matches_only", &matches_only);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "FrameJIT's C++ layers; use the framejit package.";
  py::class_<CompileOptions>(m, "CompileOptions")
      .def(py::init(&make_options), py::arg("backend"), py::arg("fullgraph"),
           py::arg("dynamic"), py::arg("own") = py::dict());
  m.attr("CompiledFunction") = py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(compiled_function_type()));
  m.def("compile_function", &compile_function);
  m.def("compile_options", [](py::handle compiled) {
    return py::reinterpret_borrow<py::object>(
        as_compiled(compiled)->options_owner);
  });
  m.def("entries", [](py::handle code, const CompileOptions& options) {
    return own(entries_of(code.ptr(), &options));
  });
  m.def("reset", [] {
    clear_all_caches();
    forget_past_entries();
    bytecode::forget_left_loops();
    bytecode::forget_functions_seen();
    graph::forget_surprises();
    backend::free_blocks();
  });
  m.def("distrust_operators", &distrust_operators,
        py::arg("names") = std::set<std::string>());
  m.def("suspend_thread", &suspend_thread);
  m.def("resume_thread", &resume_thread);
  m.def("set_event_sink", &set_sink);
  m.def("set_enabled_channels",
        [](const std::string& list) { return set_enabled_channels(list); });
  m.def("counters", &counters);
  m.def("machine_isa", [] {
    const auto target = backend::loop_target();
    return target == backend::LoopTarget::kAvx512 ? "avx512"
           : target == backend::LoopTarget::kAvx2 ? "avx2"
                                                  : "";
  });
  m.def("code_bytes", [] { return MachineCode::mapped_bytes(); });
  m.def("block_bytes", [] {
    const backend::BlockBytes bytes = backend::block_bytes();
    return py::make_tuple(bytes.used, bytes.kept);
  });
  m.def(
      "recent_events",
      [](uint64_t after) {
        py::list events;
        for (const Event& event : recent_events(after)) {
          events.append(
              py::make_tuple(channel_name(event.channel), event.text));
        }
        return events;
      },
      py::arg("after") = 0);
  m.def("last_event_number", &last_event_number);
  m.def("is_traced", [] { return internals::is_traced(PyThreadState_Get()); });
  m.def("clear_events", &clear_events);
  m.def("set_option", &set_option_checked);
  m.def("option_text",
        [](const std::string& keyword) { return option_text(keyword); });
  m.def("option_table", &option_table);
  m.def("refused_environment", &refused_values);
  m.def("operators", [] { return own(operator_report()); });
  bind_cuda_kernels(m);
  bind_export_capture(m);
  m.def("break_reasons", &break_reasons);
  m.def("forgetting_callback", [](const py::dict& entries, py::int_ key) {
    return own(forgetting_callback(entries.ptr(), key.ptr()));
  });
  m.def("notices", &notices);
  m.def("log_notice", &log_notice_named);
  m.def("set_error_types",
        [](py::handle graph_break, py::handle recompile, py::handle dimension) {
          set_error_types({Ref::borrow(graph_break.ptr()),
                           Ref::borrow(recompile.ptr()),
                           Ref::borrow(dimension.ptr())});
        });
  m.def("add_trace_listener",
        [](py::handle callable) { add_trace_listener(callable.ptr()); });
  m.def("remove_trace_listener",
        [](py::handle callable) { remove_trace_listener(callable.ptr()); });
  m.def("all_entries", [] { return own(all_entries()); });
  m.def("report_rows", [] { return own(report_rows()); });
  m.def("register_lowering", [](const std::string& name,
                                const std::string& overload,
                                py::handle function) {
    graph::register_user_lowering(name, overload, Ref::borrow(function.ptr()));
  });
  m.def("set_stance", [](int stance) { set_stance(Stance(stance)); });
  m.def("set_other_stance",
        [](int stance) { set_other_stance(Stance(stance)); });
  m.def("current_stance", [] { return int(current_stance()); });
  define_script_mode(m);
  define_followers(m);
  m.def("hook_installs", &hook_installs);
  m.def("install", [] {
    if (!install_compiler()) throw py::error_already_set();
  });
  m.def("set_first_guard_form", [](const std::string& form) {
    ArmedGuards::set_first_form(form == "slot"      ? Form::kSlot
                                : form == "generic" ? Form::kGeneric
                                                    : Form::kVersion);
  });
  m.def("dicts_worth_an_epoch", &dicts_worth_an_epoch);
  m.def("set_dicts_worth_an_epoch", &set_dicts_worth_an_epoch);
  m.attr("_regions") =
      py::reinterpret_steal<py::object>(graph::region_module().release());
  m.attr("_fx") = own(graph::fx_module());
  m.def("inject_failure_at", [](size_t instruction) {
    bytecode::g_inject_failure_at = instruction;
  });
}

}  // namespace framejit
