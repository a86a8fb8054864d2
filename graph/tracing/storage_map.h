// A table by the memory of stand-ins.
//
// An address says which memory it is for as long as that memory is there: the
// next tensor may get the place of one that is gone. So an entry keeps its
// memory (of a companion: no bytes).
#pragma once

#include <c10/core/Storage.h>

#include <unordered_map>
#include <utility>

#include "graph/tracing/write_rules.h"

namespace framejit::graph {

template <class Value>
class StorageMap {
 public:
  // Nothing is known of a tensor that is no stand-in.
  void set(const at::Tensor& stand_in, Value value) {
    const c10::Storage* storage = companion_memory(stand_in);
    if (storage)
      entries_.insert_or_assign(storage->unsafeGetStorageImpl(),
                                Entry{*storage, std::move(value)});
  }

  const Value* find(const at::Tensor& stand_in) const {
    const c10::Storage* storage = companion_memory(stand_in);
    auto found = storage ? entries_.find(storage->unsafeGetStorageImpl())
                         : entries_.end();
    return found == entries_.end() ? nullptr : &found->second.value;
  }

  void erase(const at::Tensor& stand_in) {
    const c10::Storage* storage = companion_memory(stand_in);
    if (storage) entries_.erase(storage->unsafeGetStorageImpl());
  }

 private:
  struct Entry {
    c10::Storage storage;
    Value value;
  };
  std::unordered_map<const c10::StorageImpl*, Entry> entries_;
};

}  // namespace framejit::graph
