// A lowered graph as it runs: the steps of its schedule, kernels as a machine
// runs them (loop_machine.h), on the registers of a program.
//
// Every buffer of the schedule has an allocation: a tensor of the caller, one
// that becomes a result, or a part of the arena, a block that the thread keeps
// from run to run. Extern calls get tensors over that memory, and those that
// can write to it. What others return is taken as it is: the allocation is the
// memory that came back, unless it is an operand's. What does not depend on
// symbols is worked out once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/amount.h"
#include "backend/loop_machine.h"
#include "backend/loop_runner.h"
#include "backend/out_calls.h"
#include "backend/promise.h"
#include "codegen/schedule/schedule.h"

namespace framejit::backend {

// Nodes whose kernels have no code, and why.
using RefusedNodes = std::vector<std::pair<const graph::Node*, std::string>>;

class ScheduledLoops final : public LoopRunner {
 public:
  struct Request {
    std::shared_ptr<const LoopMachine> machine;  // of the graph's device
    // Values of the symbols that were seen.
    std::vector<int64_t> hints;
    // Of inputs: nobody reads the register behind the loops.
    std::vector<bool> freed;
    // Of callees: it may hold on to its operands.
    std::vector<bool> keeps_operands;
    // Of callees, or null: the result can be written where it is to lie.
    std::vector<const OutCall*> out_calls;
    // The graph, for other profilers than torch's (perf_map.h).
    std::string name;
  };
  // Null: a kernel has no code on the machine; as calls, those nodes are fine.
  // (None named: *reason says what is wrong.)
  static std::unique_ptr<ScheduledLoops> make(
      const LoweredGraph& graph, const LoopOperands::RegisterOf& register_of,
      Request request, RefusedNodes* refused, std::string* reason);

  void run(const int64_t* symbols, c10::IValue* registers, Call call,
           bool* wrote) const override;
  bool writes_inputs() const override {
    return first_write_ < schedule_.steps.size();
  }
  // Steps and memory, then each kernel.
  std::vector<std::string> texts() const override;
  std::string schedule_text() const override;
  std::vector<std::string> listings() const override;
  bool is_brief() const override;

 private:
  // How a tensor lies that is made over memory.
  struct Layout {
    explicit Layout(const graph::TensorMeta& meta);
    Amounts sizes, strides;
    c10::ScalarType dtype;
    bool is_conj, is_neg;
  };
  // A buffer: the start of an allocation, so many bytes on.
  struct Part {
    codegen::BufferId buffer;
    int allocation;
    Amount offset;
    bool is_input;  // an input, or what replaces one in its memory
  };
  struct KernelStep {
    std::shared_ptr<const LoopKernel> kernel;
    std::string name;  // for profilers
    std::vector<Part> arguments;
  };
  struct CallStep {
    int callee;
    std::vector<Part> operands;
    std::vector<Layout> layouts;  // of operands
    std::vector<Part> results;
    std::optional<Layout> out;  // the result's, which is written to its place
    // That is an input's memory, and perhaps the operand's in this register.
    bool is_placed = false;
    int over_register = -1;
    bool keeps_operands;
  };
  struct Place {  // an allocation
    codegen::MemoryKind kind;
    int input_register = -1;
    codegen::BufferId came_as = codegen::kNoBuffer;  // the input
    Promise promise;                                 // what the input is
    bool is_freed = false;  // an input whose register is emptied
    bool is_written = false;
    bool is_read = false;        // an input that some step or output needs
    bool brings_memory = false;  // the call whose result it is
    Amount bytes, offset;
  };
  class Run;

  ScheduledLoops(LoopOperands operands, std::string nodes)
      : operands_(std::move(operands)), nodes_(std::move(nodes)) {}
  void work_out(const Request& request);
  std::string name_of_kernel(size_t kernel) const;
  Part part(codegen::BufferId buffer) const;

  LoopOperands operands_;
  std::string nodes_;               // describe_nodes()
  std::vector<std::string> names_;  // of each step (kernel_names.h)
  codegen::TargetInfo target_;
  codegen::Schedule schedule_;
  std::shared_ptr<const LoopMachine> machine_;
  std::vector<std::shared_ptr<const LoopKernel>> codes_;  // of the schedule
  std::vector<KernelStep> kernels_;  // of each step: empty, or
  std::vector<CallStep> calls_;
  std::vector<int> at_;  // of each step: a kernel, or -1 - a call
  std::vector<Place> places_;
  Amount arena_bytes_;
  std::vector<Part> outputs_;
  std::vector<Layout> output_layouts_;
  size_t first_write_ = 0;
  // Of each step: the allocations that hold nothing afterwards.
  std::vector<std::vector<int>> dying_;
};

}  // namespace framejit::backend
