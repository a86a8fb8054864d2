// Origins: where a value came from, and the guard that made reading it sound.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "bytecode/capture_tables.h"
#include "bytecode/dim_marks.h"
#include "bytecode/interpreter.h"
#include "bytecode/opaque_value.h"
#include "bytecode/torch_functions.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "guards/number_expr.h"
#include "guards/object_layout.h"

namespace framejit::bytecode {

namespace {

// A marker object that no program can reach.
PyObject* make_marker() {
  static PyObject* marker =
      PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return marker;
}

bool is_singleton(PyObject* object) {
  return object == Py_None || object == Py_Ellipsis ||
         object == Py_NotImplemented || PyBool_Check(object);
}

bool is_scalar_type(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyUnicode_Type ||
         type == &PyFloat_Type || type == &PyBytes_Type ||
         type == &PyComplex_Type;
}

bool is_enum_class(PyTypeObject* type) {
  PyTypeObject* meta = Py_TYPE(type);
  if (meta == &PyType_Type) return false;
  for (PyTypeObject* t = meta; t; t = t->tp_base) {
    if (std::strcmp(t->tp_name, "EnumType") == 0 ||
        std::strcmp(t->tp_name, "EnumMeta") == 0) {
      return true;
    }
  }
  return false;
}

// Made by a class statement (or type()), not by C code.
bool is_python_class(PyTypeObject* type) {
  static const destructor python_dealloc =
      reinterpret_cast<PyTypeObject*>(capture_break_type())->tp_dealloc;
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         type->tp_dealloc == python_dealloc;
}

}  // namespace

PyObject* deleted_marker() { return make_marker(); }

bool is_builtin_constant(PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return true;
  if (PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      if (!is_builtin_constant(PyTuple_GET_ITEM(object, i))) return false;
    }
    return true;
  }
  if (Py_IS_TYPE(object, &PyRange_Type)) return true;
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_builtin_constant(slice->start) &&
           is_builtin_constant(slice->stop) && is_builtin_constant(slice->step);
  }
  if (PyFrozenSet_CheckExact(object)) {
    Ref iterator = Ref::steal(PyObject_GetIter(object));
    while (Ref key = Ref::steal(PyIter_Next(iterator.get()))) {
      if (!is_builtin_constant(key.get())) return false;
    }
    return true;
  }
  return false;
}

bool is_type_form(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  return std::strcmp(name, "types.UnionType") == 0 ||
         std::strcmp(name, "types.GenericAlias") == 0;
}

bool is_guarded_by_identity(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object) || PyFunction_Check(object) ||
      PyModule_Check(object) || PyCFunction_Check(object) ||
      PyCode_Check(object)) {
    return true;
  }
  static PyTypeObject* const kDescriptors[] = {
      &PyMethodDescr_Type, &PyWrapperDescr_Type, &PyClassMethodDescr_Type,
      &PyGetSetDescr_Type, &PyMemberDescr_Type,  &PyStaticMethod_Type,
      &PyClassMethod_Type, &PyProperty_Type};
  for (PyTypeObject* descriptor : kDescriptors) {
    if (type == descriptor) return true;
  }
  // Subclasses of the scalar types: C code reads the value behind our back, so
  // only identity covers it.
  if (PyLong_Check(object) || PyUnicode_Check(object) ||
      PyFloat_Check(object) || PyBytes_Check(object) ||
      PyComplex_Check(object) || PyFrozenSet_Check(object) ||
      PySlice_Check(object)) {
    return true;
  }
  if (is_method_of_descriptor(object) ||
      std::strcmp(type->tp_name, "functools._lru_cache_wrapper") == 0 ||
      std::strcmp(type->tp_name, "_contextvars.ContextVar") == 0 ||
      std::strcmp(type->tp_name, "ContextVar") == 0 ||
      std::strcmp(type->tp_name, "re.Pattern") == 0 || is_type_form(object) ||
      std::strcmp(type->tp_name, "operator.itemgetter") == 0 ||
      std::strcmp(type->tp_name, "operator.attrgetter") == 0 ||
      std::strcmp(type->tp_name, "operator.methodcaller") == 0) {
    return true;
  }
  return is_enum_member(object);
}

bool is_enum_member(PyObject* object) {
  return is_heap_type(Py_TYPE(object)) && is_enum_class(Py_TYPE(object));
}

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

