// Where debuggers stop. They look at the frame that calls them and at its
// callers', so those run as they are.
#include "bytecode/builtins/builtins.h"
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

Result<Ref> model_breakpoint(BuiltinCall& call) {
  return call.state.make_break(BreakReason::kBreakpoint, call.unknown().detail);
}

constexpr CalleeRow kCallees[] = {
    {"builtins", "breakpoint", model_breakpoint},
    {"sys", "__breakpointhook__", model_breakpoint},
    {"pdb", "set_trace", model_breakpoint},
    {"bdb", "Bdb.set_trace", model_breakpoint},
    {"ipdb", "set_trace", model_breakpoint},
    {"IPython.core.debugger", "set_trace", model_breakpoint},
    {"pudb", "set_trace", model_breakpoint},
    {"debugpy", "breakpoint", model_breakpoint},
};

}  // namespace

const Library& debuggers() {
  static constexpr Library kLibrary = {.name = "debuggers",
                                       .callees = kCallees};
  return kLibrary;
}

}  // namespace framejit::libraries
