// The opcodes of the running CPython: opcodes.def joined with the numbers and
// inline cache sizes that the `opcode` module reports.
#pragma once

#include <array>
#include <cstdint>

#include "bytecode/code/micro_op.h"

namespace framejit::bytecode {

// How an operand becomes the fields of a micro-op.
enum class Lowering : uint8_t {
  kNone,          // no operand
  kArg,           // arg
  kExtra,         // arg = the row's extra
  kExtra2,        // arg2 = the row's extra
  kByteAndRest,   // arg = low byte, arg2 = the rest
  kSlot,          // arg = localsplus index
  kSlotPair,      // two micro-ops; extra is the kind of the second
  kConst,         // object = co_consts[operand]
  kName,          // object = co_names[operand]
  kNameAndNull,   // name = operand >> 1, arg2 = operand & 1
  kNameOrMethod,  // name = operand >> 1; operand & 1: the kind is extra
  kSuperAttr,     // name = operand >> 2, arg2 = bit 0, arg = bit 1
  kBinary,        // NB_ number -> operator and in-place flag
  kCompare,       // operator = operand >> extra, flags below
  kFormat,        // conversion and spec flag
  kForward,       // target; arg = extra
  kBackward,      // target; arg = extra
  kForIter,       // target, plus `extra` instructions
  kCall,          // argument count, version layout, pending KW_NAMES
  kCallEx,
  kIntrinsic1,  // some have a micro-op of their own
  kIntrinsic2,
  kPrefix,  // CACHE, EXTENDED_ARG, KW_NAMES, PRECALL
  kNever,
};

struct OpcodeRow {
  const char* name;
  int first;
  int last;
  Lowering lowering;
  MicroOpKind kind;
  int extra;
};

struct OpcodeInfo {
  const OpcodeRow* row = nullptr;  // null: no such opcode, or no row
  uint8_t caches = 0;              // code units of inline cache behind it
};

class OpcodeTable {
 public:
  const OpcodeInfo& operator[](int number) const { return infos_[number]; }
  // Number of an opcode by name; -1 when the running CPython has none.
  int number(const char* name) const;
  int extended_arg() const { return extended_arg_; }
  int kw_names() const { return kw_names_; }  // -1 from 3.13 on

 private:
  friend const OpcodeTable& opcode_table();
  OpcodeTable();
  std::array<OpcodeInfo, 256> infos_;
  int extended_arg_ = -1;
  int kw_names_ = -1;
};

// Read once, on first use. A failure to read `opcode` leaves the table empty:
// every instruction is then unknown, and nothing is captured.
const OpcodeTable& opcode_table();

}  // namespace framejit::bytecode
