// Runs Python functions the way the dispatcher does, with nothing cached: every
// function is captured, its guards are evaluated, its graph and steps run, and
// the tokens of residual code are followed. check() compares that with CPython.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bytecode/capture/capture.h"
#include "bytecode/interpreter/interpreter.h"
#include "tests/fake_tracer.h"

namespace framejit::bytecode::testing {

// Globals with `fake` imported and `show(object)` defined; source is run.
Ref make_globals(const std::string& source);
Ref evaluate_text(PyObject* globals, const std::string& expression);
std::string take_error();  // "TypeError: text"; clears it

// The values of the steps, in order. False: an error is set.
bool run_steps(const std::vector<Step>& steps, PyObject* const* objects,
               const int64_t* symbols, PyObject* const* outputs,
               PyObject* function, std::vector<Ref>* values);

struct CaptureRun {
  int captured = 0;                  // frames
  int fallbacks = 0;                 // frames that CPython ran instead
  std::vector<std::string> reasons;  // of breaks and fallbacks, by id
  std::vector<std::string> details;
  std::vector<std::string> graphs;
  size_t instructions = 0, inlined_calls = 0, guards = 0, steps = 0;
  Ref result;  // empty: raised
  std::string error;

  Ref call(PyObject* function, const std::vector<Ref>& args);
  bool fullgraph = false;
  bool dynamic = false;
  // Break before this micro-op of the first frame (0: not).
  size_t break_at = 0;
};

// Runs `f` of the source with the arguments of the expression (a tuple) both
// ways, each with arguments and globals of its own; results, mutations of
// arguments and globals, and exceptions must be equal. Returns the captured
// run.
CaptureRun check(const std::string& source, const std::string& arguments,
                 CaptureRun run = {});
// One frame, one capture, no break, no fallback.
CaptureRun check_whole(const std::string& source, const std::string& arguments,
                       CaptureRun run = {});
// check() with a break before each micro-op of the first frame in turn.
void check_break_everywhere(const std::string& source,
                            const std::string& arguments);

}  // namespace framejit::bytecode::testing
