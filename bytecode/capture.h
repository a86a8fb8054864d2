// capture(): one run of the symbolic interpreter over one frame.
//
// In: a function, its bound parameter slots, a tracer. Out: guards, the
// torch-level graph, and a list of steps that finish the frame after the graph
// ran: they rebuild fresh objects, apply the write log, and end in a return
// value, or, when the frame broke, in a token that names the residual function.
// The residual function is generated code: it restores locals and stack, runs
// the breaking instruction inside its own handler ranges, and returns a token
// for the resume function behind it. The capture itself changes nothing the
// program can see. A Break result means: run the original code, and why.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "guards/foreign.h"
#include "guards/guard_set.h"

namespace framejit::bytecode {

// One step after the graph. Steps run in order, in C++; each defines the value
// with its own index in the list (steps without a value define None).
struct Step {
  enum class Kind : uint8_t {
    kOutput,    // graph output `index`
    kGathered,  // gathered object `index`
    kConst,     // `object`
    kSymbolic,  // Python number of `expr` over the entry's symbols
    kFunction,  // the function called
    kTuple,
    kList,
    kSet,
    kDict,  // of operands (dict: key, value, ...)
    kCall,  // `object` (a C callable) on operands: object.__new__,
            // dict.__setitem__, list.append, types.CellType, setattr ...
  };
  Kind kind = Kind::kConst;
  int index = 0;
  Ref object;
  Expr expr;
  std::vector<int> operands;  // indices of earlier steps
  Span span;                  // for errors
};

struct BreakRecord {
  Break brk;
  std::vector<Span> stack;  // outermost first
};

struct CaptureOutcome {
  std::unique_ptr<GuardSet> guards;
  std::unique_ptr<ForeignGraph> graph;  // null: no tensor operation
  size_t num_outputs = 0;
  std::vector<Step> steps;
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

struct CaptureRequest {
  PyObject* function;
  PyObject* const* args;  // bound parameter slots
  size_t num_args;
  bool is_resume = false;
  bool fullgraph = false;
  size_t max_instructions = 2'000'000;
  // Dims and numbers that changed between calls (automatic dynamic), by source
  // text; and whether everything starts dynamic.
  const std::unordered_map<std::string, uint64_t>* dynamic_dims = nullptr;
  const std::unordered_map<std::string, bool>* dynamic_numbers = nullptr;
  int dynamic = -1;  // -1 automatic, 0 never, 1 everything
};

Result<CaptureOutcome> capture(const CaptureRequest& request,
                               TensorTracer& tracer);

}  // namespace framejit::bytecode
