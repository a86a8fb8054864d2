#include "bytecode/code/stack_effects.h"

#include "bytecode/code/opcode_table.h"

namespace framejit::bytecode {
namespace {

using Stack = std::vector<StackKind>;

const OpcodeRow& row_of(const Instruction& instruction) {
  return *opcode_table()[instruction.opcode].row;
}

bool drop(Stack& stack, size_t count) {
  if (stack.size() < count) return false;
  stack.resize(stack.size() - count);
  return true;
}

bool push(Stack& stack, StackKind kind = StackKind::kValue) {
  stack.push_back(kind);
  return true;
}

// [callable or method, self or NULL] in the version's order; `other` is the
// kind of the half that may be NULL.
void push_pair(Stack& stack, StackKind other) {
  push(stack, kCallableFirst ? StackKind::kValue : other);
  push(stack, kCallableFirst ? other : StackKind::kValue);
}

StackKind merge(StackKind a, StackKind b) {
  return a == b ? a : StackKind::kMaybeNull;
}

bool store(AbstractFrame& frame, int slot) {
  if (frame.stack.empty()) return false;
  switch (frame.stack.back()) {
    case StackKind::kNull:
      frame.slots[slot] = kSlotUnbound;
      break;
    case StackKind::kMaybeNull:
      frame.slots[slot] = kSlotBound | kSlotUnbound;
      break;
    default:
      frame.slots[slot] = kSlotBound;
  }
  frame.stack.pop_back();
  return true;
}

bool load(AbstractFrame& frame, int slot) {
  frame.slots[slot] = kSlotBound;
  return push(frame.stack);
}

bool load_and_clear(AbstractFrame& frame, int slot) {
  uint8_t mask = frame.slots[slot];
  frame.slots[slot] = kSlotUnbound;
  return push(frame.stack, mask == kSlotBound     ? StackKind::kValue
                           : mask == kSlotUnbound ? StackKind::kNull
                                                  : StackKind::kMaybeNull);
}

// Instructions whose effect is no more than CPython's count of items.
bool apply_counted(const Instruction& instruction, bool jump, Stack& stack) {
  int effect = PyCompile_OpcodeStackEffectWithJump(instruction.opcode,
                                                   instruction.arg, jump);
  if (effect == PY_INVALID_STACK_EFFECT) return false;
  if (effect < 0) return drop(stack, size_t(-effect));
  stack.resize(stack.size() + size_t(effect), StackKind::kValue);
  return true;
}

// A super-instruction: its halves in order, on the slots arg >> 4, arg & 15.
bool apply_slot_pair(const Instruction& instruction, AbstractFrame& frame) {
  const OpcodeRow& row = row_of(instruction);
  auto half = [&](MicroOpKind kind, int slot) {
    return kind == MicroOpKind::kStoreFast ? store(frame, slot)
                                           : load(frame, slot);
  };
  return half(row.kind, instruction.arg >> 4) &&
         half(static_cast<MicroOpKind>(row.extra), instruction.arg & 15);
}

}  // namespace

bool loads_method(const Instruction& instruction) {
  const OpcodeRow& row = row_of(instruction);
  if (row.kind == MicroOpKind::kLoadMethod) return true;
  return (row.lowering == Lowering::kNameOrMethod ||
          row.lowering == Lowering::kSuperAttr) &&
         (instruction.arg & 1);
}

bool apply_effect(const Instruction& instruction, bool jump,
                  AbstractFrame& frame) {
  const OpcodeRow& row = row_of(instruction);
  Stack& stack = frame.stack;
  int arg = instruction.arg;
  if (row.lowering == Lowering::kSlotPair)
    return apply_slot_pair(instruction, frame);
  if (row.lowering == Lowering::kPrefix) return true;
  if (loads_method(instruction)) {
    if (!drop(stack, row.lowering == Lowering::kSuperAttr ? 3 : 1))
      return false;
    push_pair(stack, StackKind::kMaybeNull);
    return true;
  }
  switch (row.kind) {
    case MicroOpKind::kPushNull:
      return push(stack, StackKind::kNull);
    case MicroOpKind::kLoadGlobal:
      if (!(arg & 1)) return push(stack);
      push_pair(stack, StackKind::kNull);
      return true;
    case MicroOpKind::kSwap:
      if (arg < 1 || size_t(arg) > stack.size()) return false;
      std::swap(stack.back(), stack[stack.size() - arg]);
      return true;
    case MicroOpKind::kCopy:
      if (arg < 1 || size_t(arg) > stack.size()) return false;
      return push(stack, stack[stack.size() - arg]);
    case MicroOpKind::kLoadFastAndClear:
      return load_and_clear(frame, arg);
    case MicroOpKind::kLoadFast:
    case MicroOpKind::kLoadFastCheck:
    case MicroOpKind::kLoadClosure:
      return load(frame, arg);
    case MicroOpKind::kStoreFast:
      return store(frame, arg);
    case MicroOpKind::kDeleteFast:
      frame.slots[arg] = kSlotUnbound;
      return true;
    case MicroOpKind::kMakeCell:
      frame.slots[arg] = kSlotBound;
      return true;
    case MicroOpKind::kCopyFreeVars:
      for (int i = 0; i < arg; ++i)
        frame.slots[frame.slots.size() - 1 - i] = kSlotBound;
      return true;
    case MicroOpKind::kCall:
      return drop(stack, arg + 2) && push(stack);
    case MicroOpKind::kCallKw:
      return drop(stack, arg + 3) && push(stack);
    case MicroOpKind::kCallEx:
      return drop(stack, 3 + (arg & 1)) && push(stack);
    case MicroOpKind::kPushExcInfo:
      return push(stack);
    case MicroOpKind::kForIter:
      return jump ? drop(stack, 1) : push(stack);
    default:
      return apply_counted(instruction, jump, stack);
  }
}

std::vector<Successor> successors(const Assembly& body, int index) {
  const Instruction& instruction = body.instructions[index];
  const OpcodeRow& row = row_of(instruction);
  switch (row.kind) {
    case MicroOpKind::kReturn:
    case MicroOpKind::kReturnConst:
    case MicroOpKind::kRaise:
    case MicroOpKind::kReraise:
      return {};
    case MicroOpKind::kJump:
      return {{body.labels[instruction.target], true}};
    case MicroOpKind::kForIter:
      // Exhaustion skips the END_FOR [POP_TOP] at the target.
      return {{index + 1, false},
              {body.labels[instruction.target] + row.extra, true}};
    default:
      break;
  }
  if (instruction.target >= 0)
    return {{index + 1, false}, {body.labels[instruction.target], true}};
  return {{index + 1, false}};
}

namespace {

// Worklist iteration to the fixpoint.
class Analysis {
 public:
  // inside: null for the whole body.
  explicit Analysis(const Assembly& body,
                    const std::vector<bool>* inside = nullptr)
      : body_(body), inside_(inside), states_(body.instructions.size()) {}

