// MachineCode: one piece of emitted code, in pages of its own.
//
// The pages are written, then made executable, never both at once; they are
// private to the process, so a child of fork() has its own. They are given back
// when the owner dies, which is whoever may still run the code: a predicate
// belongs to its entry, a kernel to the programs that call it.
#pragma once

#include <asmjit/core.h>

#include <cstddef>
#include <memory>

namespace framejit {

class MachineCode {
 public:
  // The relocated code; null when there is no memory for it.
  static std::unique_ptr<MachineCode> place(asmjit::CodeHolder& code);
  ~MachineCode();
  MachineCode(const MachineCode&) = delete;
  MachineCode& operator=(const MachineCode&) = delete;

  template <class Function>
  Function function(size_t offset = 0) const {
    return reinterpret_cast<Function>(begin_ + offset);
  }
  const void* begin() const { return begin_; }
  size_t size() const { return size_; }

  // Of all pieces alive.
  static size_t mapped_bytes();

 private:
  MachineCode(char* pages, size_t num_bytes)
      : pages_(pages), num_bytes_(num_bytes) {}
  bool fill(asmjit::CodeHolder& code, size_t offset);

  char* pages_;
  size_t num_bytes_;
  char* begin_ = nullptr;
  size_t size_ = 0;
};

}  // namespace framejit
