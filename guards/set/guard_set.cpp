#include "guards/set/guard_set.h"

#include <algorithm>
#include <unordered_set>

#include "frame_hook/interjections.h"

namespace framejit {
namespace {

const TensorLayout* g_layout = nullptr;

bool same_object(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || !PyUnicode_CheckExact(a) || !PyUnicode_CheckExact(b))
    return false;
  return PyUnicode_Compare(a, b) == 0;
}

size_t object_hash(PyObject* object) {
  if (object && PyUnicode_CheckExact(object)) {
    Py_hash_t hash = PyObject_Hash(object);
    if (hash == -1) drop_error();
    return static_cast<size_t>(hash);
  }
  return reinterpret_cast<uintptr_t>(object);
}

size_t guard_hash(const Guard& guard) {
  size_t hash = static_cast<size_t>(guard.kind);
  for (size_t part :
       {reinterpret_cast<size_t>(guard.source), object_hash(guard.object.get()),
        object_hash(guard.object2.get()), static_cast<size_t>(guard.number),
        reinterpret_cast<size_t>(guard.other), guard.expr.hash()}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 31;
  }
  return hash;
}

bool same_guard(const Guard& a, const Guard& b) {
  return a.kind == b.kind && a.source == b.source && a.number == b.number &&
         a.other == b.other && same_object(a.object.get(), b.object.get()) &&
         same_object(a.object2.get(), b.object2.get()) && a.expr == b.expr;
}

bool same_spec(const TensorSpec& a, const TensorSpec& b) {
  return a.type == b.type && a.key_set == b.key_set && a.dtype == b.dtype &&
         a.device_type == b.device_type && a.device_index == b.device_index &&
         a.requires_grad == b.requires_grad &&
         a.check_strides == b.check_strides && a.sizes == b.sizes &&
         a.strides == b.strides && a.storage_offset == b.storage_offset &&
         a.check_offset == b.check_offset;
}

}  // namespace

const GuardKindRow& guard_kind_row(GuardKind kind) {
  static constexpr GuardKindRow kRows[] = {
#define FJ_GUARD(name, scope, rank, rereads, text, ...) \
  {#name, GuardScope::k##scope, rank, rereads, text},
#include "guards/set/guard_kinds.def"
#undef FJ_GUARD
  };
  return kRows[size_t(kind)];
}

void set_tensor_layout(const TensorLayout& layout) {
  static TensorLayout stored;
  stored = layout;
  g_layout = &stored;
}

const TensorLayout* tensor_layout() { return g_layout; }

namespace {

// Its types live forever.
std::unordered_set<PyTypeObject*>& constant_types() {
  static auto* types = new std::unordered_set<PyTypeObject*>;
  return *types;
}

}  // namespace

void add_constant_type(PyTypeObject* type) {
  if (constant_types().insert(type).second) Py_INCREF(type);
}

bool is_foreign_constant(PyObject* object) {
  return constant_types().contains(Py_TYPE(object)) ||
         (g_layout && g_layout->is_foreign_constant &&
          g_layout->is_foreign_constant(object));
}

void GuardSet::add(Guard guard) {
  size_t hash = guard_hash(guard);
  auto [first, last] = seen_.equal_range(hash);
  for (; first != last; ++first) {
    if (same_guard(guards_[first->second], guard)) return;
  }
  if (!guard.span.code) guard.span = current_span_;
  seen_.emplace(hash, guards_.size());
  guards_.push_back(std::move(guard));
}

void GuardSet::add(GuardKind kind, const Source* source, PyObject* object,
                   int64_t number) {
  Guard guard;
  guard.kind = kind;
  guard.source = source;
  guard.object = Ref::borrow(object);
  guard.number = number;
  add(std::move(guard));
}

bool GuardSet::has(GuardKind kind, const Source* source,
                   PyObject* object) const {
  Guard guard;
  guard.kind = kind;
  guard.source = source;
  guard.object = Ref::borrow(object);
  auto [first, last] = seen_.equal_range(guard_hash(guard));
  return std::any_of(first, last, [&](const auto& row) {
    return same_guard(guards_[row.second], guard);
  });
}

void GuardSet::add_expr(Expr expr) {
  if (facts_.decide(expr).value_or(false)) return;
  int64_t value = 0;
  std::vector<int64_t> values = hints();
  std::vector<int> used;
  expr.collect_symbols(&used);
  FJ_CHECK(used.empty() || used.back() < static_cast<int>(values.size()));
  FJ_CHECK(expr.try_evaluate(values.data(), &value) && value != 0,
           "a guard must hold at capture");
  if (expr.is_const()) return;
  Guard guard;
  guard.kind = GuardKind::kShapeExpr;
  guard.expr = std::move(expr);
  if (cause_.name) guard.cause = cause_.name(cause_.what);
  facts_.assume(guard.expr);
  add(std::move(guard));
}

namespace {

// Below the square of this, each is compared with all others.
constexpr size_t kMostCompared = 48;

bool is_extent(const Source* source) {
  return source->kind == SourceKind::kTensorSize ||
         source->kind == SourceKind::kTensorStride;
}

// What is true of each symbol without a guard.
Facts facts_of_symbols(const std::vector<Symbol>& symbols) {
  Facts facts;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (is_extent(symbols[i].source))
      facts.assume(expr_le(0, Expr::symbol(static_cast<int>(i))));
  }
  return facts;
}

}  // namespace

