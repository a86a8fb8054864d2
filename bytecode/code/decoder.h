// Decoder: a code object of any supported CPython -> micro-ops.
//
// decode() lowers by the rows of opcodes.def and keeps the result with the
// code object, to which it belongs and with which it dies: hold a reference to
// the code while using it. Version differences end here.
#pragma once

#include <string>
#include <vector>

#include "bytecode/code/micro_op.h"
#include "guards/result.h"

namespace framejit::bytecode {

class DecodedCode {
 public:
  PyCodeObject* code() const { return code_; }  // borrowed
  PyObject* code_object() const { return reinterpret_cast<PyObject*>(code_); }
  const std::vector<MicroOp>& ops() const { return ops_; }
  const MicroOp& op(int index) const { return ops_[index]; }
  const std::vector<Handler>& handlers() const { return handlers_; }

  int flags() const { return code_->co_flags; }
  // Slots ("localsplus"): locals, then cells that are no locals, then frees.
  int num_slots() const { return code_->co_nlocalsplus; }
  int num_locals() const { return code_->co_nlocals; }
  int num_frees() const { return code_->co_nfreevars; }
  int num_cells() const { return code_->co_ncellvars; }
  int first_free() const { return num_slots() - num_frees(); }
  // Slots that the call fills in: parameters, *args, **kwargs.
  int num_args() const;
  PyObject* slot_name(int slot) const {  // borrowed
    return PyTuple_GET_ITEM(code_->co_localsplusnames, slot);
  }
  bool slot_is_cell(int slot) const;  // a cell of this code, also an argument's
  bool slot_is_free(int slot) const { return slot >= first_free(); }
  // Generators, coroutines and async generators.
  bool is_generator() const;

  // Index of the micro-op at or behind a byte offset (jump targets, f_lasti of
  // a running frame); ops().size() when behind the last one.
  int index_at(int offset) const;
  // Text, one micro-op a line.
  std::string dump() const;

 private:
  friend class Decoder;
  PyCodeObject* code_ = nullptr;
  std::vector<MicroOp> ops_;
  std::vector<Handler> handlers_;
  std::vector<int> index_by_unit_;
};

// The decoded form of a code object, made on first use. An opcode without a
// row is a Break.
Result<const DecodedCode*> decode(PyObject* code);

}  // namespace framejit::bytecode
