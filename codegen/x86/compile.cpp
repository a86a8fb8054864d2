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

void expand_all(Body* body, std::vector<ScalarId>* roots, Expansion how) {
  std::vector<ScalarId*> pointers;
  for (ScalarId& root : *roots) pointers.push_back(&root);
  *body = expand(*body, pointers, how);
}

bool has_few_elements(const Stage& stage) {
  int64_t count = 1;
  for (const Expr& loop : stage.loops) {
    if (!loop.is_const() || loop.constant() > kFewElements) return false;
    count *= loop.constant();
  }
  return count <= kFewElements;
}

std::vector<StagePlan> plan(const Kernel& kernel, Expansion how) {
  std::vector<StagePlan> plans;
  int nodes = 0;
  for (const Stage& stage : kernel.stages) {
    std::vector<Fold> folds;
    for (size_t i = 0; i < stage.reductions.size(); ++i) {
      const Reduction& reduction = stage.reductions[i];
      const bool is_prefix = std::any_of(
          stage.stores.begin(), stage.stores.end(), [&](const Store& store) {
            return store.prefix_of == static_cast<int>(i);
          });
      Fold fold =
          (is_prefix || has_few_elements(stage) ? make_plain_fold : make_fold)(
              reduction.combiner, stage.body.type(reduction.value));
      expand_all(&fold.step, &fold.stepped, how);
      expand_all(&fold.join, &fold.joined, how);
      folds.push_back(std::move(fold));
      nodes += static_cast<int>(folds.back().step.nodes().size());
    }
    nodes += static_cast<int>(stage.body.nodes().size());
    plans.push_back(plan_stage(kernel, stage, std::move(folds), how.bf16));
  }
  if (nodes > kMostNodes) throw Refused("too many operations");
  return plans;
}

using Feature = aj::CpuFeatures::X86::Id;

// What the code of an instruction set may want beyond any x86-64.
const std::vector<Feature>& features_of(X86Isa isa) {
  static const std::vector<Feature> avx2 = {Feature::kAVX, Feature::kAVX2,
                                            Feature::kFMA, Feature::kF16C};
  static const std::vector<Feature> avx512 = {
      Feature::kAVX,       Feature::kAVX2,      Feature::kAVX512_F,
      Feature::kAVX512_DQ, Feature::kAVX512_BW, Feature::kAVX512_VL};
  static const std::vector<Feature> avx512_bf16 = [] {
    std::vector<Feature> all = avx512;
    all.push_back(Feature::kAVX512_BF16);
    return all;
  }();
  return isa == X86Isa::kAvx512Bf16 ? avx512_bf16
         : isa == X86Isa::kAvx512   ? avx512
                                    : avx2;
}

// Instructions that want something else, each on a line.
std::string instructions_beyond(X86Isa isa, const x86::Compiler& cc) {
  aj::CpuFeatures::X86 allowed;
  allowed.reset();
  allowed.add(Feature::kI486, Feature::kCMOV, Feature::kSSE, Feature::kSSE2);
  for (Feature feature : features_of(isa)) allowed.add(feature);
  aj::String result;
  for (aj::BaseNode* node = cc.firstNode(); node; node = node->next()) {
    if (!node->isInst()) continue;
    auto* inst = node->as<aj::InstNode>();
    aj::CpuFeatures wanted;
    aj::InstAPI::queryFeatures(cc.arch(), inst->baseInst(), inst->operands(),
                               inst->opCount(), &wanted);
    if (allowed.hasAll(wanted.x86())) continue;
    aj::Formatter::formatNode(result, {}, &cc, node);
    auto each = wanted.x86().iterator();
    while (each.hasNext()) {
      result.append(' ');
      aj::Formatter::formatFeature(result, cc.arch(),
                                   static_cast<uint32_t>(each.next()));
    }
    result.append('\n');
  }
  return result.data();
}

}  // namespace

const char* isa_name(X86Isa isa) {
  return isa == X86Isa::kAvx512Bf16 ? "avx512_bf16"
         : isa == X86Isa::kAvx512   ? "avx512"
                                    : "avx2";
}

int vector_bytes(X86Isa isa) { return isa == X86Isa::kAvx2 ? 32 : 64; }

bool cpu_has(X86Isa isa) {
  // Without what the system keeps (XCR0) asmjit counts as absent what needs it.
  static const auto features = aj::CpuInfo::host().features().x86();
  for (Feature feature : features_of(isa)) {
    if (!features.has(feature)) return false;
  }
  return true;
}

std::vector<X86Isa> cpu_isas() {
  std::vector<X86Isa> result;
  for (X86Isa isa : {X86Isa::kAvx512Bf16, X86Isa::kAvx512, X86Isa::kAvx2}) {
    if (cpu_has(isa)) result.push_back(isa);
  }
  return result;
}

Compiled compile(const Kernel& kernel, X86Isa isa, bool listing,
                 Arithmetic arithmetic) {
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
        isa == X86Isa::kAvx2
            ? make_avx2(cc)
            : make_avx512(cc, /*has_bf16=*/isa == X86Isa::kAvx512Bf16);
    const Expansion how{arithmetic, vectors->bf16_rounding(),
                        vectors->has_word_tables()};
    const Kernel expanded = expand(kernel, how);
    KernelEmitter emitter(expanded, plan(expanded, how), *vectors);
    emitter.emit();
    cc.finalize();
    if (listing) code->beyond = instructions_beyond(isa, cc);
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