void GuardSet::drop_implied() {
  std::vector<size_t> expressions;
  for (size_t i = 0; i < guards_.size(); ++i) {
    if (guards_[i].kind == GuardKind::kShapeExpr) expressions.push_back(i);
  }
  if (expressions.size() < 2 || expressions.size() > kMostCompared) return;
  std::vector<bool> dropped(guards_.size());
  const Facts of_symbols = facts_of_symbols(symbols_);
  // Those that came first are what later ones are narrower than.
  for (size_t i : expressions) {
    Facts others = of_symbols;
    for (size_t j : expressions) {
      if (j != i && !dropped[j]) others.assume(guards_[j].expr);
    }
    dropped[i] = others.decide(guards_[i].expr).value_or(false);
  }
  std::vector<Guard> kept;
  for (size_t i = 0; i < guards_.size(); ++i) {
    if (!dropped[i]) kept.push_back(std::move(guards_[i]));
  }
  guards_ = std::move(kept);
  // What is added later is compared with those that are left.
  seen_.clear();
  for (size_t i = 0; i < guards_.size(); ++i) {
    Guard any;
    any.kind = GuardKind::kTensor;
    any.source = guards_[i].source;
    any.number = -1;
    const bool is_tensor = guards_[i].kind == GuardKind::kTensor;
    seen_.emplace(guard_hash(is_tensor ? any : guards_[i]), i);
  }
}

const Expr* pinned_expr(const Guard& guard) {
  if (guard.kind != GuardKind::kShapeExpr || guard.expr.op() != ExprOp::kEq)
    return nullptr;
  const std::vector<Expr>& sides = guard.expr.operands();
  if (sides[0].is_const()) return &sides[1];
  return sides[1].is_const() ? &sides[0] : nullptr;
}

int GuardSet::add_symbol(const Source* source, int64_t hint, bool changes) {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].source == source) return static_cast<int>(i);
  }
  symbols_.push_back({source, hint, changes});
  const int index = static_cast<int>(symbols_.size()) - 1;
  if (source->kind == SourceKind::kTensorSize ||
      source->kind == SourceKind::kTensorStride)
    facts_.assume(expr_le(0, Expr::symbol(index)));
  return index;
}

void GuardSet::add_tensor(const Source* source, TensorSpec spec) {
  // Found by its source alone, whatever its number is.
  Guard any;
  any.kind = GuardKind::kTensor;
  any.source = source;
  any.number = -1;
  size_t hash = guard_hash(any);
  auto [first, last] = seen_.equal_range(hash);
  for (; first != last; ++first) {
    const Guard& known = guards_[first->second];
    if (known.kind == GuardKind::kTensor && known.source == source &&
        same_spec(specs_[known.number], spec))
      return;
  }
  seen_.emplace(hash, guards_.size());
  Guard guard;
  guard.kind = GuardKind::kTensor;
  guard.source = source;
  guard.object = Ref::borrow(reinterpret_cast<PyObject*>(spec.type));
  guard.number = static_cast<int64_t>(specs_.size());
  specs_.push_back(std::move(spec));
  add(std::move(guard));
}

void GuardSet::add_storage_relation(std::vector<const Source*> tensors,
                                    std::vector<int> groups) {
  FJ_CHECK(tensors.size() == groups.size());
  Guard guard;
  guard.kind = GuardKind::kStorageRelation;
  guard.number = static_cast<int64_t>(groups_.size());
  groups_.push_back({std::move(tensors), std::move(groups)});
  add(std::move(guard));
}

void GuardSet::set_thread_state(std::shared_ptr<const void> state) {
  thread_state_ = std::move(state);
  if (thread_state_) add(GuardKind::kThreadState, nullptr);
}

int GuardSet::gather(const Source* source) {
  for (size_t i = 0; i < gathered_.size(); ++i) {
    if (gathered_[i] == source) return static_cast<int>(i);
  }
  gathered_.push_back(source);
  return static_cast<int>(gathered_.size()) - 1;
}

std::vector<int64_t> GuardSet::hints() const {
  std::vector<int64_t> hints;
  hints.reserve(symbols_.size());
  for (const Symbol& symbol : symbols_) hints.push_back(symbol.hint);
  return hints;
}

}  // namespace framejit
