// Tensor guards, storage sharing and shape expressions in native code.
#include <algorithm>

#include "guards/emit/emit_helpers.h"
#include "guards/emit/emitter.h"
#include "guards/set/storage_memory.h"

namespace framejit {

using namespace asmjit;

namespace {

bool same_spec(const TensorSpec& a, const TensorSpec& b) {
  return a.type == b.type && a.key_set == b.key_set && a.dtype == b.dtype &&
         a.device_type == b.device_type && a.device_index == b.device_index &&
         a.requires_grad == b.requires_grad &&
         a.check_strides == b.check_strides && a.sizes == b.sizes &&
         (!a.check_strides || a.strides == b.strides) &&
         a.check_offset == b.check_offset &&
         (!a.check_offset || a.storage_offset == b.storage_offset);
}

}  // namespace

x86::Mem Emitter::tensor_number(const x86::Gp& impl, int64_t dim, bool stride,
                                int64_t index) {
  const TensorLayout* layout = tensor_layout();
  int64_t inline_dims = layout->storage_inline_dims;
  int numbers = layout->sizes_and_strides + 8;
  if (dim <= inline_dims) {
    return x86::qword_ptr(
        impl,
        static_cast<int>(numbers + 8 * (index + (stride ? inline_dims : 0))));
  }
  a_.mov(impl, x86::qword_ptr(impl, numbers));
  return x86::qword_ptr(impl,
                        static_cast<int>(8 * (index + (stride ? dim : 0))));
}

void Emitter::emit_tensor(const Source* source, const Guard& guard) {
  const TensorSpec& spec = set_.tensor_specs()[guard.number];
  const TensorLayout* layout = tensor_layout();
  PyObject* now = value(source);
  FJ_CHECK(layout && spec.type && Py_TYPE(now) == spec.type &&
               layout->is_tensor(now),
           "not the tensor of the guard");
  FJ_CHECK(tensor_fields(now).valid &&
           tensor_fields(now).dim == static_cast<int64_t>(spec.sizes.size()));
  check_type(source, spec.type);
  a_.mov(x86::r10, field(source, layout->tensor_impl));
  fail_if_null(x86::r10);
  emit_tensor_fields(spec, true);
  emit_tensor_numbers(source, spec);
  node(source).tensor_checked = true;
}

// A pointer to tangents counts while there is a level of forward mode.
void Emitter::emit_no_tangents() {
  const TensorLayout* layout = tensor_layout();
  if (layout->forward_grad < 0) return;
  const Label has_pointer = a_.newLabel(), resume = a_.newLabel();
  a_.cmp(x86::qword_ptr(x86::r8, layout->forward_grad), 0);
  a_.jne(has_pointer);
  a_.bind(resume);
  has_calls_ = true;
  out_of_line([=, this] {
    a_.bind(has_pointer);
    ask(reinterpret_cast<const void*>(layout->in_forward_mode));
    a_.jz(resume);
    a_.jmp(fail_);
  });
}

// A function of no argument or of an impl in r10, which gives a bool; nothing
// but flags is lost. Out of line.
void Emitter::ask(const void* function) {
  const x86::Gp kScratch[] = {x86::rax, x86::rdi, x86::rsi, x86::rdx,
                              x86::rcx, x86::r8,  x86::r10, x86::r11};
  for (const x86::Gp& reg : kScratch) a_.push(reg);
  a_.mov(x86::rdi, x86::r10);
  a_.mov(x86::rax, reinterpret_cast<uint64_t>(function));
  a_.call(x86::rax);
  a_.test(x86::al, x86::al);
  for (size_t i = std::size(kScratch); i > 0; --i) a_.pop(kScratch[i - 1]);
}

// r8: the AutogradMeta of an impl in r10 that has no history of its own.
void Emitter::emit_history_of_base(bool wanted) {
  const TensorLayout* layout = tensor_layout();
  if (layout->is_view < 0) {
    if (wanted) a_.jmp(fail_);
    return;
  }
  const Label is_view = a_.newLabel(), resume = a_.newLabel();
  a_.cmp(x86::byte_ptr(x86::r8, layout->is_view), 0);
  a_.jne(is_view);
  if (wanted) a_.jmp(fail_);
  a_.bind(resume);
  has_calls_ = true;
  out_of_line([=, this] {
    a_.bind(is_view);
    ask(reinterpret_cast<const void*>(layout->view_requires_grad));
    if (wanted)
      a_.jnz(resume);
    else
      a_.jz(resume);
    a_.jmp(fail_);
  });
}

// forward_mode: there may be tangents.
void Emitter::emit_tensor_fields(const TensorSpec& spec, bool forward_mode) {
  const TensorLayout* layout = tensor_layout();
  fail_unless_equal(x86::qword_ptr(x86::r10, layout->key_set), spec.key_set);
  // dtype and device lie side by side: one compare.
  auto device =
      static_cast<uint16_t>(static_cast<uint8_t>(spec.device_type) |
                            static_cast<uint8_t>(spec.device_index) << 8);
  if (layout->device == layout->data_type + 2) {
    uint32_t both =
        static_cast<uint16_t>(spec.dtype) | static_cast<uint32_t>(device) << 16;
    a_.cmp(x86::dword_ptr(x86::r10, layout->data_type), both);
  } else {
    a_.cmp(x86::word_ptr(x86::r10, layout->data_type),
           static_cast<uint16_t>(spec.dtype));
    fail_when(x86::CondCode::kNE);
    a_.cmp(x86::word_ptr(x86::r10, layout->device), device);
  }
  fail_when(x86::CondCode::kNE);
  a_.cmp(x86::byte_ptr(x86::r10, layout->device + 2), 0);
  fail_when(x86::CondCode::kE);

  a_.mov(x86::r8, x86::qword_ptr(x86::r10, layout->autograd_meta));
  a_.test(x86::r8, x86::r8);
  Label grad_done = a_.newLabel();
  if (spec.requires_grad) {
    fail_when(x86::CondCode::kZ);
    if (forward_mode) emit_no_tangents();
    // A leaf, usually: its grad_fn, in another cache line, need not be read.
    a_.cmp(x86::byte_ptr(x86::r8, layout->requires_grad), 0);
    a_.jne(grad_done);
    a_.cmp(x86::qword_ptr(x86::r8, layout->grad_fn), 0);
    a_.jne(grad_done);
    emit_history_of_base(true);
  } else {
    a_.jz(grad_done);
    if (forward_mode) emit_no_tangents();
    a_.movzx(x86::r9d, x86::byte_ptr(x86::r8, layout->requires_grad));
    a_.or_(x86::r9, x86::qword_ptr(x86::r8, layout->grad_fn));
    fail_when(x86::CondCode::kNZ);
    emit_history_of_base(false);
  }
  a_.bind(grad_done);
}

// r10: the impl.
void Emitter::emit_tensor_numbers(const Source* source,
                                  const TensorSpec& spec) {
  const TensorLayout* layout = tensor_layout();
  int64_t dim = static_cast<int64_t>(spec.sizes.size());
  fail_unless_equal(x86::qword_ptr(x86::r10, layout->sizes_and_strides),
                    static_cast<uint64_t>(dim));
  auto late = [&](bool stride, bool offset, int64_t index, const Expr& expr) {
    SourceKind kind =
        stride ? SourceKind::kTensorStride : SourceKind::kTensorSize;
    if (offset) kind = SourceKind::kTensorOffset;
    if (expr.is_symbol()) {
      const Source* bound = set_.symbols()[expr.symbol_index()].source;
      if (bound->kind == kind && bound->base == source &&
          (offset || bound->index == index))
        return;  // the symbol is read from this very place
    }
    FJ_CHECK(node(source).shared || node(source).constant,
             "a number of this tensor is read again");
    walk_.late_numbers.push_back({source, dim, stride, offset, index, expr});
  };
  if (spec.check_offset) {
    if (spec.storage_offset.is_const()) {
      fail_unless_equal(x86::qword_ptr(x86::r10, layout->storage_offset),
                        static_cast<uint64_t>(spec.storage_offset.constant()));
    } else {
      late(false, true, 0, spec.storage_offset);
    }
  }
  // Out of line numbers: follow the pointer once (r10 becomes it).
  bool inline_numbers = dim <= layout->storage_inline_dims;
  if (!inline_numbers)
    a_.mov(x86::r10, x86::qword_ptr(x86::r10, layout->sizes_and_strides + 8));
  for (bool stride : {false, true}) {
    if (stride && !spec.check_strides) continue;
    const std::vector<Expr>& expected = stride ? spec.strides : spec.sizes;
    FJ_CHECK(static_cast<int64_t>(expected.size()) == dim);
    for (int64_t i = 0; i < dim; ++i) {
      if (!expected[i].is_const()) {
        late(stride, false, i, expected[i]);
        continue;
      }
      int64_t first = inline_numbers ? layout->sizes_and_strides + 8 : 0;
      int64_t to_strides = inline_numbers ? layout->storage_inline_dims : dim;
      fail_unless_equal(
          x86::qword_ptr(
              x86::r10,
              static_cast<int>(first + 8 * (i + (stride ? to_strides : 0)))),
          static_cast<uint64_t>(expected[i].constant()));
    }
  }
}

// ---- tensors alike

// True: what the code has to do for this source is done by its group's loop.
bool Emitter::join_group(const Source* source) {
  Node& n = node(source);
  if (!n.constant || !n.children.empty() || n.guards.size() != 1) return false;
  const Guard& guard = set_.guards()[n.guards[0]];
  if (guard.kind != GuardKind::kTensor) return false;
  const TensorSpec& spec = set_.tensor_specs()[guard.number];
  auto constant = [](const Expr& expr) { return expr.is_const(); };
  if (!std::all_of(spec.sizes.begin(), spec.sizes.end(), constant) ||
      (spec.check_strides &&
       !std::all_of(spec.strides.begin(), spec.strides.end(), constant)) ||
      (spec.check_offset && !spec.storage_offset.is_const()))
    return false;
  const TensorLayout* layout = tensor_layout();
  FJ_CHECK(layout && spec.type && Py_TYPE(n.constant) == spec.type &&
               layout->is_tensor(n.constant) && tensor_fields(n.constant).valid,
           "not the tensor of the guard");
  n.in_group = true;
  for (auto& [number, members] : walk_.tensor_groups) {
    bool gathered = node(members[0]).gather >= 0;
    if (gathered != (n.gather >= 0) ||
        !same_spec(set_.tensor_specs()[number], spec))
      continue;
    members.push_back(source);
    return true;
  }
  walk_.tensor_groups.push_back({static_cast<int>(guard.number), {source}});
  return true;
}

void Emitter::emit_tensor_groups() {
  for (int index : shared_guards_) {
    const Guard& guard = set_.guards()[index];
    if (guard.kind != GuardKind::kStorageRelation) continue;
    for (const Source* tensor : stable_members(guard))
      node(tensor).storage_checked = node(tensor).in_group;
  }
  // Where there are many, one question in place of a cache line for each.
  constexpr size_t kMany = 32;
  size_t count = 0;
  for (const auto& group : walk_.tensor_groups) count += group.second.size();
  const bool ask = count >= kMany && tensor_layout()->forward_grad >= 0;
  const size_t first_table = tables_.size();
  for (const auto& [spec, members] : walk_.tensor_groups) {
    for (bool storages : {false, true}) {
      std::vector<const Source*> part;
      for (const Source* source : members) {
        if (node(source).storage_checked == storages) part.push_back(source);
      }
      if (!part.empty()) emit_tensor_group(spec, part, !ask);
    }
  }
  if (!ask) return;
  std::vector<const std::vector<const void*>*> rows;
  for (size_t i = first_table; i < tables_.size(); ++i)
    rows.push_back(tables_[i].get());
  const Label in_forward_mode = a_.newLabel(), resume = a_.newLabel();
  call(reinterpret_cast<const void*>(tensor_layout()->in_forward_mode));
  a_.test(x86::al, x86::al);
  a_.jnz(in_forward_mode);
  a_.bind(resume);
  restore_arguments();
  out_of_line([=, this] {
    a_.bind(in_forward_mode);
    for (const auto* table : rows) {
      a_.mov(x86::rdi, reinterpret_cast<uint64_t>(table));
      call(reinterpret_cast<const void*>(predicate_no_tangents));
      check_result();
    }
    a_.jmp(resume);
  });
}

// A row of the table: the object, its storage, where it is gathered.
void Emitter::emit_tensor_group(int spec_number,
                                const std::vector<const Source*>& members,
                                bool forward_mode) {
  const TensorSpec& spec = set_.tensor_specs()[spec_number];
  const TensorLayout* layout = tensor_layout();
  auto table = std::make_unique<std::vector<const void*>>();
  bool storages = node(members[0]).storage_checked;
  bool gathered = node(members[0]).gather >= 0;
  for (const Source* source : members) {
    Node& n = node(source);
    const void* storage = tensor_fields(n.constant).storage;
    table->push_back(n.constant);
    table->push_back(storage);
    table->push_back(reinterpret_cast<const void*>(
        static_cast<uintptr_t>(gathered ? 8 * n.gather : 0)));
    if (storages) {
      pin({Pin::Kind::kStorage, source->id, 0,
           reinterpret_cast<uint64_t>(storage)});
    }
    n.type = spec.type;
    n.tensor_checked = true;
  }
  keep(reinterpret_cast<PyObject*>(spec.type));
  uses_groups_ = true;
  constexpr int kRow = 3 * sizeof(void*);
  Label next = a_.newLabel();
  a_.mov(x86::r12, reinterpret_cast<uint64_t>(table->data()));
  a_.lea(x86::r13, x86::ptr(x86::r12, static_cast<int>(kRow * members.size())));
  a_.bind(next);
  in_rax_ = nullptr;
  forget_r11();
  near_fail_ = Label();
  a_.mov(x86::rax, x86::qword_ptr(x86::r12));
  fail_unless_equal(x86::qword_ptr(x86::rax, offsetof(PyObject, ob_type)),
                    reinterpret_cast<uint64_t>(spec.type));
  a_.mov(x86::r10, x86::qword_ptr(x86::rax, layout->tensor_impl));
  fail_if_null(x86::r10);
  if (gathered) {
    a_.mov(x86::r8, x86::qword_ptr(x86::r12, 16));
    a_.mov(x86::qword_ptr(x86::rdx, x86::r8), x86::rax);
  }
  if (storages) {
    a_.mov(x86::rax, x86::qword_ptr(x86::r12, 8));
    a_.cmp(x86::qword_ptr(x86::r10, layout->storage), x86::rax);
    fail_when(x86::CondCode::kNE);
    check_own_memory(x86::rax,
                     tensor_fields(node(members[0]).constant).storage);
  }
  emit_tensor_fields(spec, forward_mode);
  emit_tensor_numbers(members[0], spec);
  a_.add(x86::r12, kRow);
  a_.cmp(x86::r12, x86::r13);
  a_.jb(next);
  forget_r11();
  tables_.push_back(std::move(table));
}

// ---- storage sharing

// The tensors of the relation that are compared with the storage they have
// now: those known by identity, unless theirs keep changing or lie in memory
// that others may have. None where the others are so many that all are compared
// by a C call.
std::vector<const Source*> Emitter::stable_members(const Guard& guard) {
  const GuardSet::StorageGroup& group = set_.storage_groups()[guard.number];
  constexpr size_t kMaxFresh = 8;
  std::vector<const Source*> stable;
  for (const Source* tensor : group.tensors) {
    PyObject* known = node(tensor).constant;
    if (known && form(tensor) == Form::kVersion &&
        owns_its_memory(tensor_fields(known).storage))
      stable.push_back(tensor);
  }
  if (group.tensors.size() - stable.size() > kMaxFresh) stable.clear();
  return stable;
}

void Emitter::storage_in_rax(const Source* tensor) {
  const TensorLayout* layout = tensor_layout();
  if (!node(tensor).tensor_checked) {
    FJ_CHECK(layout->is_tensor(value(tensor)));
    check_type(tensor, Py_TYPE(value(tensor)));
  }
  a_.mov(x86::rax, field(tensor, layout->tensor_impl));
  in_rax_ = nullptr;
  if (!node(tensor).tensor_checked) fail_if_null(x86::rax);
  a_.mov(x86::rax, x86::qword_ptr(x86::rax, layout->storage));
}

// `storage` has the memory that its allocator gave, as `like` has.
void Emitter::check_own_memory(const x86::Gp& storage, const void* like) {
  const StorageMemory* memory = storage_memory();
  if (!memory) return;
  fail_unless_equal(x86::qword_ptr(storage, memory->deleter),
                    reinterpret_cast<uint64_t>(memory->own_deleter(like)));
}

// Tensors known by identity (parameters) usually keep their storage: compare
// with the pointer it has now. The others are compared with each other and
// looked up among those.
void Emitter::emit_storage_relation(const Source*, const Guard& guard) {
  const GuardSet::StorageGroup& group = set_.storage_groups()[guard.number];
  const std::vector<const Source*> stable_sources = stable_members(guard);
  const std::set<const Source*> is_stable(stable_sources.begin(),
                                          stable_sources.end());
  std::vector<size_t> stable, fresh;
  for (size_t i = 0; i < group.tensors.size(); ++i)
    (is_stable.count(group.tensors[i]) ? stable : fresh).push_back(i);
  // What the code will assume of the pointers must be so now.
  std::vector<const void*> storages;
  for (const Source* tensor : group.tensors) {
    TensorFields fields = tensor_fields(value(tensor));
    FJ_CHECK(fields.valid);
    storages.push_back(fields.storage);
  }
  FJ_CHECK(predicate_storages(&group, storages.data()));

  if (fresh.size() > 8) {
    int first = slots_;
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      storage_in_rax(group.tensors[i]);
      a_.mov(slot_at(allocate_slot()), x86::rax);
    }
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(&group));
    a_.lea(x86::rsi, slot_at(first));
    call(reinterpret_cast<const void*>(predicate_storages));
    check_result();
    restore_arguments();
    return;
  }
  for (size_t i : stable) {
    if (node(group.tensors[i]).storage_checked) continue;
    storage_in_rax(group.tensors[i]);
    fail_unless_equal(x86::rax, storages[i]);
    check_own_memory(x86::rax, storages[i]);
    pin({Pin::Kind::kStorage, group.tensors[i]->id, 0,
         reinterpret_cast<uint64_t>(storages[i])});
  }
  const int first = slots_;
  slots_ += static_cast<int>(fresh.size());
  for (size_t position = 0; position < fresh.size(); ++position) {
    size_t i = fresh[position];
    storage_in_rax(group.tensors[i]);
    a_.mov(slot_at(first + static_cast<int>(position)), x86::rax);
    for (size_t before = 0; before < position; ++before) {
      a_.cmp(x86::rax, slot_at(first + static_cast<int>(before)));
      if (group.groups[fresh[before]] == group.groups[i])
        fail_when(x86::CondCode::kNE);
      else
        fail_when(x86::CondCode::kE);
    }
    auto table = std::make_unique<std::vector<const void*>>();
    const void* same = nullptr;
    for (size_t j : stable) {
      if (group.groups[j] == group.groups[i])
        same = storages[j];
      else
        table->push_back(storages[j]);
    }
    if (same) {
      fail_unless_equal(x86::rax, same);  // so it is none of the others
      continue;
    }
    std::sort(table->begin(), table->end(), std::less<const void*>());
    table->erase(std::unique(table->begin(), table->end()), table->end());
    if (table->size() <= 8) {
      for (const void* pointer : *table) {
        set_r11(reinterpret_cast<uint64_t>(pointer));
        a_.cmp(x86::rax, x86::r11);
        fail_when(x86::CondCode::kE);
      }
      continue;
    }
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(table.get()));
    a_.mov(x86::rsi, x86::rax);
    call(reinterpret_cast<const void*>(predicate_not_in));
    check_result();
    restore_arguments();
    tables_.push_back(std::move(table));
  }
  std::vector<const void*> stable_storages, fresh_storages;
  for (size_t i : stable) stable_storages.push_back(storages[i]);
  for (size_t i : fresh) fresh_storages.push_back(storages[i]);
  emit_apart(std::move(stable_storages), fresh_storages, first);
}

