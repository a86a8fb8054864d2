#include "tests/bytecode/residual/prefix_code.h"

#include <algorithm>

#include "bytecode/code/opcode_table.h"
#include "bytecode/code/stack_effects.h"

namespace framejit::bytecode {
namespace {

class PrefixBuilder {
 public:
  PrefixBuilder(PyCodeObject* code, PyObject* marker, PyObject* sentinel)
      : code_(code), marker_(marker), sentinel_(sentinel) {
    num_frees_ = code->co_nfreevars;
    num_base_ = code->co_nlocalsplus - num_frees_;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i)
      consts_.push_back(Ref::borrow(PyTuple_GET_ITEM(code->co_consts, i)));
  }

  Result<PrefixCode> build(int offset) {
    if (!disassemble(code_, body_)) return fail("cannot disassemble");
    int args = code_->co_argcount + code_->co_kwonlyargcount +
               bool(code_->co_flags & CO_VARARGS) +
               bool(code_->co_flags & CO_VARKEYWORDS);
    auto frames = analyze(body_, code_->co_nlocalsplus, args, num_frees_);
    if (!frames) return fail("cannot analyse");
    int index = -1;
    for (size_t i = 0; i < body_.instructions.size(); ++i)
      if (2 * body_.instructions[i].at == offset) index = int(i);
    if (index < 0 || !(*frames)[index]) return fail("no such place");
    const AbstractFrame& frame = *(*frames)[index];
    num_temps_ = int(frame.stack.size());
    out_.labels.assign(body_.labels.size(), -1);
    location_ = body_.instructions[index].location;
    copy_with_exit(index);
    tail(frame);
    return finish(frame);
  }

 private:
  Break fail(const char* why) { return Break{BreakReason::kInternal, why, {}}; }
  int number(const char* name) { return opcode_table().number(name); }

  Instruction& emit(const char* name, int arg = 0) {
    Instruction instruction;
    instruction.opcode = number(name);
    instruction.arg = arg;
    instruction.location = location_;
    origin_.push_back(-1);
    return out_.emit(instruction);
  }

  int constant(PyObject* object) {
    consts_.push_back(Ref::borrow(object));
    return int(consts_.size()) - 1;
  }

  int renumbered(int slot) {
    return slot < num_base_ ? slot : slot + num_temps_;
  }

  // The whole body; at the place, and wherever its call sequence can be
  // entered, a jump to the tail.
  void copy_with_exit(int index) {
    int first = index;
    auto lowering = [&](int i) {
      return opcode_table()[body_.instructions[i].opcode].row->lowering;
    };
    while (first > 0 && lowering(first - 1) == Lowering::kPrefix) --first;
    exit_ = out_.new_label();
    for (int i = 0; i < int(body_.instructions.size()); ++i) {
      out_.bind(i);
      if (i >= first && i <= index) {
        Instruction& jump = emit("JUMP_FORWARD");
        jump.target = exit_;
        jump.handler = body_.instructions[i].handler;
      }
      Instruction copy = body_.instructions[i];
      if (lowering(i) == Lowering::kSlot) copy.arg = renumbered(copy.arg);
      origin_.push_back(i);
      out_.emit(copy);
    }
  }

  void pass(int slot) {
    // The slot, or the sentinel when loading it raises.
    int caught = out_.new_label(), done = out_.new_label();
    emit(number("LOAD_FAST_CHECK") < 0 ? "LOAD_FAST" : "LOAD_FAST_CHECK", slot)
        .handler = {caught, depth_, false};
    emit("JUMP_FORWARD").target = done;
    out_.bind(caught);
    emit("POP_TOP");
    emit("LOAD_CONST", constant(sentinel_));
    out_.bind(done);
    emit("NOP");
    ++depth_;
  }

