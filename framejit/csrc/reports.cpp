#include "framejit/csrc/reports.h"

#include <algorithm>
#include <cstdio>

#include "bytecode/code/assembler.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/collector.h"
#include "frame_hook/interjections.h"
#include "frame_hook/notices.h"
#include "frame_hook/options.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"
#include "framejit/csrc/function_memory.h"

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
  drop_error();
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

// Between a module and its forward: what nobody wrote.
bool is_call_of_module(const Span& span) {
  if (!span.code) return false;
  if (stands_for_other(span.code.get())) return true;
  auto* code = reinterpret_cast<PyCodeObject*>(span.code.get());
  std::string name = text_of(code->co_qualname);
  return (name == "Module._wrapped_call_impl" || name == "Module._call_impl") &&
         text_of(code->co_filename).ends_with("torch/nn/modules/module.py");
}

// See JitEntry.
bool hands_over(PyObject* code, const JitEntry& entry) {
  if (!stands_for_other(code)) return false;
  if (code_kind(code) == CodeKind::kResume) return true;
  for (const auto& record : entry.outcome().breaks) {
    if (record.stack.size() > 1 && entry.info().num_operations == 0)
      return true;
  }
  return false;
}

Ref break_object(const bytecode::BreakRecord& record) {
  Ref dict = Ref::steal(PyDict_New());
  const BreakReasonRow& row = break_reason_row(record.brk.reason);
  std::vector<Span> users;
  for (const Span& span : record.stack) {
    if (&span == &record.stack.back() || !is_call_of_module(span))
      users.push_back(span);
  }
  Ref stack = list_of(
      users, [](const Span& span) { return text_object(format_span(span)); });
  bool good = dict && set_item(dict.get(), "id", text_object(row.id)) &&
              set_item(dict.get(), "reason", text_object(row.title)) &&
              set_item(dict.get(), "hint", text_object(row.hint)) &&
              set_item(dict.get(), "detail", text_object(record.brk.detail)) &&
              set_item(dict.get(), "where",
                       text_object(format_span(record.brk.span))) &&
              set_item(dict.get(), "stack", stack);
  return good ? dict : Ref();
}

// Of a guard on sizes and numbers: (code object, offset in it, place in words,
// operator or None). None: nobody knows.
Ref guard_reason(const Guard& guard) {
  const bool known = guard.kind == GuardKind::kShapeExpr && guard.span.code;
  if (!known) return Ref::borrow(Py_None);
  Ref place = text_object(format_span(guard.span));
  if (!place) return {};
  return Ref::steal(Py_BuildValue("(OiOz)", guard.span.code.get(),
                                  guard.span.instruction, place.get(),
                                  guard.cause));
}

