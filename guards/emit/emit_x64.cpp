// The walk over the sources, and the frame of the emitted function.
#include <algorithm>

#include "frame_hook/dispatch.h"
#include "guards/emit/dict_epoch.h"
#include "guards/emit/emit_helpers.h"
#include "guards/emit/emitter.h"
#include "guards/emit/machine_code.h"

namespace framejit {

using namespace asmjit;

namespace {

#if defined(__x86_64__)
constexpr bool kHasEmitter = true;
#else
constexpr bool kHasEmitter = false;
#endif

class X64Predicate : public ArmedPredicate {
 public:
  using Tables = std::vector<std::unique_ptr<std::vector<const void*>>>;
  X64Predicate(std::unique_ptr<MachineCode> code, size_t entry,
               std::vector<Ref> kept, std::vector<Pin> pins, Tables tables,
               std::unique_ptr<WatchSet> watches,
               std::unique_ptr<uint64_t> dicts_verified)
      : code_(std::move(code)),
        entry_(entry),
        kept_(std::move(kept)),
        pins_(std::move(pins)),
        tables_(std::move(tables)),
        dicts_verified_(std::move(dicts_verified)),
        watches_(std::move(watches)) {}
  int (*function() const)(PyObject* const*, PyObject*, PyObject**,
                          int64_t*) override {
    return code_->function<PredicateFn>(entry_);
  }
  size_t code_size() const override { return code_->size(); }
  const std::vector<Pin>& pins() const override { return pins_; }
  void release_if(const std::function<bool(PyObject*)>& cared_for) override {
    std::erase_if(kept_, [&](const Ref& ref) { return cared_for(ref.get()); });
  }
  bool is_dead() const override { return !watches_->valid(); }

