#include "bytecode/residual/residual.h"

#include <algorithm>

#include "bytecode/code/code_extra.h"
#include "bytecode/code/opcode_table.h"
#include "bytecode/residual/residual_cache.h"
#include "frame_hook/cpython_internals.h"

namespace framejit::bytecode {
namespace {

constexpr int kGeneratorFlags =
    CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;

// New tuple of the localsplus names [first, last).
Ref slot_names(PyCodeObject* code, int first, int last) {
  return Ref::steal(PyTuple_GetSlice(code->co_localsplusnames, first, last));
}

}  // namespace

ResidualCache::ResidualCache(PyCodeObject* code) {
  num_frees = code->co_nfreevars;
  num_base = code->co_nlocalsplus - num_frees;
  rows = find_function(reinterpret_cast<PyObject*>(code));
  parts.stack_size = code->co_stacksize;
  parts.flags = code->co_flags;
  parts.first_line = code->co_firstlineno;
  parts.consts = Ref::borrow(code->co_consts);
  parts.names = Ref::borrow(code->co_names);
  parts.filename = Ref::borrow(code->co_filename);
  parts.name = Ref::borrow(code->co_name);
  parts.qualname = Ref::borrow(code->co_qualname);
  parts.varnames = slot_names(code, 0, num_base);
  parts.freevars = Ref::steal(PyCode_GetFreevars(code));
  parts.cellvars = Ref::steal(PyCode_GetCellvars(code));
  if (code->co_flags & kGeneratorFlags)
    why_not = "generator or coroutine";
  else if (!(code->co_flags & CO_OPTIMIZED))
    why_not = "class or module body";
  if (!parts.varnames || !parts.freevars || !parts.cellvars) {
    PyErr_Clear();
    why_not = "out of memory";
  }
  if (why_not) return;
  int args = internals::parameter_slots(code);
  if (!disassemble(code, body)) {
    why_not = "bytecode that cannot be read";
    return;
  }
  auto analysis = analyze(body, num_slots(), args, num_frees);
  if (!analysis) {
    why_not = "bytecode whose stack cannot be followed";
    return;
  }
  frames = std::move(*analysis);
  int resume = opcode_table().number("RESUME");
  while (resume_index < int(body.instructions.size()) &&
         body.instructions[resume_index].opcode != resume)
    ++resume_index;
}

int ResidualCache::index_at(int unit) const {
  auto first = body.instructions.begin(), last = body.instructions.end();
  auto found = std::partition_point(
      first, last, [&](const Instruction& i) { return i.at < unit; });
  return found != last && found->at == unit ? int(found - first) : -1;
}

const char* ResidualCache::why_not_at(int index) const {
  if (why_not) return why_not;
  if (index < 0) return "no instruction starts there";
  if (!frames[index]) return "an instruction that is never reached";
  const OpcodeRow& row = *opcode_table()[body.instructions[index].opcode].row;
  if (row.lowering == Lowering::kPrefix) return "inside a call sequence";
  if (index < resume_index) return "before the frame is set up";
  return nullptr;
}

const DerivedCode* derivation_of(PyObject* code) {
  TableRegistry* extra = code_extra(code);
  auto* known = extra ? extra->find<Derivation>() : nullptr;
  return known ? known->from.get() : nullptr;
}

Place find_place(PyObject* code, int offset) {
  Place place;
  TableRegistry* extra = code_extra(code);
  if (!extra) {
    place.why_not = "not a code object";
    return place;
  }
  int unit = offset / 2;
  if (const DerivedCode* derived = derivation_of(code)) {
    place.derived = derived;
    place.cache = derived->origin;
    const auto& units = derived->original_unit;
    unit = unit >= 0 && unit < int(units.size()) ? units[unit] : -1;
    if (derived->is_residual)
      place.why_not = "residual code";
    else if (unit < 0)
      place.why_not = "before the frame is set up";
  } else {
    auto& generated = extra->get<GeneratedCodes>();
    if (!generated.cache) {
      generated.cache = std::make_shared<ResidualCache>(
          reinterpret_cast<PyCodeObject*>(code));
      generated.cache->owner = &generated;
    }
    place.cache = generated.cache;
  }
  if (place.why_not) return place;
  place.index = place.cache->index_at(unit);
  place.why_not = place.cache->why_not_at(place.index);
  return place;
}

namespace {

Break not_breakable(PyObject* code, int offset, std::string why) {
  return Break{BreakReason::kBreakNotResumable, std::move(why),
               Span{Ref::borrow(code), offset}};
}

// The frame in the origin's slots and code units; false when it cannot be.
bool to_origin(const Place& place, const FrameState& state, OriginFrame& out) {
  const ResidualCache& cache = *place.cache;
  out.stack = state.stack;
  out.active_handlers = state.active_handlers;
  auto add = [&out](bool bound) {
    out.slots.push_back(bound ? kSlotBound : kSlotUnbound);
  };
  if (!place.derived) {
    for (bool bound : state.bound) add(bound);
    return int(state.bound.size()) == cache.num_slots();
  }
  const DerivedCode& derived = *place.derived;
  if (int(state.bound.size()) != derived.num_locals + cache.num_frees)
    return false;
  for (int i = 0; i < cache.num_base; ++i) add(state.bound[i]);
  // What lies between was taken by the prologue.
  for (int i = cache.num_base; i < derived.num_locals; ++i)
    if (state.bound[i]) return false;
  for (int i = 0; i < cache.num_frees; ++i)
    add(state.bound[derived.num_locals + i]);
  for (StackItem& item : out.stack) {
    if (item.kind != StackItemKind::kLasti) continue;
    if (item.lasti < 0 || item.lasti >= int(derived.original_unit.size()))
      return false;
    item.lasti = derived.original_unit[item.lasti];
    if (item.lasti < 0) return false;
  }
  return true;
}

// Compares what the caller says with what the bytecode says.
bool is_possible(const ResidualCache& cache, int index,
                 const OriginFrame& frame) {
  const AbstractFrame& known = *cache.frames[index];
  if (known.stack.size() != frame.stack.size()) return false;
  for (size_t i = 0; i < frame.stack.size(); ++i) {
    StackItemKind kind = frame.stack[i].kind;
    bool is_value =
        kind == StackItemKind::kValue || kind == StackItemKind::kSavedException;
    if (known.stack[i] == StackKind::kValue && !is_value) return false;
    if (known.stack[i] == StackKind::kNull && kind != StackItemKind::kNull)
      return false;
    if (known.stack[i] == StackKind::kLasti && kind != StackItemKind::kLasti)
      return false;
  }
  for (size_t i = 0; i < frame.slots.size(); ++i)
    if (!(known.slots[i] & frame.slots[i])) return false;
  // A free variable always has a cell.
  for (int i = cache.num_base; i < cache.num_slots(); ++i)
    if (frame.slots[i] != kSlotBound) return false;
  return true;
}

std::string shape_key(char tag, int index, int from, const OriginFrame& frame) {
  std::string key = tag + std::to_string(index) + "," + std::to_string(from);
  key += ':';
  for (uint8_t mask : frame.slots) key.push_back(char('0' + mask));
  key += ':';
  for (const StackItem& item : frame.stack) {
    key.push_back(char('0' + int(item.kind)));
    if (item.kind == StackItemKind::kLasti)
      key += std::to_string(item.lasti) + ";";
  }
  key += ':' + std::to_string(frame.active_handlers);
  return key;
}

// Registers new code: weakly in the cache, owned by the user's code.
Status adopt(const std::shared_ptr<ResidualCache>& cache, std::string key,
             Generated& generated) {
  TableRegistry* extra = code_extra(generated.code.get());
  if (!extra)
    return Break{
        BreakReason::kInternal, "no room for data of a code object", {}};
  generated.info->origin = cache;
  generated.info->key = key;
  cache->codes[key] = generated.code.get();
  extra->get<Derivation>().from = std::move(generated.info);
  if (cache->owner) cache->owner->codes.push_back(generated.code);
  return ok_status();
}

Ref find_code(const ResidualCache& cache, const std::string& key) {
  auto found = cache.codes.find(key);
  return found == cache.codes.end() ? Ref() : Ref::borrow(found->second);
}

Result<Ref> residual_code(const std::shared_ptr<ResidualCache>& cache,
                          int index, const OriginFrame& frame, Extent extent) {
  bool is_loop = extent == Extent::kLoop;
  std::string key = shape_key(is_loop ? 'L' : 'R', index, index, frame);
  if (Ref known = find_code(*cache, key)) return known;
  FJ_TRY(auto exits, is_loop ? exits_of_loop(*cache, index, frame)
                             : exits_of(*cache, index, frame));
  for (Exit& exit : exits) {
    int target = exit.successor.instruction;
    std::string resume_key = shape_key('r', target, index, exit.frame);
    exit.resume = find_code(*cache, resume_key);
    if (exit.resume) continue;
    FJ_TRY(auto generated, build_resume(*cache, target, index, exit.frame));
    generated.info->active_handlers = exit.frame.active_handlers;
    FJ_CHECK_OK(adopt(cache, resume_key, generated));
    exit.resume = generated.code;
  }
  FJ_TRY(auto generated, is_loop
                             ? build_loop_residual(*cache, index, frame, exits)
                             : build_residual(*cache, index, frame, exits));
  DerivedCode& info = *generated.info;
  for (const Exit& exit : exits) info.resume_codes.push_back(exit.resume);
  using From = ResidualArg::From;
  for (int i = 0; i < cache->num_base; ++i)
    info.args.push_back(
        {frame.slots[i] == kSlotBound ? From::kSlot : From::kNothing, i});
  for (int i = cache->num_base; i < cache->num_slots(); ++i)
    info.args.push_back({From::kSlot, i});
  for (size_t i = 0; i < frame.stack.size(); ++i)
    if (frame.stack[i].kind == StackItemKind::kValue ||
        frame.stack[i].kind == StackItemKind::kSavedException)
      info.args.push_back({From::kStack, int(i)});
  FJ_CHECK_OK(adopt(cache, key, generated));
  return generated.code;
}

}  // namespace

Result<ResidualCode> make_residual(PyObject* code, int offset,
                                   const FrameState& state, Extent extent) {
  Place place = find_place(code, offset);
  if (place.why_not) return not_breakable(code, offset, place.why_not);
  const ResidualCache& cache = *place.cache;
  OriginFrame frame;
  if (!to_origin(place, state, frame) ||
      !is_possible(cache, place.index, frame))
    return not_breakable(code, offset, "the frame contradicts the bytecode");
  ResidualCode out;
  Result<Ref> made = residual_code(place.cache, place.index, frame, extent);
  if (made.broke()) made.brk().span = Span{Ref::borrow(code), offset};
  if (!made.ok()) return made.forward<ResidualCode>();
  out.code = made.take();
  const DerivedCode& info = *derivation_of(out.code.get());
  out.args = info.args;
  out.resume_codes = info.resume_codes;
  // In the slots of the code that broke.
  if (place.derived)
    for (ResidualArg& arg : out.args)
      if (arg.from == ResidualArg::From::kSlot && arg.index >= cache.num_base)
        arg.index += place.derived->num_locals - cache.num_base;
  return out;
}

std::vector<StackKind> stack_kinds_at(PyObject* code, int offset) {
  Place place = find_place(code, offset);
  if (place.why_not) return {};
  return place.cache->frames[place.index]->stack;
}

StackItem stack_item(StackKind kind, PyObject* value) {
  if (!value) return {StackItemKind::kNull, 0};
  if (kind != StackKind::kLasti || !PyLong_Check(value)) return {};
  int overflow = 0;
  long lasti = PyLong_AsLongAndOverflow(value, &overflow);
  return {StackItemKind::kLasti, overflow ? -1 : int(lasti)};
}

const char* why_not_breakable(PyObject* code, int offset) {
  return find_place(code, offset).why_not;
}

PyObject* unbound_marker() {
  static PyObject* marker = made_once(new_marker);
  return marker;
}

MaybeUnbound maybe_unbound(PyObject* code) {
  const DerivedCode* derived = derivation_of(code);
  if (!derived) return {};
  return {derived->maybe_unbound, 2 * derived->checked_unit};
}

int handlers_at_resume(PyObject* code) {
  const DerivedCode* derived = derivation_of(code);
  return derived ? derived->active_handlers : 0;
}

bool is_resume_code(PyObject* code) {
  const DerivedCode* derived = derivation_of(code);
  return derived && !derived->is_residual;
}

bool is_residual_code(PyObject* code) {
  const DerivedCode* derived = derivation_of(code);
  return derived && derived->is_residual;
}

int original_offset(PyObject* code, int offset) {
  const DerivedCode* derived = derivation_of(code);
  if (!derived) return offset;
  const auto& units = derived->original_unit;
  size_t unit = size_t(offset) / 2;
  if (offset < 0 || unit >= units.size() || units[unit] < 0) return -1;
  return 2 * units[unit];
}

FunctionRows original_rows(PyObject* code) {
  const DerivedCode* derived = derivation_of(code);
  return derived ? derived->origin->rows : find_function(code);
}

void release_residual_codes(PyObject* code) {
  TableRegistry* extra = code_extra(code);
  auto* known = extra ? extra->find<GeneratedCodes>() : nullptr;
  if (!known) return;
  // Moved out first: a dying code object may come back here.
  std::vector<Ref> generated = std::move(known->codes);
  known->codes.clear();
}

}  // namespace framejit::bytecode
