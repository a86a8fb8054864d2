#include "backend/emit_avx512.h"

#include <asmjit/x86.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace framejit::backend {

namespace {

namespace aj = asmjit;
namespace x86 = asmjit::x86;
namespace Inst = asmjit::x86::Inst;

constexpr int kLanes = 16;
constexpr size_t kUnrollBelow = 120;
constexpr size_t kMaxHoisted = 10;

struct EmitError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ThrowingHandler final : public aj::ErrorHandler {
 public:
  void handleError(aj::Error, const char* message, aj::BaseEmitter*) override {
    throw EmitError(message);
  }
};

class Emitter {
 public:
  Emitter(const Kernel& kernel, aj::CodeHolder& code)
      : kernel_(kernel), nodes_(kernel.body.nodes()), cc_(&code) {}

  void emit();

 private:
  struct Slot {
    x86::Zmm vector;
    x86::KReg mask;
  };

  x86::Mem args_field(size_t offset) { return x86::ptr(args_, offset); }
  void find_uses();
  void hoist_constants();
  void emit_row(int unroll);
  void emit_block(int copies, bool tail);
  Slot emit_node(Lane lane, int copy, bool tail);
  Slot emit_load(const KernelNode& node, int copy, bool tail);
  void emit_store(const KernelStore& store, int copy, bool tail);
  void emit_retry(const KernelNode& node, int copy, bool tail);

  bool is_constant(Lane lane) const {
    return nodes_[lane].op == KernelOp::kConstF ||
           nodes_[lane].op == KernelOp::kConstI;
  }
  bool foldable(Lane lane) const {
    return is_constant(lane) && !hoisted_.count(nodes_[lane].imm);
  }
  x86::Mem constant(int32_t bits) {
    x86::Mem memory = cc_.newConst(aj::ConstPoolScope::kLocal, &bits, 4);
    memory.setBroadcast(x86::Mem::Broadcast::k1To16);
    return memory;
  }
  x86::Zmm load_constant(int32_t bits) {
    x86::Zmm result = cc_.newZmmPs();
    if (bits == 0) {
      cc_.vpxord(result, result, result);
    } else {
      cc_.vbroadcastss(result,
                       cc_.newConst(aj::ConstPoolScope::kLocal, &bits, 4));
    }
    return result;
  }
  x86::Zmm vector(Lane lane, int copy) {
    if (!is_constant(lane)) return slots_[lane][copy].vector;
    auto found = hoisted_.find(nodes_[lane].imm);
    return found != hoisted_.end() ? found->second
                                   : load_constant(nodes_[lane].imm);
  }
  x86::KReg mask(Lane lane, int copy) { return slots_[lane][copy].mask; }

  x86::Zmm binary(aj::InstId id, const KernelNode& node, int copy,
                  bool commutes);
  x86::Zmm multiply_add(bool negate, const KernelNode& node, int copy);
  x86::KReg compare(int predicate, const KernelNode& node, int copy);
  x86::KReg mask_binary(aj::InstId id, const KernelNode& node, int copy);

  const Kernel& kernel_;
  const std::vector<KernelNode>& nodes_;
  x86::Compiler cc_;
  x86::Gp args_, rows_, columns_, index_;
  std::vector<x86::Gp> base_;
  x86::KReg tail_mask_;
  x86::Gp retry_;  // nonzero: some lane needs libm
  std::unordered_map<int32_t, x86::Zmm> hoisted_;
  std::vector<bool> used_;
  std::vector<std::array<Slot, 2>> slots_;
  std::vector<Slot> row_values_;  // kRow and kScalar operands
};

void Emitter::find_uses() {
  used_.assign(nodes_.size(), false);
  for (const KernelStore& store : kernel_.stores) used_[store.value] = true;
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (!used_[i]) continue;
    for (Lane in : nodes_[i].in) {
      if (in >= 0) used_[in] = true;
    }
  }
}

