// Origins: where a value came from, and the guard that made reading it sound.
#include "bytecode/objects/origins.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/dim_marks.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/moved_texts.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/remade_functions.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/follower.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "guards/known_objects.h"
#include "guards/set/number_expr.h"
#include "guards/set/object_layout.h"

namespace framejit::bytecode {

namespace {}  // namespace

bool is_argument_path(const Source* source) {
  for (; source; source = source->base) {
    switch (source->kind) {
      case SourceKind::kArg:
        return true;
      case SourceKind::kDictItem:
      case SourceKind::kListItem:
      case SourceKind::kTupleItem:
        break;
      default:
        return false;
    }
  }
  return false;
}

CaptureState::CaptureState(const CaptureRequest& request, TensorTracer& tracer,
                           GuardSet& guards, Caller& caller)
    : tracer(tracer), guards(guards), caller(caller), request(request) {
  table<Origins>();  // the last to go: it keeps the others' keys alive
}

namespace {

const Source* known_source(const CaptureState& state, PyObject* object) {
  const auto& sources = state.table<Origins>().sources;
  auto found = sources.find(object);
  return found == sources.end() ? nullptr : found->second;
}

}  // namespace

const Source* CaptureState::source_of(PyObject* object) const {
  const Source* source = known_source(*this, object);
  if (source && reads_late(*this)) note_late_object(*this, object, source);
  return source;
}

void CaptureState::register_input(PyObject* object, const Source* source) {
  auto [entry, inserted] = table<Origins>().sources.try_emplace(object, source);
  if (!inserted) return;
  table<Origins>().order.push_back(object);
  keep_alive(object);
}

void CaptureState::keep_alive(PyObject* object) {
  table<Origins>().kept.push_back(Ref::borrow(object));
}

void CaptureState::guard(GuardKind kind, const Source* source, PyObject* object,
                         int64_t number) {
  if (!source) return;
  guards.set_span(caller.here());
  guards.add(kind, source, object, number);
}

bool CaptureState::is_constant(PyObject* object) const {
  if (is_builtin_constant(object)) return true;
  return tracer.classify(object) == ObjectClass::kConstant;
}

bool CaptureState::pin(PyObject* object) {
  if (is_builtin_constant(object)) return false;
  if (is_fresh_class(*this, object)) return false;
  if (PyFunction_Check(object) && caller.is_fresh_function(object))
    return false;
  // A static type of C cannot change.
  if (PyType_Check(object) &&
      !is_heap_type(reinterpret_cast<PyTypeObject*>(object))) {
    return false;
  }
  if (const Source* known = known_source(*this, object)) {
    // (What a class has is guarded where it was looked up.)
    if (known->kind != SourceKind::kConst &&
        known->kind != SourceKind::kTypeAttr) {
      guard(GuardKind::kIs, known, object);
    }
    return false;
  }
  register_alone(object);
  return true;
}

namespace {

// Instances of classes of the program, classes with a metaclass, and modules.
bool may_change_class(PyObject* object) {
  return is_heap_type(Py_TYPE(object)) || PyModule_Check(object);
}

// What it holds is what it always will, so each of these is itself as well.
Ref fixed_parts(PyObject* object) {
  if (PyTuple_Check(object)) return Ref::borrow(object);
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return Ref::steal(PyTuple_Pack(3, slice->start, slice->stop, slice->step));
  }
  if (!PyFrozenSet_Check(object)) return Ref();
  // As the set has them, whatever a class derived from it says.
  Ref items = Ref::steal(PyFrozenSet_Type.tp_iter(object));
  return Ref::steal(items ? PySequence_Tuple(items.get()) : nullptr);
}

}  // namespace

