// CaptureRequest: what a capture is asked for.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "guards/set/dynamic_dims.h"

namespace framejit {
class GuardSet;
}

namespace framejit::bytecode {

struct CaptureRequest {
  PyObject* function;
  PyObject* const* args;  // bound parameter slots
  size_t num_args;
  bool is_resume = false;
  bool fullgraph = false;
  size_t max_instructions = 2'000'000;
  // A loop that calls one and the same large thing is not unrolled.
  bool leaves_repeated_calls = false;
  // Dims and numbers that changed between calls (automatic dynamic), by source
  // text; and whether everything starts dynamic.
  const std::unordered_map<std::string, DynamicDims>* dynamic_dims = nullptr;
  const std::unordered_map<std::string, bool>* dynamic_numbers = nullptr;
  int dynamic = -1;  // -1 automatic, 0 never, 1 everything
  // Sizes that are equal now are one symbol. False: each has its own, and that
  // two must be equal is a guard where the program needs it.
  bool joins_equal_sizes = true;
  // Nodes of the graph are to know whose methods they are of.
  bool notes_receivers = false;
  // Out, when the call raises: what that depends on. (Not when it is no fact
  // about the call: the stack or the memory that is left.)
  std::unique_ptr<GuardSet>* raising = nullptr;
};

}  // namespace framejit::bytecode