 private:
  std::unique_ptr<MachineCode> code_;
  size_t entry_;
  std::vector<Ref> kept_;  // what the code compares by pointer
  std::vector<Pin> pins_;
  Tables tables_;  // read by the code
  std::unique_ptr<uint64_t> dicts_verified_;
  // Last, so that it goes before the references to the classes it names.
  std::unique_ptr<WatchSet> watches_;
};

// An instruction that cannot be encoded must not be left out silently.
class EncodingErrors : public ErrorHandler {
 public:
  void handleError(Error, const char*, BaseEmitter*) override { failed = true; }
  bool failed = false;
};

bool is_shared(GuardKind kind) {
  GuardScope scope = guard_kind_row(kind).scope;
  return scope == GuardScope::kPair || scope == GuardScope::kSet;
}

}  // namespace

Emitter::Emitter(const GuardSet& set, PyObject* const* args, PyObject* function,
                 const std::vector<SourceForm>& forms)
    : set_(set),
      forms_(forms),
      values_(set, args, function),
      nodes_(set.sources().size()) {}

// Globals and modules are written to all the time: never by version.
bool Emitter::is_namespace(const Source* source) {
  if (source->kind == SourceKind::kGlobals ||
      source->kind == SourceKind::kBuiltins)
    return true;
  PyObject* now = value(source);
  return now && (PyModule_Check(now) ||
                 (source->kind == SourceKind::kConst && PyDict_Check(now)));
}

Form Emitter::form(const Source* source) {
  Form form =
      source->id < forms_.size() ? forms_[source->id].form : Form::kVersion;
  if (form == Form::kVersion && is_namespace(source)) form = Form::kSlot;
  return form;
}

// ---- plan

void Emitter::need(const Source* source) {
  Node& n = node(source);
  if (n.needed) return;
  n.needed = true;
  if (!source->base) {
    roots_.push_back(source);
    return;
  }
  need(source->base);
  n.temporary =
      source->kind == SourceKind::kGetSet || node(source->base).temporary;
  if (!n.temporary) node(source->base).children.push_back(source);
}

// False: some number depends on a symbol that is only read at the end.
bool Emitter::plan_tensor(const Guard& guard) {
  const TensorSpec& spec = set_.tensor_specs()[guard.number];
  std::vector<int> used;
  for (const Expr& expr : spec.sizes) expr.collect_symbols(&used);
  if (spec.check_strides) {
    for (const Expr& expr : spec.strides) expr.collect_symbols(&used);
  }
  if (spec.check_offset) spec.storage_offset.collect_symbols(&used);
  for (int symbol : used) {
    if (node(set_.symbols()[symbol].source).temporary) return false;
  }
  if (!used.empty()) node(guard.source).shared = true;
  return true;
}

bool Emitter::is_function_name(const Source* source) {
  if (source->kind != SourceKind::kGetSet || node(source->base).temporary)
    return false;
  PyObject* function = value(source->base);
  return function && PyCFunction_CheckExact(function) &&
         PyUnicode_CheckExact(source->key.get()) &&
         PyUnicode_CompareWithASCIIString(source->key.get(), "__name__") == 0;
}

void Emitter::plan() {
  auto by_rank = [&](int a, int b) {
    return guard_kind_row(set_.guards()[a].kind).rank <
           guard_kind_row(set_.guards()[b].kind).rank;
  };
  auto share = [&](const Source* source) {
    need(source);
    node(source).shared = true;
    return !node(source).temporary;
  };
  for (size_t i = 0; i < set_.symbols().size(); ++i) {
    need(set_.symbols()[i].source);
    if (node(set_.symbols()[i].source).temporary)
      root_symbols_.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < set_.guards().size(); ++i) {
    const Guard& guard = set_.guards()[i];
    int index = static_cast<int>(i);
    count_uses(guard.expr);
    if (is_shared(guard.kind)) {
      bool native = true;
      if (guard.source) native = share(guard.source) && native;
      if (guard.other) native = share(guard.other) && native;
      if (guard.kind == GuardKind::kStorageRelation) {
        for (const Source* tensor : set_.storage_groups()[guard.number].tensors)
          native = share(tensor) && native;
      }
      (native ? shared_guards_ : walk_.root_guards).push_back(index);
      continue;
    }
    need(guard.source);
    if (guard.kind == GuardKind::kEquals && is_function_name(guard.source)) {
      node(guard.source->base).guards.push_back(index);
      continue;
    }
    bool from_roots =
        node(guard.source).temporary || is_int_source(guard.source->kind);
    if (guard.kind == GuardKind::kTensor && !from_roots)
      from_roots = !plan_tensor(guard);
    if (from_roots) {
      walk_.root_guards.push_back(index);
    } else {
      node(guard.source).guards.push_back(index);
    }
  }
  for (size_t i = 0; i < set_.gathered().size(); ++i) {
    need(set_.gathered()[i]);
    Node& n = node(set_.gathered()[i]);
    if (n.temporary)
      root_gathers_.push_back(static_cast<int>(i));
    else
      n.gather = static_cast<int>(i);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& n = nodes_[i];
    // All values before any code: reading a __dict__ can change the layout of
    // its object.
    const Source* source = set_.sources().at(i);
    if (n.needed && !is_int_source(source->kind))
      FJ_CHECK(value(source), "the path does not exist");
    std::stable_sort(n.guards.begin(), n.guards.end(), by_rank);
  }
  std::stable_sort(shared_guards_.begin(), shared_guards_.end(), by_rank);
  // Arguments fail likeliest, and a tensor or a number rather than a model.
  for (size_t i = nodes_.size(); i > 0; --i) {
    if (const Source* base = set_.sources().at(i - 1)->base)
      node(base).below += nodes_[i - 1].below + 1;
  }
  std::stable_sort(roots_.begin(), roots_.end(),
                   [&](const Source* a, const Source* b) {
                     return std::make_pair(a->kind, node(a).below) <
                            std::make_pair(b->kind, node(b).below);
                   });
  choose_base();
}

// The middle one of the addresses: CPython's objects lie together, those that
// do not are named in full.
void Emitter::choose_base() {
  std::vector<const char*> addresses;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Source* source = set_.sources().at(i);
    if (!nodes_[i].needed || is_int_source(source->kind)) continue;
    addresses.push_back(reinterpret_cast<const char*>(value(source)));
  }
  constexpr size_t kWorthTheRegister = 16;
  if (addresses.size() < kWorthTheRegister) return;
  auto middle =
      addresses.begin() + static_cast<ptrdiff_t>(addresses.size() / 2);
  std::nth_element(addresses.begin(), middle, addresses.end());
  base_ = *middle;
}

// ---- the walk

int Emitter::allocate_slot() { return slots_++; }