void CaptureState::register_alone(PyObject* object) {
  const Source* source = guards.sources().constant(object);
  register_input(object, source);
  if (may_change_class(object) && !is_fresh_class(*this, object))
    guard(GuardKind::kTypeIs, source,
          reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

Status CaptureState::pin_parts(PyObject* object) {
  // (What a tuple has is read item by item.)
  if (PyTuple_Check(object)) return ok_status();
  std::vector<Ref> opened;
  auto open = [&](PyObject* container) -> Status {
    Ref parts = fixed_parts(container);
    if (!parts && PyErr_Occurred()) return Status::raised();
    if (parts) opened.push_back(std::move(parts));
    return ok_status();
  };
  FJ_CHECK_OK(open(object));
  while (!opened.empty()) {
    Ref parts = std::move(opened.back());
    opened.pop_back();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i) {
      PyObject* part = PyTuple_GET_ITEM(parts.get(), i);
      // Vocabularies are large.
      if (PyUnicode_CheckExact(part) || PyLong_CheckExact(part)) continue;
      switch (tracer.classify(part)) {
        case ObjectClass::kPlain:
          if (pin(part)) FJ_CHECK_OK(open(part));
          break;
        case ObjectClass::kConstant:
          break;
        default:
          // Native code would find the tensor itself, which no graph knows.
          return make_break(BreakReason::kUnknownTensor,
                            std::string("in a ") + Py_TYPE(object)->tp_name);
      }
    }
  }
  return ok_status();
}

Status CaptureState::pin_value(PyObject* object) {
  return pin(object) ? pin_parts(object) : ok_status();
}

Status CaptureState::register_constant(PyObject* object) {
  register_alone(object);
  return pin_parts(object);
}

Break CaptureState::make_break(BreakReason reason, std::string detail) const {
  return Break{reason, std::move(detail), caller.here()};
}

namespace {

// Had the number at this place other values in earlier calls?
bool has_changed(CaptureState& state, const Source* source) {
  const auto* numbers = state.request.dynamic_numbers;
  if (!numbers || numbers->empty()) return false;
  PyObject* code = PyFunction_GetCode(state.request.function);
  return numbers->count(source_text(source, code)) != 0;
}

// Did the caller ask to keep the number at this place symbolic?
bool wants_symbol(CaptureState& state, const Source* source) {
  const CaptureRequest& request = state.request;
  if (request.dynamic == 0 || source->kind == SourceKind::kConst) return false;
  return (request.dynamic == 1 && is_argument_path(source)) ||
         has_changed(state, source);
}

Result<Ref> came_in(CaptureState& state, const Source* source,
                    Result<Ref> number) {
  if (!number.ok()) return number;
  auto [entry, inserted] = state.table<NumbersThatCameIn>().places.try_emplace(
      number.value().get(), source);
  if (inserted) state.keep_alive(number.value().get());
  return number;
}

// An int or float that is to be symbolic, as a symbol; else empty.
Result<Ref> dynamic_int(CaptureState& state, PyObject* value,
                        const Source* source) {
  if (!wants_symbol(state, source)) return Ref();
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  // 0 and 1, too: where they mean something of their own (empty, broadcast),
  // that is decided, and guarded. Of the largest not even the opposite may be
  // had in 64 bits.
  if (overflow || number > kLargestInteger || number < -kLargestInteger) {
    return Ref();
  }
  state.guard(GuardKind::kTypeIs, source,
              reinterpret_cast<PyObject*>(&PyLong_Type));
  const Source* value_source =
      state.guards.sources().make(SourceKind::kIntValue, source);
  int symbol = state.guards.add_symbol(value_source, number);
  return came_in(state, source,
                 state.tracer.make_symbolic(Expr::symbol(symbol)));
}

}  // namespace

Result<Ref> dynamic_length(CaptureState& state, const Source* container,
                           int64_t length) {
  const Source* source =
      state.guards.sources().make(SourceKind::kLength, container);
  if (state.request.dynamic == 0 || !has_changed(state, source)) return Ref();
  return state.tracer.make_symbolic(
      Expr::symbol(state.guards.add_symbol(source, length)));
}

namespace {

Result<Ref> dynamic_float(CaptureState& state, PyObject* value,
                          const Source* source) {
  if (!wants_symbol(state, source)) return Ref();
  state.guard(GuardKind::kTypeIs, source,
              reinterpret_cast<PyObject*>(&PyFloat_Type));
  const Source* bits =
      state.guards.sources().make(SourceKind::kFloatBits, source);
  int symbol = state.guards.add_symbol(
      bits, std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value)),
      has_changed(state, source));
  return came_in(state, source,
                 state.tracer.make_symbolic(Expr::real_symbol(symbol)));
}