  bool run(int index, AbstractFrame entry) {
    if (!flow(index, std::move(entry))) return false;
    while (!work_.empty()) {
      int next = work_.back();
      work_.pop_back();
      if ((!inside_ || (*inside_)[next]) && !step(next)) return false;
    }
    return true;
  }
  auto take() { return std::move(states_); }

 private:
  bool step(int index) {
    const Instruction& instruction = body_.instructions[index];
    const AbstractFrame before = *states_[index];
    if (instruction.handler.target >= 0) {
      AbstractFrame caught = before;
      if (size_t(instruction.handler.depth) > caught.stack.size()) return false;
      caught.stack.resize(instruction.handler.depth);
      if (instruction.handler.lasti) push(caught.stack, StackKind::kLasti);
      push(caught.stack);
      int handler = body_.labels[instruction.handler.target];
      if (!flow(handler, std::move(caught))) return false;
    }
    for (Successor next : successors(body_, index)) {
      AbstractFrame after = before;
      if (!apply_effect(instruction, next.jump, after)) return false;
      if (!flow(next.instruction, std::move(after))) return false;
    }
    return true;
  }

  bool flow(int index, AbstractFrame frame) {
    if (index < 0 || size_t(index) >= states_.size()) return false;
    std::optional<AbstractFrame>& old = states_[index];
    if (old) {
      if (old->stack.size() != frame.stack.size()) return false;
      for (size_t i = 0; i < frame.stack.size(); ++i)
        frame.stack[i] = merge(frame.stack[i], old->stack[i]);
      for (size_t i = 0; i < frame.slots.size(); ++i)
        frame.slots[i] |= old->slots[i];
      if (frame == *old) return true;
    }
    old = std::move(frame);
    work_.push_back(index);
    return true;
  }

  const Assembly& body_;
  const std::vector<bool>* inside_;
  AbstractFrames states_;
  std::vector<int> work_;
};

}  // namespace

std::optional<AbstractFrames> analyze(const Assembly& body, int num_slots,
                                      int num_args, int num_frees) {
  AbstractFrame entry;
  entry.slots.assign(num_slots, kSlotUnbound);
  for (int i = 0; i < num_args; ++i) entry.slots[i] = kSlotBound;
  Analysis analysis(body);
  if (!analysis.run(0, std::move(entry))) return std::nullopt;
  return analysis.take();
}

std::optional<AbstractFrames> analyze_part(const Assembly& body, int index,
                                           AbstractFrame entry,
                                           const std::vector<bool>& inside) {
  Analysis analysis(body, &inside);
  if (!analysis.run(index, std::move(entry))) return std::nullopt;
  return analysis.take();
}

}  // namespace framejit::bytecode
