#include "frame_hook/line_table.h"

#include <algorithm>
#include <memory>

#include "frame_hook/code_cache.h"

namespace framejit {

namespace {

// Of instructions, in bytes. In shorter code CPython's walk is as quick.
constexpr Py_ssize_t kLongCode = 2048;

// What the first byte of an entry says of the rest.
constexpr int kFirstOneLine = 10;  // 10, 11, 12: so many lines on, less 10
constexpr int kNoColumns = 13;
constexpr int kLong = 14;
constexpr int kNoLine = 15;

// Six bits a byte, the lowest first; the sign is the lowest bit.
int read_signed(const unsigned char* at) {
  unsigned value = 0;
  int shift = 0;
  do {
    value |= static_cast<unsigned>(*at & 63) << shift;
    shift += 6;
  } while (*at++ & 64);
  int magnitude = static_cast<int>(value >> 1);
  return value & 1 ? -magnitude : magnitude;
}

}  // namespace

LineTable::LineTable(PyCodeObject* code) {
  const auto* at = reinterpret_cast<const unsigned char*>(
      PyBytes_AS_STRING(code->co_linetable));
  const unsigned char* end = at + PyBytes_GET_SIZE(code->co_linetable);
  int line = code->co_firstlineno, offset = 0;
  while (at < end) {
    const int kind = (*at >> 3) & 15;
    offset += ((*at & 7) + 1) * kCodeUnitBytes;
    ++at;
    if (kind == kNoColumns || kind == kLong) {
      line += read_signed(at);
    } else if (kind >= kFirstOneLine && kind < kNoColumns) {
      line += kind - kFirstOneLine;
    }
    const int found = kind == kNoLine ? 0 : line;
    if (!ranges_.empty() && ranges_.back().line == found) {
      ranges_.back().end = offset;
    } else {
      ranges_.push_back({offset, found});
    }
    while (at < end && !(*at & 0x80)) ++at;  // columns
  }
}

int LineTable::line(int offset) const {
  auto found = std::upper_bound(
      ranges_.begin(), ranges_.end(), offset,
      [](int wanted, const Range& range) { return wanted < range.end; });
  return found == ranges_.end() ? 0 : found->line;
}

int line_of_instruction(PyObject* object, int offset) {
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  if (Py_SIZE(code) * kCodeUnitBytes >= kLongCode && offset >= 0) {
    if (CodeMemory* memory = code_memory(object)) {
      if (!memory->lines) memory->lines = std::make_unique<LineTable>(code);
      return memory->lines->line(offset);
    }
  }
  return std::max(PyCode_Addr2Line(code, offset), 0);
}

}  // namespace framejit
