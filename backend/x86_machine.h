// The CPU as a LoopMachine: kernels are machine code, large ones run on torch's
// threads, memory comes from the block cache.
#pragma once

#include "backend/loop_machine.h"
#include "codegen/x86/compile.h"

namespace framejit::backend {

class X86Machine final : public LoopMachine {
 public:
  X86Machine(codegen::X86Isa isa, codegen::Arithmetic arithmetic,
             bool wants_listings)
      : isa_(isa), arithmetic_(arithmetic), wants_listings_(wants_listings) {}

  c10::Device device() const override { return c10::kCPU; }
  codegen::TargetInfo target() const override;
  std::vector<Compiled> compile(
      const std::vector<codegen::Kernel>& kernels,
      const std::vector<int64_t>& hints) const override;
  at::Storage new_storage(int64_t bytes) const override;

 private:
  codegen::X86Isa isa_;
  codegen::Arithmetic arithmetic_;
  bool wants_listings_;
};

}  // namespace framejit::backend
