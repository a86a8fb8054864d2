// Functions of torch with marks and wrappers around them, and where to find
// what stands for its sub-blocks.
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

// torch wraps functions that its own compiler is to leave alone
// (Optimizer.zero_grad and others) and, once that compiler has run, notes which
// modules were made since.
constexpr WrapperRow kWrappers[] = {
    {"torch._compile", "_disable_dynamo.<locals>.inner", nullptr},
    {"torch._dynamo.mutation_guard",
     "install_generation_tagging_init.<locals>.patched_init", "init"},
    {"torch._dynamo.mutation_guard",
     "install_generation_tagging_init.<locals>.patched_setstate", "setstate"},
};

// Using torch.compile marks parts of torch's optimizers, for it has a way of
// its own to compile them: here they are code like any other.
constexpr MarkRow kMarks[] = {
    {"_torchdynamo_disable", Mark::kWrapper, "torch.optim"},
    {"_torchdynamo_disable", Mark::kDisabled, nullptr},
    {"_torchdynamo_wrapper_id", Mark::kOtherCompiler, nullptr},
    {"_dynamo_marked_constant", Mark::kConstantResult, nullptr},
};

constexpr SubstituteTable kSubstitutes = {"framejit._regions", "REPLACEMENTS"};

}  // namespace

const Library& torch_functions() {
  static constexpr Library kLibrary = {.name = "torch functions",
                                       .wrappers = kWrappers,
                                       .marks = kMarks,
                                       .substitutes = &kSubstitutes};
  return kLibrary;
}

}  // namespace framejit::libraries
