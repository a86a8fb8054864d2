#include "framejit/csrc/reports.h"

#include <algorithm>
#include <cstdio>

#include "bytecode/code/assembler.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/notices.h"
#include "frame_hook/options.h"
#include "frame_hook/python_text.h"

namespace framejit {

namespace {

// The source line of a span, indented; "" when the file cannot be read.
std::string source_line(const Span& span) {
  int line = span_line(span);
  if (!span.code || line <= 0) return {};
  ErrorGuard error;
  auto* code = reinterpret_cast<PyCodeObject*>(span.code.get());
  Ref linecache = Ref::steal(PyImport_ImportModule("linecache"));
  Ref text =
      linecache ? Ref::steal(PyObject_CallMethod(linecache.get(), "getline",
                                                 "Oi", code->co_filename, line))
                : Ref();
  Ref stripped =
      text ? Ref::steal(PyObject_CallMethod(text.get(), "strip", nullptr))
           : Ref();
  PyErr_Clear();
  std::string result = stripped ? text_of(stripped.get()) : "";
  return result.empty() ? "" : "\n    " + result;
}

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", value);
  return text;
}

bool set_item(PyObject* dict, const char* key, Ref value) {
  return value && PyDict_SetItemString(dict, key, value.get()) == 0;
}

Ref text_object(const std::string& text) {
  return Ref::steal(
      PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"));
}

template <class Items, class Convert>
Ref list_of(const Items& items, Convert convert) {
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return {};
  for (const auto& item : items) {
    Ref object = convert(item);
    if (!object || PyList_Append(list.get(), object.get()) < 0) return {};
  }
  return list;
}

Ref break_object(const bytecode::BreakRecord& record) {
  Ref dict = Ref::steal(PyDict_New());
  const BreakReasonRow& row = break_reason_row(record.brk.reason);
  Ref stack = list_of(record.stack, [](const Span& span) {
    return text_object(format_span(span));
  });
  bool good = dict && set_item(dict.get(), "id", text_object(row.id)) &&
              set_item(dict.get(), "reason", text_object(row.title)) &&
              set_item(dict.get(), "hint", text_object(row.hint)) &&
              set_item(dict.get(), "detail", text_object(record.brk.detail)) &&
              set_item(dict.get(), "where",
                       text_object(format_span(record.brk.span))) &&
              set_item(dict.get(), "stack", stack);
  return good ? dict : Ref();
}

Ref entry_object(PyObject* code, const JitEntry& entry) {
  Ref dict = Ref::steal(PyDict_New());
  if (!dict) return {};
  const bytecode::CaptureOutcome& outcome = entry.outcome();
  const backend::CompiledInfo& info = entry.info();
  auto number = [](auto value) {
    return Ref::steal(PyLong_FromSsize_t(Py_ssize_t(value)));
  };
  auto real = [](double value) {
    return Ref::steal(PyFloat_FromDouble(value));
  };
  Ref guards = list_of(entry.guards().guards(), [&](const Guard& guard) {
    return text_object(guard_text(entry.guards(), guard, code));
  });
  std::vector<uint32_t> counts(entry.guards().guards().size());
  std::copy_n(entry.guard_failures.begin(),
              std::min(counts.size(), entry.guard_failures.size()),
              counts.begin());
  Ref failures = list_of(counts, number);
  Ref symbols = list_of(entry.guards().symbols(), [&](const Symbol& symbol) {
    return text_object(source_text(symbol.source, code));
  });
  Ref residual =
      outcome.residual_code ? outcome.residual_code : Ref::borrow(Py_None);
  Ref resumes = list_of(outcome.resume_codes, [](const Ref& c) { return c; });
  Ref breaks = list_of(outcome.breaks, break_object);
  Ref kernels = list_of(info.kernels, text_object);
  bool good =
      set_item(dict.get(), "guards", guards) &&
      set_item(dict.get(), "guard_failures", failures) &&
      set_item(dict.get(), "symbols", symbols) &&
      set_item(dict.get(), "hits", number(entry.hits)) &&
      set_item(dict.get(), "predicates", number(entry.predicates.size())) &&
      set_item(dict.get(), "torch_graph", text_object(info.torch_graph)) &&
      set_item(dict.get(), "joint_graph", text_object(info.joint_graph)) &&
      set_item(dict.get(), "forward_graph", text_object(info.forward_graph)) &&
      set_item(dict.get(), "backward_graph",
               text_object(info.backward_graph)) &&
      set_item(dict.get(), "kernels", kernels) &&
      set_item(dict.get(), "saved_tensors", number(info.num_saved_tensors)) &&
      set_item(dict.get(), "fallback_reason",
               text_object(info.fallback_reason)) &&
      set_item(dict.get(), "operations", number(info.num_operations)) &&
      set_item(dict.get(), "breaks", breaks) &&
      set_item(dict.get(), "residual_code", residual) &&
      set_item(dict.get(), "resume_codes", resumes) &&
      set_item(dict.get(), "instructions", number(outcome.instructions)) &&
      set_item(dict.get(), "inlined_calls", number(outcome.inlined_calls)) &&
      set_item(dict.get(), "capture_ms", real(entry.times.capture_ms)) &&
      set_item(dict.get(), "backend_ms", real(entry.times.backend_ms)) &&
      set_item(dict.get(), "guards_ms", real(entry.times.guards_ms));
  return good ? dict : Ref();
}

}  // namespace

std::string describe_function(PyObject* function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(object->func_code);
  return text_of(object->func_qualname) + " (" + text_of(code->co_filename) +
         ":" + std::to_string(code->co_firstlineno) + ")";
}

std::string break_report(const Break& brk) {
  const BreakReasonRow& row = break_reason_row(brk.reason);
  std::string text = std::string(row.id) + " " + row.title;
  if (!brk.detail.empty()) text += ": " + brk.detail;
  if (brk.span.code) {
    text += "\n  at " + format_span(brk.span) + source_line(brk.span);
  }
  if (row.hint[0] != '\0') text += std::string("\n  hint: ") + row.hint;
  return text;
}

void log_compilation(PyObject* function, const JitEntry& entry) {
  std::string name = describe_function(function);
  PyObject* code = PyFunction_GET_CODE(function);
  const backend::CompiledInfo& info = entry.info();
  for (const auto& record : entry.outcome().breaks) {
    log_event(Channel::k_graph_breaks,
              "graph break in " + name + "\n" + break_report(record.brk));
  }
  if (info.fell_back_to_torch_level) {
    ++event_counters().fallbacks;
    log_notice(
        Notice::kAsCaptured, code,
        name + ": the graph runs at torch level: " + info.fallback_reason);
  }
  if (enabled(Channel::k_guards)) {
    log_event(Channel::k_guards,
              "guards of " + name + guard_tree(entry.guards(), code));
  }
  if (enabled(Channel::k_graphs)) {
    log_event(Channel::k_graphs,
              "graph of " + name + " (capture " +
                  milliseconds(entry.times.capture_ms) + ", backend " +
                  milliseconds(entry.times.backend_ms) + ", guards " +
                  milliseconds(entry.times.guards_ms) + ")\n" +
                  info.torch_graph + info.forward_graph + info.backward_graph);
  }
  if (enabled(Channel::k_kernels)) {
    for (const std::string& kernel : info.kernels) {
      log_event(Channel::k_kernels, "kernel of " + name + "\n" + kernel);
    }
  }
  if (enabled(Channel::k_bytecode) && entry.outcome().residual_code) {
    log_event(Channel::k_bytecode,
              "residual code of " + name + "\n" +
                  bytecode::dump_code(entry.outcome().residual_code.get()));
  }
}

Ref entry_report(PyObject* code, const JitEntry& entry) {
  return entry_object(code, entry);
}

Ref all_entries() {
  struct Row {
    Ref code;
    std::vector<std::shared_ptr<CacheEntry>> entries;
  };
  std::vector<Row> rows;
  for_each_cache(nullptr, [&](CodeCache& cache) {
    if (cache.entries().empty()) return;
    rows.push_back({Ref::borrow(cache.code()), cache.entries()});
  });
  return list_of(rows, [](const Row& row) {
    Ref name = text_object(describe_code(row.code.get()));
    Ref entries =
        list_of(row.entries, [&](const std::shared_ptr<CacheEntry>& entry) {
          return entry_object(row.code.get(),
                              static_cast<const JitEntry&>(*entry));
        });
    return name && entries
               ? Ref::steal(PyTuple_Pack(2, name.get(), entries.get()))
               : Ref();
  });
}

Ref entries_of(PyObject* code, const void* options) {
  CodeCache* cache = find_code_cache(code, options);
  if (!cache) return Ref::steal(PyList_New(0));
  // Copied: making Python objects may run code that changes the cache.
  std::vector<std::shared_ptr<CacheEntry>> entries = cache->entries();
  CollectorPause pause;  // what the guards name stays alive
  std::erase_if(entries, [](const std::shared_ptr<CacheEntry>& entry) {
    return static_cast<const JitEntry&>(*entry).armed().dead();
  });
  return list_of(entries, [&](const std::shared_ptr<CacheEntry>& entry) {
    return entry_object(code, static_cast<const JitEntry&>(*entry));
  });
}

}  // namespace framejit
