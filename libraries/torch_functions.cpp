// Functions of torch with marks and wrappers around them, and where to find
// what stands for its sub-blocks.
#include "bytecode/interpreter/interpreter.h"
#include "frame_hook/python_text.h"
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

// torch wraps functions that its own compiler is to leave alone
// (Optimizer.zero_grad and others) and, once that compiler has run, notes which
// modules were made since.
constexpr WrapperRow kWrappers[] = {
    {"torch._compile", "_disable_dynamo.<locals>.inner", nullptr},
    // Settings of that compiler for the extent of a call.
    {"torch._dynamo.external_utils",
     "wrap_dunder_call_ctx_manager.<locals>.inner", "func"},
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

// torch._dynamo.graph_break(msg). Where torch's own code asks for one (around
// an optimizer's step), its compiler needs it and this one does not.
Result<Ref> run_graph_break(Interpreter& interpreter, PyObject* function,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames, bool* handled) {
  *handled = true;
  PyObject* home =
      PyDict_GetItemString(interpreter.frame->globals.get(), "__name__");
  if (home && is_in_package(home, "torch")) return Ref::borrow(Py_None);
  return interpreter.make_break(BreakReason::kUserBreak,
                                text_of(args.empty() ? nullptr : args[0]));
}

constexpr FastPathRow kFastPaths[] = {
    {"torch._dynamo.decorators", "graph_break", {}, run_graph_break},
};

// Dynamo remembers when each module was made.
constexpr const char* kQuietCallbacks[] = {"torch._dynamo.utils"};

constexpr SubstituteTable kSubstitutes = {"framejit._regions", "REPLACEMENTS"};

}  // namespace

const Library& torch_functions() {
  static constexpr Library kLibrary = {.name = "torch functions",
                                       .fast_paths = kFastPaths,
                                       .wrappers = kWrappers,
                                       .marks = kMarks,
                                       .quiet_callbacks = kQuietCallbacks,
                                       .substitutes = &kSubstitutes};
  return kLibrary;
}

}  // namespace framejit::libraries
