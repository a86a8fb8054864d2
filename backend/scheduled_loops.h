// A lowered graph as it runs: the steps of its schedule, kernels as machine
// code, on the registers of a program.
//
// Every buffer of the schedule has an allocation: a tensor of the caller, one
// that becomes a result, or a part of the arena, one block a run. Extern calls
// get tensors over that memory. What they return is taken as it is: the
// allocation is the memory that came back, unless it is an operand's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/loop_runner.h"
#include "codegen/schedule/schedule.h"
#include "codegen/x86/compile.h"

namespace framejit::backend {

class ScheduledLoops final : public LoopRunner {
 public:
  // Null: a kernel has no code on this machine, *reason says why.
  // freed: which inputs' registers are emptied when they have been read.
  static std::unique_ptr<ScheduledLoops> make(
      const LoweredGraph& graph, codegen::X86Isa isa,
      const LoopOperands::RegisterOf& register_of, std::vector<bool> freed,
      std::string* reason);

  void run(const int64_t* symbols, c10::IValue* registers,
           const Call& call) const override;
  // Steps and memory, then each kernel.
  std::vector<std::string> texts() const override;
  bool is_brief() const override;

 private:
  struct Native {
    std::shared_ptr<const codegen::KernelCode> code;
    std::string name;  // for profilers
  };
  class Run;

  ScheduledLoops(LoopOperands operands, std::vector<bool> freed,
                 std::string nodes)
      : operands_(std::move(operands)),
        freed_(std::move(freed)),
        nodes_(std::move(nodes)) {}

  LoopOperands operands_;
  std::vector<bool> freed_;  // of inputs
  std::string nodes_;        // describe_nodes()
  codegen::Schedule schedule_;
  std::vector<Native> kernels_;
  // Of each step: the allocations that hold nothing afterwards.
  std::vector<std::vector<int>> dying_;
};

}  // namespace framejit::backend