// Constants that cannot be a memory operand (first operands, blends) and are
// used often get a register for the whole kernel.
void Emitter::hoist_constants() {
  std::unordered_map<int32_t, int> uses;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!used_[i]) continue;
    for (int k = 0; k < 3; ++k) {
      Lane in = nodes_[i].in[k];
      if (in < 0 || !is_constant(in)) continue;
      bool last = k + 1 == kernel_op_operands(nodes_[i].op);
      uses[nodes_[in].imm] += last ? 1 : 3;
    }
  }
  std::vector<std::pair<int, int32_t>> ranked;
  for (auto [bits, count] : uses) {
    if (count >= 2) ranked.emplace_back(-count, bits);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > kMaxHoisted) ranked.resize(kMaxHoisted);
  for (auto [count, bits] : ranked) hoisted_[bits] = load_constant(bits);
}

x86::Zmm Emitter::binary(aj::InstId id, const KernelNode& node, int copy,
                         bool commutes) {
  Lane a = node.in[0], b = node.in[1];
  if (commutes && is_constant(a)) std::swap(a, b);
  x86::Zmm result = cc_.newZmmPs();
  x86::Zmm left = vector(a, copy);
  if (foldable(b)) {
    cc_.emit(id, result, left, constant(nodes_[b].imm));
  } else {
    cc_.emit(id, result, left, vector(b, copy));
  }
  return result;
}

// result = c (+-) a * b: the accumulator is a copy of c.
x86::Zmm Emitter::multiply_add(bool negate, const KernelNode& node, int copy) {
  Lane a = node.in[0], b = node.in[1], c = node.in[2];
  if (is_constant(a)) std::swap(a, b);
  x86::Zmm result = cc_.newZmmPs();
  if (foldable(c) && !is_constant(a)) {
    // a * b + constant: the accumulator starts as a.
    cc_.vmovaps(result, vector(a, copy));
    cc_.emit(negate ? Inst::kIdVfnmadd213ps : Inst::kIdVfmadd213ps, result,
             vector(b, copy), constant(nodes_[c].imm));
    return result;
  }
  cc_.vmovaps(result, vector(c, copy));
  auto id = negate ? Inst::kIdVfnmadd231ps : Inst::kIdVfmadd231ps;
  if (foldable(b)) {
    cc_.emit(id, result, vector(a, copy), constant(nodes_[b].imm));
  } else {
    cc_.emit(id, result, vector(a, copy), vector(b, copy));
  }
  return result;
}

x86::KReg Emitter::compare(int predicate, const KernelNode& node, int copy) {
  x86::KReg result = cc_.newKw();
  x86::Zmm left = vector(node.in[0], copy);
  if (foldable(node.in[1])) {
    cc_.vcmpps(result, left, constant(nodes_[node.in[1]].imm), predicate);
  } else {
    cc_.vcmpps(result, left, vector(node.in[1], copy), predicate);
  }
  return result;
}

x86::KReg Emitter::mask_binary(aj::InstId id, const KernelNode& node,
                               int copy) {
  x86::KReg result = cc_.newKw();
  cc_.emit(id, result, mask(node.in[0], copy), mask(node.in[1], copy));
  return result;
}

Emitter::Slot Emitter::emit_load(const KernelNode& node, int copy, bool tail) {
  const KernelOperand& operand = kernel_.operands[node.imm];
  if (operand.walk == Walk::kRow || operand.walk == Walk::kScalar) {
    return row_values_[node.imm];
  }
  Slot slot;
  if (operand.type == OperandType::kF32) {
    slot.vector = cc_.newZmmPs();
    x86::Mem memory = x86::ptr(base_[node.imm], index_, 2, copy * kLanes * 4);
    if (tail) cc_.k(tail_mask_).z();
    cc_.vmovups(slot.vector, memory);
    return slot;
  }
  x86::Mem memory = x86::ptr(base_[node.imm], index_, 0, copy * kLanes);
  x86::Zmm bytes = cc_.newZmm();
  if (tail) cc_.k(tail_mask_).z();
  cc_.vpmovzxbd(bytes, memory);
  slot.mask = cc_.newKw();
  cc_.vptestmd(slot.mask, bytes, bytes);
  return slot;
}

