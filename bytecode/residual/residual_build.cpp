// Generates residual and resume code (residual.h says what they are). Layout
// of the slots, the same in both:
//   [0, base)        the user's locals and cells, under their own numbers
//   [base, +frees)   parameters for the free variables' cells
//   [.., locals)     parameters for stack values; temporaries of the tails
//   [locals, +frees) the free variables
#include <algorithm>
#include <utility>

#include "bytecode/code/opcode_table.h"
#include "bytecode/residual/loops.h"
#include "bytecode/residual/residual_cache.h"
#include "frame_hook/dispatch.h"

namespace framejit::bytecode {
namespace {

// Opcode numbers, looked up by name once.
struct Numbers {
  int load_fast, store_fast, delete_fast, load_fast_and_clear, resume, nop,
      push_null, swap, push_exc_info, jump_forward, load_const, make_function,
      build_tuple, return_value, make_cell, end_for, pop_top, load_attr, is_op,
      load_fast_check, pop_jump_if_false;
  static const Numbers& get() {
    static const Numbers numbers;
    return numbers;
  }

 private:
  Numbers() {
    auto of = [](const char* name) { return opcode_table().number(name); };
    load_fast = of("LOAD_FAST");
    store_fast = of("STORE_FAST");
    delete_fast = of("DELETE_FAST");
    load_fast_and_clear = of("LOAD_FAST_AND_CLEAR");  // 3.12 on
    resume = of("RESUME");
    nop = of("NOP");
    push_null = of("PUSH_NULL");
    swap = of("SWAP");
    push_exc_info = of("PUSH_EXC_INFO");
    jump_forward = of("JUMP_FORWARD");
    load_const = of("LOAD_CONST");
    make_function = of("MAKE_FUNCTION");
    build_tuple = of("BUILD_TUPLE");
    return_value = of("RETURN_VALUE");
    make_cell = of("MAKE_CELL");
    end_for = of("END_FOR");  // 3.12 on
    pop_top = of("POP_TOP");
    load_attr = of("LOAD_ATTR");
    is_op = of("IS_OP");
    load_fast_check =
        of("LOAD_FAST_CHECK");  // 3.12 on; LOAD_FAST checks before
    if (load_fast_check < 0) load_fast_check = load_fast;
    pop_jump_if_false = of("POP_JUMP_IF_FALSE");
    if (pop_jump_if_false < 0)
      pop_jump_if_false = of("POP_JUMP_FORWARD_IF_FALSE");  // 3.11
  }
};

const OpcodeRow& row_of(const Instruction& instruction) {
  return *opcode_table()[instruction.opcode].row;
}

bool is_call_prefix(const Instruction& instruction) {
  return row_of(instruction).lowering == Lowering::kPrefix;
}

int count_arguments(const std::vector<StackItem>& stack) {
  return int(std::count_if(stack.begin(), stack.end(), [](StackItem item) {
    return item.kind == StackItemKind::kValue ||
           item.kind == StackItemKind::kSavedException;
  }));
}

class Builder {
 public:
  Builder(const ResidualCache& cache, const OriginFrame& frame, int temps,
          Location location)
      : cache_(cache),
        frame_(frame),
        location_(location),
        num_values_(count_arguments(frame.stack)),
        num_temps_(std::max(temps, num_values_)) {
    out_.labels.assign(cache.body.labels.size(), -1);
    PyObject* consts = cache.parts.consts.get();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(consts); ++i)
      consts_.push_back(Ref::borrow(PyTuple_GET_ITEM(consts, i)));
  }

  int num_locals() const { return first_temp() + num_temps_; }
  int num_params() const { return first_temp() + num_values_; }

  void prologue() {
    check_unbound();
    for (int i = 0; i < cache_.num_frees; ++i) {
      take(cache_.num_base + i);
      emit(op_.store_fast, num_locals() + i);
    }
    for (int i = 0; i < cache_.num_base; ++i)
      if (frame_.slots[i] == kSlotUnbound) emit(op_.delete_fast, i);
    // "After yield from": does not look for signals. What a handler raises is
    // for the program's own handlers, and this place lies outside them.
    emit(op_.resume, 2);
    int value = first_temp();
    for (const StackItem& item : frame_.stack) {
      switch (item.kind) {
        case StackItemKind::kNull:
          emit(op_.push_null);
          break;
        case StackItemKind::kLasti:
          lasti_consts_.emplace_back(int(consts_.size()), item.lasti);
          emit(op_.load_const, constant(Ref()));
          break;
        case StackItemKind::kSavedException:
          take(value++);
          emit(op_.push_exc_info);
          emit(op_.pop_top);
          break;
        case StackItemKind::kValue:
          take(value++);
          break;
      }
    }
  }

