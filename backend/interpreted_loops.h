// A lowered graph run by the loop interpreter, on the registers of a program:
// what the lowering means, for tests.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/lowering/lower.h"

namespace framejit::backend {

class InterpretedLoops {
 public:
  InterpretedLoops(LoweredGraph graph,
                   const std::function<int(const graph::Value*)>& register_of);

  // call(k) runs callee k on its registers. Throws c10::Error when a check
  // fails: nothing was changed then.
  void run(const int64_t* symbols, c10::IValue* registers,
           const std::function<void(int)>& call) const;
  // The loops, and a line for each callee.
  std::string text() const;

 private:
  // A tensor as a register has it.
  struct Place {
    int reg;
    graph::TensorMeta meta;
  };
  struct Callee {
    std::vector<Place> operands, results;
    std::string name, reason;
  };
  codegen::LoopGraph loops_;
  std::vector<Place> inputs_, outputs_;
  std::vector<Callee> callees_;
  std::vector<std::string> lowered_;
};

}  // namespace framejit::backend