// mark_dynamic(x, dim, min=, max=): the symbol of the dim stays in the range,
// outside which there is no guard.
void guard_range(GuardSet& guards, const Source* source,
                 const DimMarks::Range& range) {
  const Source* size = guards.sources().make(
      range.is_stride ? SourceKind::kTensorStride : SourceKind::kTensorSize,
      source, nullptr, range.dim);
  for (size_t i = 0; i < guards.symbols().size(); ++i) {
    const Symbol& symbol = guards.symbols()[i];
    if (symbol.source != size) continue;
    if (symbol.hint < range.low || symbol.hint > range.high) return;
    Expr value = Expr::symbol(int(i));
    if (range.low > 0) guards.add_expr(expr_le(Expr(range.low), value));
    if (range.high < std::numeric_limits<int64_t>::max()) {
      guards.add_expr(expr_le(value, Expr(range.high)));
    }
  }
}

Result<Ref> wrap_tensor(CaptureState& state, PyObject* tensor,
                        const Source* source) {
  auto& origins = state.table<Origins>();
  auto known = origins.stand_ins.find(tensor);
  if (known != origins.stand_ins.end()) {
    const Source* first = state.source_of(tensor);
    if (first != source) {
      Guard guard{GuardKind::kSameObject, source};
      guard.other = first;
      guard.span = state.caller.here();
      state.guards.add(std::move(guard));
    }
    return Ref::borrow(known->second);
  }
  const CaptureRequest& request = state.request;
  DynamicDims dims;
  if (request.dynamic == 1 && is_argument_path(source)) {
    dims = DynamicDims::all();
  } else if (request.dynamic != 0 && request.dynamic_dims &&
             !request.dynamic_dims->empty()) {
    PyObject* code = PyFunction_GetCode(request.function);
    auto found = request.dynamic_dims->find(source_text(source, code));
    if (found != request.dynamic_dims->end()) dims = found->second;
  }
  DimMarks marks = read_dim_marks(tensor);
  if (!marks.empty()) {
    dims = marks.apply(dims, static_cast<size_t>(tensor_fields(tensor).dim));
  }
  state.guards.set_span(state.caller.here());
  FJ_TRY(Ref stand_in, state.tracer.stand_in(tensor, source, dims));
  if (state.tracer.is_subclass(stand_in.get())) {
    FJ_CHECK_OK(guard_overriding_class(state, Py_TYPE(stand_in.get())));
  }
  for (const DimMarks::Range& range : marks.ranges) {
    guard_range(state.guards, source, range);
  }
  state.register_input(tensor, source);
  state.keep_alive(stand_in.get());
  origins.stand_ins[tensor] = stand_in.get();
  return stand_in;
}

// The items behind those that a struct sequence shows (`tm_zone`) are its own.
Result<Ref> with_hidden_items(CaptureState& state, PyObject* like,
                              PyObject* items) {
  Ref dict = own_dict(Py_TYPE(like));
  PyObject* fields =
      dict ? PyDict_GetItemString(dict.get(), "n_fields") : nullptr;
  Py_ssize_t all = fields ? PyLong_AsSsize_t(fields) : -1;
  Py_ssize_t shown = PyTuple_GET_SIZE(items);
  if (all <= shown) {
    PyErr_Clear();
    return Ref::borrow(items);
  }
  // sys.flags and the like: none are made but by CPython itself.
  if (!Py_TYPE(like)->tp_new) return unguardable(state, like, "the items");
  Ref whole = Ref::steal(PyTuple_New(all));
  if (!whole) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < all; ++i) {
    PyObject* item = i < shown ? PyTuple_GET_ITEM(items, i)
                               : PyStructSequence_GET_ITEM(like, i);
    PyTuple_SET_ITEM(whole.get(), i, Py_NewRef(item ? item : Py_None));
  }
  return whole;
}