  void jump_to_body(int index) {
    emit(op_.jump_forward).target = index;  // label i is instruction i
  }

  // The user's instructions, in order, with free slots renumbered. In place of
  // where `exits` lead, their tails.
  void body(const std::vector<Exit>& exits = {}) {
    for (int i = 0; i < int(cache_.body.instructions.size()); ++i) {
      out_.bind(i);  // disassemble() made label i instruction i
      for (const Exit& exit : exits)
        if (exit.successor.instruction == i) tail(exit, false);
      copy(i);
    }
  }

  // 3.11 and 3.12 take a slot for a cell only when a MAKE_CELL of its number
  // lies somewhere before the running instruction.
  void dead_make_cells() {
    int behind = -1;
    for (const Instruction& instruction : cache_.body.instructions) {
      if (instruction.opcode != op_.make_cell) continue;
      if (behind < 0) {
        behind = out_.new_label();
        emit(op_.jump_forward).target = behind;
      }
      emit(op_.make_cell, instruction.arg);
    }
    if (behind >= 0) out_.bind(behind);
  }

  // The breaking instruction with its KW_NAMES and PRECALL.
  void breaking_instruction(int index, int jump_label) {
    int first = index;
    const auto& body = cache_.body.instructions;
    while (first > 0 && is_call_prefix(body[first - 1])) --first;
    // 3.13 looks up the handler of an error out of an inlined callee one unit
    // before the call, which must therefore lie in the same range.
    if (PY_MINOR_VERSION >= 13 && body[index].handler.target >= 0)
      emit(op_.nop).handler = body[index].handler;
    for (int i = first; i < index; ++i) copy(i);
    copy(index);
    Instruction& last = out_.instructions.back();
    if (body[index].target >= 0) last.target = jump_label;
    if (last.opcode == op_.resume) last = plain(op_.nop);
    if (loads_method(body[index])) {
      // As a plain attribute the pair is static: the bound method and a NULL.
      if (row_of(last).lowering == Lowering::kName)
        last.opcode = op_.load_attr;
      else
        last.arg &= ~1;
      emit(op_.push_null);
      if (!kCallableFirst) emit(op_.swap, 2);
    }
  }

  // Returns the token for one way out of the breaking instruction.
  void tail(const Exit& exit, bool exhausted_iterator) {
    if (exhausted_iterator && PY_MINOR_VERSION >= 12) {
      emit(op_.end_for);  // FOR_ITER skips these
      if (PY_MINOR_VERSION >= 13) emit(op_.pop_top);
    }
    const auto& stack = exit.frame.stack;
    for (int i = int(stack.size()); i-- > 0;)
      emit(op_.store_fast, first_temp() + i);  // takes a NULL, too
    emit(op_.load_const, constant(Ref::borrow(token_marker())));
    emit(op_.load_const, constant(exit.resume));
    emit(op_.make_function, 0);
    int count = 2;
    for (int i = 0; i < cache_.num_base; ++i, ++count) {
      if (exit.frame.slots[i] == kSlotBound)
        take(i);
      else if (exit.frame.slots[i] == kSlotUnbound)
        emit(op_.load_const, constant(Ref::borrow(Py_None)));
      else
        take_or_marker(i, count);
    }
    for (int i = 0; i < cache_.num_frees; ++i, ++count)
      emit(op_.load_fast, num_locals() + i);
    for (size_t i = 0; i < stack.size(); ++i) {
      if (stack[i].kind != StackItemKind::kValue) continue;
      take(first_temp() + int(i));
      ++count;
    }
    emit(op_.build_tuple, count);
    emit(op_.return_value);
  }

  Result<Generated> finish(bool is_residual);

  Assembly& assembly() { return out_; }

 private:
  int first_temp() const { return cache_.num_slots(); }

  Instruction plain(int opcode, int arg = 0) const {
    Instruction instruction;
    instruction.opcode = opcode;
    instruction.arg = arg;
    instruction.location = location_;
    return instruction;
  }

  Instruction& emit(int opcode, int arg = 0) {
    origin_.push_back(-1);
    return out_.emit(plain(opcode, arg));
  }

