// A whole graph lowered to loops, as something that runs on the registers of a
// program: by the interpreter (interpreted_loops.h), or as machine code
// (scheduled_loops.h). What does not lower are calls of the program's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/lowering/lower.h"

namespace framejit::backend {

enum class LoopTarget : uint8_t {
  kNone,
  kInterpreter,
  kAvx512,
  kAvx2,
};

class LoopRunner {
 public:
  // Runs callee k on its registers. With a tensor, which is the promised one
  // but for its elements: the result is written there, and to no register.
  using Call = c10::function_ref<void(int, at::Tensor*)>;

  virtual ~LoopRunner() = default;
  // Outputs that replace inputs may be those inputs, then, written to: from
  // when on says *wrote. Throws c10::Error when a check fails: nothing was
  // changed then. (Afterwards, only for want of memory.)
  virtual void run(const int64_t* symbols, c10::IValue* registers, Call call,
                   bool* wrote) const = 0;
  virtual bool writes_inputs() const { return false; }
  virtual std::vector<std::string> texts() const = 0;
  // The schedule; "": there is none. Machine code by kernel, if it was asked
  // for, with the kernel's name.
  virtual std::string schedule_text() const { return ""; }
  virtual std::vector<std::string> listings() const { return {}; }
  // Over before another thread could take the GIL.
  virtual bool is_brief() const { return false; }
};

// Which nodes became loops, and why the others did not: a line each.
std::string describe_nodes(const LoweredGraph& graph);
// Of each call: the operator, the line of the program, why it is no loop.
std::vector<std::string> describe_calls(const LoweredGraph& graph);

// A tensor as a register has it.
struct LoopOperand {
  int reg = -1;
  bool is_input = false;  // of the graph, or a constant: its register stays
  graph::TensorMeta meta;
};

// Which registers a lowered graph works on.
struct LoopOperands {
  using RegisterOf = std::function<int(const graph::Value*)>;
  LoopOperands(const LoweredGraph& graph, const RegisterOf& register_of);

  struct Callee {
    std::vector<LoopOperand> operands, results;
  };
  std::vector<LoopOperand> inputs, outputs;
  std::vector<Callee> callees;
};

}  // namespace framejit::backend