// A tuple of the same type with other items. `like` is exact, a namedtuple or
// a struct sequence of C.
Result<Ref> tuple_like(CaptureState& state, PyObject* like, PyObject* items) {
  PyTypeObject* type = Py_TYPE(like);
  if (type == &PyTuple_Type) return Ref::borrow(items);
  newfunc make = PyTuple_Type.tp_new;
  if (!is_heap_type(type) && type->tp_new) make = type->tp_new;
  Ref all = Ref::borrow(items);
  if (is_struct_sequence(type)) {
    // A tuple of that type would have no room for the items that it hides.
    FJ_TRY(all, with_hidden_items(state, like, items));
    if (type->tp_new) make = type->tp_new;
  }
  Ref args = Ref::steal(PyTuple_Pack(1, all.get()));
  if (!args) return Result<Ref>::raised();
  return from_api(make(type, args.get(), nullptr));
}

Result<Ref> wrap_tuple(CaptureState& state, PyObject* value,
                       const Source* source) {
  PyTypeObject* type = Py_TYPE(value);
  if (type != &PyTuple_Type && type->tp_dictoffset != 0) {
    PyObject** dict = _PyObject_GetDictPtr(value);
    if (dict && *dict && PyDict_GET_SIZE(*dict) != 0) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "tuple subclass with attributes");
    }
  }
  Py_ssize_t size = PyTuple_GET_SIZE(value);
  state.guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
  state.guard(GuardKind::kLength, source, nullptr, size);
  Ref items = Ref::steal(PyTuple_New(size));
  if (!items) return Result<Ref>::raised();
  bool changed = false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GET_ITEM(value, i);
    const Source* item_source =
        state.guards.sources().make(SourceKind::kTupleItem, source, nullptr, i);
    FJ_TRY(Ref wrapped, state.wrap(item, item_source));
    changed |= wrapped.get() != item;
    PyTuple_SET_ITEM(items.get(), i, wrapped.release());
  }
  const bool opened = is_builtin_constant(value);
  if (!opened) state.register_input(value, source);
  // No symbol came of it, so it is the constant that it looks like.
  if (!changed && opened) state.guard(GuardKind::kEquals, source, value);
  if (!changed) return Ref::borrow(value);
  FJ_TRY(Ref copy, tuple_like(state, value, items.get()));
  auto& origins = state.table<Origins>();
  state.register_input(copy.get(), source);
  origins.rebuilt[value] = copy.get();
  if (opened) {
    // The copy does not stand for the constant, whose items may be others.
    state.keep_alive(value);
  } else {
    origins.originals[copy.get()] = value;
  }
  return copy;
}

// A tuple of constants is guarded as a whole, but for one with a number that is
// to be symbolic: that has items of its own.
bool holds_dynamic_number(CaptureState& state, PyObject* value,
                          const Source* source) {
  const CaptureRequest& request = state.request;
  bool possible = request.dynamic == 1 || (request.dynamic_numbers &&
                                           !request.dynamic_numbers->empty());
  if (!possible || request.dynamic == 0 || native_stack_low()) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
    PyObject* item = PyTuple_GET_ITEM(value, i);
    bool number = PyLong_CheckExact(item) || PyFloat_CheckExact(item);
    if (!number && !PyTuple_CheckExact(item)) continue;
    const Source* place =
        state.guards.sources().make(SourceKind::kTupleItem, source, nullptr, i);
    if (number ? wants_symbol(state, place)
               : holds_dynamic_number(state, item, place))
      return true;
  }
  return false;
}

// A tuple of symbols that came in as a constant.
bool is_opened_constant(const CaptureState& state, PyObject* object) {
  if (!PyTuple_CheckExact(object)) return false;
  for (const auto& [real, copy] : state.table<Origins>().rebuilt) {
    if (copy == object) return is_builtin_constant(real);
  }
  return false;
}

