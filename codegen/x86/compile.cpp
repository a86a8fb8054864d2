#include "codegen/x86/compile.h"

#include <algorithm>

#include "codegen/kernels/interpreter.h"
#include "codegen/legalise/expand.h"
#include "codegen/x86/kernel_emitter.h"

namespace framejit::codegen {

namespace {

class ThrowingHandler final : public aj::ErrorHandler {
 public:
  void handleError(aj::Error, const char* message, aj::BaseEmitter*) override {
    throw Refused(std::string("the assembler: ") + message);
  }
};

void expand_all(Body* body, std::vector<ScalarId>* roots) {
  std::vector<ScalarId*> pointers;
  for (ScalarId& root : *roots) pointers.push_back(&root);
  *body = expand(*body, pointers);
}

std::vector<StagePlan> plan(const Kernel& kernel) {
  std::vector<StagePlan> plans;
  int nodes = 0;
  for (const Stage& stage : kernel.stages) {
    std::vector<Fold> folds;
    for (const Reduction& reduction : stage.reductions) {
      Fold fold =
          make_fold(reduction.combiner, stage.body.type(reduction.value));
      expand_all(&fold.step, &fold.stepped);
      expand_all(&fold.join, &fold.joined);
      folds.push_back(std::move(fold));
      nodes += static_cast<int>(folds.back().step.nodes().size());
    }
    nodes += static_cast<int>(stage.body.nodes().size());
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
    const Kernel expanded = expand(kernel);
    KernelEmitter emitter(expanded, plan(expanded), *vectors);
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
