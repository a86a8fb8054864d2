// Float operations in native code: rax and r8 hold the bits of the operands.
//
// Each is rounded once, as Python's are. Where there is no instruction for it,
// or Python treats some operands otherwise, the row of float_ops.def is called.
#include "guards/emit/emit_helpers.h"
#include "guards/emit/emitter.h"

namespace framejit {

using namespace asmjit;

void Emitter::emit_float(ExprOp op) {
  auto load = [&] {
    a_.movq(x86::xmm0, x86::rax);
    a_.movq(x86::xmm1, x86::r8);
  };
  auto store = [&](const x86::Xmm& result) { a_.movq(x86::rax, result); };
  auto compute = [&](x86::Inst::Id instruction) {
    load();
    a_.emit(instruction, x86::xmm0, x86::xmm1);
    store(x86::xmm0);
  };
  // The first of equal ones, and where one is NaN.
  auto select = [&](x86::Inst::Id instruction) {
    load();
    a_.emit(instruction, x86::xmm1, x86::xmm0);
    store(x86::xmm1);
  };
  // False on NaN.
  auto compare = [&](int predicate) {
    load();
    a_.cmpsd(x86::xmm0, x86::xmm1, predicate);
    store(x86::xmm0);
    a_.and_(x86::eax, 1);
  };
  constexpr int kEqual = 0, kLess = 1, kLessOrEqual = 2;
  switch (op) {
    case ExprOp::kFromInt:
      a_.cvtsi2sd(x86::xmm0, x86::rax);
      return store(x86::xmm0);
    case ExprOp::kFloatAdd:
      return compute(x86::Inst::kIdAddsd);
    case ExprOp::kFloatSub:
      return compute(x86::Inst::kIdSubsd);
    case ExprOp::kFloatMul:
      return compute(x86::Inst::kIdMulsd);
    case ExprOp::kFloatDiv:
      a_.mov(x86::r9, x86::r8);
      a_.add(x86::r9, x86::r9);  // without the sign
      fail_when(x86::CondCode::kZ);
      return compute(x86::Inst::kIdDivsd);
    case ExprOp::kFloatNeg:
      a_.btc(x86::rax, 63);
      return;
    case ExprOp::kFloatAbs:
      a_.btr(x86::rax, 63);
      return;
    case ExprOp::kFloatMin:
      return select(x86::Inst::kIdMinsd);
    case ExprOp::kFloatMax:
      return select(x86::Inst::kIdMaxsd);
    case ExprOp::kFloatEq:
      return compare(kEqual);
    case ExprOp::kFloatLt:
      return compare(kLess);
    case ExprOp::kFloatLe:
      return compare(kLessOrEqual);
    case ExprOp::kFloatSame:
      a_.cmp(x86::rax, x86::r8);
      a_.sete(x86::al);
      a_.movzx(x86::eax, x86::al);
      return;
    case ExprOp::kDefined:
      a_.mov(x86::eax, 1);  // the operand has failed where it is not
      return;
    default:
      return emit_float_call(op);
  }
}

void Emitter::emit_float_call(ExprOp op) {
  const int out = allocate_slot();
  a_.mov(x86::edi, static_cast<int>(op));
  a_.mov(x86::rsi, x86::rax);
  a_.mov(x86::rdx, x86::r8);
  a_.lea(x86::rcx, slot_at(out));
  call(reinterpret_cast<const void*>(predicate_float_op));
  check_result();
  restore_arguments();
  a_.mov(x86::rax, slot_at(out));
}

}  // namespace framejit