// A tuple that is a constant, but for its numbers that are to be symbolic.
// Null: it is guarded as a whole.
Result<Ref> open_constant(CaptureState& state, PyObject* value,
                          const Source* source) {
  const auto& rebuilt = state.table<Origins>().rebuilt;
  auto copy = rebuilt.find(value);
  if (copy == rebuilt.end()) {
    if (!holds_dynamic_number(state, value, source)) return Ref();
    return wrap_tuple(state, value, source);
  }
  const Source* known = known_source(state, copy->second);
  if (known != source) {
    Guard alias{GuardKind::kSameObject, source};
    alias.other = known;
    alias.span = state.caller.here();
    state.guards.add(std::move(alias));
  }
  return Ref::borrow(copy->second);
}

}  // namespace

namespace {

// Which slot of which class a method-wrapper calls; its name says the rest.
Status guard_slot(CaptureState& state, PyObject* wrapper,
                  const Source* source) {
  state.guard(GuardKind::kTypeIs, source,
              reinterpret_cast<PyObject*>(Py_TYPE(wrapper)));
  PyObject* name = interned("__objclass__");
  FJ_TRY(Ref owner, from_api(PyObject_GetAttr(wrapper, name)));
  state.guard(GuardKind::kIs,
              state.guards.sources().make(SourceKind::kGetSet, source, name),
              owner.get());
  return ok_status();
}

}  // namespace

const Source* follower_source(const Source* source) {
  static PyObject* const name = interned(kFollowerOriginal);
  bool is_original = source && source->kind == SourceKind::kSlotMember &&
                     source->key.get() == name;
  return is_original ? source->base : nullptr;
}

namespace {

// What compile(module) gave stands for the module: reads, writes and calls are
// those of the module, and where it leaves the capture the follower does.
Result<Ref> wrap_follower(CaptureState& state, PyObject* follower,
                          PyObject* original, const Source* source) {
  PyTypeObject* type = Py_TYPE(follower);
  const Source* from = state.guards.sources().make(
      SourceKind::kSlotMember, source, interned(kFollowerOriginal),
      follower_original_offset(type));
  state.guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
  const Source* known = state.source_of(original);
  if (known && known != from) {
    const Source* first = follower_source(known);
    if (!first || state.table<Origins>().followers[original] != follower) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "a module and what compile() made of it");
    }
    Guard same{GuardKind::kSameObject, source};
    same.other = first;
    same.span = state.caller.here();
    state.guards.add(std::move(same));
    return Ref::borrow(original);
  }
  state.table<Origins>().followers[original] = follower;
  state.keep_alive(follower);
  return state.wrap(original, from);
}

bool is_huge_text(PyObject* value) {
  constexpr Py_ssize_t kMost = 4 << 20;
  return PyUnicode_Check(value)
             ? PyUnicode_GET_LENGTH(value) > kMost
             : PyBytes_Check(value) && PyBytes_GET_SIZE(value) > kMost;
}

}  // namespace