Ref entry_object(PyObject* code, const JitEntry& entry) {
  Ref owner;
  if (entry.decorated) owner = internals::weak_referent(entry.decorated.get());
  DecoratedNames decorated(code, owner.get());
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
  std::vector<const Guard*> pinning;
  for (const Guard& guard : entry.guards().guards())
    if (guard.cause && pinned_expr(guard)) pinning.push_back(&guard);
  Ref pins = list_of(pinning, [&](const Guard* guard) {
    return text_object(guard_text(entry.guards(), *guard, code) + " by " +
                       guard->cause + " " + place_of_pin(*guard));
  });
  Ref reasons = list_of(entry.guards().guards(), guard_reason);
  Ref symbols = list_of(entry.guards().symbols(), [&](const Symbol& symbol) {
    return text_object(source_text(symbol.source, code));
  });
  const auto& of_calls = info.program.reason_of_calls;
  const std::string& fallback = of_calls && info.fallback_reason.empty()
                                    ? *of_calls
                                    : info.fallback_reason;
  Ref residual =
      outcome.residual_code ? outcome.residual_code : Ref::borrow(Py_None);
  Ref resumes = list_of(outcome.resume_codes, [](const Ref& c) { return c; });
  Ref breaks = list_of(outcome.breaks, break_object);
  Ref kernels = list_of(info.program.kernels, text_object);
  Ref not_lowered = list_of(info.program.not_lowered, text_object);
  bool good =
      set_item(dict.get(), "number", number(entry.number)) &&
      set_item(dict.get(), "guards", guards) &&
      set_item(dict.get(), "guard_failures", failures) &&
      set_item(dict.get(), "guard_reasons", reasons) &&
      set_item(dict.get(), "pins", pins) &&
      set_item(dict.get(), "symbols", symbols) &&
      set_item(dict.get(), "hits", number(entry.hits)) &&
      set_item(dict.get(), "predicates", number(entry.predicates.size())) &&
      set_item(dict.get(), "torch_graph", text_object(info.torch_graph)) &&
      set_item(dict.get(), "joint_graph", text_object(info.joint_graph)) &&
      set_item(dict.get(), "forward_graph", text_object(info.forward_graph)) &&
      set_item(dict.get(), "backward_graph",
               text_object(info.backward_graph)) &&
      set_item(dict.get(), "kernels", kernels) &&
      set_item(dict.get(), "loop_nodes", number(info.program.num_lowered)) &&
      set_item(dict.get(), "not_lowered", not_lowered) &&
      set_item(dict.get(), "saved_tensors", number(info.num_saved_tensors)) &&
      set_item(dict.get(), "fallback_reason", text_object(fallback)) &&
      set_item(dict.get(), "operations", number(info.num_operations)) &&
      set_item(dict.get(), "breaks", breaks) &&
      set_item(dict.get(), "hands_over",
               Ref::borrow(entry.hands_over ? Py_True : Py_False)) &&
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

std::string describe_entry(PyObject* function, size_t number) {
  return describe_function(function) + ", entry " + std::to_string(number);
}

std::string place_of_graph(const std::vector<Span>& stack, PyObject* code) {
  for (const Span& span : stack)
    if (!is_call_of_module(span)) return brief_place(span);
  return brief_place(stack.empty() ? Span{Ref::borrow(code), -1}
                                   : stack.back());
}

std::string break_report(const Break& brk) {
  const BreakReasonRow& row = break_reason_row(brk.reason);
  std::string text = std::string(row.id) + " " + row.title;
  if (!brk.detail.empty()) text += ": " + brk.detail;
  if (brk.span.code) {
    text += "\n  at " + format_span(brk.span) + source_line(brk.span);
  }
  if (row.hint[0] != '\0') text += std::string("\n  hint: ") + row.hint;
  return text + "\n  page: docs/breaks/" + row.id + ".md";
}

bool count_break(PyObject* code, const Break& brk) {
  // Until it is met again: at once, when the module's forward is captured by
  // itself. The GIL guards it.
  struct Told {
    const PyObject *forward = nullptr, *code = nullptr;  // compared only
    int instruction = 0;
    BreakReason reason = BreakReason::kInternal;
    bool operator==(const Told&) const = default;
  };
  static Told told;
  Ref program = program_code(code);
  Told now{program.get(), brk.span.code.get(), brk.span.instruction,
           brk.reason};
  if (program.get() != code) {
    told = now;
  } else if (told == now) {
    told = {};
    return false;
  }
  ++event_counters().breaks;
  return true;
}

namespace {

void log_graphs(const std::string& of, const JitEntry& entry) {
  const backend::CompiledInfo& info = entry.info();
  const std::string times =
      " (capture " + milliseconds(entry.times.capture_ms) + ", backend " +
      milliseconds(entry.times.backend_ms) + ", guards " +
      milliseconds(entry.times.guards_ms) + ")";
  auto log = [&](const std::string& level, const std::string& graph) {
    if (!graph.empty())
      log_event(Channel::k_graphs, "graph" + of + ", " + level + "\n" + graph);
  };
  log("torch level" + times, info.torch_graph);
  log("joint", info.joint_graph);
  log("forward", info.forward_graph);
  log("backward", info.backward_graph);
}

// Residual code and its resume codes as Python to be read, each with a newline
// behind it; "" for all that could not be written so.
std::vector<std::string> code_as_python(
    const bytecode::CaptureOutcome& outcome) {
  std::vector<std::string> texts(1 + outcome.resume_codes.size());
  ErrorGuard error;
  Ref resume_codes = Ref::steal(PyTuple_New(outcome.resume_codes.size()));
  for (size_t i = 0; resume_codes && i < outcome.resume_codes.size(); ++i) {
    PyTuple_SET_ITEM(resume_codes.get(), i,
                     Ref(outcome.resume_codes[i]).release());
  }
  Ref module = Ref::steal(PyImport_ImportModule("framejit._decompile"));
  Ref found = module && resume_codes
                  ? Ref::steal(PyObject_CallMethod(
                        module.get(), "as_python", "OO",
                        outcome.residual_code.get(), resume_codes.get()))
                  : Ref();
  if (found && PyList_Check(found.get()) &&
      PyList_GET_SIZE(found.get()) == Py_ssize_t(texts.size())) {
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i] = text_of(PyList_GET_ITEM(found.get(), i));
      if (!texts[i].empty()) texts[i] += "\n";
    }
  }
  drop_error();
  return texts;
}