bool is_heap_type(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
         (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0;
}

bool is_container(PyObject* object) {
  if (PyDict_Check(object) || PyList_Check(object) || PySet_Check(object)) {
    return true;
  }
  static auto* const deque =
      reinterpret_cast<PyTypeObject*>(library_object("collections", "deque"));
  return deque && PyObject_TypeCheck(object, deque);
}

bool is_foreign(CaptureState& state, PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return false;
  ObjectClass kind = state.tracer.classify(object);
  return kind == ObjectClass::kStandIn || kind == ObjectClass::kSymbolic;
}

bool is_symbolic(CaptureState& state, PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return false;
  return state.tracer.classify(object) == ObjectClass::kSymbolic;
}

bool is_symbolic_float(CaptureState& state, PyObject* object) {
  return is_symbolic(state, object) &&
         state.tracer.symbolic_type(object) ==
             reinterpret_cast<PyObject*>(&PyFloat_Type);
}

bool is_stand_in(CaptureState& state, PyObject* object) {
  if (is_singleton(object) || is_scalar_type(Py_TYPE(object))) return false;
  return state.tracer.classify(object) == ObjectClass::kStandIn;
}

bool is_fresh_class(CaptureState& state, PyObject* type) {
  if (!PyType_Check(type)) return false;
  if (state.tables().unbuildable.contains(type)) return true;
  PyObject* bases = reinterpret_cast<PyTypeObject*>(type)->tp_bases;
  for (PyObject* made : state.tables().bases_in_making) {
    if (made == bases) return true;
  }
  return false;
}

PyObject* raw_lookup(PyTypeObject* type, const char* name) {
  PyObject* text = interned(name);
  return text ? _PyType_Lookup(type, text) : nullptr;
}

PyTypeObject* solid_base(PyTypeObject* type) {
  while (type->tp_base && is_python_class(type)) type = type->tp_base;
  return type;
}

Ref own_dict(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return Ref::steal(PyType_GetDict(type));
#else
  return Ref::borrow(type->tp_dict);
#endif
}

void guard_key_class(CaptureState& state, PyObject* key) {
  if (!is_heap_type(Py_TYPE(key))) return;
  for (const char* name : {"__hash__", "__eq__"}) {
    Result<Ref> found = state.type_lookup(Py_TYPE(key), interned(name));
    if (found.is_raised()) PyErr_Clear();
  }
}

bool is_safe_key(CaptureState& state, PyObject* key) {
  if (is_builtin_constant(key)) return true;
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      if (!is_safe_key(state, PyTuple_GET_ITEM(key, i))) return false;
    }
    return true;
  }
  ObjectClass kind = state.tracer.classify(key);
  if (kind == ObjectClass::kConstant) return true;
  if (kind != ObjectClass::kPlain) return false;
  PyTypeObject* type = Py_TYPE(key);
  PyObject* hash = raw_lookup(type, "__hash__");
  PyObject* equal = raw_lookup(type, "__eq__");
  bool native = hash && equal && Py_IS_TYPE(hash, &PyWrapperDescr_Type) &&
                Py_IS_TYPE(equal, &PyWrapperDescr_Type);
  // An enum member hashes its name in Python; its identity is guarded.
  bool is_enum = is_heap_type(type) && is_enum_class(type) && equal &&
                 Py_IS_TYPE(equal, &PyWrapperDescr_Type);
  if (!native && !is_enum) return false;
  guard_key_class(state, key);
  // Not an input, or one whose identity is guarded.
  const Source* source = state.source_of(key);
  return !source || source->kind == SourceKind::kConst;
}

bool is_identity_key(CaptureState& state, PyObject* key) {
  if (state.tracer.classify(key) != ObjectClass::kPlain) return false;
  for (const char* name : {"__hash__", "__eq__"}) {
    PyObject* raw = raw_lookup(Py_TYPE(key), name);
    bool of_object = raw && Py_IS_TYPE(raw, &PyWrapperDescr_Type) &&
                     PyDescr_TYPE(raw) == &PyBaseObject_Type;
    if (!of_object) return false;
  }
  guard_key_class(state, key);
  return true;
}

bool is_tensor_key(CaptureState& state, PyObject* key) {
  if (!is_stand_in(state, key)) return false;
  if (!state.tracer.is_subclass(key)) return true;
  PyTypeObject* type = Py_TYPE(key);
  return !state.tracer.is_overloaded(key) &&
         is_torchs_attribute(type, interned("__hash__")) &&
         is_torchs_attribute(type, interned("__eq__"));
}

