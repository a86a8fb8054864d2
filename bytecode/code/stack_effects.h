// Dataflow over a function body: what each instruction finds on the stack and
// in the slots, as far as the bytecode alone says.
//
// Residual code needs to know, at a break, which stack items are NULLs or
// instruction offsets, because those cannot travel as arguments. The
// interpreter knows its frame exactly; this analysis gives the same facts one
// instruction further, checks what it is told, and drives the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bytecode/code/assembler.h"

namespace framejit::bytecode {

enum class StackKind : uint8_t {
  kValue,
  kNull,
  kMaybeNull,  // a NULL on some paths only: half of a method pair
  kLasti,      // int: the code unit that raised, for RERAISE
};

enum SlotMask : uint8_t { kSlotBound = 1, kSlotUnbound = 2 };

struct AbstractFrame {
  std::vector<StackKind> stack;  // bottom first
  std::vector<uint8_t> slots;    // SlotMask bits per localsplus slot
  bool operator==(const AbstractFrame&) const = default;
};

struct Successor {
  int instruction;  // index
  bool jump;        // reached by jumping (or by exhausting an iterator)
};

// Where control goes when the instruction does not raise.
std::vector<Successor> successors(const Assembly& body, int index);
// What an instruction does to the frame on its way to one successor. False
// when the stack would underflow.
bool apply_effect(const Instruction& instruction, bool jump,
                  AbstractFrame& frame);
bool loads_method(const Instruction& instruction);

// The frame before each instruction; empty for those never reached.
using AbstractFrames = std::vector<std::optional<AbstractFrame>>;

// Nothing at all when the body is inconsistent. `num_args`: slots the call
// fills in.
std::optional<AbstractFrames> analyze(const Assembly& body, int num_slots,
                                      int num_args, int num_frees);
// From one instruction, before which the frame is `entry`, through those marked
// `inside`; the others that are reached have frames, too, and end there.
std::optional<AbstractFrames> analyze_part(const Assembly& body, int index,
                                           AbstractFrame entry,
                                           const std::vector<bool>& inside);

}  // namespace framejit::bytecode
