// A guard says one structural fact about a Source; a GuardSet is the set of all
// facts one capture relied on, plus what the predicate must gather.
//
// The interpreter and the tracer add guards while they read inputs. After the
// capture the set is frozen and owned by the cache entry. evaluate.cpp is the
// reference evaluator; emit_x64.cpp compiles the same set, using pointers, dict
// versions and slots as fast forms; explain.cpp says in words which guard
// failed. A failed fast form is re-checked structurally (design.md section 4).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "guards/expr/expr.h"
#include "guards/expr/facts.h"
#include "guards/result.h"
#include "guards/set/source.h"

namespace framejit {

enum class GuardKind : uint8_t {
#define FJ_GUARD(name, ...) k##name,
#include "guards/set/guard_kinds.def"
#undef FJ_GUARD
  kCount,
};
// What a kind of guard is about (guard_kinds.def).
enum class GuardScope : uint8_t { kObject, kSymbols, kPair, kSet };
struct GuardKindRow {
  const char* name;
  GuardScope scope;
  int rank;  // guard_kinds.def
  bool rereads;
  const char* text;
};
const GuardKindRow& guard_kind_row(GuardKind kind);
constexpr int kLateRank = 5;  // of what is checked behind all below its object

struct Guard {
  GuardKind kind;
  const Source* source = nullptr;
  Ref object;
  Ref object2;
  int64_t number = 0;
  const Source* other = nullptr;
  Expr expr;
  Span span;  // the user line that made it
  // The operator or callable that takes one number and no other: "aten.foo".
  // The text lives forever.
  const char* cause = nullptr;
};

// What a tensor guard checks: raw TensorImpl fields. sizes/strides hold
// constants (compared), bare symbols bound to this very dim (loaded), or other
// expressions (compared with their value). `check_strides` false: not used.
struct TensorSpec {
  PyTypeObject* type = nullptr;  // kept alive through the guard's `object`
  uint64_t key_set = 0;
  int16_t dtype = 0;  // c10::ScalarType
  int8_t device_type = 0;
  int8_t device_index = -1;
  bool requires_grad = false;
  bool check_strides = true;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr storage_offset;
  bool check_offset = false;
};

struct Symbol {
  const Source* source;  // kTensorSize, kTensorStride, kIntValue ...
  int64_t hint;
  bool changes = false;  // of a float: earlier calls had others
};

// Native field offsets of tensors and the thread-state check. Implemented by
// the tracer's layer; tests use the fake tracer's.
struct TensorLayout {
  int tensor_impl;  // PyObject -> TensorImpl*
  int storage, autograd_meta, sizes_and_strides, storage_offset, data_type,
      device, key_set;         // within TensorImpl
  int requires_grad, grad_fn;  // within AutogradMeta
  int storage_inline_dims;     // SizesAndStrides: dims kept inline (5)
  // Bool within AutogradMeta: a view, which has a history when its base got one
  // by a write, although it says so only when it is asked. -1: there are none.
  int is_view = -1;
  bool (*view_requires_grad)(const void* impl) = nullptr;  // with is_view
  // Pointer within AutogradMeta to forward-mode tangents, which no capture
  // takes: a tensor that has any matches no spec. -1: there are none. It stays
  // behind, without tangents, when the level of forward mode is left.
  int forward_grad = -1;
  bool (*in_forward_mode)() = nullptr;  // on any thread; with forward_grad
  // Is `object` a tensor (exact or subclass)?
  bool (*is_tensor)(PyObject* object);
  // Same state of the library (grad mode, autocast, modes, default dtype and
  // device ...) as in `state`?
  bool (*same_thread_state)(const void* state);
  std::string (*explain_thread_state)(const void* state);
  // Immutable and compared by ==: dtypes, devices ... Those that their type
  // does not tell; for the others see add_constant_type().
  bool (*is_foreign_constant)(PyObject* object);
  // tensor.grad as a tensor or None, new reference; runs no Python code. The
  // tensor keeps the result alive. Null: TensorGrad sources never exist.
  PyObject* (*gradient)(PyObject* tensor) = nullptr;
  // The Python object of tensor.grad, borrowed; null: there is none, or nobody
  // has asked for it yet.
  PyObject* (*grad_object)(PyObject* tensor) = nullptr;
  // Visits Python objects that go with a tensor and that its tp_traverse does
  // not know: its gradient's, and those of gradient functions in its history.
  // What else is there (hooks) counts as an answer that is not 0.
  int (*visit_beneath)(PyObject* tensor, int (*visit)(PyObject*, void*),
                       void* argument) = nullptr;
  // The tensor's own __hash__, if it is a Python function: it gives id().
  PyObject* hash_function = nullptr;
};
void set_tensor_layout(const TensorLayout& layout);  // once, at load
const TensorLayout* tensor_layout();                 // null: no tensors

// A type of a library whose objects are immutable and compared by ==.
void add_constant_type(PyTypeObject* type);
// A constant of a library: such an object, or one that the layout knows.
bool is_foreign_constant(PyObject* object);

class GuardSet {
 public:
  SourceArena& sources() { return sources_; }
  const SourceArena& sources() const { return sources_; }

