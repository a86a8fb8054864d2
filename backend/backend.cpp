#include "backend/backend.h"

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

}  // namespace

Result<CompiledGraph> compile(const BackendRequest& request) {
  if (request.backend == "eager") return compile_torch_level(request, "");
  return compile_torch_level(request, "backend " + request.backend +
                                          " is not available");
}

}  // namespace framejit::backend