x86::Mem Emitter::slot_at(int slot) const {
  return x86::qword_ptr(x86::rsp, 32 + 8 * slot);
}
x86::Mem Emitter::saved(int argument) const {
  return x86::qword_ptr(x86::rsp, 8 * argument);
}

void Emitter::bring(const Source* source) {
  if (in_rax_ == source) return;
  Node& n = node(source);
  if (n.constant) {
    a_.mov(x86::rax, reinterpret_cast<uint64_t>(n.constant));
  } else {
    FJ_CHECK(n.slot >= 0, "the value was not kept");
    a_.mov(x86::rax, slot_at(n.slot));
  }
  in_rax_ = source;
}

x86::Mem Emitter::field(const Source* source, int offset) {
  const char* constant = reinterpret_cast<const char*>(node(source).constant);
  if (in_rax_ != source && constant && base_) {
    int64_t distance = constant + offset - base_;
    if (distance == static_cast<int32_t>(distance)) {
      uses_base_ = true;
      return x86::qword_ptr(x86::rbx, static_cast<int32_t>(distance));
    }
  }
  bring(source);
  return x86::qword_ptr(x86::rax, offset);
}

void Emitter::visit(const Source* source, int depth) {
  load(source);
  if (is_int_source(source->kind)) return;
  Node& n = node(source);
  if (join_group(source)) return;
  if (!n.constant) {
    in_rax_ = source;
    if (n.shared) {
      n.slot = allocate_slot();
    } else if (!n.children.empty() || n.guards.size() > 1 ||
               (n.guards.size() == 1 &&
                guard_kind_row(set_.guards()[n.guards[0]].kind).rereads)) {
      while (depth_slots_.size() <= static_cast<size_t>(depth))
        depth_slots_.push_back(allocate_slot());
      n.slot = depth_slots_[depth];
    }
    if (n.slot >= 0) a_.mov(slot_at(n.slot), x86::rax);
  }
  if (n.gather >= 0) {
    bring(source);
    a_.mov(x86::qword_ptr(x86::rdx, 8 * n.gather), x86::rax);
  }
  auto emit_guards = [&](bool late) {
    for (int index : n.guards) {
      const Guard& guard = set_.guards()[index];
      if ((guard_kind_row(guard.kind).rank >= kLateRank) == late)
        emit_guard(source, guard);
    }
  };
  emit_guards(/*late=*/false);
  for (const Source* child : n.children) visit(child, depth + 1);
  emit_guards(/*late=*/true);
}

std::unique_ptr<ArmedPredicate> Emitter::emit() {
  if (code_.init(Environment::host()) != kErrorOk ||
      code_.attach(&a_) != kErrorOk)
    return nullptr;
  EncodingErrors errors;
  code_.setErrorHandler(&errors);
  fail_ = a_.newLabel();
  Label body = a_.newLabel(), entry = a_.newLabel();
  a_.bind(body);
  plan();
  emit_first();
  if (many_dicts())
    walk_both_ways();
  else
    walk();

  // Registers that belong to the caller.
  std::vector<x86::Gp> pushed;
  const bool based = uses_base_;
  if (based) pushed.push_back(x86::rbx);
  if (uses_r14_) pushed.push_back(x86::r14);
  if (uses_groups_) {
    pushed.push_back(x86::r12);
    pushed.push_back(x86::r13);
  }
  bool framed = saves_ || slots_ > 0;
  int size = framed ? 32 + 8 * slots_ : 0;
  // Calls need rsp aligned to 16; it is 8 off at the entry.
  if (has_calls_ && (size + 8 * pushed.size()) % 16 == 0) size += 8;
  auto leave = [&](int result) {
    if (size) a_.add(x86::rsp, size);
    for (size_t i = pushed.size(); i > 0; --i) a_.pop(pushed[i - 1]);
    if (result)
      a_.mov(x86::eax, 1);
    else
      a_.xor_(x86::eax, x86::eax);
    a_.ret();
  };
  leave(1);
  for (size_t i = 0; i < late_.size(); ++i) {
    forget_r11();
    late_[i]();
  }
  a_.bind(fail_);
  leave(0);
  a_.align(AlignMode::kCode, 16);
  a_.bind(entry);
  for (const x86::Gp& reg : pushed) a_.push(reg);
  if (size) a_.sub(x86::rsp, size);
  if (!watches_->empty()) {
    a_.mov(x86::rax, reinterpret_cast<uint64_t>(watches_->flag()));
    a_.cmp(x86::dword_ptr(x86::rax), 0);
    fail_when(x86::CondCode::kE);
  }
  FJ_CHECK(based == uses_base_);
  if (based) a_.mov(x86::rbx, reinterpret_cast<uint64_t>(base_));
  if (uses_r14_) a_.xor_(x86::r14d, x86::r14d);
  if (saves_) {
    const x86::Gp kArguments[] = {x86::rdi, x86::rsi, x86::rdx, x86::rcx};
    for (int i = 0; i < 4; ++i) a_.mov(saved(i), kArguments[i]);
  }
  a_.jmp(body);

  if (errors.failed) return nullptr;
  auto placed = MachineCode::place(code_);
  if (!placed || errors.failed) return nullptr;
  return std::make_unique<X64Predicate>(
      std::move(placed), static_cast<size_t>(code_.labelOffset(entry)),
      std::move(kept_), std::move(pins_), std::move(tables_),
      std::move(watches_), std::move(dicts_verified_));
}

