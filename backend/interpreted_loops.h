// A lowered graph run by the loop interpreter, on the registers of a program:
// what the lowering means, for tests.
#pragma once

#include <string>
#include <vector>

#include "backend/loop_runner.h"

namespace framejit::backend {

class InterpretedLoops final : public LoopRunner {
 public:
  InterpretedLoops(LoweredGraph graph,
                   const LoopOperands::RegisterOf& register_of);

  void run(const int64_t* symbols, c10::IValue* registers, Call call,
           bool* wrote) const override;
  // The loops, and a line for each callee.
  std::vector<std::string> texts() const override;
  // The loops run as they are.
  std::string schedule_text() const override { return texts().front(); }

 private:
  codegen::LoopGraph loops_;
  LoopOperands operands_;
  std::string nodes_;  // describe_nodes()
};

}  // namespace framejit::backend