  // Pushes a slot's value and leaves the slot unbound.
  void take(int slot) {
    if (op_.load_fast_and_clear >= 0) {
      emit(op_.load_fast_and_clear, slot);
    } else {
      emit(op_.load_fast, slot);
      emit(op_.delete_fast, slot);
    }
  }

  // The same with unbound_marker() for what is unbound. depth: of the stack.
  void take_or_marker(int slot, int depth) {
    int unbound = out_.new_label(), done = out_.new_label();
    emit(op_.load_fast_check, slot).handler = {unbound, depth, false};
    emit(op_.delete_fast, slot);
    emit(op_.jump_forward).target = done;
    out_.bind(unbound);
    emit(op_.pop_top);
    emit(op_.load_const, constant(Ref::borrow(unbound_marker())));
    out_.bind(done);
  }

  // Parameters that are unbound_marker() become unbound. (An attempt to capture
  // looks itself, by a guard: nothing is known of a value for this.)
  void check_unbound() {
    for (int i = 0; i < cache_.num_base; ++i) {
      if (frame_.slots[i] != (kSlotBound | kSlotUnbound)) continue;
      maybe_unbound_.push_back(i);
      int bound = out_.new_label();
      emit(op_.load_fast, i);
      emit(op_.load_const, constant(Ref::borrow(unbound_marker())));
      emit(op_.is_op, 0);
      emit(op_.pop_jump_if_false).target = bound;
      emit(op_.delete_fast, i);
      out_.bind(bound);
    }
    num_checks_ = out_.instructions.size();
  }

  int constant(Ref object) {
    consts_.push_back(std::move(object));
    return int(consts_.size()) - 1;
  }

  int renumbered(int slot) const {
    return slot < cache_.num_base ? slot
                                  : slot - cache_.num_base + num_locals();
  }

  void copy(int index) {
    Instruction instruction = cache_.body.instructions[index];
    const OpcodeRow& row = row_of(instruction);
    if (row.lowering == Lowering::kSlot)
      instruction.arg = renumbered(instruction.arg);
    if (row.lowering == Lowering::kSlotPair) {
      int first = renumbered(instruction.arg >> 4);
      int second = renumbered(instruction.arg & 15);
      if (first > 15 || second > 15) return copy_halves(index, first, second);
      instruction.arg = first << 4 | second;
    }
    origin_.push_back(index);
    out_.emit(instruction);
  }

  // A super-instruction whose slots no longer fit into it.
  void copy_halves(int index, int first, int second) {
    Instruction half = cache_.body.instructions[index];
    const OpcodeRow& row = row_of(half);
    auto opcode = [&](MicroOpKind kind) {
      return kind == MicroOpKind::kStoreFast ? op_.store_fast : op_.load_fast;
    };
    half.opcode = opcode(row.kind);
    half.arg = first;
    origin_.push_back(index);
    out_.emit(half);
    half.opcode = opcode(static_cast<MicroOpKind>(row.extra));
    half.arg = second;
    origin_.push_back(-1);  // a break there is not one of the original
    out_.emit(half);
  }

  Result<Ref> variable_names() const;
  Status set_lasti_consts();
  std::vector<int> original_units() const;