// A large predicate that fails should do so before it walks a model: what
// entries of one function differ in comes first.
void Emitter::emit_first() {
  if (!base_) return;
  while (next_root_ < roots_.size() && is_small_argument(roots_[next_root_]))
    visit(roots_[next_root_++], 0);
  if (!set_.thread_state() || next_root_ == roots_.size()) return;
  emit_thread_state();
  restore_arguments();
  state_checked_ = true;
}

void Emitter::fail_for_collected() {
  if (!uses_r14_) return;
  a_.test(x86::r14, x86::r14);
  fail_when(x86::CondCode::kNZ);
}

void Emitter::walk() {
  for (size_t i = next_root_; i < roots_.size(); ++i) visit(roots_[i], 0);
  emit_tensor_groups();
  fail_for_collected();
  emit_shared_guards();
  emit_root_calls();
}

bool Emitter::many_dicts() const {
  if (!dict_version_counter()) return false;
  size_t looked_up = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    SourceKind kind = set_.sources().at(i)->kind;
    looked_up += nodes_[i].needed && (kind == SourceKind::kInstanceAttr ||
                                      kind == SourceKind::kDictItem);
  }
  return looked_up >= dicts_worth_an_epoch();
}

void Emitter::walk_both_ways() {
  // What emit_first() has collected: the walk that reads the dicts begins anew.
  fail_for_collected();
  dicts_verified_ = std::make_unique<uint64_t>(0);
  const auto verified = reinterpret_cast<uint64_t>(dicts_verified_.get());
  const auto counter = reinterpret_cast<uint64_t>(dict_version_counter());
  const int now = allocate_slot();
  const std::vector<Known> known(nodes_.begin(), nodes_.end());
  const Walk begun = walk_;
  const Label held = a_.newLabel(), read_dicts = a_.newLabel();

  // What is read now is what the walk that reads the dicts has verified.
  a_.mov(x86::rax, counter);
  a_.mov(x86::rax, x86::qword_ptr(x86::rax));
  a_.mov(slot_at(now), x86::rax);
  a_.mov(x86::r8, verified);
  a_.cmp(x86::rax, x86::qword_ptr(x86::r8));
  in_rax_ = nullptr;
  const Label fail = std::exchange(fail_, read_dicts);
  near_fail_ = Label();
  fail_when(x86::CondCode::kNE);
  dicts_unchanged_ = true;
  walk();
  dicts_unchanged_ = false;
  a_.jmp(held);

  a_.bind(read_dicts);
  fail_ = fail;
  near_fail_ = Label();
  in_rax_ = nullptr;
  forget_r11();
  for (size_t i = 0; i < known.size(); ++i)
    static_cast<Known&>(nodes_[i]) = known[i];
  walk_ = begun;
  restore_arguments();
  if (uses_r14_) a_.xor_(x86::r14d, x86::r14d);
  walk();
  a_.mov(x86::rax, slot_at(now));
  a_.mov(x86::r8, verified);
  a_.mov(x86::qword_ptr(x86::r8), x86::rax);
  a_.bind(held);
}

