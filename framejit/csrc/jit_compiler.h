// JitCompiler: the one place that plugs all layers together.
//
// compile() runs a capture with a LibTorch tracer, hands the graph to the
// backend, arms the guards and gives the dispatcher an entry; or says in the
// event log why there is none, and the original code runs.
#pragma once

#include <memory>

#include "frame_hook/dispatch.h"
#include "guards/shape_history.h"

namespace framejit {

class JitCompiler final : public Compiler {
 public:
  CompileOutcome compile(const CompileRequest& request) override;
};

// Installs the compiler, the tensor layout and the callbacks of the layers
// below. Once, at import. False: a Python error is set.
bool install_compiler();

// framejit.GraphBreakError, set by the Python package.
void set_graph_break_error(PyObject* type);

}  // namespace framejit