bool note_tensor_key(CaptureState& state, PyObject* key) {
  if (!is_tensor_key(state, key)) return false;
  auto& keys = state.tables().tensor_keys;
  if (std::find(keys.begin(), keys.end(), key) == keys.end())
    keys.push_back(key);
  return true;
}

// One guard for all: the storages are different. Tensors that share theirs are
// compared in pairs.
void guard_tensor_keys(CaptureState& state) {
  std::vector<const Source*> sources;
  std::vector<int> groups;
  std::unordered_map<const void*, int> seen;
  for (PyObject* key : state.tables().tensor_keys) {
    PyObject* real = state.tracer.real_of(key);
    const Source* source = state.tracer.source_of(key);
    if (!real || !source) continue;  // computed: nobody else's object
    auto [at, fresh] = seen.emplace(tensor_fields(real).storage,
                                    static_cast<int>(seen.size()));
    if (!fresh) {
      for (size_t i = 0; i < groups.size(); ++i) {
        if (groups[i] != at->second) continue;
        Guard distinct{GuardKind::kNotSameObject, source};
        distinct.other = sources[i];
        distinct.span = state.caller.here();
        state.guards.add(std::move(distinct));
      }
    }
    sources.push_back(source);
    groups.push_back(at->second);
  }
  if (sources.size() > 1)
    state.guards.add_storage_relation(std::move(sources), std::move(groups));
}

PyObject* interned(const char* text) {
  // One object per literal: the address of the literal is the key.
  static std::unordered_map<const char*, PyObject*> cache;
  auto [entry, inserted] = cache.try_emplace(text, nullptr);
  if (!entry->second) entry->second = PyUnicode_InternFromString(text);
  return entry->second;
}

PyObject* library_object(const char* module, const char* name) {
  static std::unordered_map<std::string, PyObject*> cache;
  std::string path = std::string(module) + ":" + name;
  auto found = cache.find(path);
  if (found != cache.end()) return found->second;
  // The import system's own frames are not the program's: seen by the capture,
  // they would come back here.
  PauseHook pause;
  Ref imported = Ref::steal(PyImport_ImportModule(module));
  if (!imported) return nullptr;
  PyObject* object = PyObject_GetAttrString(imported.get(), name);
  if (object) cache.emplace(path, object);  // lives forever
  return object;
}

CaptureState::CaptureState(const CaptureRequest& request, TensorTracer& tracer,
                           GuardSet& guards, Caller& caller)
    : tracer(tracer),
      guards(guards),
      caller(caller),
      request(request),
      tables_(std::make_unique<Tables>()) {}

const Source* CaptureState::source_of(PyObject* object) const {
  auto found = tables_->sources.find(object);
  return found == tables_->sources.end() ? nullptr : found->second;
}

void CaptureState::register_input(PyObject* object, const Source* source) {
  auto [entry, inserted] = tables_->sources.try_emplace(object, source);
  if (!inserted) return;
  tables_->order.push_back(object);
  keep_alive(object);
}