void Emitter::emit_shared_guards() {
  for (const LateNumber& late : walk_.late_numbers) {
    emit_expression(late.expr);
    in_rax_ = nullptr;
    Node& n = node(late.tensor);
    if (n.constant) {
      a_.mov(x86::r10, reinterpret_cast<uint64_t>(n.constant));
    } else {
      a_.mov(x86::r10, slot_at(n.slot));
    }
    a_.mov(x86::r10, x86::qword_ptr(x86::r10, tensor_layout()->tensor_impl));
    x86::Mem memory =
        late.offset
            ? x86::qword_ptr(x86::r10, tensor_layout()->storage_offset)
            : tensor_number(x86::r10, late.dim, late.stride, late.index);
    a_.cmp(x86::rax, memory);
    fail_when(x86::CondCode::kNE);
  }
  for (int index : shared_guards_) {
    const Guard& guard = set_.guards()[index];
    emit_by_kind(guard.source, guard);
  }
}

bool Emitter::is_small_argument(const Source* root) {
  constexpr size_t kSmall = 16;
  return root->kind == SourceKind::kArg && node(root).below < kSmall;
}

void Emitter::emit_thread_state() {
  const TensorLayout* layout = tensor_layout();
  FJ_CHECK(layout && layout->same_thread_state);
  a_.mov(x86::rdi, reinterpret_cast<uint64_t>(set_.thread_state()));
  call(reinterpret_cast<const void*>(layout->same_thread_state));
  a_.test(x86::al, x86::al);
  fail_when(x86::CondCode::kZ);
}

// The call of the thread state check may have taken the arguments; from here on
// they are read from the frame.
void Emitter::emit_root_calls() {
  auto roots = [&](const x86::Gp& args, const x86::Gp& function) {
    saves_ = true;
    a_.mov(args, saved(0));
    a_.mov(function, saved(1));
  };
  for (int index : root_gathers_) {
    roots(x86::rdx, x86::rcx);
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(&set_));
    a_.mov(x86::esi, index);
    a_.mov(x86::r8, saved(2));
    a_.add(x86::r8, 8 * index);
    call(reinterpret_cast<const void*>(predicate_gather));
    check_result();
  }
  for (int index : root_symbols_) {
    roots(x86::rsi, x86::rdx);
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(set_.symbols()[index].source));
    a_.mov(x86::rcx, saved(3));
    a_.add(x86::rcx, 8 * index);
    call(reinterpret_cast<const void*>(predicate_symbol));
    check_result();
  }
  for (int index : walk_.root_guards) {
    roots(x86::rdx, x86::rcx);
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(&set_));
    a_.mov(x86::esi, index);
    call(reinterpret_cast<const void*>(predicate_guard));
    check_result();
  }
}

// ---- small pieces

// A jump to the end takes six bytes, to a place near by two; the code of a
// large predicate is read once a call, and its size is what that costs. So the
// jump to the end is written out every hundred bytes and shared.
void Emitter::fail_when(x86::CondCode condition) {
  constexpr size_t kNear = 110;
  if (near_fail_.isValid() && a_.offset() - near_fail_at_ < kNear) {
    a_.j(condition, near_fail_);
    return;
  }
  Label over = a_.newLabel();
  near_fail_ = a_.newLabel();
  a_.short_().j(x86::negateCond(condition), over);
  near_fail_at_ = a_.offset();
  a_.bind(near_fail_);
  a_.jmp(fail_);
  a_.bind(over);
}

void Emitter::fail_unless_equal(x86::Mem memory, uint64_t value) {
  memory.setSize(8);
  int64_t number = static_cast<int64_t>(value);
  if (number == static_cast<int32_t>(number)) {
    a_.cmp(memory, static_cast<int32_t>(number));
  } else {
    set_r11(value);
    a_.cmp(memory, x86::r11);
  }
  fail_when(x86::CondCode::kNE);
}

// The same class or function is often compared with several times in turn.
void Emitter::set_r11(uint64_t value) {
  if (r11_known_ && in_r11_ == value) return;
  r11_known_ = true;
  in_r11_ = value;
  int64_t distance =
      static_cast<int64_t>(value - reinterpret_cast<uint64_t>(base_));
  if (value == static_cast<uint32_t>(value)) {
    a_.mov(x86::r11d, static_cast<uint32_t>(value));
  } else if (base_ && distance == static_cast<int32_t>(distance)) {
    uses_base_ = true;
    a_.lea(x86::r11, x86::ptr(x86::rbx, static_cast<int32_t>(distance)));
  } else {
    a_.mov(x86::r11, value);
  }
}

