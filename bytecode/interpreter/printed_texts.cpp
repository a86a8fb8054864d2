#include "bytecode/interpreter/printed_texts.h"

#include "guards/known_objects.h"

namespace framejit::bytecode {

std::optional<StackEffect> effect_of(const MicroOp& op) {
  switch (op.op) {
    case MicroOpKind::kNop:
    case MicroOpKind::kResume:
    case MicroOpKind::kDeleteFast:
    case MicroOpKind::kMakeCell:
    case MicroOpKind::kCopyFreeVars:
      return StackEffect{0, 0};
    case MicroOpKind::kPop:
    case MicroOpKind::kStoreFast:
      return StackEffect{1, 0};
    case MicroOpKind::kPushNull:
    case MicroOpKind::kLoadConst:
    case MicroOpKind::kLoadFast:
    case MicroOpKind::kLoadFastCheck:
    case MicroOpKind::kLoadFastAndClear:
    case MicroOpKind::kLoadClosure:
    case MicroOpKind::kLoadDeref:
    case MicroOpKind::kLoadName:
      return StackEffect{0, 1};
    case MicroOpKind::kLoadGlobal:
      return StackEffect{0, 1 + op.arg2};
    case MicroOpKind::kLoadAttr:
    case MicroOpKind::kUnary:
    case MicroOpKind::kToBool:
    case MicroOpKind::kConvertValue:
      return StackEffect{1, 1};
    case MicroOpKind::kLoadMethod:
      return StackEffect{1, 2};
    case MicroOpKind::kBinary:
    case MicroOpKind::kCompare:
    case MicroOpKind::kIs:
    case MicroOpKind::kContains:
    case MicroOpKind::kSubscr:
      return StackEffect{2, 1};
    case MicroOpKind::kBinarySlice:
      return StackEffect{3, 1};
    case MicroOpKind::kBuildTuple:
    case MicroOpKind::kBuildList:
    case MicroOpKind::kBuildSet:
    case MicroOpKind::kBuildString:
      return StackEffect{op.arg, 1};
    case MicroOpKind::kBuildMap:
      return StackEffect{2 * op.arg, 1};
    case MicroOpKind::kFormatValue:
      return StackEffect{1 + op.arg2, 1};
    case MicroOpKind::kCall:
      return StackEffect{op.arg + 2, 1};
    case MicroOpKind::kCallKw:
      return StackEffect{op.arg + 3, 1};
    default:
      return {};
  }
}

bool goes_to_print(const Frame& frame, size_t size_with_text) {
  PyObject* print = library_object("builtins", "print");
  const std::vector<MicroOp>& ops = frame.decoded->ops();
  int size = int(size_with_text);
  int text = size - 1;  // where it lies
  size_t pc = frame.pc;
  for (int steps = 0; steps < 300 && pc < ops.size(); ++steps) {
    const MicroOp& op = ops[pc++];
    if (op.op == MicroOpKind::kJump) {
      pc = op.target;
      continue;
    }
    std::optional<StackEffect> effect = effect_of(op);
    if (!effect) return false;
    int left = size - effect->pops;
    size = left + effect->pushes;
    if (left > text) continue;
    switch (op.op) {
      case MicroOpKind::kFormatValue:
        if (op.arg || op.arg2) return false;
        continue;
      case MicroOpKind::kBuildString:
        text = left;
        continue;
      case MicroOpKind::kCall:
      case MicroOpKind::kCallKw: {
        // (NULL, callable) or (callable, NULL), then the arguments
        int callable = left + (kCallableFirst ? 0 : 1);
        if (callable >= int(frame.stack.size()) || callable >= text ||
            frame.stack[callable].get() != print)
          return false;
        while (pc < ops.size() && ops[pc].op == MicroOpKind::kNop) ++pc;
        return pc < ops.size() && ops[pc].op == MicroOpKind::kPop;
      }
      default:
        return false;
    }
  }
  return false;
}

}  // namespace framejit::bytecode
