// The TensorTracer of LibTorch (guards/foreign.h): what the interpreter calls
// while it captures. A Recorder keeps the graph; the fallback on the Fake key
// computes what operations on stand-ins give; callees.def says what may be
// called.
#pragma once

#include <memory>
#include <string>

#include "guards/foreign.h"

namespace framejit::graph {

// Once, after `import torch`: gives the guards their tensor layout and claims
// the Fake key. False: `error` says why capture must stay off.
bool install_torch(std::string* error);
// The same for bindings: false with a RuntimeError set.
bool initialize_tracing();

std::unique_ptr<TensorTracer> make_tracer();

}  // namespace framejit::graph
