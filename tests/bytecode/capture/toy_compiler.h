// ToyCompiler: the whole lower half at work, with the fake tracer.
//
// Plugs capture, armed native guards, residual code and the dispatcher together
// as framejit/csrc does for torch, so that compiled functions can be called,
// again and again, on every CPython. In force while it exists.
#pragma once

#include "frame_hook/dispatch.h"
#include "frame_hook/script_mode.h"

namespace framejit::bytecode::testing {

class ToyCompiler final : public Compiler {
 public:
  ToyCompiler();
  ~ToyCompiler() override;
  CompileOutcome compile(const CompileRequest& request) override;
  // A CompiledFunction for a Python function.
  Ref compiled(PyObject* function);
  // Whole-script mode: every call of the program's functions is compiled.
  void start_script(ScriptView view);

  int attempts = 0;
  int captures = 0;   // that gave an entry
  int fallbacks = 0;  // that broke as a whole

 private:
  int options_ = 0;  // its address is the key of the caches
};

}  // namespace framejit::bytecode::testing