  // Duplicates are dropped. Never fails; what cannot be guarded is a break at
  // the caller. `Is`/`Const` keep their objects alive.
  void add(Guard guard);
  void add(GuardKind kind, const Source* source, PyObject* object = nullptr,
           int64_t number = 0);
  bool has(GuardKind kind, const Source* source, PyObject* object) const;
  // Must be true. What follows from the others is dropped.
  void add_expr(Expr expr);
  // What follows from all there is, if anything does.
  std::optional<bool> follows(const Expr& condition) const {
    return facts_.decide(condition);
  }
  // The same number wherever the guards hold.
  Expr simplify(const Expr& expr) const { return facts_.simplify(expr); }
  // When the set is complete: leaves out the expressions that later ones imply.
  void drop_implied();
  int add_symbol(const Source* source, int64_t hint, bool changes = false);
  void add_tensor(const Source* source, TensorSpec spec);
  // The sharing pattern among these tensor sources as seen at capture:
  // group[i] == group[j] iff tensors i and j share storage.
  void add_storage_relation(std::vector<const Source*> tensors,
                            std::vector<int> groups);
  // The foreign state seen at the start (opaque, shared with the tracer).
  void set_thread_state(std::shared_ptr<const void> state);
  // Index in the `objects` array of the predicate.
  int gather(const Source* source);

  // Do symbolic sizes that are equal now share a symbol?
  void set_joins_equal_sizes(bool joins) { joins_equal_sizes_ = joins; }
  bool joins_equal_sizes() const { return joins_equal_sizes_; }

  void set_span(Span span) { current_span_ = std::move(span); }
  // Who asks from now on (GuardCause); gives the one before.
  struct Cause {
    const char* (*name)(const void* what) = nullptr;  // null: the program
    const void* what = nullptr;
  };
  Cause set_cause(Cause cause) { return std::exchange(cause_, cause); }
  const std::vector<Guard>& guards() const { return guards_; }
  const std::vector<Symbol>& symbols() const { return symbols_; }
  const std::vector<const Source*>& gathered() const { return gathered_; }
  const std::vector<TensorSpec>& tensor_specs() const { return specs_; }
  const void* thread_state() const { return thread_state_.get(); }
  struct StorageGroup {
    std::vector<const Source*> tensors;
    std::vector<int> groups;
  };
  const std::vector<StorageGroup>& storage_groups() const { return groups_; }
  std::vector<int64_t> hints() const;

 private:
  SourceArena sources_;
  std::vector<Guard> guards_;
  std::vector<Symbol> symbols_;
  std::vector<TensorSpec> specs_;
  std::vector<StorageGroup> groups_;
  std::vector<const Source*> gathered_;
  std::unordered_multimap<size_t, size_t> seen_;
  std::shared_ptr<const void> thread_state_;
  Span current_span_;
  Cause cause_;
  bool joins_equal_sizes_ = true;
  Facts facts_;
};

// While it lives, guards are there because of this operator or callable. It is
// asked for its name when there is one.
class GuardCause {
 public:
  // guards: may be null.
  GuardCause(GuardSet* guards, GuardSet::Cause cause) : guards_(guards) {
    if (guards) before_ = guards->set_cause(cause);
  }
  ~GuardCause() {
    if (guards_) guards_->set_cause(before_);
  }
  GuardCause(const GuardCause&) = delete;
  GuardCause& operator=(const GuardCause&) = delete;

 private:
  GuardSet* guards_;
  GuardSet::Cause before_;
};

// The expression that this guard allows one value only; null: it does not.
const Expr* pinned_expr(const Guard& guard);

// ---- reference evaluator (evaluate.cpp). Fills objects (borrowed) and
// symbols on success. failed: index of the first guard that failed.
bool evaluate(const GuardSet& set, PyObject* const* args, PyObject* function,
              PyObject** objects, int64_t* symbols, size_t* failed = nullptr);

// ---- explanation (explain.cpp): one guard as text, and why it fails now:
// "x.size(0): expected 10, got 8  (train.py:12)".
std::string guard_text(const GuardSet& set, const Guard& guard, PyObject* code);
std::string explain_failure(const GuardSet& set, size_t failed,
                            PyObject* const* args, PyObject* function,
                            PyObject* code);

// ---- native predicates (emit_x64.cpp)
class Predicate {
 public:
  virtual ~Predicate() = default;
  virtual int (*function() const)(PyObject* const*, PyObject*, PyObject**,
                                  int64_t*) = 0;
  virtual size_t code_size() const = 0;
};
// Compiles the set for the objects reachable from args now (fast forms are
// taken from them). The structural facts must hold. Null when this CPU or
// platform has no emitter: the dispatcher then uses evaluate().
std::unique_ptr<Predicate> emit_predicate(const GuardSet& set,
                                          PyObject* const* args,
                                          PyObject* function);

}  // namespace framejit
