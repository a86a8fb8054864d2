// Custom backends: (gm: torch.fx.GraphModule, example_inputs) -> callable.
//
// Such a backend sees example inputs with concrete sizes and may specialise on
// them, so its result is used for those sizes only: another set of symbol
// values is compiled anew. The callable takes the graph's inputs (tensors, then
// the symbols as ints) and returns the outputs.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace framejit::backend {

// request.callable is the backend. A Break when it raises.
Result<std::unique_ptr<Executor>> make_callable_executor(
    const BackendRequest& request);

}  // namespace framejit::backend
