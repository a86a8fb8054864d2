#include "framejit/csrc/jit_compiler.h"

#include <chrono>
#include <set>
#include <string>

#include "backend/backend.h"
#include "bytecode/capture/capture.h"
#include "bytecode/objects/dim_marks.h"
#include "bytecode/residual/residual.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/collector.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/hook_off.h"
#include "frame_hook/interjections.h"
#include "frame_hook/notices.h"
#include "frame_hook/options.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"
#include "frame_hook/script_mode.h"
#include "framejit/csrc/compile_options.h"
#include "framejit/csrc/frame_choice.h"
#include "framejit/csrc/function_memory.h"
#include "framejit/csrc/jit_entry.h"
#include "framejit/csrc/other_compilers.h"
#include "framejit/csrc/progress.h"
#include "framejit/csrc/reports.h"
#include "framejit/csrc/trace_log.h"
#include "graph/tracing/float_args.h"
#include "graph/tracing/program_state.h"
#include "graph/tracing/tracer.h"
#include "guards/known_objects.h"
#include "guards/set/evaluate.h"
#include "guards/set/guarded_raise.h"
#include "libraries/libraries.h"

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

// The user's functions beneath are still worth compiling, except where nothing
// of ours may run now.
bool callees_worth_compiling(BreakReason reason) {
  return reason != BreakReason::kTracingActive &&
         reason != BreakReason::kThreadState &&
         reason != BreakReason::kOtherCompiler &&
         reason != BreakReason::kFinalizerObject &&
         reason != BreakReason::kInternal;
}

// The line for a capture that gave nothing. The user is told when the function
// is one to be compiled, and nothing of it ever was; a call that raises says so
// itself.
void log_refusal(const CompileRequest& request, const Break& brk, bool raises) {
  const auto* options = static_cast<const CompileOptions*>(request.options);
  std::string name = describe_function(request.function);
  std::string text = "not captured: " + name + "\n" + break_report(brk);
  if (!raises) function_memory(request.cache)->refusal = format_break(brk);
  if (!count_break(request.code, brk)) return;
  bool fails = brk.reason == BreakReason::kBackendFailed;
  bool is_nothing = request.cache->is_asked_for && !raises &&
                    request.cache->entries().empty();
  if (options->fullgraph) {  // an exception says it
    log_event(Channel::k_graph_breaks, std::move(text));
  } else if (fails) {
    log_notice(Notice::kBackendFailed, request.code, std::move(text));
  } else if (is_nothing) {
    log_notice(Notice::kNotCompiled, request.code, std::move(text));
  } else {
    log_event(Channel::k_graph_breaks, std::move(text));
  }
}

CompileOutcome give_up(const CompileRequest& request, const Break& brk,
                       bool raises = false) {
  const auto* options = static_cast<const CompileOptions*>(request.options);
  log_refusal(request, brk, raises);
  CompileOutcome outcome;
  if (options->fullgraph) {
    raise(error_types().graph_break, break_report(brk));
    outcome.raise = true;
    return outcome;
  }
  outcome.hook_callees = callees_worth_compiling(brk.reason);
  if (brk.reason == BreakReason::kFinalizerObject) {
    run_without_hook(request.code);
  }
  // A second attempt would cost as much, and end where this one did.
  outcome.skip_forever = leaves_code(brk.reason);
  return outcome;
}

