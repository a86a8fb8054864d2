// Arrays that live for one call.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>

namespace framejit {

// Fixed room on the C stack, the heap beyond it. Not initialised.
template <class T, size_t kInline>
class CallArray {
 public:
  explicit CallArray(size_t size) {
    if (size > kInline) [[unlikely]]
      heap_ = std::make_unique<T[]>(size);
  }
  T* data() { return heap_ ? heap_.get() : inline_; }

 private:
  T inline_[kInline];
  std::unique_ptr<T[]> heap_;
};
using ObjectArray = CallArray<PyObject*, 192>;
using SymbolArray = CallArray<int64_t, 24>;

}  // namespace framejit
