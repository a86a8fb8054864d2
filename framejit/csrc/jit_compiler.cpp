#include "framejit/csrc/jit_compiler.h"

#include <chrono>
#include <string>

#include "backend/backend.h"
#include "bytecode/capture.h"
#include "bytecode/dim_marks.h"
#include "bytecode/residual.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/frame_eval.h"
#include "framejit/csrc/compile_options.h"
#include "framejit/csrc/frame_choice.h"
#include "framejit/csrc/jit_entry.h"
#include "framejit/csrc/reports.h"
#include "framejit/csrc/trace_log.h"
#include "graph/float_args.h"
#include "graph/tracer.h"
#include "guards/evaluate.h"

namespace framejit {

namespace {

// Never destroyed: the process may end after the interpreter has.
ErrorTypes& error_types() {
  static auto* types = new ErrorTypes;
  return *types;
}

void raise(const Ref& type, const std::string& text) {
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, text.c_str());
}

class Stopwatch {
 public:
  double milliseconds() {
    auto now = std::chrono::steady_clock::now();
    double result =
        std::chrono::duration<double, std::milli>(now - start_).count();
    start_ = now;
    return result;
  }

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

// The sizes seen by earlier captures of one (code, options) key live with its
// code cache.
std::shared_ptr<ShapeHistory> shape_history(CodeCache* cache) {
  if (!cache->compiler_state) {
    cache->compiler_state = std::make_shared<ShapeHistory>();
  }
  return std::static_pointer_cast<ShapeHistory>(cache->compiler_state);
}

// The user's functions beneath are still worth compiling, except where nothing
// of ours may run now.
bool callees_worth_compiling(BreakReason reason) {
  return reason != BreakReason::kTracingActive &&
         reason != BreakReason::kThreadState &&
         reason != BreakReason::kInternal;
}

CompileOutcome give_up(const CompileRequest& request, const Break& brk) {
  const auto* options = static_cast<const CompileOptions*>(request.options);
  ++event_counters().breaks;
  log_event(Channel::k_graph_breaks,
            "not captured: " + describe_function(request.function) + "\n" +
                break_report(brk));
  CompileOutcome outcome;
  if (options->fullgraph) {
    raise(error_types().graph_break, break_report(brk));
    outcome.raise = true;
    return outcome;
  }
  outcome.hook_callees = callees_worth_compiling(brk.reason);
  return outcome;
}

void mark_generated_code(const bytecode::CaptureOutcome& outcome) {
  if (!outcome.residual_code) return;
  mark_code(outcome.residual_code.get(), CodeKind::kResidual);
  for (const Ref& code : outcome.resume_codes) {
    mark_code(code.get(), CodeKind::kResume);
  }
}

// Runs the backend on the captured graph, if there is one.
Result<backend::CompiledGraph> compile_graph(const CompileRequest& request,
                                             bytecode::CaptureOutcome& outcome,
                                             PyObject* const* objects) {
  if (!outcome.graph ||
      (outcome.graph->num_operations() == 0 && outcome.num_outputs == 0)) {
    return backend::CompiledGraph{};
  }
  const auto* options = static_cast<const CompileOptions*>(request.options);
  backend::BackendRequest backend_request;
  auto* torch_graph = static_cast<graph::TorchGraph*>(outcome.graph.release());
  backend_request.graph.reset(torch_graph);
  backend_request.guards = outcome.guards.get();
  backend_request.backend = options->backend;
  backend_request.callable = options->backend_callable;
  backend_request.options = options->backend_options;
  if (options->backend_callable || !backend::is_own_backend(options->backend))
    graph::pin_floats(torch_graph, outcome.guards.get());
  for (int index : torch_graph->input_objects) {
    backend_request.example_inputs.push_back(index >= 0 ? objects[index]
                                                        : nullptr);
  }
  auto compiled = backend::compile(backend_request);
  if (compiled.ok()) {
    compiled.value().info.num_operations = torch_graph->num_operations();
  }
  return compiled;
}

Result<std::shared_ptr<JitEntry>> build_entry(const CompileRequest& request,
                                              ShapeHistory& history) {
  Stopwatch stopwatch;
  const auto* options = static_cast<const CompileOptions*>(request.options);
  bytecode::CaptureRequest capture_request{
      .function = request.function,
      .args = request.args,
      .num_args = request.num_args,
      .is_resume = request.is_resume,
      .fullgraph = options->fullgraph,
      .dynamic_dims = &history.dynamic_dims(),
      .dynamic_numbers = &history.dynamic_numbers(),
      .dynamic = options->dynamic,
  };
  std::unique_ptr<TensorTracer> tracer = graph::make_tracer();
  auto captured = bytecode::capture(capture_request, *tracer);
  if (!captured.ok()) return captured.forward<std::shared_ptr<JitEntry>>();
  bytecode::CaptureOutcome outcome = captured.take();
  tracer.reset();
  CompileTimes times;
  times.capture_ms = stopwatch.milliseconds();

  const GuardSet& guards = *outcome.guards;
  std::vector<PyObject*> objects(guards.gathered().size() + 1);
  std::vector<int64_t> symbols(guards.symbols().size() + 1);
  size_t failed = 0;
  if (!evaluate(guards, request.args, request.function, objects.data(),
                symbols.data(), &failed)) {
    return Break{BreakReason::kInternal,
                 "a guard fails for the call it was made from: " +
                     explain_failure(guards, failed, request.args,
                                     request.function, request.code),
                 {}};
  }
  auto compiled = compile_graph(request, outcome, objects.data());
  if (!compiled.ok()) return compiled.forward<std::shared_ptr<JitEntry>>();
  times.backend_ms = stopwatch.milliseconds();
  mark_generated_code(outcome);
  history.observe(guards, request.args, request.function, request.code);
  backend::CompiledGraph graph = compiled.take();
  auto entry = std::make_shared<JitEntry>(
      std::move(outcome), std::move(graph.executor), std::move(graph.info));
  entry->arm(request.args, request.function);
  times.guards_ms = stopwatch.milliseconds();
  entry->times = times;
  return entry;
}

// One line per miss and entry: why it does not fit this call.
std::vector<std::string> log_misses(const CompileRequest& request,
                                    const char* what) {
  std::vector<std::string> lines;
  // A copy: what runs here may change the cache.
  const std::vector<std::shared_ptr<CacheEntry>> entries =
      request.cache->entries();
  std::string name = describe_function(request.function);
  for (size_t i = 0; i < entries.size(); ++i) {
    auto* entry = static_cast<JitEntry*>(entries[i].get());
    size_t failed = entry->failed_fact;
    if (entry->armed().dead() || failed == CacheEntry::kUnknownFact) continue;
    Miss miss = describe_miss(*entry, request);
    if (entry->guard_failures.size() <= failed) {
      entry->guard_failures.resize(failed + 1);
    }
    ++entry->guard_failures[failed];
    lines.push_back(std::string(what) + " " + name + ", entry " +
                    std::to_string(i) + ": " + miss.text());
    log_event(Channel::k_recompiles, lines.back());
    if (tracing()) {
      TraceRecord("recompile")
          .add("function", name)
          .add("entry", (long long)i)
          .add("reason", miss.reason)
          .add("hint", miss.hint)
          .emit();
    }
  }
  return lines;
}

// The guard that lets a symbol have one value only, or null.
const Guard* pinning_guard(const GuardSet& guards, const Expr& size) {
  for (const Guard& guard : guards.guards()) {
    if (guard.kind != GuardKind::kShapeExpr || guard.expr.op() != ExprOp::kEq) {
      continue;
    }
    const std::vector<Expr>& sides = guard.expr.operands();
    if ((sides[0].is_const() && sides[1] == size) ||
        (sides[1].is_const() && sides[0] == size)) {
      return &guard;
    }
  }
  return nullptr;
}

// mark_dynamic promised that a dim changes; a constant in its place means a
// compilation for each size. What the user asked for and did not get.
std::string lost_dims(const GuardSet& guards, const CompileRequest& request) {
  ErrorGuard error;
  SourceValues sources(guards, request.args, request.function);
  std::string text;
  for (const Guard& guard : guards.guards()) {
    if (guard.kind != GuardKind::kTensor) continue;
    PyObject* tensor = sources.get(guard.source);
    uint64_t marked = tensor ? bytecode::read_dim_marks(tensor).dynamic : 0;
    const TensorSpec& spec = guards.tensor_specs()[guard.number];
    for (size_t d = 0; d < spec.sizes.size() && d < 64; ++d) {
      if (!(marked >> d & 1)) continue;
      std::string why;
      if (spec.sizes[d].is_const()) {
        why = "is the constant " + spec.sizes[d].str() +
              (spec.sizes[d].constant() < 2
                   ? ": sizes 0 and 1 are programs of their own"
                   : "");
      } else if (const Guard* pin = pinning_guard(guards, spec.sizes[d])) {
        why = "must be one number: " + guard_text(guards, *pin, request.code);
        if (pin->span.code) why += "  (" + format_span(pin->span) + ")";
      }
      if (why.empty()) continue;
      text += (text.empty() ? "" : "\n") + std::string("mark_dynamic(") +
              source_text(guard.source, request.code) + ", " +
              std::to_string(d) + "): the size " + why;
    }
  }
  return text;
}

void trace_result(const CompileRequest& request, const JitEntry* entry,
                  const Break* brk, double total_ms) {
  if (!tracing()) return;
  TraceRecord record("compile_end");
  record.add("function", describe_function(request.function))
      .add("total_ms", total_ms);
  if (entry) record.add("entry", entry_report(request.code, *entry));
  if (brk) record.add("break", break_report(*brk));
  record.emit();
}

std::string internal_error_text() {
  try {
    throw;
  } catch (const InternalError& error) {
    return error.message();
  } catch (...) {
    return {};
  }
}

}  // namespace

CompileOutcome JitCompiler::compile(const CompileRequest& request) {
  Stopwatch stopwatch;
  if (tracing()) {
    TraceRecord("compile_start")
        .add("function", describe_function(request.function))
        .add("resume", (long long)request.is_resume)
        .emit();
  }
  log_misses(request, "recompiling");
  std::shared_ptr<ShapeHistory> history = shape_history(request.cache);
  {
    CollectorPause pause;  // what the guards name stays alive
    for (const auto& entry : request.cache->entries()) {
      history->note_miss(static_cast<JitEntry*>(entry.get())->guards(),
                         request.args, request.function, request.code);
    }
  }
  auto built = build_entry(request, *history);
  if (!built.ok()) {
    // An exception of the user's own program escaped: eager will raise it.
    Break brk =
        built.broke()
            ? built.take_break()
            : Break{BreakReason::kUnsupportedException, take_error_text(), {}};
    trace_result(request, nullptr, &brk, stopwatch.milliseconds());
    return give_up(request, brk);
  }
  CompileOutcome outcome;
  auto* entry = static_cast<JitEntry*>(built.value().get());
  std::string lost = lost_dims(entry->guards(), request);
  if (!lost.empty()) {
    log_event(Channel::k_recompiles,
              describe_function(request.function) + ": " + lost);
    if (static_cast<const CompileOptions*>(request.options)->fullgraph) {
      raise(error_types().dimension, lost);
      outcome.raise = true;
      return outcome;
    }
  }
  log_compilation(request.function, *entry);
  trace_result(request, entry, nullptr, stopwatch.milliseconds());
  event_counters().breaks += entry->outcome().breaks.size();
  outcome.entry = built.take();
  return outcome;
}

bool JitCompiler::refuse(const CompileRequest& request, bool fail) {
  std::vector<std::string> lines =
      log_misses(request, "not compiled, by the stance:");
  if (!fail) return false;
  std::string text = "set_stance(\"fail_on_recompile\"): " +
                     describe_function(request.function) +
                     " would have to be compiled";
  for (const std::string& line : lines) text += "\n  " + line;
  if (lines.empty()) text += ": it has no entry yet";
  raise(error_types().recompile, text);
  return true;
}

std::string JitCompiler::explain_miss(const CompileRequest& request) {
  for (const auto& entry : request.cache->entries()) {
    if (entry->failed_fact == CacheEntry::kUnknownFact) continue;
    return describe_miss(*static_cast<JitEntry*>(entry.get()), request).text();
  }
  return "";
}

void set_error_types(ErrorTypes types) { error_types() = std::move(types); }

bool install_compiler() {
  // Never destroyed: calls may come until the process ends.
  static auto* compiler = new JitCompiler;
  if (!graph::initialize_tracing()) return false;
  set_exception_text(internal_error_text);
  set_should_compile(judge_code);
  set_compiler(compiler);
  return true;
}

}  // namespace framejit
