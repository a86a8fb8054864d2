#include "bytecode/code/decoder.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "bytecode/code/code_extra.h"
#include "bytecode/code/code_tables.h"
#include "bytecode/code/opcode_table.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/python_text.h"

namespace framejit::bytecode {
namespace {

constexpr int kFirstInPlaceOperator = 13;  // NB_INPLACE_ADD
constexpr int kCompareToBool = 16;         // flag of COMPARE_OP on 3.13

// CALL_INTRINSIC_1 and _2 operands with a micro-op of their own (3.12 on).
enum Intrinsic1 { kAsyncWrap = 4, kPlus = 5, kToTuple = 6 };
enum Intrinsic2 { kPrepareReraise = 1 };

// Where a CO_FAST_CELL slot is marked in co_localspluskinds.
constexpr int kFastCell = 0x40;

std::string_view bytes_view(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), size_t(PyBytes_GET_SIZE(bytes))};
}

}  // namespace

const char* micro_op_name(MicroOpKind kind) {
  static constexpr const char* kNames[] = {
#define FJ_MICRO(name) #name,
      FJ_MICRO_OPS(FJ_MICRO)
#undef FJ_MICRO
  };
  int index = static_cast<int>(kind);
  return index < int(MicroOpKind::kCount) ? kNames[index] : "?";
}

// Walks the code once, lowering each instruction; jump and handler targets are
// code units until resolve().
class Decoder {
 public:
  explicit Decoder(PyCodeObject* code) : out_(new DecodedCode) {
    out_->code_ = code;
  }

  Result<std::unique_ptr<DecodedCode>> run() {
    Ref bytes = Ref::steal(PyCode_GetCode(out_->code_));
    if (!bytes) return fail();
    raw_ = bytes_view(bytes.get());
    num_units_ = int(raw_.size() / 2);
    out_->index_by_unit_.assign(num_units_ + 1, 0);
    for (int unit = 0; unit < num_units_;) {
      unit = instruction(unit);
      if (unit < 0) return unsupported();
    }
    out_->index_by_unit_[num_units_] = int(out_->ops_.size());
    resolve_jumps();
    resolve_handlers();
    if (broken_) return unsupported();
    return std::move(out_);
  }

 private:
  int opcode_at(int unit) const {
    return static_cast<unsigned char>(raw_[2 * unit]);
  }
  int operand_at(int unit) const {
    return static_cast<unsigned char>(raw_[2 * unit + 1]);
  }

  // Lowers the instruction at `unit`; the unit behind it, or -1.
  int instruction(int unit) {
    const OpcodeTable& table = opcode_table();
    int start = unit;
    unsigned operand = operand_at(unit);
    while (opcode_at(unit) == table.extended_arg()) {
      if (++unit >= num_units_) return bad(start);
      operand = operand << 8 | operand_at(unit);
    }
    const OpcodeInfo& info = table[opcode_at(unit)];
    if (!info.row || info.row->lowering == Lowering::kNever) return bad(unit);
    int end = unit + 1 + info.caches;
    if (end > num_units_) return bad(unit);
    std::fill(out_->index_by_unit_.begin() + start,
              out_->index_by_unit_.begin() + end, int(out_->ops_.size()));
    if (info.row->lowering == Lowering::kPrefix) {
      if (opcode_at(unit) == table.kw_names())
        keyword_names_ = item(out_->code_->co_consts, operand);
    } else if (!lower(*info.row, int(operand), unit, end)) {
      return bad(unit);
    }
    return end;
  }

  bool lower(const OpcodeRow& row, int operand, int unit, int end) {
    MicroOp op;
    op.op = row.kind;
    op.offset = 2 * unit;
    PyCodeObject* code = out_->code_;
    switch (row.lowering) {
      case Lowering::kNone:
        break;
      case Lowering::kArg:
        op.arg = operand;
        break;
      case Lowering::kExtra:
        op.arg = row.extra;
        break;
      case Lowering::kExtra2:
        op.arg2 = row.extra;
        break;
      case Lowering::kByteAndRest:
        op.arg = operand & 0xff;
        op.arg2 = operand >> 8;
        break;
      case Lowering::kSlot:
        op.arg = operand;
        break;
      case Lowering::kSlotPair:
        op.arg = operand >> 4;
        out_->ops_.push_back(op);
        op.op = static_cast<MicroOpKind>(row.extra);
        op.arg = operand & 15;
        break;
      case Lowering::kConst:
        op.object = item(code->co_consts, operand);
        break;
      case Lowering::kName:
        op.object = item(code->co_names, operand);
        break;
      case Lowering::kNameAndNull:
        op.object = item(code->co_names, operand >> 1);
        op.arg2 = operand & 1;
        break;
      case Lowering::kNameOrMethod:
        op.object = item(code->co_names, operand >> 1);
        if (operand & 1) op.op = static_cast<MicroOpKind>(row.extra);
        break;
      case Lowering::kSuperAttr:
        op.object = item(code->co_names, operand >> 2);
        op.arg2 = operand & 1;
        op.arg = operand >> 1 & 1;
        break;
      default:
        return lower_operator(row, operand, end, op);
    }
    out_->ops_.push_back(op);
    return !broken_;
  }

