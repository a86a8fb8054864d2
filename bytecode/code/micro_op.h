// Micro-ops: the one instruction set the interpreter knows.
//
// The decoder lowers the bytecode of any supported CPython to these. No CACHE,
// EXTENDED_ARG, PRECALL, KW_NAMES, super-instruction or jump direction is left;
// what each kind reads from its fields is said beside it. The stack a sequence
// of micro-ops works on is CPython's own stack of that version, NULLs
// included, so that a break can be mapped to a real frame. Where versions order
// a (callable, NULL) pair differently, kCallableFirst says which way.
#pragma once

#include <cstdint>

#include "frame_hook/py_ref.h"

namespace framejit::bytecode {

// True: [callable, self or NULL, args...] (3.13). False: [method or NULL, self
// or callable, args...] (3.11, 3.12).
inline constexpr bool kCallableFirst = PY_VERSION_HEX >= 0x030D0000;

// A SEND that ends takes its receiver off (3.11); later versions leave that to
// END_SEND.
inline constexpr bool kSendDropsReceiver = PY_VERSION_HEX < 0x030C0000;

// FJ_MICRO(name): grouped; fields used are in the comments. `arg` unless said.
#define FJ_MICRO_OPS(FJ_MICRO)                                                 \
  /* stack */                                                                  \
  FJ_MICRO(Nop)                                                                \
  FJ_MICRO(Pop)                                                                \
  FJ_MICRO(Copy) /* push the item arg from the top (1 = top) */                \
  FJ_MICRO(Swap) /* exchange the top with the item arg from the top */         \
  FJ_MICRO(PushNull)                                                           \
  FJ_MICRO(LoadConst) /* object */                                             \
  /* slots: arg is the localsplus index */                                     \
  FJ_MICRO(LoadFast)                                                           \
  FJ_MICRO(LoadFastCheck)                                                      \
  FJ_MICRO(StoreFast) /* the value may be NULL (3.12, 3.13) */                 \
  FJ_MICRO(DeleteFast)                                                         \
  FJ_MICRO(LoadFastAndClear) /* pushes NULL when unbound */                    \
  FJ_MICRO(MakeCell)                                                           \
  FJ_MICRO(LoadClosure)                                                        \
  FJ_MICRO(LoadDeref)                                                          \
  FJ_MICRO(StoreDeref)                                                         \
  FJ_MICRO(DeleteDeref)                                                        \
  FJ_MICRO(LoadClassDeref)        /* 3.11: looks in the frame's locals */      \
  FJ_MICRO(LoadFromDictOrDeref)   /* pops the dict */                          \
  FJ_MICRO(LoadFromDictOrGlobals) /* object: name; pops the dict */            \
  FJ_MICRO(CopyFreeVars)          /* arg: how many */                          \
  /* names: object is the name */                                              \
  FJ_MICRO(LoadGlobal) /* arg2 = 1: pushes a NULL too, see kCallableFirst */   \
  FJ_MICRO(StoreGlobal)                                                        \
  FJ_MICRO(DeleteGlobal)                                                       \
  FJ_MICRO(LoadName)                                                           \
  FJ_MICRO(StoreName)                                                          \
  FJ_MICRO(DeleteName)                                                         \
  FJ_MICRO(LoadAttr)                                                           \
  FJ_MICRO(StoreAttr)                                                          \
  FJ_MICRO(DeleteAttr)                                                         \
  FJ_MICRO(LoadMethod)    /* pushes the pair, see kCallableFirst */            \
  FJ_MICRO(LoadSuperAttr) /* pops super, class, self; arg2 = 1: a method pair; \
                             arg = 1: super was written with two arguments */  \
  FJ_MICRO(LoadLocals)                                                         \
  FJ_MICRO(LoadBuildClass)                                                     \
  FJ_MICRO(LoadAssertionError)                                                 \
  /* operators */                                                              \
  FJ_MICRO(Binary) /* arg: NB_ADD ... NB_XOR (0..12); arg2: in place */        \
  FJ_MICRO(Unary)  /* arg: UnaryOp */                                          \
  FJ_MICRO(ToBool)                                                             \
  FJ_MICRO(Compare)  /* arg: Py_LT ...; arg2: the result becomes a bool */     \
  FJ_MICRO(Is)       /* arg: inverted */                                       \
  FJ_MICRO(Contains) /* arg: inverted */                                       \
  FJ_MICRO(Subscr)                                                             \
  FJ_MICRO(StoreSubscr)                                                        \
  FJ_MICRO(DeleteSubscr)                                                       \
  FJ_MICRO(BinarySlice)                                                        \
  FJ_MICRO(StoreSlice)                                                         \
  /* building */                                                               \
  FJ_MICRO(BuildTuple)                                                         \
  FJ_MICRO(BuildList)                                                          \
  FJ_MICRO(BuildSet)                                                           \
  FJ_MICRO(BuildMap)                                                           \
  FJ_MICRO(BuildConstKeyMap) /* the tuple of keys is on top */                 \
  FJ_MICRO(BuildSlice)                                                         \
  FJ_MICRO(BuildString)                                                        \
  FJ_MICRO(ListAppend) /* arg: depth of the container after the pop */         \
  FJ_MICRO(SetAdd)                                                             \
  FJ_MICRO(MapAdd)                                                             \
  FJ_MICRO(ListExtend)                                                         \
  FJ_MICRO(SetUpdate)                                                          \
  FJ_MICRO(DictUpdate)                                                         \
  FJ_MICRO(DictMerge)                                                          \
  FJ_MICRO(ListToTuple)                                                        \
  FJ_MICRO(UnpackSequence)                                                     \
  FJ_MICRO(UnpackEx)     /* arg: before the star; arg2: after it */            \
  FJ_MICRO(FormatValue)  /* arg: 0, 1 str, 2 repr, 3 ascii; arg2: has spec */  \
  FJ_MICRO(ConvertValue) /* arg: as above */                                   \
  /* control: target */                                                        \
  FJ_MICRO(Jump)                                                               \
  FJ_MICRO(PopJump)   /* arg: JumpCondition */                                 \
  FJ_MICRO(JumpOrPop) /* arg: kIfTrue or kIfFalse */                           \
  FJ_MICRO(GetIter)                                                            \
  FJ_MICRO(ForIter) /* exhausted: pops the iterator, goes to target */         \
  FJ_MICRO(EndFor)  /* arg: how many it pops */                                \
  FJ_MICRO(Return)                                                             \
  FJ_MICRO(ReturnConst) /* object */                                           \
  /* calls. arg: positional + keyword arguments; arg2: kCallableFirst */       \
  FJ_MICRO(Call)   /* object: tuple of keyword names, or null */               \
  FJ_MICRO(CallKw) /* the tuple of keyword names is on top */                  \
  FJ_MICRO(CallEx) /* arg = 1: a mapping is on top */                          \
  FJ_MICRO(CallIntrinsic1)                                                     \
  FJ_MICRO(CallIntrinsic2)                                                     \
  FJ_MICRO(MakeFunction)         /* arg: flags of what is below the code */    \
  FJ_MICRO(SetFunctionAttribute) /* arg: one of those flags */                 \
  /* exceptions */                                                             \
  FJ_MICRO(Raise)   /* arg: how many operands */                               \
  FJ_MICRO(Reraise) /* arg: depth of the lasti, or 0 */                        \
  FJ_MICRO(PushExcInfo)                                                        \
  FJ_MICRO(PopExcept)                                                          \
  FJ_MICRO(CheckExcMatch)                                                      \
  FJ_MICRO(CheckEgMatch)                                                       \
  FJ_MICRO(PrepReraiseStar)                                                    \
  FJ_MICRO(BeforeWith)                                                         \
  FJ_MICRO(WithExceptStart)                                                    \
  FJ_MICRO(CleanupThrow)                                                       \
  /* match */                                                                  \
  FJ_MICRO(GetLen)                                                             \
  FJ_MICRO(MatchMapping)                                                       \
  FJ_MICRO(MatchSequence)                                                      \
  FJ_MICRO(MatchKeys)                                                          \
  FJ_MICRO(MatchClass)                                                         \
  /* imports, classes, interactive */                                          \
  FJ_MICRO(ImportName) /* object: name */                                      \
  FJ_MICRO(ImportFrom) /* object: name */                                      \
  FJ_MICRO(ImportStar)                                                         \
  FJ_MICRO(SetupAnnotations)                                                   \
  FJ_MICRO(PrintExpr)                                                          \
  /* generators and coroutines */                                              \
  FJ_MICRO(Resume) /* arg: where */                                            \
  FJ_MICRO(ReturnGenerator)                                                    \
  FJ_MICRO(Yield)                                                              \
  FJ_MICRO(Send) /* target */                                                  \
  FJ_MICRO(EndSend)                                                            \
  FJ_MICRO(GetYieldFromIter)                                                   \
  FJ_MICRO(GetAwaitable)                                                       \
  FJ_MICRO(GetAiter)                                                           \
  FJ_MICRO(GetAnext)                                                           \
  FJ_MICRO(EndAsyncFor)                                                        \
  FJ_MICRO(BeforeAsyncWith)                                                    \
  FJ_MICRO(AsyncGenWrap)

enum class MicroOpKind : uint8_t {
#define FJ_MICRO(name) k##name,
  FJ_MICRO_OPS(FJ_MICRO)
#undef FJ_MICRO
      kCount,
};
const char* micro_op_name(MicroOpKind kind);  // decoder.cpp

// CALL_INTRINSIC_1 of the handler around the body of a generator.
inline constexpr int kStopIterationError = 3;

enum UnaryOp { kPositive, kNegative, kNot, kInvert };
enum JumpCondition { kIfFalse, kIfTrue, kIfNone, kIfNotNone };

struct MicroOp {
  MicroOpKind op = MicroOpKind::kNop;
  int arg = 0;
  int arg2 = 0;
  PyObject* object = nullptr;  // borrowed from the code object: const or name
  int target = -1;             // index of a micro-op
  int offset = 0;    // in bytes, of the instruction as CPython reports it
  int handler = -1;  // index into DecodedCode::handlers
};

// Where an exception goes: the stack is cut to `depth`, the offset (in code
// units) of the raising instruction is pushed if `lasti`, then the exception.
struct Handler {
  int target = 0;  // index of a micro-op
  int depth = 0;
  bool lasti = false;
};

}  // namespace framejit::bytecode
