#include "frame_hook/notices.h"

#include <unordered_set>
#include <utility>

#include "frame_hook/code_cache.h"

namespace framejit {
namespace {

constexpr NoticeRow kRows[] = {
#define FJ_NOTICE(name, channel, text) {#name, Channel::k_##channel, text},
#include "frame_hook/notices.def"
#undef FJ_NOTICE
};

uint8_t bit_of(Notice notice) { return uint8_t(1u << int(notice)); }
static_assert(int(Notice::kCount) <= 8, "CodeMemory::notices has 8 bits");

// Lines that were said. Never destroyed, as the event log.
std::unordered_set<std::string>& said() {
  static auto* lines = new std::unordered_set<std::string>;
  return *lines;
}

bool is_new(const std::string& text) {
  // A program that makes code all the time: rather again than kept for good.
  constexpr size_t kMaxLines = 4096;
  if (said().size() >= kMaxLines) said().clear();
  return said().insert(text).second;
}

}  // namespace

const NoticeRow& notice_row(Notice notice) { return kRows[int(notice)]; }

bool was_noticed(Notice notice, PyObject* code) {
  const CodeMemory* memory = find_code_memory(code);
  return memory && memory->notices & bit_of(notice);
}

void log_notice(Notice notice, PyObject* code, std::string text) {
  CodeMemory* memory = code_memory(code);
  // No memory: rather silent than again and again.
  bool first = memory && !(memory->notices & bit_of(notice));
  if (first) {
    memory->notices |= bit_of(notice);
    first = is_new(text);
  }
  log_event(notice_row(notice).channel, std::move(text),
            first ? Severity::kWarning : Severity::kInfo);
}

void log_notice(Notice notice, std::string text) {
  const bool first = is_new(text);
  log_event(notice_row(notice).channel, std::move(text),
            first ? Severity::kWarning : Severity::kInfo);
}

void forget_notices() { said().clear(); }

}  // namespace framejit
