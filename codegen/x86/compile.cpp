#include "codegen/x86/compile.h"

#include <algorithm>

#include "codegen/kernels/interpreter.h"
#include "codegen/x86/kernel_emitter.h"

namespace framejit::codegen {

namespace {

// asmjit's register allocation takes more than linear time.
constexpr size_t kMostNodes = 700;

class ThrowingHandler final : public aj::ErrorHandler {
 public:
  void handleError(aj::Error, const char* message, aj::BaseEmitter*) override {
    throw Refused(std::string("the assembler: ") + message);
  }
};

std::vector<StagePlan> plan(const Kernel& kernel) {
  std::vector<StagePlan> plans;
  size_t nodes = 0;
  for (const Stage& stage : kernel.stages) {
    std::vector<Fold> folds;
    for (const Reduction& reduction : stage.reductions) {
      folds.push_back(
          make_fold(reduction.combiner, stage.body.type(reduction.value)));
      nodes += folds.back().step.nodes().size();
    }
    nodes += stage.body.nodes().size();
    plans.push_back(plan_stage(kernel, stage, std::move(folds)));
  }
  if (nodes > kMostNodes) throw Refused("too many operations");
  return plans;
}

}  // namespace

const char* isa_name(X86Isa isa) {
  return isa == X86Isa::kAvx512 ? "avx512" : "avx2";
}

bool cpu_has(X86Isa isa) {
  static const auto features = aj::CpuInfo::host().features().x86();
  if (isa == X86Isa::kAvx2) {
    return features.hasAVX2() && features.hasFMA() && features.hasF16C();
  }
  return features.hasAVX512_F() && features.hasAVX512_BW() &&
         features.hasAVX512_DQ() && features.hasAVX512_VL();
}

Compiled compile(const Kernel& kernel, X86Isa isa, bool listing) {
  Compiled result;
  if (!cpu_has(isa)) {
    result.refused = std::string("the CPU has no ") + isa_name(isa);
    return result;
  }
  aj::CodeHolder holder;
  ThrowingHandler handler;
  aj::StringLogger logger;
  holder.init(aj::Environment::host());
  holder.setErrorHandler(&handler);
  if (listing) holder.setLogger(&logger);
  auto code = std::make_shared<KernelCode>();
  try {
    x86::Compiler cc(&holder);
    std::unique_ptr<VectorIsa> vectors =
        isa == X86Isa::kAvx512 ? make_avx512(cc) : make_avx2(cc);
    KernelEmitter emitter(kernel, plan(kernel), *vectors);
    emitter.emit();
    cc.finalize();
    code->parameters = emitter.take_parameters();
    code->code = MachineCode::place(holder);
  } catch (const Refused& refused) {
    result.refused = refused.what();
    return result;
  }
  if (!code->code) {
    result.refused = "no memory for code";
    return result;
  }
  code->function = code->code->function<KernelFunction>();
  if (listing) code->listing = logger.data();
  result.code = std::move(code);
  return result;
}

bool run(const KernelCode& code, const Kernel& kernel, const int64_t* symbols,
         void* const* arguments) {
  std::vector<int64_t> parameters;
  for (const Expr& parameter : code.parameters) {
    parameters.push_back(parameter.evaluate(symbols));
  }
  KernelCall call{arguments, parameters.data()};
  return code.function(&call, 0, outer_points(kernel, symbols)) == 0;
}

}  // namespace framejit::codegen
