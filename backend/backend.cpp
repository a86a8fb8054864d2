#include "backend/backend.h"

#include "backend/aot_function.h"
#include "backend/callable_executor.h"
#include "backend/isa.h"
#include "backend/profiled.h"
#include "backend/torch_executor.h"

namespace framejit::backend {

namespace {

Result<CompiledGraph> compile_torch_level(const BackendRequest& request,
                                          std::string reason) {
  FJ_TRY(auto executor, make_torch_executor(request.graph));
  CompiledGraph compiled;
  compiled.executor = std::move(executor);
  compiled.info.torch_graph = request.graph->str();
  compiled.info.fell_back_to_torch_level = !reason.empty();
  compiled.info.fallback_reason = std::move(reason);
  return compiled;
}

Result<CompiledGraph> compile_aot(const BackendRequest& request) {
  CompiledGraph compiled;
  CompiledInfo& info = compiled.info;
  std::shared_ptr<const graph::TorchGraph> torch_graph = request.graph;
  std::vector<const graph::Value*> bases;
  auto traced = graph::trace_joint(*torch_graph, request.guards,
                                   /*pattern=*/nullptr, &bases);
  if (!traced.ok() && !traced.is_raised() && !bases.empty()) {
    torch_graph = graph::with_outputs(torch_graph, bases);
    traced = graph::trace_joint(*torch_graph, request.guards);
  }
  FJ_TRY(graph::JointGraph joint, std::move(traced));
  info.joint_graph = joint.graph->str();
  FJ_TRY(graph::AotGraphs graphs, graph::partition(std::move(joint)));
  info.forward_graph = graphs.forward->str();
  if (graphs.backward) info.backward_graph = graphs.backward->str();
  info.num_saved_tensors = graphs.num_saved_tensors;
  ProgramOptions options;
  options.precise_math = request.precise_math;
  options.emulate_precision_casts = request.emulate_precision_casts;
  options.channels_last = request.channels_last;
  options.level = "forward";
  options.place = place_of(*request.graph);
  options.function = request.graph->function;
  const bool wants_loops = request.backend == "native";
  if (wants_loops) options.loops = loop_target();
  FJ_TRY(compiled.executor,
         make_aot_executor(torch_graph, graphs, options, &info.program));
  if (wants_loops && options.loops == LoopTarget::kNone)
    info.program.not_lowered = {"the whole graph: no instruction set for it"};
  info.torch_graph = request.graph->str();
  return compiled;
}

Result<CompiledGraph> compile_callable(const BackendRequest& request) {
  CompiledGraph compiled;
  FJ_TRY(compiled.executor, make_callable_executor(request));
  compiled.info.torch_graph = request.graph->str();
  return compiled;
}

// A backend registered with torch.compile, by its name.
Result<Ref> find_registered_backend(const std::string& name) {
  Ref module =
      Ref::steal(PyImport_ImportModule("torch._dynamo.backends.registry"));
  Ref found = module ? Ref::steal(PyObject_CallMethod(
                           module.get(), "lookup_backend", "s", name.c_str()))
                     : Ref();
  if (found) return found;
  PyErr_Clear();
  return Break{
      BreakReason::kBackendFailed, "unknown backend '" + name + "'", {}};
}

}  // namespace

bool is_own_backend(const std::string& name) {
  return name == "eager" || name == "aot_eager" || name == "native";
}

Result<CompiledGraph> compile(const BackendRequest& request) {
  if (request.callable) return compile_callable(request);
  if (request.backend == "eager") return compile_torch_level(request, "");
  if (is_own_backend(request.backend)) {
    auto compiled = compile_aot(request);
    if (compiled.ok() || compiled.is_raised()) return compiled;
    // The torch level runs whatever the AOT stage cannot take.
    return compile_torch_level(request, format_break(compiled.brk()));
  }
  BackendRequest named = request;
  FJ_TRY(named.callable, find_registered_backend(request.backend));
  return compile_callable(named);
}

}  // namespace framejit::backend
