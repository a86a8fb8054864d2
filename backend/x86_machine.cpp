#include "backend/x86_machine.h"

#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "backend/amount.h"
#include "backend/block_cache.h"
#include "codegen/legalise/expand.h"
#include "frame_hook/perf_map.h"
#include "frame_hook/progress.h"

namespace framejit::backend {

namespace {

// Elements a thread has to have for its start to pay.
constexpr int64_t kGrain = 16384;

class X86Kernel final : public LoopKernel {
 public:
  X86Kernel(std::shared_ptr<const codegen::KernelCode> code,
            const codegen::Kernel& kernel)
      : code_(std::move(code)),
        parameters_(code_->parameters.begin(), code_->parameters.end()),
        outer_(kernel.loops.begin(), kernel.loops.end()) {
    for (const codegen::Stage& stage : kernel.stages)
      inner_.emplace_back(stage.loops.begin(), stage.loops.end());
  }

  bool run(void* const* arguments, const int64_t* symbols) const override {
    c10::SmallVector<int64_t, 16> parameters;
    for (const Amount& parameter : parameters_)
      parameters.push_back(parameter.at(symbols));
    const codegen::KernelCall call{arguments, parameters.data()};
    const int64_t points = product(outer_, symbols);
    if (points <= 0) return true;
    const auto function = code_->function;
    // Whatever the stages do, it is not worth a thread.
    int64_t grain = kGrain;
    if (points > 1) {
      int64_t inner = 1;
      for (const Amounts& stage : inner_)
        inner = std::max(inner, product(stage, symbols));
      grain = std::max<int64_t>(1, kGrain / inner);
    }
    if (points <= grain || at::get_num_threads() == 1)
      return function(&call, 0, points) == 0;
    std::atomic<bool> failed = false;
    at::parallel_for(0, points, grain, [&](int64_t begin, int64_t end) {
      if (function(&call, begin, end) != 0) failed = true;
    });
    return !failed;
  }

  std::string listing() const override { return code_->listing; }
  void give_name(const std::string& name) const override {
    add_to_perf_map(code_->code->begin(), code_->code->size(), name);
  }

 private:
  std::shared_ptr<const codegen::KernelCode> code_;
  Amounts parameters_;
  Amounts outer_;               // extents
  std::vector<Amounts> inner_;  // of each stage
};

}  // namespace

codegen::TargetInfo X86Machine::target() const {
  codegen::TargetInfo target;
  target.threads = at::get_num_threads();
  target.vector_bytes = codegen::vector_bytes(isa_);
  // Where elements are computed again, kernels become twice as large at most.
  target.max_nodes = codegen::kMostNodes / 2;
  if (arithmetic_.functions == codegen::Functions::kVector)
    target.node_size = &codegen::expanded_size;
  return target;
}

std::vector<LoopMachine::Compiled> X86Machine::compile(
    const std::vector<codegen::Kernel>& kernels,
    const std::vector<int64_t>& /*hints*/) const {
  std::vector<Compiled> out;
  for (const codegen::Kernel& kernel : kernels) {
    note_progress(CompilePhase::kKernels, out.size(), kernels.size());
    codegen::Compiled compiled =
        codegen::compile(kernel, isa_, wants_listings_, arithmetic_);
    Compiled& made = out.emplace_back();
    made.refused = std::move(compiled.refused);
    if (compiled.code)
      made.kernel =
          std::make_shared<X86Kernel>(std::move(compiled.code), kernel);
  }
  return out;
}

at::Storage X86Machine::new_storage(int64_t bytes) const {
  return backend::new_storage(bytes);
}

}  // namespace framejit::backend