Result<Ref> CaptureState::wrap(PyObject* value, const Source* source) {
  FJ_CHECK_OK(room_for(*this, "containers"));
  if (!source) return Ref::borrow(value);
  // The object that is read, not what it holds.
  const bool is_moved = std::exchange(table<MovedTexts>().wanted, false);
  PyTypeObject* type = Py_TYPE(value);
  if (PyObject* original = follower_original(value)) {
    return wrap_follower(*this, value, original, source);
  }
  if (type == &PyLong_Type) {
    FJ_TRY(Ref symbol, dynamic_int(*this, value, source));
    if (symbol) return symbol;
    guard(GuardKind::kEquals, source, value);
    return Ref::borrow(value);
  }
  if (type == &PyFloat_Type) {
    FJ_TRY(Ref symbol, dynamic_float(*this, value, source));
    if (symbol) return symbol;
    guard(GuardKind::kFloatIs, source, value);
    return Ref::borrow(value);
  }
  if (is_builtin_constant(value)) {
    if (PyTuple_CheckExact(value)) {
      FJ_TRY(Ref opened, open_constant(*this, value, source));
      if (opened) return opened;
    }
    if (is_moved) {
      FJ_TRY(Ref moved, moved_text(*this, value, source));
      if (moved) return moved;
    }
    if (is_huge_text(value) && source->kind != SourceKind::kConst) {
      // Each entry would keep one: checkpoints, files.
      return make_break(BreakReason::kUnguardableInput,
                        "a text or bytes of many megabytes, by value");
    }
    guard(GuardKind::kEquals, source, value);
    return Ref::borrow(value);
  }
  switch (tracer.classify(value)) {
    case ObjectClass::kPlain:
      break;
    case ObjectClass::kTensor:
      return wrap_tensor(*this, value, source);
    case ObjectClass::kConstant:
      guard(GuardKind::kEquals, source, value);
      return Ref::borrow(value);
    case ObjectClass::kStandIn:
    case ObjectClass::kSymbolic:
      // Only a fresh object can hold one: the reader took it for an input.
    case ObjectClass::kStaleStandIn:
      return make_break(BreakReason::kUnknownTensor,
                        "a tensor of another capture");
    case ObjectClass::kUnsupported:
      return tracer.stand_in(value, source,
                             {});  // which says why there is none
  }
  if (const Source* known = known_source(*this, value)) {
    if (known->kind == SourceKind::kInstanceDict) {
      // Attribute reads, which found it first, guard no class of it.
      guard(GuardKind::kTypeIs, known, reinterpret_cast<PyObject*>(type));
    }
    if (known != source) {
      if (follower_source(known)) {
        return make_break(BreakReason::kUnguardableInput,
                          "a module and what compile() made of it");
      }
      Guard alias{GuardKind::kSameObject, source};
      if (known->kind == SourceKind::kConst) {
        alias.kind = GuardKind::kIs;
        alias.object = Ref::borrow(value);
      } else {
        alias.other = known;
      }
      alias.span = caller.here();
      guards.add(std::move(alias));
    }
    auto copy = table<Origins>().rebuilt.find(value);
    if (copy != table<Origins>().rebuilt.end()) value = copy->second;
    return Ref::borrow(value);
  }
  if (PyTuple_Check(value)) return wrap_tuple(*this, value, source);
  if (is_method_of_descriptor(value)) {
    // Tensor.shape.__get__, which is made anew each time: known by its parts.
    FJ_CHECK_OK(guard_slot(*this, value, source));
    for (const char* part : {"__name__", "__self__"}) {
      PyObject* name = interned(part);
      FJ_TRY(Ref held, from_api(PyObject_GetAttr(value, name)));
      guard(PyUnicode_Check(held.get()) ? GuardKind::kEquals : GuardKind::kIs,
            guards.sources().make(SourceKind::kGetSet, source, name),
            held.get());
    }
    FJ_CHECK_OK(register_constant(value));
    return Ref::borrow(value);
  }
  if (is_bound_c_method(value)) {
    // The method by its name, the object by a source of its own (unbind()).
    PyObject* name = interned("__name__");
    Ref text = Ref::steal(PyObject_GetAttr(value, name));
    if (!text) return Result<Ref>::raised();
    if (PyCFunction_CheckExact(value) &&
        !is_heap_type(Py_TYPE(PyCFunction_GET_SELF(value)))) {
      Guard method{GuardKind::kCMethod, source};
      method.object = std::move(text);
      method.number = reinterpret_cast<int64_t>(
          reinterpret_cast<PyCFunctionObject*>(value)->m_ml);
      method.span = caller.here();
      guards.add(std::move(method));
      register_input(value, source);
      return Ref::borrow(value);
    }
    guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
    guard(GuardKind::kEquals,
          guards.sources().make(SourceKind::kGetSet, source, name), text.get());
    if (is_method_wrapper(value)) FJ_CHECK_OK(guard_slot(*this, value, source));
    register_input(value, source);
    return Ref::borrow(value);
  }
  if (guard_by_parts(*this, value, source)) return Ref::borrow(value);
  if (is_guarded_by_identity(value)) {
    guard(GuardKind::kIs, source, value);
    FJ_CHECK_OK(register_constant(value));
    return Ref::borrow(value);
  }
  guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
  register_input(value, source);
  return Ref::borrow(value);
}

