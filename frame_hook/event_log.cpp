#include "frame_hook/event_log.h"

#include <deque>

#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/py_ref.h"

namespace framejit {
namespace detail {
uint32_t enabled_channels = 0;
}

namespace {

constexpr size_t kKeptEvents = 256;

struct Log {
  std::function<void(const Event&)> sink;
  std::deque<Event> events;
  EventCounters counters;
  uint64_t last_number = 0;
  bool in_sink = false;
};

// Never destroyed: events may come while the process ends.
Log& log() {
  static Log* instance = new Log;
  return *instance;
}

constexpr const char* kNames[] = {
#define X(name) #name,
    FJ_CHANNELS(X)
#undef X
};

}  // namespace

const char* channel_name(Channel channel) {
  return kNames[static_cast<int>(channel)];
}

void log_event(Channel channel, std::string text, Severity severity) {
  Log& state = log();
  if (channel == Channel::k_fallbacks) ++state.counters.fallbacks;
  state.events.push_back(
      {channel, std::move(text), severity, ++state.last_number});
  if (state.events.size() > kKeptEvents) state.events.pop_front();
  // A sink that logs again (Python handlers run any code) is not re-entered.
  bool wanted = enabled(channel) || severity == Severity::kWarning;
  if (!wanted || !state.sink || state.in_sink) return;
  state.in_sink = true;
  Event event = state.events.back();
  ErrorGuard pending;  // the sink runs Python code,
  PauseHook pause;     // which is not the program's
  Interjections interjections;
  try {
    state.sink(event);
  } catch (...) {
  }
  state.in_sink = false;
}

bool set_enabled_channels(std::string_view list) {
  uint32_t mask = 0;
  bool all_known = true;
  while (!list.empty()) {
    size_t comma = list.find(',');
    std::string_view word = list.substr(0, comma);
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
    if (word.empty()) continue;
    bool known = word == "all";
    for (int i = 0; i < static_cast<int>(Channel::kCount); ++i) {
      if (word == "all" || word == kNames[i]) {
        mask |= 1u << i;
        known = true;
      }
    }
    all_known &= known;
  }
  detail::enabled_channels = mask;
  return all_known;
}

void set_event_sink(std::function<void(const Event&)> sink) {
  log().sink = std::move(sink);
}

EventCounters& event_counters() { return log().counters; }

std::vector<Event> recent_events(uint64_t after) {
  std::vector<Event> events;
  for (const Event& event : log().events) {
    if (event.number > after) events.push_back(event);
  }
  return events;
}

uint64_t last_event_number() { return log().last_number; }

void clear_events() {
  log().events.clear();
  log().counters = {};
}

}  // namespace framejit
