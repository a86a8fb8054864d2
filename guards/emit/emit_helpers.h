// C functions that native predicates call, where a guard or a step of a path
// has no native form. They run no user code, throw nothing and leave no error.
#pragma once

#include "guards/set/guard_set.h"

namespace framejit {

// The value of a step, borrowed (its container keeps it alive), or null.
PyObject* predicate_step(const Source* source, PyObject* base) noexcept;
// A guard about one object.
int predicate_holds(const Guard* guard, PyObject* value) noexcept;
// Guard `index`, whatever it is, from the roots.
int predicate_guard(const GuardSet* set, int64_t index, PyObject* const* args,
                    PyObject* function) noexcept;
// A gathered object or a symbol, from the roots; 0: cannot be read.
int predicate_gather(const GuardSet* set, int64_t index, PyObject* const* args,
                     PyObject* function, PyObject** out) noexcept;
int predicate_symbol(const Source* source, PyObject* const* args,
                     PyObject* function, int64_t* out) noexcept;
int predicate_int(const Source* source, PyObject* base, int64_t* out) noexcept;

// A float operation for which there is no instruction: the bits in, the bits
// out. 0: it has no value.
int predicate_float_op(int64_t op, int64_t left, int64_t right,
                       int64_t* out) noexcept;

// Storage sharing of tensors: `storages[i]` of group.groups[i].
int predicate_storages(const GuardSet::StorageGroup* group,
                       const void* const* storages) noexcept;
// These storages, and `count` others, have no byte in common.
int predicate_apart(const std::vector<const void*>* stable,
                    const void* const* fresh, int64_t count) noexcept;
// No tensor of a group's table (rows of three) has forward-mode tangents.
int predicate_no_tangents(const std::vector<const void*>* table) noexcept;
// `pointer` is not in the sorted table.
int predicate_not_in(const std::vector<const void*>* table,
                     const void* pointer) noexcept;

}  // namespace framejit
