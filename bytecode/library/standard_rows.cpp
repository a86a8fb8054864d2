#include "bytecode/library/library.h"

namespace framejit::bytecode {
namespace {

// A dataclass's __repr__ looks whether it is running already, which here ends
// as a break for too deep a recursion.
constexpr WrapperRow kWrappers[] = {
    {"dataclasses", "_recursive_repr.<locals>.wrapper", nullptr},
};

constexpr MarkRow kMarks[] = {
    {"_framejit_disable", Mark::kDisabled, nullptr},
    {"_framejit_graph_break", Mark::kGraphBreak, nullptr},
    {"_framejit_is_compiling", Mark::kIsCompiling, nullptr},
    {"_framejit_without_effects", Mark::kWithoutEffects, nullptr},
    {"_framejit_handle_without_with", Mark::kHandleWithoutWith, nullptr},
};

constexpr ManagerRow kManagers[] = {{"contextlib", "nullcontext", nullptr}};

}  // namespace

const Library& standard_rows() {
  static constexpr Library kLibrary = {.name = "python",
                                       .wrappers = kWrappers,
                                       .marks = kMarks,
                                       .managers = kManagers};
  return kLibrary;
}

}  // namespace framejit::bytecode
