#include "guards/emit/machine_code.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace framejit {
namespace {

constexpr size_t kLine = 64;

std::atomic<size_t> mapped{0};

// Pieces that all began at the start of a page would share the same few sets of
// the instruction cache.
size_t next_offset(size_t room) {
  static std::atomic<size_t> pieces{0};
  size_t lines = room / kLine + 1;
  return pieces.fetch_add(1, std::memory_order_relaxed) * 17 % lines * kLine;
}

}  // namespace

std::unique_ptr<MachineCode> MachineCode::place(asmjit::CodeHolder& code) {
  if (code.flatten() || code.resolveUnresolvedLinks()) return nullptr;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t most = code.codeSize();
  if (most == 0) return nullptr;
  const size_t num_bytes = (most + page - 1) / page * page;
  void* pages = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  mapped += num_bytes;
  std::unique_ptr<MachineCode> placed(
      new MachineCode(static_cast<char*>(pages), num_bytes));
  return placed->fill(code, next_offset(num_bytes - most)) ? std::move(placed)
                                                           : nullptr;
}

bool MachineCode::fill(asmjit::CodeHolder& code, size_t offset) {
  begin_ = pages_ + offset;
  if (code.relocateToBase(reinterpret_cast<uint64_t>(begin_))) return false;
  size_ = code.codeSize();  // relocation may have made it smaller
  return !code.copyFlattenedData(begin_, size_) &&
         mprotect(pages_, num_bytes_, PROT_READ | PROT_EXEC) == 0;
}

MachineCode::~MachineCode() {
  munmap(pages_, num_bytes_);
  mapped -= num_bytes_;
}

size_t MachineCode::mapped_bytes() { return mapped; }

}  // namespace framejit