void Emitter::emit_store(const KernelStore& store, int copy, bool tail) {
  x86::Gp base = base_[store.operand];
  if (kernel_.operands[store.operand].type == OperandType::kF32) {
    x86::Mem memory = x86::ptr(base, index_, 2, copy * kLanes * 4);
    x86::Zmm value = vector(store.value, copy);
    if (tail) cc_.k(tail_mask_);
    cc_.vmovups(memory, value);
    return;
  }
  x86::Mem memory = x86::ptr(base, index_, 0, copy * kLanes);
  x86::Zmm ones = cc_.newZmm();
  cc_.k(mask(store.value, copy)).z();
  cc_.vpbroadcastd(ones,
                   cc_.newConst(aj::ConstPoolScope::kLocal, "\1\0\0\0", 4));
  if (tail) cc_.k(tail_mask_);
  cc_.vpmovdb(memory, ones);
}

// Lanes beyond the row's end hold zeros and must not ask for a retry. (No kmov
// anywhere: the register allocator turns one whose mask is spilled into a form
// that does not exist.)
void Emitter::emit_retry(const KernelNode& node, int copy, bool tail) {
  x86::KReg wanted = mask(node.in[0], copy);
  if (tail) {
    x86::KReg inside = cc_.newKw();
    cc_.kandw(inside, wanted, tail_mask_);
    wanted = inside;
  }
  x86::Gp any = cc_.newUInt32();
  cc_.xor_(any, any);
  cc_.kortestw(wanted, wanted);
  cc_.setnz(any.r8());
  cc_.or_(retry_, any);
}

Emitter::Slot Emitter::emit_node(Lane lane, int copy, bool tail) {
  const KernelNode& node = nodes_[lane];
  Slot slot;
  auto unary = [&](aj::InstId id) {
    slot.vector = cc_.newZmmPs();
    cc_.emit(id, slot.vector, vector(node.in[0], copy));
  };
  switch (node.op) {
    case KernelOp::kConstF:
    case KernelOp::kConstI:
      break;
    case KernelOp::kLoadF:
    case KernelOp::kLoadMask:
      return emit_load(node, copy, tail);
#define FJ_BIN(op, id, commutes)                          \
  case KernelOp::op:                                      \
    slot.vector = binary(Inst::id, node, copy, commutes); \
    break;
      FJ_BIN(kAdd, kIdVaddps, true)
      FJ_BIN(kSub, kIdVsubps, false)
      FJ_BIN(kMul, kIdVmulps, true)
      FJ_BIN(kDiv, kIdVdivps, false)
      FJ_BIN(kMin, kIdVminps, false)  // NaN: the second operand
      FJ_BIN(kMax, kIdVmaxps, false)
      FJ_BIN(kAnd, kIdVpandd, true)
      FJ_BIN(kOr, kIdVpord, true)
      FJ_BIN(kXor, kIdVpxord, true)
      FJ_BIN(kAndNot, kIdVpandnd, false)
      FJ_BIN(kScaleByPower, kIdVscalefps, false)
#undef FJ_BIN
    case KernelOp::kFma:
    case KernelOp::kFnma:
      slot.vector = multiply_add(node.op == KernelOp::kFnma, node, copy);
      break;
    case KernelOp::kSqrt:
      unary(Inst::kIdVsqrtps);
      break;
    case KernelOp::kExponent:
      unary(Inst::kIdVgetexpps);
      break;
    case KernelOp::kRint:
      slot.vector = cc_.newZmmPs();
      cc_.vrndscaleps(slot.vector, vector(node.in[0], copy), 0);
      break;
    case KernelOp::kShiftLeft:
      slot.vector = cc_.newZmmPs();
      cc_.vpslld(slot.vector, vector(node.in[0], copy), node.imm);
      break;
    case KernelOp::kLess:
      slot.mask = compare(17, node, copy);
      break;
    case KernelOp::kLessEqual:
      slot.mask = compare(18, node, copy);
      break;
    case KernelOp::kEqual:
      slot.mask = compare(0, node, copy);
      break;
    case KernelOp::kNotEqual:
      slot.mask = compare(4, node, copy);
      break;
    case KernelOp::kUnordered:
      slot.mask = compare(3, node, copy);
      break;
    case KernelOp::kMaskAnd:
      slot.mask = mask_binary(Inst::kIdKandw, node, copy);
      break;
    case KernelOp::kMaskOr:
      slot.mask = mask_binary(Inst::kIdKorw, node, copy);
      break;
    case KernelOp::kMaskXor:
      slot.mask = mask_binary(Inst::kIdKxorw, node, copy);
      break;
    case KernelOp::kMaskNot:
      slot.mask = cc_.newKw();
      cc_.knotw(slot.mask, mask(node.in[0], copy));
      break;
    case KernelOp::kSelect: {
      slot.vector = cc_.newZmmPs();
      x86::Zmm yes = vector(node.in[1], copy), no = vector(node.in[2], copy);
      cc_.k(mask(node.in[0], copy)).vblendmps(slot.vector, no, yes);
      break;
    }
    case KernelOp::kRetry:
      emit_retry(node, copy, tail);
      slot.vector = vector(node.in[2], copy);
      break;
  }
  return slot;
}