void log_code(const std::string& of, const bytecode::CaptureOutcome& outcome) {
  if (!outcome.residual_code) return;
  const std::vector<std::string> python = code_as_python(outcome);
  log_event(Channel::k_bytecode,
            "residual code" + of + "\n" + python[0] +
                bytecode::dump_code(outcome.residual_code.get()));
  for (size_t i = 0; i < outcome.resume_codes.size(); ++i) {
    const std::string number =
        outcome.resume_codes.size() > 1 ? " " + std::to_string(i) : "";
    log_event(Channel::k_bytecode,
              "resume code" + number + of + "\n" + python[i + 1] +
                  bytecode::dump_code(outcome.resume_codes[i].get()));
  }
}

}  // namespace

void log_compilation(PyObject* function, const JitEntry& entry) {
  DecoratedNames decorated(function);
  std::string name = describe_function(function);
  PyObject* code = PyFunction_GET_CODE(function);
  const backend::CompiledInfo& info = entry.info();
  for (const auto& record : entry.outcome().breaks) {
    if (!count_break(code, record.brk)) continue;
    log_event(Channel::k_graph_breaks,
              "graph break in " + name + "\n" + break_report(record.brk));
  }
  if (info.fell_back_to_torch_level) {
    log_notice(
        Notice::kAsCaptured, code,
        name + ": the graph runs at torch level: " + info.fallback_reason);
  }
  const std::string of = " of " + describe_entry(function, entry.number);
  if (enabled(Channel::k_guards)) {
    log_event(Channel::k_guards,
              "guards" + of + guard_tree(entry.guards(), code));
  }
  if (enabled(Channel::k_graphs)) log_graphs(of, entry);
  if (enabled(Channel::k_bytecode)) log_code(of, entry.outcome());
}

Ref entry_report(PyObject* code, const JitEntry& entry) {
  return entry_object(code, entry);
}

namespace {

// Behind which line of the program the rest of a function goes on; 0: it is no
// such rest.
int behind_line(PyObject* code) {
  if (code_kind(code) != CodeKind::kResume || stands_for_other(code)) return 0;
  auto* object = reinterpret_cast<PyCodeObject*>(code);
  for (Py_ssize_t at = 0; at < Py_SIZE(object); ++at) {
    int line = PyCode_Addr2Line(object, int(2 * at));  // two bytes a unit
    if (line > 0) return line;
  }
  return object->co_firstlineno;
}

}  // namespace

ReportPlace report_place(PyObject* code, PyObject* function) {
  const Ref owner = function ? decorated_function(function) : Ref();
  DecoratedNames decorated(code, owner.get());
  Ref program = program_code(code);
  auto* object = reinterpret_cast<PyCodeObject*>(program.get());
  return {program_name(code), text_of(object->co_filename),
          object->co_firstlineno, behind_line(code)};
}

namespace {

struct CacheRow {
  Ref code;
  ReportPlace place;
  std::vector<std::shared_ptr<CacheEntry>> entries;
  std::string refusal;
};

// Copied: making Python objects may run code that changes the caches. Where
// guards are described, entries whose objects have died are left out, and the
// collector may not let any die meanwhile: their guards hold them weakly.
std::vector<CacheRow> cache_rows() {
  std::vector<CacheRow> rows;
  for_each_cache(nullptr, [&](CodeCache& cache) {
    CacheRow row{Ref::borrow(cache.code()), {}, cache.entries(), ""};
    if (cache.compiler_state) {
      const auto memory = function_memory(&cache);
      row.place = memory->place;
      row.refusal = memory->refusal;
    }
    if (row.place.file.empty()) row.place = report_place(cache.code(), nullptr);
    rows.push_back(std::move(row));
  });
  return rows;
}

bool is_dead(const std::shared_ptr<CacheEntry>& entry) {
  return static_cast<const JitEntry&>(*entry).armed().dead();
}

Ref entry_objects(const CacheRow& row) {
  return list_of(row.entries, [&](const std::shared_ptr<CacheEntry>& entry) {
    return entry_object(row.code.get(), static_cast<const JitEntry&>(*entry));
  });
}

// What the report at exit adds up: nothing that is looked up in the objects of
// the program, so it holds of entries whose objects have died, too.
Figures figures_of(const JitEntry& entry) {
  const CompileTimes& times = entry.times;
  Figures figures{1, entry.hits, entry.info().num_operations,
                  times.capture_ms + times.backend_ms + times.guards_ms};
  for (const auto& record : entry.outcome().breaks)
    ++figures.breaks[past_break(record.brk)];
  for (PastPin& pin : past_pins(entry.guards())) ++figures.pins[std::move(pin)];
  return figures;
}

Ref figures_object(const Figures& figures, bool hands_over) {
  Ref breaks = list_of(figures.breaks, [](const auto& row) {
    const PastBreak& brk = row.first;
    Ref detail = text_object(brk.detail), where = text_object(brk.where);
    if (!detail || !where) return Ref();
    return Ref::steal(
        Py_BuildValue("{s:s,s:s,s:O,s:O,s:n}", "id", brk.id.c_str(), "reason",
                      brk.reason.c_str(), "detail", detail.get(), "where",
                      where.get(), "count", Py_ssize_t(row.second)));
  });
  Ref pins = list_of(figures.pins, [](const auto& row) {
    Ref by = text_object(row.first.by), where = text_object(row.first.where);
    if (!by || !where) return Ref();
    return Ref::steal(Py_BuildValue("{s:O,s:O,s:n}", "by", by.get(), "where",
                                    where.get(), "count",
                                    Py_ssize_t(row.second)));
  });
  if (!breaks || !pins) return {};
  return Ref::steal(Py_BuildValue(
      "{s:n,s:n,s:n,s:O,s:O,s:O,s:d}", "entries", Py_ssize_t(figures.entries),
      "hits", Py_ssize_t(figures.hits), "operations",
      Py_ssize_t(figures.operations), "breaks", breaks.get(), "pins",
      pins.get(), "hands_over", hands_over ? Py_True : Py_False, "ms",
      figures.ms));
}

Ref report_row(const ReportPlace& place, const Ref& entries,
               const std::string& refusal) {
  Ref name = text_object(place.name), file = text_object(place.file);
  Ref why = text_object(refusal);
  if (!name || !file || !why || !entries) return {};
  return Ref::steal(Py_BuildValue("(OOiiOO)", name.get(), file.get(),
                                  place.line, place.behind, entries.get(),
                                  why.get()));
}

// Not an iterator of the table: what makes objects may run code that changes
// it.
std::vector<std::pair<ReportPlace, PastEntries>> past_rows() {
  std::vector<std::pair<ReportPlace, PastEntries>> rows;
  for (const auto& [place, past] : all_past_entries())
    if (past->own.entries + past->handing_over.entries > 0)
      rows.emplace_back(place, *past);
  return rows;
}

}  // namespace

