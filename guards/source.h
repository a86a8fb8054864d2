// Source: where a value comes from, as a path from the arguments of the call.
//
// "inputs['x'].weight" is Tensor attribute <- dict item <- argument 0. One type
// serves guards (evaluate the path), the emitter (compile the path), gathering
// of graph inputs, reconstruction in residual code, and messages. Nodes are
// immutable and interned in a SourceArena, so identity is structural equality
// and a guard set is a tree over them. Evaluating a path never runs user code.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit {

// One row per kind: FJ_SOURCE(name, has_base, uses `key`, uses `index`).
#define FJ_SOURCE_KINDS(X)                                                    \
  X(Arg, false, false, true)        /* bound parameter slot `index` */        \
  X(Function, false, false, false)  /* the function object called */          \
  X(Const, false, true, false)      /* the object `key` itself, kept alive */ \
  X(Globals, true, false, false)    /* dict of a function */                  \
  X(Builtins, true, false, false)   /* dict of a function */                  \
  X(ClosureCell, true, false, true) /* cell `index` of a function */          \
  X(CellContents, true, false, false)                                         \
  X(Default, true, false, true)       /* __defaults__[index] */               \
  X(KwDefault, true, true, false)     /* __kwdefaults__[key] */               \
  X(FunctionCode, true, false, false) /* __code__ */                          \
  X(InstanceDict, true, false, false) /* __dict__ as a dict object */         \
  X(InstanceAttr, true, true, false)  /* value of `key` in the instance       \
                                         dict or inline values, no class */   \
  X(SlotMember, true, true, true)     /* __slots__ member, byte offset */     \
  X(TypeOf, true, false, false)                                               \
  X(TypeAttr, true, true, false)  /* raw MRO look-up on a type */             \
  X(DictItem, true, true, false)  /* dict.__getitem__ by key */               \
  X(DictKeyAt, true, false, true) /* index-th key in order */                 \
  X(ListItem, true, false, true)                                              \
  X(TupleItem, true, false, true)                                             \
  X(DequeItem, true, false, true)                                             \
  X(MethodSelf, true, false, false)                                           \
  X(MethodFunc, true, false, false)                                           \
  X(WeakReferent, true, false, false)                                         \
  X(PartialPart, true, false,                                                 \
    true) /* functools.partial: 0 func 1 args 2 kw */                         \
  X(PropertyFunc, true, false, true) /* property 0 fget 1 fset 2 fdel;        \
                                        static/classmethod: 0 */              \
  X(GetSet, true, true, false)       /* C getset attribute `key`, marked      \
                                        pure by its row */                    \
  X(TensorGrad, true, false, false)  /* .grad: a tensor or None */            \
  X(TensorSize, true, false, true)   /* int64 size of dim `index` */          \
  X(TensorStride, true, false, true)                                          \
  X(TensorOffset, true, false, false)                                         \
  X(IntValue, true, false, false)     /* int64 value of a Python int */       \
  X(FloatBits, true, false, false)    /* double of a Python float, as bits */ \
  X(ContextValue, true, false, false) /* of a ContextVar;                     \
                                         no_context_value() when it has none  \
                                      */                                      \
  X(IterPart, true, false, true)      /* object `index` of a C iterator:      \
                                         guards/iterators.h */                \
  X(IterItem, true, false, true)      /* 2 * steps ahead; + 1: dict value */  \
  X(IterNumber, true, false, true)    /* int64, `index` steps ahead */

enum class SourceKind : uint8_t {
#define X(name, ...) k##name,
  FJ_SOURCE_KINDS(X)
#undef X
      kCount,
};

class Source {
 public:
  SourceKind kind;
  const Source* base;  // null for roots
  Ref key;             // attribute or key object, or the constant
  int64_t index;
  uint32_t id;  // position in the arena: parents before children
};

class SourceArena {
 public:
  SourceArena() = default;
  SourceArena(const SourceArena&) = delete;
  // Interned: equal paths give the same pointer. Keys compare by identity, or
  // by value for exact str and int.
  const Source* make(SourceKind kind, const Source* base = nullptr,
                     PyObject* key = nullptr, int64_t index = 0);
  const Source* arg(int index) {
    return make(SourceKind::kArg, nullptr, nullptr, index);
  }
  const Source* function() { return make(SourceKind::kFunction); }
  const Source* constant(PyObject* object) {
    return make(SourceKind::kConst, nullptr, object);
  }
  size_t size() const { return nodes_.size(); }
  const Source* at(size_t id) const { return &nodes_[id]; }

 private:
  std::deque<Source> nodes_;
  std::unordered_multimap<size_t, uint32_t> index_;
};

// Follows the path. New reference (borrow + incref), or empty Ref when a step
// does not exist or has the wrong type (no error set). Size/stride/value kinds
// are read with evaluate_int.
Ref evaluate_source(const Source* source, PyObject* const* args,
                    PyObject* function);
bool evaluate_source_int(const Source* source, PyObject* const* args,
                         PyObject* function, int64_t* out);

// One step of a path, from the value of its base. Same results.
Ref evaluate_step(const Source* source, PyObject* base);
bool evaluate_int_step(const Source* source, PyObject* base, int64_t* out);
// What a ContextValue source gives for a variable without a value or default.
PyObject* no_context_value();
PyTypeObject* partial_type();  // functools.partial; null: not there
// Kinds whose value is an int64, not an object.
bool is_int_source(SourceKind kind);

// In the user's words: parameter names come from the code object.
// "inputs['x']", "self.layers[0].weight", "G['scale']", "x.size(0)".
std::string source_text(const Source* source, PyObject* code);

}  // namespace framejit