void Emitter::emit_block(int copies, bool tail) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!used_[i]) continue;
    for (int copy = 0; copy < copies; ++copy) {
      slots_[i][copy] = emit_node(static_cast<Lane>(i), copy, tail);
    }
  }
  for (const KernelStore& store : kernel_.stores) {
    for (int copy = 0; copy < copies; ++copy) emit_store(store, copy, tail);
  }
}

void Emitter::emit_row(int unroll) {
  const int step = unroll * kLanes;
  for (size_t i = 0; i < kernel_.num_inputs; ++i) {
    const KernelOperand& operand = kernel_.operands[i];
    if (operand.walk != Walk::kRow && operand.walk != Walk::kScalar) continue;
    Slot& slot = row_values_[i];
    if (operand.type == OperandType::kF32) {
      slot.vector = cc_.newZmmPs();
      cc_.vbroadcastss(slot.vector, x86::dword_ptr(base_[i]));
    } else {
      x86::Gp byte = cc_.newInt32();
      cc_.movzx(byte, x86::byte_ptr(base_[i]));
      cc_.neg(byte);  // all ones when set
      x86::Zmm spread = cc_.newZmm();
      cc_.vpbroadcastd(spread, byte);
      slot.mask = cc_.newKw();
      cc_.vptestmd(slot.mask, spread, spread);
    }
  }
  aj::Label body = cc_.newLabel(), rest = cc_.newLabel(), one = cc_.newLabel(),
            tail = cc_.newLabel(), done = cc_.newLabel();
  x86::Gp last = cc_.newInt64();
  cc_.xor_(index_.r32(), index_.r32());
  cc_.lea(last, x86::ptr(columns_, -step));
  cc_.cmp(last, 0);
  cc_.jl(rest);
  cc_.align(aj::AlignMode::kCode, 32);
  cc_.bind(body);
  emit_block(unroll, false);
  cc_.add(index_, step);
  cc_.cmp(index_, last);
  cc_.jle(body);
  cc_.bind(rest);
  if (unroll > 1) {
    // One whole vector may be left.
    x86::Gp left = cc_.newInt64();
    cc_.mov(left, columns_);
    cc_.sub(left, index_);
    cc_.cmp(left, kLanes);
    cc_.jl(tail);
    cc_.bind(one);
    emit_block(1, false);
    cc_.add(index_, kLanes);
  }
  cc_.bind(tail);
  x86::Gp left = cc_.newInt64();
  cc_.mov(left, columns_);
  cc_.sub(left, index_);
  cc_.jle(done);
  static const int32_t kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                           8, 9, 10, 11, 12, 13, 14, 15};
  x86::Zmm numbers = cc_.newZmm(), limit = cc_.newZmm();
  cc_.vmovdqu32(numbers, cc_.newConst(aj::ConstPoolScope::kLocal, kNumbers,
                                      sizeof kNumbers));
  cc_.vpbroadcastd(limit, left.r32());
  tail_mask_ = cc_.newKw();
  cc_.vpcmpud(tail_mask_, numbers, limit, 1);  // number < left
  emit_block(1, true);
  cc_.bind(done);
}