  void tail(const AbstractFrame& frame) {
    out_.bind(exit_);
    for (int i = num_temps_; i-- > 0;) emit("STORE_FAST", num_base_ + i);
    emit("LOAD_CONST", constant(marker_));
    depth_ = 1;
    for (int i = 0; i < num_base_ + num_frees_; ++i) pass(renumbered(i));
    for (int i = 0; i < num_temps_; ++i) pass(num_base_ + i);
    emit("BUILD_TUPLE", depth_);
    emit("RETURN_VALUE");
  }

  Result<PrefixCode> finish(const AbstractFrame& frame) {
    CodeParts parts;
    parts.arg_count = code_->co_argcount;
    parts.stack_size = std::max(code_->co_stacksize + 2, depth_ + 3);
    parts.flags = code_->co_flags;
    parts.first_line = code_->co_firstlineno;
    FJ_TRY(parts.consts, from_api(PyTuple_New(Py_ssize_t(consts_.size()))));
    for (size_t i = 0; i < consts_.size(); ++i)
      PyTuple_SET_ITEM(parts.consts.get(), Py_ssize_t(i),
                       consts_[i].new_reference());
    FJ_TRY(Ref names, from_api(PyList_New(0)));
    for (int i = 0; i < num_base_ + num_temps_; ++i) {
      Ref name =
          i < num_base_
              ? Ref::borrow(PyTuple_GET_ITEM(code_->co_localsplusnames, i))
              : Ref::steal(PyUnicode_FromFormat(".p%d", i - num_base_));
      if (!name || PyList_Append(names.get(), name.get()) < 0)
        return Result<PrefixCode>::raised();
    }
    parts.varnames = Ref::steal(PyList_AsTuple(names.get()));
    parts.names = Ref::borrow(code_->co_names);
    parts.freevars = Ref::steal(PyCode_GetFreevars(code_));
    parts.cellvars = Ref::steal(PyCode_GetCellvars(code_));
    parts.filename = Ref::borrow(code_->co_filename);
    parts.name = Ref::borrow(code_->co_name);
    parts.qualname = Ref::borrow(code_->co_qualname);
    AssembledCode assembled;
    if (!assemble(out_, parts.first_line, assembled))
      return fail("cannot assemble");
    PrefixCode prefix;
    FJ_TRY(prefix.code, make_code(parts, assembled));
    // Keyword-only parameters keep their kind.
    FJ_TRY(Ref replace,
           from_api(PyObject_GetAttrString(prefix.code.get(), "replace")));
    FJ_TRY(Ref changes,
           from_api(Py_BuildValue(
               "{s:i,s:i}", "co_kwonlyargcount", code_->co_kwonlyargcount,
               "co_posonlyargcount", code_->co_posonlyargcount)));
    FJ_TRY(Ref no_args, from_api(PyTuple_New(0)));
    FJ_TRY(prefix.code, from_api(PyObject_Call(replace.get(), no_args.get(),
                                               changes.get())));
    for (StackKind kind : frame.stack) prefix.stack_kinds.push_back(int(kind));
    prefix.original_units.assign(out_.instructions.back().end, -1);
    for (size_t i = 0; i < out_.instructions.size(); ++i) {
      if (origin_[i] < 0) continue;
      const Instruction& to = out_.instructions[i];
      const Instruction& from = body_.instructions[origin_[i]];
      for (int unit = to.start; unit < to.end; ++unit)
        prefix.original_units[unit] =
            std::clamp(from.at + unit - to.at, from.start, from.end - 1);
    }
    return prefix;
  }

  PyCodeObject* code_;
  PyObject* marker_;
  PyObject* sentinel_;
  int num_base_, num_frees_, num_temps_ = 0;
  int exit_ = -1, depth_ = 0;
  Location location_;
  Assembly body_, out_;
  std::vector<int> origin_;
  std::vector<Ref> consts_;
};

}  // namespace

Result<PrefixCode> make_prefix(PyObject* code, int offset, PyObject* marker,
                               PyObject* sentinel) {
  return PrefixBuilder(reinterpret_cast<PyCodeObject*>(code), marker, sentinel)
      .build(offset);
}

}  // namespace framejit::bytecode