// Storages that own their memory lie apart. Where one of `fresh`, which are in
// the slots from `first` on, does not, a C call compares them all.
void Emitter::emit_apart(std::vector<const void*> stable,
                         const std::vector<const void*>& fresh, int first) {
  const StorageMemory* memory = storage_memory();
  if (!memory || fresh.empty()) return;
  const Label compare = a_.newLabel(), resume = a_.newLabel();
  for (size_t i = 0; i < fresh.size(); ++i) {
    const void* own = memory->own_deleter(fresh[i]);
    if (!own) {
      a_.jmp(compare);
      break;
    }
    a_.mov(x86::rax, slot_at(first + static_cast<int>(i)));
    set_r11(reinterpret_cast<uint64_t>(own));
    a_.cmp(x86::qword_ptr(x86::rax, memory->deleter), x86::r11);
    a_.jne(compare);
  }
  a_.bind(resume);
  forget_r11();
  in_rax_ = nullptr;
  tables_.push_back(
      std::make_unique<std::vector<const void*>>(std::move(stable)));
  const auto* table = tables_.back().get();
  const int64_t count = static_cast<int64_t>(fresh.size());
  out_of_line([=, this] {
    a_.bind(compare);
    a_.mov(x86::rdi, reinterpret_cast<uint64_t>(table));
    a_.lea(x86::rsi, slot_at(first));
    a_.mov(x86::rdx, count);
    call(reinterpret_cast<const void*>(predicate_apart));
    check_result();
    restore_arguments();
    a_.jmp(resume);
  });
}