void Emitter::emit() {
  aj::FuncNode* function = cc_.addFunc(
      aj::FuncSignatureT<uint32_t, const KernelArgs*>(aj::CallConvId::kHost));
  function->frame().setAvx512Enabled();
  function->frame().setAvxEnabled();
  function->frame().setAvxCleanup();
  args_ = cc_.newUIntPtr();
  function->setArg(0, args_);
  rows_ = cc_.newInt64();
  columns_ = cc_.newInt64();
  index_ = cc_.newInt64();
  cc_.mov(rows_, args_field(offsetof(KernelArgs, rows)));
  cc_.mov(columns_, args_field(offsetof(KernelArgs, columns)));
  for (size_t i = 0; i < kernel_.operands.size(); ++i) {
    base_.push_back(cc_.newUIntPtr());
    cc_.mov(base_.back(), args_field(offsetof(KernelArgs, pointers) + 8 * i));
  }
  retry_ = cc_.newUInt32();
  cc_.xor_(retry_, retry_);
  find_uses();
  hoist_constants();
  slots_.resize(nodes_.size());
  row_values_.resize(kernel_.operands.size());
  aj::Label row = cc_.newLabel(), done = cc_.newLabel();
  cc_.test(rows_, rows_);
  cc_.jle(done);
  cc_.bind(row);
  emit_row(nodes_.size() < kUnrollBelow ? 2 : 1);
  for (size_t i = 0; i < kernel_.operands.size(); ++i) {
    cc_.add(base_[i], args_field(offsetof(KernelArgs, row_strides) + 8 * i));
  }
  cc_.dec(rows_);
  cc_.jnz(row);
  cc_.bind(done);
  cc_.ret(retry_);
  cc_.endFunc();
  cc_.finalize();
}

// Kernels in use, by text. Never destroyed: the last programs may go after it.
struct KernelsInUse {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<const MachineCode>> by_text;
};
KernelsInUse& kernels_in_use() {
  static auto* instance = new KernelsInUse;
  return *instance;
}

}  // namespace

bool cpu_has_avx512() {
  static const bool has = [] {
    const auto& features = aj::CpuInfo::host().features().x86();
    return features.hasAVX512_F() && features.hasAVX512_BW() &&
           features.hasAVX512_DQ() && features.hasAVX512_VL();
  }();
  return has;
}

KernelCode emit_avx512_listing(const Kernel& kernel, std::string* listing) {
  if (!cpu_has_avx512() || kernel.operands.size() > kMaxKernelOperands) {
    return nullptr;
  }
  aj::CodeHolder code;
  ThrowingHandler handler;
  aj::StringLogger logger;
  code.init(aj::Environment::host());
  code.setErrorHandler(&handler);
  if (listing) code.setLogger(&logger);
  KernelCode placed;
  try {
    Emitter(kernel, code).emit();
    placed = MachineCode::place(code);
  } catch (const EmitError&) {
    return nullptr;  // the interpreter runs the kernel
  }
  if (placed && listing) *listing = logger.data();
  return placed;
}

KernelCode emit_avx512(const Kernel& kernel) {
  std::string text = kernel.str();
  KernelsInUse& kernels = kernels_in_use();
  std::lock_guard<std::mutex> lock(kernels.mutex);
  auto found = kernels.by_text.find(text);
  if (found != kernels.by_text.end()) {
    if (KernelCode code = found->second.lock()) return code;
  }
  KernelCode code = emit_avx512_listing(kernel, nullptr);
  if (!code) return nullptr;
  const MachineCode* raw = code.get();
  KernelCode shared(raw, [code = std::move(code), text](const MachineCode*) {
    KernelsInUse& kernels = kernels_in_use();
    std::lock_guard<std::mutex> lock(kernels.mutex);
    auto found = kernels.by_text.find(text);
    // Not if it was emitted again just now.
    if (found != kernels.by_text.end() && found->second.expired()) {
      kernels.by_text.erase(found);
    }
  });
  kernels.by_text[std::move(text)] = shared;
  return shared;
}

}  // namespace framejit::backend
