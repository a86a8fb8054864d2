// JitCompiler: the one place that plugs all layers together.
//
// compile() runs a capture with a LibTorch tracer, hands the graph to the
// backend, arms the guards and gives the dispatcher an entry; or says in the
// event log why there is none, and the original code runs.
#pragma once

#include <memory>

#include "frame_hook/dispatch.h"
#include "guards/set/shape_history.h"

namespace framejit {

class JitCompiler final : public Compiler {
 public:
  CompileOutcome compile(const CompileRequest& request) override;
  bool refuse(const CompileRequest& request, bool raise) override;
  void pass_over(PyObject* function, const void* options) override;
  std::string explain_miss(const CompileRequest& request) override;
};

// Installs the compiler, the tensor layout and the callbacks of the layers
// below. Once, at import. False: a Python error is set.
bool install_compiler();

// Exception classes of the Python package.
struct ErrorTypes {
  Ref graph_break;  // fullgraph=True and capture stops
  Ref recompile;    // set_stance("fail_on_recompile"); fullgraph at the limit
  Ref dimension;    // fullgraph=True and a mark_dynamic dim is a constant
};
void set_error_types(ErrorTypes types);
const ErrorTypes& known_error_types();

}  // namespace framejit