// ---- expressions

void Emitter::count_uses(const Expr& expr) {
  if (expr.is_leaf() || ++uses_[&expr.operands()] > 1) return;
  for (const Expr& operand : expr.operands()) count_uses(operand);
}

void Emitter::emit_expression(const Expr& expr) {
  if (expr.is_leaf()) return emit_leaf(x86::rax, expr);
  const void* node = &expr.operands();
  auto known = walk_.computed.find(node);
  if (known != walk_.computed.end()) {
    a_.mov(x86::rax, slot_at(known->second.second));
    return;
  }
  emit_operation(expr);
  auto uses = uses_.find(node);
  if (uses == uses_.end() || uses->second < 2 || conditional_) return;
  const int slot = allocate_slot();
  a_.mov(slot_at(slot), x86::rax);
  walk_.computed.emplace(node, std::pair(expr, slot));
}

void Emitter::emit_operation(const Expr& expr) {
  switch (expr.op()) {
    case ExprOp::kAnd:
    case ExprOp::kOr:
      return emit_logic(expr);
    default:
      break;
  }
  const std::vector<Expr>& operands = expr.operands();
  emit_expression(operands[0]);
  if (operands.size() == 1 && expr.is_of_floats()) return emit_float(expr.op());
  if (expr.op() == ExprOp::kNot) {
    a_.test(x86::rax, x86::rax);
    a_.sete(x86::al);
    a_.movzx(x86::eax, x86::al);
    return;
  }
  if (expr.op() == ExprOp::kNeg) {
    a_.neg(x86::rax);
    fail_when(x86::CondCode::kO);
    return;
  }
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].is_leaf()) {
      emit_leaf(x86::r8, operands[i]);
    } else {
      int slot = allocate_slot();
      a_.mov(slot_at(slot), x86::rax);
      emit_expression(operands[i]);
      a_.mov(x86::r8, x86::rax);
      a_.mov(x86::rax, slot_at(slot));
    }
    if (expr.is_of_floats())
      emit_float(expr.op());
    else
      emit_binary(expr.op());
  }
}