  const Numbers& op_ = Numbers::get();
  const ResidualCache& cache_;
  const OriginFrame& frame_;
  Location location_;
  int num_values_;
  int num_temps_;
  Assembly out_;
  std::vector<int> origin_;  // per instruction: of cache_.body, or -1
  std::vector<Ref> consts_;
  std::vector<std::pair<int, int>> lasti_consts_;  // index, unit in the origin
  std::vector<int> maybe_unbound_;
  size_t num_checks_ = 0;  // instructions of check_unbound()
};

Result<Ref> Builder::variable_names() const {
  PyObject* base = cache_.parts.varnames.get();
  FJ_TRY(Ref names, from_api(PyTuple_New(num_locals())));
  for (int i = 0; i < num_locals(); ++i) {
    PyObject* name;
    if (i < cache_.num_base)
      name = Py_NewRef(PyTuple_GET_ITEM(base, i));
    else if (i < first_temp())
      name = PyUnicode_FromFormat(".f%d", i - cache_.num_base);
    else
      name = PyUnicode_FromFormat(".s%d", i - first_temp());
    if (!name) return Result<Ref>::raised();
    PyTuple_SET_ITEM(names.get(), i, name);
  }
  return names;
}

// An instruction offset on the stack, in terms of the generated code.
Status Builder::set_lasti_consts() {
  for (auto [index, unit] : lasti_consts_) {
    int translated = 0;
    for (size_t i = 0; i < out_.instructions.size(); ++i) {
      if (origin_[i] < 0) continue;
      const Instruction& from = cache_.body.instructions[origin_[i]];
      if (unit < from.start || unit >= from.end) continue;
      const Instruction& to = out_.instructions[i];
      translated = std::min(to.at + std::max(0, unit - from.at), to.end - 1);
    }
    FJ_TRY(consts_[index], from_api(PyLong_FromLong(translated)));
  }
  return ok_status();
}

std::vector<int> Builder::original_units() const {
  std::vector<int> units(out_.instructions.back().end, -1);
  for (size_t i = 0; i < out_.instructions.size(); ++i) {
    if (origin_[i] < 0) continue;
    const Instruction& from = cache_.body.instructions[origin_[i]];
    const Instruction& to = out_.instructions[i];
    for (int unit = to.start; unit < to.end; ++unit)
      units[unit] =
          std::clamp(from.at + unit - to.at, from.start, from.end - 1);
  }
  return units;
}

Result<Generated> Builder::finish(bool is_residual) {
  AssembledCode assembled;
  CodeParts parts = cache_.parts;
  if (!assemble(out_, parts.first_line, assembled))
    return Break{BreakReason::kBreakNotResumable, "a jump has no form", {}};
  FJ_CHECK_OK(set_lasti_consts());
  FJ_TRY(parts.varnames, variable_names());
  FJ_TRY(parts.consts, from_api(PyTuple_New(Py_ssize_t(consts_.size()))));
  for (size_t i = 0; i < consts_.size(); ++i)
    PyTuple_SET_ITEM(parts.consts.get(), Py_ssize_t(i),
                     consts_[i].new_reference());
  parts.arg_count = num_params();
  parts.flags &= ~(CO_VARARGS | CO_VARKEYWORDS);
  parts.stack_size =
      std::max(parts.stack_size + 2, num_locals() + 4 + cache_.num_frees);
  Generated generated;
  FJ_TRY(generated.code, make_code(parts, assembled));
  generated.info = std::make_unique<DerivedCode>();
  generated.info->is_residual = is_residual;
  generated.info->num_locals = num_locals();
  generated.info->original_unit = original_units();
  generated.info->maybe_unbound = std::move(maybe_unbound_);
  generated.info->checked_unit = out_.instructions[num_checks_].start;
  return generated;
}

AbstractFrame abstract_frame(const OriginFrame& frame) {
  AbstractFrame out;
  out.slots = frame.slots;
  for (const StackItem& item : frame.stack)
    out.stack.push_back(item.kind == StackItemKind::kNull ? StackKind::kNull
                        : item.kind == StackItemKind::kLasti
                            ? StackKind::kLasti
                            : StackKind::kValue);
  return out;
}

// The lasti that is now at `position`: its own, or the only one there is.
int find_lasti(const std::vector<StackItem>& before, size_t position) {
  if (position < before.size() &&
      before[position].kind == StackItemKind::kLasti)
    return before[position].lasti;
  int found = -1;
  for (const StackItem& item : before) {
    if (item.kind != StackItemKind::kLasti) continue;
    if (found >= 0 && found != item.lasti) return -1;
    found = item.lasti;
  }
  return found;
}

}  // namespace

namespace {

Break not_static() {
  return Break{BreakReason::kBreakNotResumable,
               "the stack behind the break is not known",
               {}};
}

// before: the frame where the residual code begins.
Result<Exit> make_exit(Successor successor, AbstractFrame after,
                       const OriginFrame& before) {
  Exit exit;
  exit.successor = successor;
  exit.frame.active_handlers = before.active_handlers;
  exit.frame.slots = std::move(after.slots);
  for (size_t i = 0; i < after.stack.size(); ++i) {
    StackItem item;
    if (after.stack[i] == StackKind::kMaybeNull) return not_static();
    if (after.stack[i] == StackKind::kNull) item.kind = StackItemKind::kNull;
    if (after.stack[i] == StackKind::kLasti) {
      item.kind = StackItemKind::kLasti;
      item.lasti = find_lasti(before.stack, i);
      if (item.lasti < 0) return not_static();
    }
    exit.frame.stack.push_back(item);
  }
  return exit;
}

}  // namespace

