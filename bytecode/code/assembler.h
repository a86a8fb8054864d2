// Assembler: instructions with labels <-> the byte strings of a code object.
//
// disassemble() turns a code object into instructions whose jump targets and
// exception handlers are labels (label i is instruction i); assemble() chooses
// EXTENDED_ARGs and jump directions and emits co_code with its inline caches,
// the exception table and the location table. Re-assembling what was
// disassembled gives the same bytes: that is its regression test.
#pragma once

#include <string>
#include <vector>

#include "bytecode/code/code_tables.h"
#include "guards/result.h"

namespace framejit::bytecode {

struct HandlerLabel {
  int target = -1;  // label; -1: no handler
  int depth = 0;
  bool lasti = false;
  bool operator==(const HandlerLabel&) const = default;
};

// One CPython instruction with its EXTENDED_ARGs and caches folded in.
struct Instruction {
  int opcode = 0;
  int arg = 0;      // ignored when there is a target
  int target = -1;  // label of a jump
  Location location;
  HandlerLabel handler;
  // Code units: first EXTENDED_ARG, the opcode itself, end behind the caches.
  int start = 0;
  int at = 0;
  int end = 0;
};

// Instructions in order, and where each label is.
struct Assembly {
  std::vector<Instruction> instructions;
  std::vector<int> labels;  // label -> instruction index

  int new_label() {
    labels.push_back(-1);
    return int(labels.size()) - 1;
  }
  // The label of the next instruction to be emitted.
  void bind(int label) { labels[label] = int(instructions.size()); }
  Instruction& emit(Instruction instruction) {
    instructions.push_back(instruction);
    return instructions.back();
  }
};

struct AssembledCode {
  std::string code;
  std::string exception_table;
  std::string location_table;
};

// False for an opcode without a row or malformed tables.
bool disassemble(PyCodeObject* code, Assembly& out);
// Sets start, at and end of each instruction. False when a jump cannot be
// expressed (a conditional jump backwards from 3.12 on) or a label is unbound.
bool assemble(Assembly& assembly, int first_line, AssembledCode& out);

// What a code object is made of, for make_code().
struct CodeParts {
  int arg_count = 0;
  int stack_size = 0;
  int flags = 0;
  int first_line = 1;
  Ref consts, names, varnames, freevars, cellvars;  // tuples
  Ref filename, name, qualname;
};
Result<Ref> make_code(const CodeParts& parts, const AssembledCode& code);

bool is_jump(int opcode);
// Text for FRAMEJIT_LOG=bytecode: line, offset, opcode, operand (the name of a
// variable, a constant), handler.
std::string dump_code(PyObject* code);

}  // namespace framejit::bytecode
