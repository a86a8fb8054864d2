// capture(): one run of the symbolic interpreter over one frame.
//
// In: a function, its bound parameter slots, a tracer. Out: guards, the
// graph of operations, and a list of steps that finish the frame after the
// graph ran: they rebuild fresh objects, apply the write log, and end in a
// return value, or, when the frame broke, in a token that names the residual
// function. The residual function is generated code: it restores locals and
// stack, runs the breaking instruction inside its own handler ranges, and
// returns a token for the resume function behind it. The capture itself changes
// nothing the program can see. A Break result means: run the original code, and
// why.
#pragma once

#include <memory>
#include <vector>

#include "bytecode/capture/step.h"
#include "bytecode/objects/capture_request.h"
#include "guards/foreign.h"
#include "guards/set/guard_set.h"

namespace framejit::bytecode {

struct BreakRecord {
  Break brk;
  std::vector<Span> stack;  // outermost first
};

struct CaptureOutcome {
  std::unique_ptr<GuardSet> guards;
  std::unique_ptr<ForeignGraph> graph;  // null: no tensor operation
  size_t num_outputs = 0;
  std::vector<Step> steps;
  // They put something in place of what the capture may have read.
  bool replaces_values = false;
  // No break: the step whose value is the return value.
  int result = -1;
  // Break: a code object (made by residual.h) and the steps whose values are
  // its positional arguments; the token's function has the globals of the
  // function called.
  Ref residual_code;
  std::vector<int> residual_args;
  std::vector<Ref> resume_codes;  // what the residual code's tokens name
  std::vector<BreakRecord> breaks;
  size_t instructions = 0;
  size_t inlined_calls = 0;
};

Result<CaptureOutcome> capture(const CaptureRequest& request,
                               TensorTracer& tracer);

}  // namespace framejit::bytecode
