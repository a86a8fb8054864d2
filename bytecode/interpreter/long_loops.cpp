// Loops that are too long for a capture.
//
// A capture unrolls loops, so it is as long as they are. When its budget is
// used up within a loop, that loop is left to CPython from now on
// (bytecode/residual/left_loops.h): the next attempt, and every later capture,
// breaks where it begins. Without such a loop the whole frame is left.
#include <algorithm>

#include "bytecode/interpreter/interpreter.h"
#include "bytecode/residual/left_loops.h"
#include "bytecode/residual/residual.h"

namespace framejit::bytecode {
namespace {

int current_offset(const Frame& frame) {
  return frame.decoded->op(int(frame.current)).offset;
}

// The header of the outermost loop that the frame is in and has turned in; -1.
int running_loop(const Frame& frame) {
  std::vector<int> headers;
  for (size_t target : frame.turned)
    headers.push_back(frame.decoded->op(int(target)).offset);
  if (headers.empty()) return -1;
  return loop_around(frame.code.get(), current_offset(frame), headers);
}

}  // namespace

void Interpreter::note_turn(Frame& frame) {
  std::vector<size_t>& turned = frame.turned;
  if (std::find(turned.begin(), turned.end(), frame.pc) == turned.end())
    turned.push_back(frame.pc);
}

void Interpreter::find_left_loops(Frame& frame) {
  if (state.request.fullgraph) return;
  for (int header :
       left_loops(frame.code.get(), state.request.max_instructions))
    frame.left_loops.push_back(frame.decoded->index_at(header));
}

Break Interpreter::over_budget(const char* what) const {
  return make_break(BreakReason::kInstructionBudget,
                    "more than " +
                        std::to_string(state.request.max_instructions) +
                        " instructions (max_instructions)" + what);
}

Break Interpreter::out_of_budget() {
  std::vector<const Frame*> frames;  // outermost first
  for (const Frame* at = frame; at; at = at->caller)
    frames.insert(frames.begin(), at);
  bool can_break =
      !state.request.fullgraph &&
      !why_not_breakable(frames[0]->code.get(), current_offset(*frames[0]));
  for (const Frame* at : frames) {
    int header = can_break ? running_loop(*at) : -1;
    if (header < 0) continue;
    leave_loop(at->code.get(), header, state.request.max_instructions);
    found_long_loop_ = true;
    break;
  }
  return over_budget("");
}

std::optional<Break> Interpreter::break_at_left_loop(const Frame& frame) {
  const std::vector<size_t>& left = frame.left_loops;
  if (std::find(left.begin(), left.end(), frame.current) == left.end())
    return std::nullopt;
  at_left_loop_ = true;
  return over_budget(": the loop runs as it is");
}

}  // namespace framejit::bytecode
