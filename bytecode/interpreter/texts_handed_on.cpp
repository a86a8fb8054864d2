#include "bytecode/interpreter/texts_handed_on.h"

#include <optional>

#include "bytecode/interpreter/printed_texts.h"
#include "bytecode/objects/classes.h"

namespace framejit::bytecode {

namespace {

constexpr int kMaxSteps = 300;

// A stack of which one item is, or holds, the text.
struct Walk {
  const Frame* frame;
  size_t pc;
  int size;
  int text;
  // What lies below the text may no longer be what the frame's stack has there.
  bool moved = false;
};

// A class whose instances keep what they are made of: a named tuple, or a
// dataclass. (One that looks at it is found out when it does.)
bool keeps_arguments(PyObject* callable) {
  if (!callable || !PyType_Check(callable)) return false;
  auto* type = reinterpret_cast<PyTypeObject*>(callable);
  const char* mark = PyType_FastSubclass(type, Py_TPFLAGS_TUPLE_SUBCLASS)
                         ? "_fields"
                         : "__dataclass_fields__";
  return raw_lookup(type, mark) != nullptr;
}

// The call whose operands begin at `left`, one of them the text.
bool is_kept_by_call(const Walk& walk, int left) {
  const int callable = left + (kCallableFirst ? 0 : 1);
  return !walk.moved && callable < walk.text &&
         callable < int(walk.frame->stack.size()) &&
         keeps_arguments(walk.frame->stack[callable].get());
}

// The size of the caller's stack below the call; -1: what its frame makes of
// the result is no plain call.
int size_below_call(const Frame& caller) {
  const MicroOp& op = caller.decoded->op(caller.current);
  int size = int(caller.stack.size());
  switch (op.op) {
    case MicroOpKind::kCall:
      return size - (op.arg + 2);
    case MicroOpKind::kCallKw:
      return size - (op.arg + 3);
    case MicroOpKind::kCallEx:
      return size - (op.arg ? 4 : 3);
    default:
      return -1;
  }
}

enum class Step { kGoesOn, kHandedOn, kElsewhere };

Step return_to_caller(Walk* walk) {
  if (walk->frame->outermost) return Step::kHandedOn;
  const Frame* caller = walk->frame->caller;
  if (walk->frame->generator || !caller || caller->generator)
    return Step::kElsewhere;
  int below = size_below_call(*caller);
  if (below < 0) return Step::kElsewhere;
  *walk = {caller, caller->pc, below + 1, below};
  return Step::kGoesOn;
}

Step take_step(Walk* walk, const MicroOp& op) {
  int top = walk->size - 1;
  switch (op.op) {
    case MicroOpKind::kReturn:
      return walk->text == top ? return_to_caller(walk) : Step::kElsewhere;
    case MicroOpKind::kSwap: {
      int other = walk->size - op.arg;
      walk->moved = true;
      if (walk->text == top) {
        walk->text = other;
      } else if (walk->text == other) {
        walk->text = top;
      }
      return Step::kGoesOn;
    }
    case MicroOpKind::kCopy:
      if (walk->text == walk->size - op.arg) return Step::kElsewhere;
      ++walk->size;
      return Step::kGoesOn;
    case MicroOpKind::kStoreAttr:  // the value, the object
      if (walk->text == top - 1) return Step::kHandedOn;
      if (walk->text == top) return Step::kElsewhere;
      walk->size -= 2;
      return Step::kGoesOn;
    default:
      break;
  }
  const bool is_key_map = op.op == MicroOpKind::kBuildConstKeyMap;
  std::optional<StackEffect> effect =
      is_key_map ? StackEffect{op.arg + 1, 1} : effect_of(op);
  if (!effect) return Step::kElsewhere;
  int left = walk->size - effect->pops;
  walk->size = left + effect->pushes;
  if (left > walk->text) return Step::kGoesOn;
  switch (op.op) {
    case MicroOpKind::kBuildMap:  // key, value, key, value ...
      if ((walk->text - left) % 2 == 0) return Step::kElsewhere;
      [[fallthrough]];
    case MicroOpKind::kBuildTuple:
    case MicroOpKind::kBuildList:
    case MicroOpKind::kBuildConstKeyMap:
      walk->text = left;
      return Step::kGoesOn;
    case MicroOpKind::kCall:
    case MicroOpKind::kCallKw:
      if (!is_kept_by_call(*walk, left)) return Step::kElsewhere;
      walk->text = left;
      return Step::kGoesOn;
    default:
      return Step::kElsewhere;
  }
}

}  // namespace

bool is_handed_on(const Frame& frame, size_t size_with_text) {
  Walk walk{&frame, frame.pc, int(size_with_text), int(size_with_text) - 1};
  for (int steps = 0; steps < kMaxSteps; ++steps) {
    const std::vector<MicroOp>& ops = walk.frame->decoded->ops();
    if (walk.pc >= ops.size()) return false;
    const MicroOp& op = ops[walk.pc++];
    if (op.op == MicroOpKind::kJump) {
      walk.pc = op.target;
      continue;
    }
    // What is stored and loaded at once stays where it is.
    if (op.op == MicroOpKind::kStoreFast && walk.text == walk.size - 1 &&
        walk.pc < ops.size() && ops[walk.pc].op == MicroOpKind::kLoadFast &&
        ops[walk.pc].arg == op.arg) {
      ++walk.pc;
      continue;
    }
    Step step = take_step(&walk, op);
    if (step != Step::kGoesOn) return step == Step::kHandedOn;
  }
  return false;
}

}  // namespace framejit::bytecode