void CaptureState::keep_alive(PyObject* object) {
  tables_->kept.push_back(Ref::borrow(object));
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

void CaptureState::pin(PyObject* object) {
  if (is_builtin_constant(object)) return;
  if (is_fresh_class(*this, object)) return;
  if (PyFunction_Check(object) && caller.is_fresh_function(object)) return;
  // A static type of C cannot change.
  if (PyType_Check(object) &&
      !is_heap_type(reinterpret_cast<PyTypeObject*>(object))) {
    return;
  }
  if (const Source* known = source_of(object)) {
    if (known->kind != SourceKind::kConst) {
      guard(GuardKind::kIs, known, object);
    }
    return;
  }
  register_input(object, guards.sources().constant(object));
}

bool CaptureState::has_native_break() const {
  return tables_->native_break.has_value();
}

void CaptureState::set_native_break(Break brk) {
  if (!tables_->native_break) tables_->native_break = std::move(brk);
}

Result<Ref> CaptureState::after_native(PyObject* new_reference) {
  Ref result = Ref::steal(new_reference);
  if (tables_->native_break) {
    PyErr_Clear();
    Break brk = std::move(*tables_->native_break);
    tables_->native_break.reset();
    return brk;
  }
  if (std::optional<Break> brk = tracer.pending_break()) {
    PyErr_Clear();
    return std::move(*brk);
  }
  if (!result) return Result<Ref>::raised();
  return result;
}

Break CaptureState::make_break(BreakReason reason, std::string detail) const {
  return Break{reason, std::move(detail), caller.here()};
}

namespace {

// Did the caller ask to keep the number at this place symbolic?
bool wants_symbol(CaptureState& state, const Source* source) {
  const CaptureRequest& request = state.request;
  if (request.dynamic == 0 || source->kind == SourceKind::kConst) return false;
  bool wanted = request.dynamic == 1 && is_argument_path(source);
  if (!wanted && request.dynamic_numbers && !request.dynamic_numbers->empty()) {
    PyObject* code = PyFunction_GetCode(request.function);
    wanted = request.dynamic_numbers->count(source_text(source, code)) != 0;
  }
  return wanted;
}

// An int or float that is to be symbolic, as a symbol; else empty.
Result<Ref> dynamic_int(CaptureState& state, PyObject* value,
                        const Source* source) {
  if (!wants_symbol(state, source)) return Ref();
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  // 0 and 1 mean something of their own (empty, broadcast); of the largest not
  // even the opposite may be had in 64 bits.
  if (overflow || number == 0 || number == 1 || number > kLargestInteger ||
      number < -kLargestInteger) {
    return Ref();
  }
  state.guard(GuardKind::kTypeIs, source,
              reinterpret_cast<PyObject*>(&PyLong_Type));
  const Source* value_source =
      state.guards.sources().make(SourceKind::kIntValue, source);
  int symbol = state.guards.add_symbol(value_source, number);
  return state.tracer.make_symbolic(Expr::symbol(symbol));
}

Result<Ref> dynamic_float(CaptureState& state, PyObject* value,
                          const Source* source) {
  if (!wants_symbol(state, source)) return Ref();
  state.guard(GuardKind::kTypeIs, source,
              reinterpret_cast<PyObject*>(&PyFloat_Type));
  const Source* bits =
      state.guards.sources().make(SourceKind::kFloatBits, source);
  int symbol = state.guards.add_symbol(
      bits, std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value)));
  return state.tracer.make_symbolic(Expr::real_symbol(symbol));
}