void Emitter::emit_leaf(const x86::Gp& to, const Expr& leaf) {
  if (leaf.uses_symbols())
    a_.mov(to, x86::qword_ptr(x86::rcx, 8 * leaf.symbol_index()));
  else
    a_.mov(to, static_cast<uint64_t>(leaf.constant()));
}

void Emitter::emit_binary(ExprOp op) {
  auto truth = [&](x86::CondCode condition) {
    a_.cmp(x86::rax, x86::r8);
    a_.set(condition, x86::al);
    a_.movzx(x86::eax, x86::al);
  };
  switch (op) {
    case ExprOp::kAdd:
      a_.add(x86::rax, x86::r8);
      fail_when(x86::CondCode::kO);
      return;
    case ExprOp::kMul:
      a_.imul(x86::rax, x86::r8);
      fail_when(x86::CondCode::kO);
      return;
    case ExprOp::kMin:
      a_.cmp(x86::rax, x86::r8);
      a_.cmovg(x86::rax, x86::r8);
      return;
    case ExprOp::kMax:
      a_.cmp(x86::rax, x86::r8);
      a_.cmovl(x86::rax, x86::r8);
      return;
    case ExprOp::kEq:
      return truth(x86::CondCode::kE);
    case ExprOp::kNe:
      return truth(x86::CondCode::kNE);
    case ExprOp::kLt:
      return truth(x86::CondCode::kL);
    case ExprOp::kLe:
      return truth(x86::CondCode::kLE);
    default:
      break;
  }
  // Floor division and modulo. idiv takes rdx, and traps on INT64_MIN / -1.
  bool is_mod = op == ExprOp::kMod;
  FJ_CHECK(is_mod || op == ExprOp::kFloorDiv);
  Label divide = a_.newLabel(), done = a_.newLabel(), exact = a_.newLabel();
  fail_if_null(x86::r8);
  a_.cmp(x86::r8, -1);
  a_.jne(divide);
  a_.neg(x86::rax);
  fail_when(x86::CondCode::kO);
  if (is_mod) a_.xor_(x86::eax, x86::eax);
  a_.jmp(done);
  a_.bind(divide);
  a_.mov(x86::r9, x86::rdx);
  a_.cqo();
  a_.idiv(x86::r8);
  a_.test(x86::rdx, x86::rdx);
  a_.jz(exact);
  a_.mov(x86::r10, x86::rdx);
  a_.xor_(x86::r10, x86::r8);
  a_.jns(exact);
  a_.dec(x86::rax);
  a_.add(x86::rdx, x86::r8);
  a_.bind(exact);
  if (is_mod) a_.mov(x86::rax, x86::rdx);
  a_.mov(x86::rdx, x86::r9);
  a_.bind(done);
}

void Emitter::emit_logic(const Expr& expr) {
  bool is_and = expr.op() == ExprOp::kAnd;
  Label decided = a_.newLabel(), done = a_.newLabel();
  ++conditional_;
  for (const Expr& operand : expr.operands()) {
    emit_expression(operand);
    a_.test(x86::rax, x86::rax);
    if (is_and)
      a_.jz(decided);
    else
      a_.jnz(decided);
  }
  --conditional_;
  a_.mov(x86::eax, is_and ? 1 : 0);
  a_.jmp(done);
  a_.bind(decided);
  a_.mov(x86::eax, is_and ? 0 : 1);
  a_.bind(done);
}

}  // namespace framejit
