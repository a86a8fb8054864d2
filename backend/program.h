// Program: an ATen graph as a flat list of instructions over registers.
//
// An instruction is a call of an ATen operator with a prepared argument
// template. Where the graph lowers to loops (loop_runner.h), these run, and
// call what did not lower. A register is emptied at its last use, so memory is
// reused as early as in eager. The program writes only its own buffers; the
// input mutations a graph asks for are values that the caller commits
// afterwards (execute() says when they are the inputs). Immutable once built:
// any number of threads may run it.
//
// A run has three parts, so that the one in the middle needs no GIL: the
// registers of the inputs (whose Python objects count the references of others)
// are filled before it and emptied after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/aten_args.h"
#include "backend/loop_runner.h"
#include "backend/out_calls.h"
#include "backend/promise.h"
#include "graph/ir/ir.h"

namespace framejit::backend {

// The tensor among an output's possible values; null: a number or a constant.
inline const graph::Value* tensor_of(const graph::Arg& arg) {
  if (!arg.is<graph::Value*>()) return nullptr;
  const graph::Value* value = arg.get<graph::Value*>();
  return value->kind == graph::Value::Kind::kInt ? nullptr : value;
}

struct ProgramOptions {
  // The graph is lowered to loops. What does not lower is called as ever.
  LoopTarget loops = LoopTarget::kNone;
  // Named functions are libm's (codegen/legalise/expand.h).
  bool precise_math = false;
  // Arithmetic::rounds_between.
  bool emulate_precision_casts = true;
  // Intermediates may lie otherwise than eager's (layouts.h), if there are
  // loops.
  bool channels_last = true;
  // What LayoutRequest says of outputs and inputs.
  size_t first_free_output = SIZE_MAX;
  std::vector<bool> last_inputs;
  // A result whose strides are not the predicted ones is copied into those.
  // Otherwise such a run throws UnexpectedResult.
  bool repair_strides = false;
  // Compare every ATen result with its metadata. Off for graphs whose values
  // carry none (written by hand).
  bool check_results = true;
  // Outputs, by number, that the caller has without us: they are not stored.
  std::vector<bool> has_output;
  // Values of the symbols that were seen: what sizes will be, about.
  std::vector<int64_t> hints;
  // The registers hold the only references to inputs, which can be freed at
  // their last use, too. Otherwise the caller holds them until the end.
  bool frees_inputs = false;
  // What profilers and logs call it: "forward" of the graph at "model.py:31",
  // which is of "Net.forward (model.py:30), entry 0".
  std::string level, place, function;

  std::string profiled_name() const { return "fj::" + level + " " + place; }
  // How records about the program go on.
  std::string owner() const {
    return (function.empty() ? profiled_name() : function + ", " + level);
  }
};

// What became of a graph, for inspect() and logs.
struct ProgramReport {
  std::vector<std::string> kernels;  // one text per generated kernel
  size_t num_lowered = 0;            // nodes that are loops
  // Why others are calls of ATen, a line each; one line where all of them are.
  std::vector<std::string> not_lowered;
  // Why calls run at torch level though the graph is compiled: known when the
  // first of them has come. Null: none can. Read and written with the GIL.
  std::shared_ptr<const std::string> reason_of_calls;

  void add(const ProgramReport& other);
};

class Program {
 public:
  // A Break when a node cannot be run (no operator, a mutable schema).
  static Result<std::shared_ptr<const Program>> build(
      const graph::Graph& graph, const ProgramOptions& options);
  ~Program();

  using Registers = c10::SmallVector<c10::IValue, 32>;
  // inputs[i] belongs to the graph's i-th input; null for symbols.
  void load(const at::Tensor* const* inputs, Registers* registers) const;
  // Below autograd. Throws what the operators throw, UnexpectedResult. A
  // mutation's value may be made in the memory of its input, and be that
  // tensor: from when on *wrote is true it can only fail for want of memory.
  void execute(const int64_t* symbols, Registers* registers, bool* wrote) const;
  // Fills outputs (undefined: None or an int) and mutation values, in the
  // graph's order.
  void store(Registers* registers, at::Tensor* outputs,
             at::Tensor* mutations) const;
  void run(const at::Tensor* const* inputs, const int64_t* symbols,
           at::Tensor* outputs, at::Tensor* mutations) const;

  // A few small kernels: over before another thread could take the GIL.
  bool is_brief() const { return is_brief_; }
  // May it run on these symbols? Not where a condition of the loops is false: a
  // float out of the range of kernels that read it, what eager would refuse.
  bool takes(const int64_t* symbols) const;

  size_t num_inputs() const { return input_registers_.size(); }
  size_t num_outputs() const { return outputs_.size(); }
  size_t num_mutations() const { return mutations_.size(); }
  ProgramReport report() const;
  // Of outputs behind ProgramOptions::first_free_output: they have channels
  // last. Empty: none has.
  const std::vector<bool>& last_outputs() const { return last_outputs_; }

 private:
  struct Instruction {
    std::optional<c10::OperatorHandle> op;
    std::vector<AtenArg> args;
    std::vector<int> results;       // registers; -1: dropped
    std::vector<Promise> promises;  // per result
    std::vector<bool> used;         // per result
    Suspects suspects;              // the operator
    // May return an argument although its schema does not say so.
    bool may_return_argument = false;
    std::vector<int> dying;
    const OutCall* out_call = nullptr;
  };
  class Builder;

  Program() = default;
  void call(const Instruction& instruction, c10::IValue* registers,
            const int64_t* symbols) const;
  void call_into(const Instruction& instruction, c10::IValue* registers,
                 const int64_t* symbols, at::Tensor* out) const;
  void check_result(const Instruction& instruction, size_t index,
                    c10::IValue* result, const int64_t* symbols) const;
  void check_constants(const c10::IValue* registers) const;

  std::string name_;
  std::vector<int> input_registers_;  // -1: symbol, or not used
  std::vector<std::pair<int, c10::IValue>> constants_;
  std::vector<Instruction> instructions_;
  // If set, it runs, and calls the instructions when it wants.
  std::unique_ptr<LoopRunner> loops_;
  std::vector<int> outputs_;  // register, or -1
  std::vector<int> mutations_;
  std::vector<Expr> conditions_;  // LoweredGraph::conditions
  size_t num_lowered_ = 0;        // as in ProgramReport
  std::vector<std::string> not_lowered_;
  std::string layouts_;  // LayoutChoice::reason
  std::vector<bool> last_outputs_;
  size_t num_registers_ = 0;
  bool repair_strides_ = false;
  bool is_brief_ = true;
};

}  // namespace framejit::backend
