#include "framejit/csrc/jit_compiler.h"

#include <chrono>
#include <string>

#include "backend/backend.h"
#include "bytecode/capture.h"
#include "bytecode/residual.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/frame_eval.h"
#include "framejit/csrc/compile_options.h"
#include "framejit/csrc/jit_entry.h"
#include "framejit/csrc/reports.h"
#include "graph/tracer.h"

namespace framejit {

namespace {

// Never destroyed: the process may end after the interpreter has.
Ref& graph_break_error() {
  static auto* error = new Ref;
  return *error;
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
ShapeHistory* shape_history(const CompileRequest& request) {
  CodeCache* cache = code_cache(request.code, request.options);
  if (!cache) return nullptr;
  if (!cache->compiler_state) {
    cache->compiler_state = std::make_shared<ShapeHistory>();
  }
  return static_cast<ShapeHistory*>(cache->compiler_state.get());
}

void raise_graph_break(const Break& brk) {
  std::string text = break_report(brk);
  PyObject* type =
      graph_break_error() ? graph_break_error().get() : PyExc_RuntimeError;
  PyErr_SetString(type, text.c_str());
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
    raise_graph_break(brk);
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
                                              ShapeHistory* history) {
  Stopwatch stopwatch;
  const auto* options = static_cast<const CompileOptions*>(request.options);
  bytecode::CaptureRequest capture_request{
      .function = request.function,
      .args = request.args,
      .num_args = request.num_args,
      .is_resume = request.is_resume,
      .fullgraph = options->fullgraph,
      .dynamic = options->dynamic,
  };
  if (history) {
    capture_request.dynamic_dims = &history->dynamic_dims();
    capture_request.dynamic_ints = &history->dynamic_ints();
  }
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
  if (history) {
    history->observe(guards, request.args, request.function, request.code);
  }
  backend::CompiledGraph graph = compiled.take();
  auto entry = std::make_shared<JitEntry>(
      std::move(outcome), std::move(graph.executor), std::move(graph.info));
  entry->arm(request.args, request.function);
  times.guards_ms = stopwatch.milliseconds();
  entry->times = times;
  return entry;
}

// One line per miss: why each present entry does not fit this call.
void log_recompile(const CompileRequest& request) {
  CodeCache* cache = find_code_cache(request.code, request.options);
  if (!cache || cache->entries().empty() || !enabled(Channel::k_recompiles)) {
    return;
  }
  for (size_t i = 0; i < cache->entries().size(); ++i) {
    auto* entry = static_cast<JitEntry*>(cache->entries()[i].get());
    const GuardSet& guards = entry->guards();
    std::vector<PyObject*> objects(guards.gathered().size() + 1);
    std::vector<int64_t> symbols(guards.symbols().size() + 1);
    size_t failed = 0;
    if (evaluate(guards, request.args, request.function, objects.data(),
                 symbols.data(), &failed)) {
      continue;
    }
    log_event(Channel::k_recompiles,
              "recompiling " + describe_function(request.function) +
                  ", entry " + std::to_string(i) + ": " +
                  explain_failure(guards, failed, request.args,
                                  request.function, request.code));
  }
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
  log_recompile(request);
  ShapeHistory* history = shape_history(request);
  if (history) {
    CodeCache* cache = code_cache(request.code, request.options);
    for (const auto& entry : cache->entries()) {
      history->note_miss(static_cast<JitEntry*>(entry.get())->guards(),
                         request.args, request.function, request.code);
    }
  }
  auto built = build_entry(request, history);
  if (built.broke()) return give_up(request, built.brk());
  CompileOutcome outcome;
  if (!built.ok()) {
    // An exception of the user's own program escaped: eager will raise it.
    std::string text = take_error_text();
    return give_up(request,
                   Break{BreakReason::kUnsupportedException, text, {}});
  }
  outcome.entry = built.take();
  log_compilation(request.function,
                  *static_cast<JitEntry*>(outcome.entry.get()));
  event_counters().breaks +=
      static_cast<JitEntry*>(outcome.entry.get())->outcome().breaks.size();
  return outcome;
}

void set_graph_break_error(PyObject* type) {
  graph_break_error() = Ref::borrow(type);
}

bool install_compiler() {
  // Never destroyed: calls may come until the process ends.
  static auto* compiler = new JitCompiler;
  if (!graph::initialize_tracing()) return false;
  set_exception_text(internal_error_text);
  set_should_compile(should_compile);
  set_compiler(compiler);
  return true;
}

}  // namespace framejit