Result<std::vector<Exit>> exits_of(const ResidualCache& cache, int index,
                                   const OriginFrame& frame) {
  const Instruction& instruction = cache.body.instructions[index];
  std::vector<Exit> exits;
  for (Successor successor : successors(cache.body, index)) {
    AbstractFrame after = abstract_frame(frame);
    if (!apply_effect(instruction, successor.jump, after)) return not_static();
    if (loads_method(instruction)) {
      // See breaking_instruction(): which half is NULL becomes static.
      size_t other = after.stack.size() - (kCallableFirst ? 1 : 2);
      after.stack[other] = StackKind::kNull;
    }
    for (uint8_t mask : after.slots)
      if (mask == (kSlotBound | kSlotUnbound)) return not_static();
    FJ_TRY(Exit exit, make_exit(successor, std::move(after), frame));
    int& handlers = exit.frame.active_handlers;
    MicroOpKind kind = row_of(instruction).kind;
    if (kind == MicroOpKind::kPushExcInfo) ++handlers;
    if (kind == MicroOpKind::kPopExcept && handlers > 0) --handlers;
    exits.push_back(std::move(exit));
  }
  return exits;
}

// What the body of the loop has bound and what of it is on the stack depends on
// the turns there were: all that is known of the frame on each way out.
Result<std::vector<Exit>> exits_of_loop(const ResidualCache& cache, int header,
                                        const OriginFrame& frame) {
  std::vector<bool> inside = loop_region(cache, header);
  if (inside.empty())
    return Break{BreakReason::kBreakNotResumable, "no loop begins here", {}};
  auto frames = analyze_part(cache.body, header, abstract_frame(frame), inside);
  if (!frames) return not_static();
  std::vector<Exit> exits;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] || !(*frames)[i]) continue;
    // Of which turn, nobody knows.
    const std::vector<StackKind>& stack = (*frames)[i]->stack;
    if (std::count(stack.begin(), stack.end(), StackKind::kLasti))
      return not_static();
    FJ_TRY(Exit exit, make_exit({int(i), true}, *(*frames)[i], frame));
    exits.push_back(std::move(exit));
  }
  return exits;
}

Result<Generated> build_resume(const ResidualCache& cache, int index, int from,
                               const OriginFrame& frame) {
  Builder builder(cache, frame, 0, cache.body.instructions[from].location);
  builder.prologue();
  builder.jump_to_body(index);
  builder.body();
  return builder.finish(false);
}

namespace {

// Slots for what the tails take off the stack.
int num_temps(const std::vector<Exit>& exits) {
  size_t most = 0;
  for (const Exit& exit : exits) most = std::max(most, exit.frame.stack.size());
  return int(most);
}

}  // namespace

Result<Generated> build_residual(const ResidualCache& cache, int index,
                                 const OriginFrame& frame,
                                 const std::vector<Exit>& exits) {
  const Instruction& instruction = cache.body.instructions[index];
  Builder builder(cache, frame, num_temps(exits), instruction.location);
  builder.prologue();
  bool has_lasti = std::any_of(
      frame.stack.begin(), frame.stack.end(),
      [](const StackItem& item) { return item.kind == StackItemKind::kLasti; });
  if (PY_MINOR_VERSION < 13) builder.dead_make_cells();
  int jump_label = builder.assembly().new_label();
  builder.breaking_instruction(index, jump_label);
  for (const Exit& exit : exits) {
    if (exit.successor.jump) builder.assembly().bind(jump_label);
    bool exhausted = exit.successor.jump &&
                     row_of(instruction).kind == MicroOpKind::kForIter;
    builder.tail(exit, exhausted);
  }
  // Reached only through the handler of the breaking instruction; a RERAISE
  // of an outer error names an instruction of it.
  if (instruction.handler.target >= 0 || has_lasti) builder.body();
  return builder.finish(true);
}

Result<Generated> build_loop_residual(const ResidualCache& cache, int header,
                                      const OriginFrame& frame,
                                      const std::vector<Exit>& exits) {
  Builder builder(cache, frame, num_temps(exits),
                  cache.body.instructions[header].location);
  builder.prologue();
  builder.jump_to_body(header);
  builder.body(exits);
  return builder.finish(true);
}

}  // namespace framejit::bytecode