void Emitter::fail_unless_equal(const x86::Gp& reg, const void* pointer) {
  set_r11(reinterpret_cast<uint64_t>(pointer));
  a_.cmp(reg, x86::r11);
  fail_when(x86::CondCode::kNE);
}

void Emitter::fail_if_null(const x86::Gp& reg) {
  a_.test(reg, reg);
  fail_when(x86::CondCode::kZ);
}

void Emitter::fail_unless_zero(const x86::Mem& memory) {
  x86::Mem number = memory;
  number.setSize(8);
  if (base_) {
    uses_r14_ = true;
    a_.or_(x86::r14, number);
    return;
  }
  a_.cmp(number, 0);
  fail_when(x86::CondCode::kNE);
}

void Emitter::call(const void* function) {
  has_calls_ = true;
  a_.mov(x86::rax, reinterpret_cast<uint64_t>(function));
  a_.call(x86::rax);
  in_rax_ = nullptr;
  forget_r11();
}

void Emitter::restore_arguments() {
  saves_ = true;
  const x86::Gp kArguments[] = {x86::rdi, x86::rsi, x86::rdx, x86::rcx};
  for (int i = 0; i < 4; ++i) a_.mov(kArguments[i], saved(i));
}

void Emitter::check_result() {
  a_.test(x86::eax, x86::eax);
  fail_when(x86::CondCode::kZ);
}

void Emitter::check_type(const Source* source, PyTypeObject* type) {
  Node& n = node(source);
  if (n.type == type) return;
  // An object known by identity whose class cannot be assigned.
  bool fixed = n.constant && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
               !PyType_IsSubtype(type, &PyModule_Type);
  if (!fixed) {
    keep(reinterpret_cast<PyObject*>(type));
    fail_unless_equal(field(source, offsetof(PyObject, ob_type)),
                      reinterpret_cast<uint64_t>(type));
  }
  n.type = type;
  n.is_dict = n.is_dict || PyType_IsSubtype(type, &PyDict_Type);
}

void Emitter::check_flag(const Source* source, unsigned long flag) {
  Node& n = node(source);
  if (n.type && (n.type->tp_flags & flag)) return;
  a_.mov(x86::r8, field(source, offsetof(PyObject, ob_type)));
  a_.test(x86::dword_ptr(x86::r8, offsetof(PyTypeObject, tp_flags)),
          static_cast<uint32_t>(flag));
  fail_when(x86::CondCode::kZ);
}

unsigned Emitter::type_version(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  if (!PyUnstable_Type_AssignVersionTag(type)) return 0;
#else
  // Looking any name up gives the type a version.
  static PyObject* name = PyUnicode_InternFromString("__class__");
  if (name) _PyType_Lookup(type, name);
  if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

void Emitter::check_type_version(const Source* source, PyTypeObject* type) {
  pin({Pin::Kind::kTypeVersion, source->id, 0, type_version(type),
       reinterpret_cast<uint64_t>(type)});
  if (!walk_.checked_versions.insert(type).second) return;
  keep(reinterpret_cast<PyObject*>(type));
  if (watches_->add_type(type)) return;
  a_.mov(x86::r8, reinterpret_cast<uint64_t>(&type->tp_version_tag));
  a_.cmp(x86::dword_ptr(x86::r8), type_version(type));
  fail_when(x86::CondCode::kNE);
}

// ---- entry points

std::unique_ptr<ArmedPredicate> emit_armed(
    const GuardSet& set, PyObject* const* args, PyObject* function,
    const std::vector<SourceForm>& forms) {
  if (!kHasEmitter) return nullptr;
  ErrorGuard keep_error;
  try {
    return Emitter(set, args, function, forms).emit();
  } catch (...) {
    // The facts do not hold, this shape of set has no native form, or there is
    // no memory: the reference evaluator decides.
    return nullptr;
  }
}

std::unique_ptr<Predicate> emit_predicate(const GuardSet& set,
                                          PyObject* const* args,
                                          PyObject* function) {
  return emit_armed(set, args, function, {});
}

}  // namespace framejit
