#include "guards/emit/emit_helpers.h"

#include <algorithm>
#include <unordered_map>

#include "frame_hook/collector.h"
#include "frame_hook/interjections.h"
#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"
#include "guards/set/storage_memory.h"
#include "guards/set/weak_objects.h"

namespace framejit {
namespace {

// Predicates run with no error pending, so none may be left behind.
template <class F>
auto guarded(F&& body) noexcept -> decltype(body()) {
  decltype(body()) result{};
  CollectorOff off;
  try {
    result = body();
  } catch (...) {
    result = {};
  }
  if (PyErr_Occurred()) {
    drop_error();
    result = {};
  }
  return result;
}

}  // namespace

PyObject* predicate_step(const Source* source, PyObject* base) noexcept {
  return guarded(
      [&]() -> PyObject* { return evaluate_step(source, base).get(); });
}

int predicate_holds(const Guard* guard, PyObject* value) noexcept {
  return guarded([&]() -> int { return holds_for(*guard, value); });
}

int predicate_guard(const GuardSet* set, int64_t index, PyObject* const* args,
                    PyObject* function) noexcept {
  return guarded([&]() -> int {
    const Guard& guard = set->guards()[index];
    // What looks at one object needs no room for the values of all sources.
    bool plain = guard_kind_row(guard.kind).scope == GuardScope::kObject &&
                 !is_int_source(guard.source->kind);
    if (plain) {
      Ref value = evaluate_source(guard.source, args, function);
      return value && holds_for(guard, value.get());
    }
    SourceValues sources(*set, args, function);
    return holds(*set, guard, sources, read_symbols(*set, sources));
  });
}

int predicate_gather(const GuardSet* set, int64_t index, PyObject* const* args,
                     PyObject* function, PyObject** out) noexcept {
  return guarded([&]() -> int {
    const Source* source = set->gathered()[index];
    Ref value = evaluate_source(source, args, function);
    *out = value.get();
    return value && !(is_temporary(source) && Py_REFCNT(value.get()) == 1);
  });
}

int predicate_symbol(const Source* source, PyObject* const* args,
                     PyObject* function, int64_t* out) noexcept {
  return guarded([&]() -> int {
    return evaluate_source_int(source, args, function, out);
  });
}

int predicate_int(const Source* source, PyObject* base, int64_t* out) noexcept {
  return guarded([&]() -> int { return evaluate_int_step(source, base, out); });
}

int predicate_float_op(int64_t op, int64_t left, int64_t right,
                       int64_t* out) noexcept {
  return compute_float(static_cast<ExprOp>(op), left, right, out);
}

int predicate_storages(const GuardSet::StorageGroup* group,
                       const void* const* storages) noexcept {
  return guarded([&]() -> int {
    // Each storage belongs to one group and each group to one storage.
    std::unordered_map<const void*, int> groups;
    std::unordered_map<int, const void*> first;
    for (size_t i = 0; i < group->groups.size(); ++i) {
      int number = group->groups[i];
      if (groups.try_emplace(storages[i], number).first->second != number ||
          first.try_emplace(number, storages[i]).first->second != storages[i])
        return 0;
    }
    size_t count = group->groups.size();
    // Not in braces: they would make a vector of these two pointers.
    return storages_lie_apart(
        std::vector<const void*>(storages, storages + count));
  });
}

int predicate_apart(const std::vector<const void*>* stable,
                    const void* const* fresh, int64_t count) noexcept {
  return guarded([&]() -> int {
    std::vector<const void*> storages = *stable;
    storages.insert(storages.end(), fresh, fresh + count);
    return storages_lie_apart(std::move(storages));
  });
}

int predicate_no_tangents(const std::vector<const void*>* table) noexcept {
  for (size_t i = 0; i < table->size(); i += 3) {
    auto* tensor = static_cast<PyObject*>(const_cast<void*>((*table)[i]));
    if (tensor_fields(tensor).has_forward_grad) return 0;
  }
  return 1;
}

int predicate_not_in(const std::vector<const void*>* table,
                     const void* pointer) noexcept {
  return !std::binary_search(table->begin(), table->end(), pointer,
                             std::less<const void*>());
}

}  // namespace framejit
