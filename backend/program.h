// Program: an ATen graph as a flat list of instructions over registers.
//
// An instruction is a call of an ATen operator with a prepared argument
// template, or one fused kernel (schedule.h). A register is emptied at its last
// use, so memory is reused as early as in eager. The program writes only its
// own buffers; the input mutations a graph asks for are values that the caller
// commits afterwards. Immutable once built: any number of threads may run it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/aten_args.h"
#include "graph/ir.h"

namespace framejit::backend {

class FusedKernel;  // fused_kernel.h

struct ProgramOptions {
  bool fuse = false;
  // A result whose strides are not the predicted ones is copied into those.
  // Otherwise such a run throws UnexpectedResult.
  bool repair_strides = false;
  // Compare every ATen result with its metadata. Off for graphs whose values
  // carry none (written by hand).
  bool check_results = true;
};

// An operator returned something else than its meta function said: the graph
// was traced under a wrong assumption and must not be used.
class UnexpectedResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Program {
 public:
  // A Break when a node cannot be run (no operator, a mutable schema).
  static Result<std::shared_ptr<const Program>> build(
      const graph::Graph& graph, const ProgramOptions& options);
  ~Program();

  // inputs[i] belongs to the graph's i-th input; null for symbols. Fills
  // outputs (undefined: None or an int) and mutation values, in the graph's
  // order. Below autograd. Throws what the operators throw, UnexpectedResult.
  void run(const at::Tensor* const* inputs, const int64_t* symbols,
           at::Tensor* outputs, at::Tensor* mutations) const;

  size_t num_inputs() const { return input_registers_.size(); }
  size_t num_outputs() const { return outputs_.size(); }
  size_t num_mutations() const { return mutations_.size(); }
  std::vector<std::string> kernel_texts() const;
  size_t num_instructions() const { return instructions_.size(); }

 private:
  // What the trace says about a result that is used.
  struct Expected {
    bool checked = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    // Strides of -1 belong to dimensions of size 1. Symbolic: the expressions.
    std::vector<int64_t> sizes, strides;
    std::vector<Expr> symbolic_sizes, symbolic_strides;
  };
  struct Instruction {
    std::optional<c10::OperatorHandle> op;
    std::vector<AtenArg> args;
    bool result_is_list = false;
    std::vector<int> results;        // registers; -1: dropped
    std::vector<Expected> expected;  // per result
    std::unique_ptr<FusedKernel> kernel;
    std::vector<int> operands;  // kernel inputs
    std::vector<int> dying;
  };
  class Builder;

  Program() = default;
  void call(const Instruction& instruction, c10::IValue* registers,
            const int64_t* symbols) const;
  void check_result(const Instruction& instruction, size_t index,
                    c10::IValue* result, const int64_t* symbols) const;

  std::vector<int> input_registers_;  // -1: symbol, or not used
  std::vector<std::pair<int, c10::IValue>> constants_;
  std::vector<Instruction> instructions_;
  std::vector<int> outputs_;  // register, or -1
  std::vector<int> mutations_;
  size_t num_registers_ = 0;
  bool repair_strides_ = false;
};

}  // namespace framejit::backend