PyObject* CaptureState::unshadow(PyObject* object) const {
  auto found = table<Origins>().originals.find(object);
  return found == table<Origins>().originals.end() ? object : found->second;
}

namespace {

const Source* tensor_source(CaptureState& state, PyObject* object) {
  if (!is_stand_in(state, object)) return nullptr;
  return state.tracer.source_of(object);
}

}  // namespace

Result<bool> CaptureState::is_same(PyObject* a, PyObject* b) {
  a = unshadow(a);
  b = unshadow(b);
  auto is_moved = [](PyObject* object) {
    return is_opaque(object, OpaqueKind::kMoved);
  };
  if ((is_moved(a) || is_moved(b)) && a != b &&
      type_of(a).get() == type_of(b).get()) {
    return make_break(BreakReason::kUnguardableInput, "identity of texts");
  }
  if (is_opaque(a, OpaqueKind::kUnknown) ||
      is_opaque(b, OpaqueKind::kUnknown)) {
    return make_break(BreakReason::kUnguardableInput,
                      "identity of what the caller handles");
  }
  bool same = a == b;
  if (!same && (is_symbolic(*this, a) || is_symbolic(*this, b))) {
    // Numbers that are small, and bools, are one object wherever they come
    // from. So the answer needs the value; what is left has no identity.
    if (type_of(a).get() != type_of(b).get()) return false;
    const auto& came_in = table<NumbersThatCameIn>().places;
    auto has_places = [&](PyObject* number) {
      if (is_symbolic(*this, number)) return came_in.contains(number);
      return is_constant(number) && !is_singleton(number) &&
             !is_small_int(number);
    };
    if (has_places(a) && has_places(b)) return is_same_value(*this, a, b);
    Ref number_a = Ref::borrow(a), number_b = Ref::borrow(b);
    if (is_symbolic(*this, a)) {
      FJ_TRY(number_a, tracer.concretise(a));
    }
    if (is_symbolic(*this, b)) {
      FJ_TRY(number_b, tracer.concretise(b));
    }
    return is_same(number_a.get(), number_b.get());
  }
  if (is_singleton(a) || is_singleton(b)) return same;
  bool constant_a = is_constant(a), constant_b = is_constant(b);
  if (constant_a && constant_b) {
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    if (is_small_int(a) && is_small_int(b)) return same;
    // Equal by identity: what the value guard compared.
    richcmpfunc compare = Py_TYPE(a)->tp_richcompare;
    if (!compare || compare == PyBaseObject_Type.tp_richcompare) return same;
    int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) return Result<bool>::raised();
    const bool unordered = PyFloat_CheckExact(a) &&
                           std::isnan(PyFloat_AS_DOUBLE(a)) &&
                           std::isnan(PyFloat_AS_DOUBLE(b));
    if (!equal && !unordered) return false;
    // Equal values may or may not be one object in the next call.
    return is_same_value(*this, a, b);
  }
  if (same) return true;
  if (constant_a != constant_b) {
    const bool unknown = PyTuple_CheckExact(a) && PyTuple_CheckExact(b) &&
                         is_opened_constant(*this, constant_a ? b : a);
    if (!unknown) return false;
    return make_break(BreakReason::kUnguardableInput,
                      "identity of equal constants");
  }
  const Source* source_a = source_of(a);
  const Source* source_b = source_of(b);
  if (!source_a) source_a = tensor_source(*this, a);
  if (!source_b) source_b = tensor_source(*this, b);
  if (!source_a || !source_b) return false;  // a fresh object is nobody else
  if (source_a->kind == SourceKind::kConst &&
      source_b->kind == SourceKind::kConst) {
    return false;
  }
  if (Py_TYPE(a) != Py_TYPE(b)) return false;  // both types are guarded
  Guard distinct{GuardKind::kNotSameObject, source_a};
  distinct.other = source_b;
  distinct.span = caller.here();
  guards.add(std::move(distinct));
  return false;
}

}  // namespace framejit::bytecode