  bool lower_operator(const OpcodeRow& row, int operand, int end, MicroOp op) {
    switch (row.lowering) {
      case Lowering::kBinary:
        op.arg2 = operand >= kFirstInPlaceOperator;
        op.arg = operand - (op.arg2 ? kFirstInPlaceOperator : 0);
        break;
      case Lowering::kCompare:
        op.arg = operand >> row.extra;
        op.arg2 = PY_MINOR_VERSION >= 13 && (operand & kCompareToBool);
        break;
      case Lowering::kFormat:
        op.arg = operand & 3;
        op.arg2 = operand >> 2 & 1;
        break;
      case Lowering::kForward:
        op.arg = row.extra;
        op.target = end + operand;
        break;
      case Lowering::kBackward:
        op.arg = row.extra;
        op.target = end - operand;
        break;
      case Lowering::kForIter:
        op.target = end + operand + row.extra;
        break;
      case Lowering::kCall:
        op.arg = operand;
        op.arg2 = kCallableFirst;
        op.object = std::exchange(keyword_names_, nullptr);
        break;
      case Lowering::kCallEx:
        op.arg = operand & 1;
        op.arg2 = kCallableFirst;
        break;
      case Lowering::kIntrinsic1:
        op.arg = operand;
        if (operand == kAsyncWrap) op.op = MicroOpKind::kAsyncGenWrap;
        if (operand == kToTuple) op.op = MicroOpKind::kListToTuple;
        if (operand == kPlus) {
          op.op = MicroOpKind::kUnary;
          op.arg = kPositive;
        }
        break;
      case Lowering::kIntrinsic2:
        op.arg = operand;
        if (operand == kPrepareReraise) op.op = MicroOpKind::kPrepReraiseStar;
        break;
      default:
        return false;
    }
    out_->ops_.push_back(op);
    return true;
  }

  void resolve_jumps() {
    for (MicroOp& op : out_->ops_) {
      if (op.target < 0) continue;
      if (op.target >= num_units_) {
        broken_ = true;
        return;
      }
      op.target = out_->index_by_unit_[op.target];
    }
  }

  void resolve_handlers() {
    auto entries =
        parse_exception_table(bytes_view(out_->code_->co_exceptiontable));
    for (const ExceptionEntry& entry : entries) {
      if (entry.target >= num_units_ || entry.end > num_units_) {
        broken_ = true;
        return;
      }
      Handler handler{out_->index_by_unit_[entry.target], entry.depth,
                      entry.lasti};
      int index = int(out_->handlers_.size());
      out_->handlers_.push_back(handler);
      // An instruction is looked up by its own unit, behind EXTENDED_ARG.
      for (MicroOp& op : out_->ops_)
        if (op.offset >= 2 * entry.start && op.offset < 2 * entry.end)
          op.handler = index;
    }
  }

  PyObject* item(PyObject* tuple, Py_ssize_t index) {
    if (index < PyTuple_GET_SIZE(tuple)) return PyTuple_GET_ITEM(tuple, index);
    broken_ = true;
    return nullptr;
  }

  int bad(int unit) {
    bad_unit_ = unit;
    broken_ = true;
    return -1;
  }

  Result<std::unique_ptr<DecodedCode>> fail() {
    return Result<std::unique_ptr<DecodedCode>>::raised();
  }
  Result<std::unique_ptr<DecodedCode>> unsupported() {
    PyObject* code = out_->code_object();
    const OpcodeInfo& info = opcode_table()[opcode_at(bad_unit_)];
    std::string name =
        info.row ? info.row->name : std::to_string(opcode_at(bad_unit_));
    return Break{BreakReason::kUnsupportedOpcode, "opcode " + name,
                 Span{Ref::borrow(code), 2 * bad_unit_}};
  }

  std::unique_ptr<DecodedCode> out_;
  std::string_view raw_;
  int num_units_ = 0;
  int bad_unit_ = 0;
  bool broken_ = false;
  PyObject* keyword_names_ = nullptr;  // of the KW_NAMES just passed
};

int DecodedCode::num_args() const { return internals::parameter_slots(code_); }

bool DecodedCode::slot_is_cell(int slot) const {
  return PyBytes_AS_STRING(code_->co_localspluskinds)[slot] & kFastCell;
}

bool DecodedCode::is_generator() const {
  return code_->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
}

int DecodedCode::index_at(int offset) const {
  size_t unit = size_t(offset) / 2;
  if (offset < 0) return 0;
  return unit < index_by_unit_.size() ? index_by_unit_[unit] : int(ops_.size());
}

std::string DecodedCode::dump() const {
  std::string out;
  ErrorGuard keep_error;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const MicroOp& op = ops_[i];
    out += std::to_string(i) + "  @" + std::to_string(op.offset) + "  " +
           micro_op_name(op.op) + " " + std::to_string(op.arg);
    if (op.arg2) out += ", " + std::to_string(op.arg2);
    if (op.target >= 0) out += " -> " + std::to_string(op.target);
    if (op.object) {
      Ref text = Ref::steal(PyObject_Repr(op.object));
      if (!text) PyErr_Clear();
      out += "  " + text_of(text.get(), "?");
    }
    if (op.handler >= 0) {
      const Handler& handler = handlers_[op.handler];
      out += "  except -> " + std::to_string(handler.target) + " depth " +
             std::to_string(handler.depth);
      if (handler.lasti) out += " lasti";
    }
    out += "\n";
  }
  return out;
}

namespace {

// In the code object.
struct DecodedTable {
  std::unique_ptr<DecodedCode> code;
};

}  // namespace

Result<const DecodedCode*> decode(PyObject* code) {
  TableRegistry* extra = code_extra(code);
  if (!extra)
    return Break{BreakReason::kInternal, "no room for data of a code object",
                 Span{Ref::borrow(code), 0}};
  if (!extra->get<DecodedTable>().code) {
    FJ_TRY(auto decoded, Decoder(reinterpret_cast<PyCodeObject*>(code)).run());
    extra->get<DecodedTable>().code = std::move(decoded);
  }
  return static_cast<const DecodedCode*>(extra->get<DecodedTable>().code.get());
}

}  // namespace framejit::bytecode