void mark_generated_code(const bytecode::CaptureOutcome& outcome,
                         PyObject* code) {
  if (!outcome.residual_code) return;
  stand_for_same(outcome.residual_code.get(), code);
  mark_code(outcome.residual_code.get(), CodeKind::kResidual);
  if (!outcome.breaks.empty() &&
      outcome.breaks.back().brk.reason == BreakReason::kFinalizerObject) {
    run_without_hook(outcome.residual_code.get());
  }
  for (const Ref& resume : outcome.resume_codes) {
    mark_code(resume.get(), CodeKind::kResume);
    stand_for_same(resume.get(), code);
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
  torch_graph->place = place_of_graph(torch_graph->stack, request.code);
  torch_graph->stack.clear();  // it would hold the code, which holds the entry
  torch_graph->function = describe_entry(
      request.function, function_memory(request.cache)->entries_made);
  backend_request.guards = outcome.guards.get();
  backend_request.backend = options->backend;
  backend_request.callable = options->backend_callable;
  backend_request.precise_math =
      options->own.precise_math.value_or(framejit::options().precise_math);
  backend_request.emulate_precision_casts =
      options->own.emulate_precision_casts.value_or(
          framejit::options().emulate_precision_casts);
  backend_request.channels_last =
      options->own.channels_last.value_or(framejit::options().channels_last);
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

// Modules of one class (nn.Sequential!) that were compiled one by one have one
// code, and so the entries and the limit in common.
const PyObject* owner_of(const CompileRequest& request) {
  if (request.is_resume || request.num_args == 0 || !request.args[0])
    return nullptr;
  PyObject* type = library_object("torch.nn", "Module");
  const bool is_module =
      type && PyType_Check(type) &&
      PyObject_TypeCheck(request.args[0],
                         reinterpret_cast<PyTypeObject*>(type));
  return is_module ? request.args[0] : nullptr;
}

std::string hint_of_owners(const CompileRequest& request) {
  std::set<const PyObject*> owners;
  for (const auto& entry : request.cache->entries())
    owners.insert(static_cast<const JitEntry*>(entry.get())->owner);
  owners.erase(nullptr);
  if (owners.size() < 2) return "";
  return "; its entries are of " + std::to_string(owners.size()) +
         " modules, which share them and the limit: "
         "compile(..., isolate_recompiles=True) gives each module its own";
}

// A capture whose guards hold for the call it was made from.
struct Captured {
  bytecode::CaptureOutcome outcome;
  std::vector<PyObject*> objects;  // gathered
};

Result<Captured> capture_once(const CompileRequest& request,
                              ShapeHistory& history, TensorTracer& tracer,
                              std::unique_ptr<GuardSet>* raising,
                              std::string* failure) {
  const auto* options = static_cast<const CompileOptions*>(request.options);
  bytecode::CaptureRequest capture_request{
      .function = request.function,
      .args = request.args,
      .num_args = request.num_args,
      .is_resume = request.is_resume,
      .fullgraph = options->fullgraph,
      .max_instructions =
          static_cast<size_t>(options->own.max_instructions.value_or(
              framejit::options().max_instructions)),
      .leaves_repeated_calls = options == script_mode_options(),
      .dynamic_dims = &history.dynamic_dims(),
      .dynamic_numbers = &history.dynamic_numbers(),
      .dynamic = options->dynamic,
      .raising = raising,
  };
  auto captured = bytecode::capture(capture_request, tracer);
  if (!captured.ok()) return captured.forward<Captured>();
  Captured result{captured.take(), {}};
  const GuardSet& guards = *result.outcome.guards;
  result.objects.resize(guards.gathered().size() + 1);
  std::vector<int64_t> symbols(guards.symbols().size() + 1);
  size_t failed = 0;
  if (!evaluate(guards, request.args, request.function, result.objects.data(),
                symbols.data(), &failed)) {
    // Held by the capture, too, the objects looked as if they would stay.
    if (failed < guards.guards().size() &&
        guards.guards()[failed].kind == GuardKind::kLetsGoQuietly) {
      return Break{BreakReason::kFinalizerObject,
                   explain_failure(guards, failed, request.args,
                                   request.function, request.code),
                   {}};
    }
    *failure = explain_failure(guards, failed, request.args, request.function,
                               request.code);
  }
  return result;
}

// What ran natively meanwhile may have changed what a guard looks at: a module
// imported by a function of torch registers a class with an abstract one. Then
// the world of the second capture is the one that stays.
Result<Captured> capture(const CompileRequest& request, ShapeHistory& history,
                         std::unique_ptr<TensorTracer> tracer,
                         std::unique_ptr<GuardSet>* raising) {
  std::string failure;
  for (int attempt = 0; attempt < 2; ++attempt) {
    failure.clear();
    FJ_TRY(Captured captured,
           capture_once(request, history, *tracer, raising, &failure));
    if (failure.empty()) return captured;
    tracer = graph::make_tracer();
  }
  return Break{BreakReason::kInternal,
               "a guard fails for the call it was made from: " + failure,
               {}};
}

Result<std::shared_ptr<JitEntry>> build_entry(
    const CompileRequest& request, ShapeHistory& history,
    std::unique_ptr<TensorTracer> tracer, std::unique_ptr<GuardSet>* raising) {
  Stopwatch stopwatch;
  TerminalProgress progress(request.function);
  FJ_TRY(Captured captured,
         capture(request, history, std::move(tracer), raising));
  bytecode::CaptureOutcome& outcome = captured.outcome;
  const GuardSet& guards = *outcome.guards;
  CompileTimes times;
  times.capture_ms = stopwatch.milliseconds();

  auto compiled = compile_graph(request, outcome, captured.objects.data());
  if (!compiled.ok()) return compiled.forward<std::shared_ptr<JitEntry>>();
  times.backend_ms = stopwatch.milliseconds();
  mark_generated_code(outcome, request.code);
  history.observe(guards, request.args, request.function, request.code);
  outcome.guards->drop_implied();
  backend::CompiledGraph graph = compiled.take();
  auto entry = std::make_shared<JitEntry>(
      std::move(outcome), std::move(graph.executor), std::move(graph.info));
  entry->arm(request.args, request.function);
  times.guards_ms = stopwatch.milliseconds();
  entry->times = times;
  entry->number = function_memory(request.cache)->entries_made++;
  entry->owner = owner_of(request);
  place_in_report(request, entry.get());
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
    lines.push_back(std::string(what) + " " +
                    describe_entry(request.function, entry->number) + ": " +
                    miss.text());
    log_event(Channel::k_recompiles, lines.back());
    if (tracing()) {
      TraceRecord("recompile")
          .add("function", name)
          .add("entry", (long long)entry->number)
          .add("reason", miss.reason)
          .add("hint", miss.hint)
          .emit();
    }
  }
  return lines;
}

// One value of `expr` is one value of `size`: size, 3 * size, size + 1 ...
bool follows(const Expr& expr, const Expr& size) {
  if (expr == size) return true;
  if (expr.op() != ExprOp::kAdd && expr.op() != ExprOp::kMul) return false;
  const Expr* other = nullptr;
  for (const Expr& part : expr.operands()) {
    if (part.is_const(0) && expr.op() == ExprOp::kMul) return false;
    if (part.is_const()) continue;
    if (other) return false;
    other = &part;
  }
  return other && follows(*other, size);
}

// The guard that lets a symbol have one value only, or null.
const Guard* pinning_guard(const GuardSet& guards, const Expr& size) {
  for (const Guard& guard : guards.guards()) {
    const Expr* pinned = pinned_expr(guard);
    if (pinned && follows(*pinned, size)) return &guard;
  }
  return nullptr;
}

// mark_dynamic promised that a dim changes; a constant in its place means a
// compilation for each size. What the user asked for and did not get.
std::string lost_dims(const GuardSet& guards, const CompileRequest& request) {
  DecoratedNames decorated(request.function);
  ErrorGuard error;
  SourceValues sources(guards, request.args, request.function);
  std::string text;
  for (const Guard& guard : guards.guards()) {
    if (guard.kind != GuardKind::kTensor) continue;
    PyObject* tensor = sources.get(guard.source);
    if (!tensor) continue;
    const bytecode::DimMarks marks = bytecode::read_dim_marks(tensor);
    const TensorSpec& spec = guards.tensor_specs()[guard.number];
    const size_t rank = std::min<size_t>(spec.sizes.size(), 64);
    for (size_t i = 0; i < 2 * rank; ++i) {
      const bool of_stride = i >= rank;
      const size_t d = i % rank;
      const uint64_t marked = of_stride ? marks.dynamic_strides : marks.dynamic;
      if (!(marked >> d & 1)) continue;
      const Expr& number = of_stride ? spec.strides[d] : spec.sizes[d];
      const std::string what = of_stride ? "stride" : "size";
      std::string why;
      if (number.is_const()) {
        why = "is the constant " + number.str() +
              (number.constant() < 2
                   ? ": " + what + "s 0 and 1 are programs of their own"
                   : "");
      } else if (const Guard* pin = pinning_guard(guards, number)) {
        why = "must be one number: " + guard_text(guards, *pin, request.code);
        if (pin->cause) why += std::string(" by ") + pin->cause;
        if (pin->span.code) why += "  (" + format_span(pin->span) + ")";
      }
      if (why.empty()) continue;
      text += (text.empty() ? "" : "\n") + std::string("mark_dynamic(") +
              source_text(guard.source, request.code) + ", " +
              std::to_string(d) + (of_stride ? ", stride=True" : "") +
              "): the " + what + " " + why;
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
  if (belongs_to_other_compiler(request.function)) {
    CompileOutcome left = give_up(
        request, Break{BreakReason::kOtherCompiler, "torch.compile", {}});
    left.skip_forever = !left.raise;
    return left;
  }
  graph::ProgramState program;
  Stopwatch stopwatch;
  if (tracing()) {
    TraceRecord("compile_start")
        .add("function", describe_function(request.function))
        .add("resume", (long long)request.is_resume)
        .emit();
  }
  std::unique_ptr<TensorTracer> tracer = graph::make_tracer();
  if (std::string refused = tracer->refusal(); !refused.empty()) {
    Break brk{BreakReason::kThreadState, std::move(refused), {}};
    trace_result(request, nullptr, &brk, stopwatch.milliseconds());
    CompileOutcome outcome = give_up(request, brk);
    outcome.not_now = true;
    return outcome;
  }
  log_misses(request, "recompiling");
  std::shared_ptr<FunctionMemory> memory = function_memory(request.cache);
  memory->place = report_place(request.code, request.function);
  ShapeHistory& history = memory->sizes;
  {
    CollectorOff off;  // what the guards name stays alive
    for (const auto& entry : request.cache->entries()) {
      history.note_miss(static_cast<JitEntry*>(entry.get())->guards(),
                        request.args, request.function, request.code);
    }
  }
  std::unique_ptr<GuardSet> raising;
  auto built = build_entry(request, history, std::move(tracer), &raising);
  if (interrupted()) {
    if (built.is_raised()) PyErr_Clear();
    return {};
  }
  if (!built.ok()) {
    // An exception of the user's own program escaped: eager will raise it.
    Break brk =
        built.broke()
            ? built.take_break()
            : Break{BreakReason::kUnsupportedException, take_error_text(), {}};
    trace_result(request, nullptr, &brk, stopwatch.milliseconds());
    CompileOutcome outcome =
        give_up(request, brk, raising || built.is_raised());
    if (raising) {
      outcome.raising = std::make_shared<GuardedRaise>(std::move(raising));
    }
    return outcome;
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

void JitCompiler::pass_over(PyObject* function, const void* options) {
  bool fullgraph = static_cast<const CompileOptions*>(options)->fullgraph;
  if (CodeCache* cache = code_cache(PyFunction_GET_CODE(function), options))
    function_memory(cache)->refusal = "a generator or coroutine function";
  log_notice(Notice::kNotCompiled, PyFunction_GET_CODE(function),
             describe_function(function) +
                 " is a generator or coroutine function and runs as it is (" +
                 break_reason_row(BreakReason::kGeneratorFrame).id + ")" +
                 (fullgraph ? ", in spite of fullgraph=True" : ""));
}

std::string JitCompiler::explain_miss(const CompileRequest& request) {
  std::string text;
  for (const auto& entry : request.cache->entries()) {
    if (entry->failed_fact == CacheEntry::kUnknownFact) continue;
    text = describe_miss(*static_cast<JitEntry*>(entry.get()), request).text();
    break;
  }
  return text + hint_of_owners(request);
}

namespace {

// What is to be one graph does not run as it is without a word.
RecompileLimit recompile_limit_of(const void* compile_options) {
  const auto* own = static_cast<const CompileOptions*>(compile_options);
  int entries = own->own.recompile_limit.value_or(options().recompile_limit);
  return {static_cast<size_t>(entries), own->fullgraph};
}

void raise_at_limit(const CompileRequest& request, size_t limit) {
  std::string text = "fullgraph=True: recompile_limit (" +
                     std::to_string(limit) + ") reached for " +
                     describe_function(request.function);
  for (const std::string& line : log_misses(request, "not compiled:"))
    text += "\n  " + line;
  raise(error_types().recompile, text + hint_of_owners(request));
}

}  // namespace

void set_error_types(ErrorTypes types) { error_types() = std::move(types); }
const ErrorTypes& known_error_types() { return error_types(); }

bool install_compiler() {
  // Never destroyed: calls may come until the process ends.
  static auto* compiler = new JitCompiler;
  if (!graph::initialize_tracing() || !watch_other_compilers()) return false;
  libraries::register_libraries();
  set_exception_text(internal_error_text);
  set_program_state({graph::enter_program_state, graph::leave_program_state});
  set_should_compile(judge_code);
  set_recompile_limit({recompile_limit_of, raise_at_limit});
  set_compiler(compiler);
  return true;
}

}  // namespace framejit