// mark_dynamic(x, dim, min=, max=): the symbol of the dim stays in the range. A
// size outside it stays a constant.
void guard_range(GuardSet& guards, const Source* source,
                 const DimMarks::Range& range) {
  const Source* size = guards.sources().make(SourceKind::kTensorSize, source,
                                             nullptr, range.dim);
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
  auto& tables = state.tables();
  auto known = tables.stand_ins.find(tensor);
  if (known != tables.stand_ins.end()) {
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
  uint64_t dims = 0;
  if (request.dynamic == 1 && is_argument_path(source)) {
    dims = ~uint64_t{0};
  } else if (request.dynamic != 0 && request.dynamic_dims &&
             !request.dynamic_dims->empty()) {
    PyObject* code = PyFunction_GetCode(request.function);
    auto found = request.dynamic_dims->find(source_text(source, code));
    if (found != request.dynamic_dims->end()) dims = found->second;
  }
  DimMarks marks = read_dim_marks(tensor);
  if (!marks.empty()) dims = marks.apply(dims);
  FJ_TRY(Ref stand_in, state.tracer.stand_in(tensor, source, dims));
  if (state.tracer.is_subclass(stand_in.get())) {
    FJ_CHECK_OK(state.type_lookup(Py_TYPE(stand_in.get()),
                                  interned("__torch_function__")));
  }
  for (const DimMarks::Range& range : marks.ranges) {
    guard_range(state.guards, source, range);
  }
  state.register_input(tensor, source);
  state.keep_alive(stand_in.get());
  tables.stand_ins[tensor] = stand_in.get();
  return stand_in;
}

// A tuple of the same type with other items. `like` is exact, a namedtuple or
// a struct sequence of C.
Result<Ref> tuple_like(CaptureState& state, PyObject* like, PyObject* items) {
  PyTypeObject* type = Py_TYPE(like);
  if (type == &PyTuple_Type) return Ref::borrow(items);
  newfunc make = PyTuple_Type.tp_new;
  if (!is_heap_type(type) && type->tp_new) make = type->tp_new;
  Ref args = Ref::steal(PyTuple_Pack(1, items));
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
  state.register_input(value, source);
  if (!changed) return Ref::borrow(value);
  FJ_TRY(Ref copy, tuple_like(state, value, items.get()));
  auto& tables = state.tables();
  state.register_input(copy.get(), source);
  tables.rebuilt[value] = copy.get();
  tables.originals[copy.get()] = value;
  return copy;
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

Result<Ref> CaptureState::wrap(PyObject* value, const Source* source) {
  if (!source) return Ref::borrow(value);
  PyTypeObject* type = Py_TYPE(value);
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
      return make_break(BreakReason::kTensorSubclass, type->tp_name);
  }
  if (const Source* known = source_of(value)) {
    if (known != source) {
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
    auto copy = tables_->rebuilt.find(value);
    if (copy != tables_->rebuilt.end()) value = copy->second;
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
    register_input(value, guards.sources().constant(value));
    return Ref::borrow(value);
  }
  if (is_bound_c_method(value)) {
    // The method by its name, the object by a source of its own (unbind()).
    PyObject* name = interned("__name__");
    Ref text = Ref::steal(PyObject_GetAttr(value, name));
    if (!text) return Result<Ref>::raised();
    guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
    guard(GuardKind::kEquals,
          guards.sources().make(SourceKind::kGetSet, source, name), text.get());
    if (is_method_wrapper(value)) FJ_CHECK_OK(guard_slot(*this, value, source));
    register_input(value, source);
    return Ref::borrow(value);
  }
  if (is_guarded_by_identity(value)) {
    guard(GuardKind::kIs, source, value);
    register_input(value, guards.sources().constant(value));
    return Ref::borrow(value);
  }
  guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
  register_input(value, source);
  return Ref::borrow(value);
}

bool is_method_wrapper(PyObject* object) {
  return Py_IS_TYPE(object, internals::method_wrapper_type());
}

bool is_method_of_descriptor(PyObject* object) {
  if (!is_method_wrapper(object)) return false;
  Ref self = Ref::steal(PyObject_GetAttrString(object, "__self__"));
  if (!self) PyErr_Clear();
  return self && (Py_IS_TYPE(self.get(), &PyGetSetDescr_Type) ||
                  Py_IS_TYPE(self.get(), &PyMemberDescr_Type) ||
                  Py_IS_TYPE(self.get(), &PyMethodDescr_Type) ||
                  Py_IS_TYPE(self.get(), &PyWrapperDescr_Type));
}

bool is_bound_c_method(PyObject* object) {
  if (is_method_wrapper(object)) return !is_method_of_descriptor(object);
  if (!PyCFunction_CheckExact(object)) return false;
  PyObject* self = PyCFunction_GET_SELF(object);
  // (The functions that pybind11 makes are bound to a capsule.)
  return self && !PyModule_Check(self) && !PyType_Check(self) &&
         !PyCapsule_CheckExact(self);
}

PyObject* CaptureState::unshadow(PyObject* object) const {
  auto found = tables_->originals.find(object);
  return found == tables_->originals.end() ? object : found->second;
}

namespace {

bool is_small_int(PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  long value = PyLong_AsLongAndOverflow(object, &overflow);
  return !overflow && value >= -5 && value <= 256;
}

const Source* tensor_source(CaptureState& state, PyObject* object) {
  if (!is_stand_in(state, object)) return nullptr;
  return state.tracer.source_of(object);
}

}  // namespace

Result<bool> CaptureState::is_same(PyObject* a, PyObject* b) {
  a = unshadow(a);
  b = unshadow(b);
  if (is_opaque(a, OpaqueKind::kUnknown) ||
      is_opaque(b, OpaqueKind::kUnknown)) {
    return make_break(BreakReason::kUnguardableInput,
                      "identity of what the caller handles");
  }
  bool same = a == b;
  if (is_singleton(a) || is_singleton(b)) return same;
  bool constant_a = is_constant(a), constant_b = is_constant(b);
  if (constant_a && constant_b) {
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    if (is_small_int(a) && is_small_int(b)) return same;
    // Equal by identity (torch.dtype): what the value guard compared.
    richcmpfunc compare = Py_TYPE(a)->tp_richcompare;
    if (!compare || compare == PyBaseObject_Type.tp_richcompare) return same;
    int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) return Result<bool>::raised();
    if (!equal) return false;
    // Equal values may or may not be one object in the next call.
    return make_break(BreakReason::kUnguardableInput,
                      "identity of equal constants");
  }
  if (constant_a != constant_b) return false;
  if (same) return true;
  // Symbolic numbers have no identity.
  if (is_symbolic(*this, a) || is_symbolic(*this, b)) {
    return make_break(BreakReason::kUnguardableInput, "identity of a number");
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