Ref all_entries() {
  std::vector<CacheRow> rows = cache_rows();
  CollectorOff off;
  for (CacheRow& row : rows) std::erase_if(row.entries, is_dead);
  std::erase_if(rows, [](const CacheRow& row) { return row.entries.empty(); });
  return list_of(rows, [](const CacheRow& row) {
    Ref name = text_object(describe_code(row.code.get()));
    Ref entries = entry_objects(row);
    return name && entries
               ? Ref::steal(PyTuple_Pack(2, name.get(), entries.get()))
               : Ref();
  });
}

Ref report_rows() {
  // Held meanwhile: an entry is in one of the two.
  const std::vector<CacheRow> live = cache_rows();
  const auto past = past_rows();
  Ref rows = list_of(live, [](const CacheRow& row) {
    Ref entries =
        list_of(row.entries, [](const std::shared_ptr<CacheEntry>& entry) {
          const auto& own = static_cast<const JitEntry&>(*entry);
          return figures_object(figures_of(own), own.hands_over);
        });
    return report_row(row.place, entries, row.refusal);
  });
  for (const auto& [place, gone] : past) {
    Ref entries = Ref::steal(PyList_New(0));
    for (bool hands_over : {false, true}) {
      const Figures& sum = hands_over ? gone.handing_over : gone.own;
      Ref object = sum.entries ? figures_object(sum, hands_over) : Ref();
      if (object &&
          (!entries || PyList_Append(entries.get(), object.get()) < 0))
        return {};
    }
    Ref row = report_row(place, entries, "");
    if (!row || !rows || PyList_Append(rows.get(), row.get()) < 0) return {};
  }
  return rows;
}

void place_in_report(const CompileRequest& request, JitEntry* entry) {
  entry->hands_over = hands_over(request.code, *entry);
  if (Ref decorated = decorated_function(request.function)) {
    entry->decorated = Ref::steal(PyWeakref_NewRef(decorated.get(), nullptr));
    if (!entry->decorated) PyErr_Clear();
  }
  entry->past = past_entries(report_place(request.code, request.function));
}

Ref entries_of(PyObject* code, const void* options) {
  CodeCache* cache = find_code_cache(code, options);
  if (!cache) return Ref::steal(PyList_New(0));
  // Copied: making Python objects may run code that changes the cache.
  std::vector<std::shared_ptr<CacheEntry>> entries = cache->entries();
  CollectorOff off;  // what the guards name stays alive
  std::erase_if(entries, is_dead);
  return list_of(entries, [&](const std::shared_ptr<CacheEntry>& entry) {
    return entry_object(code, static_cast<const JitEntry&>(*entry));
  });
}

}  // namespace framejit
