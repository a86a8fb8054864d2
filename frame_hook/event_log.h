// The event log: what FrameJIT did and why, by channel.
//
// Library code emits text on a named channel; nothing is printed here. The
// bindings set a sink that forwards to Python's logging. The last events are
// kept whether or not their channel is on (events are rare: compilations,
// breaks, failures), so reports and tests can read them. Callers that build a
// costly text ask enabled() first. All calls need the GIL.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace framejit {

#define FJ_CHANNELS(X) \
  X(guards)            \
  X(recompiles)        \
  X(graph_breaks)      \
  X(graphs)            \
  X(bytecode)          \
  X(kernels)           \
  X(loops)             \
  X(schedule)          \
  X(fallbacks)

enum class Channel : uint8_t {
#define X(name) k_##name,
  FJ_CHANNELS(X)
#undef X
      kCount,
};

const char* channel_name(Channel channel);

// Warnings (notices.h) go to the sink whether or not their channel is on.
enum class Severity : uint8_t { kInfo, kWarning };

struct Event {
  Channel channel;
  std::string text;
  Severity severity = Severity::kInfo;
  uint64_t number = 0;  // of the process, from 1
};

struct EventCounters {
  uint64_t compiles = 0;    // entries made
  uint64_t recompiles = 0;  // of those, not the first for their key
  uint64_t breaks = 0;      // counted by the capture's owner
  uint64_t fallbacks = 0;   // graphs at torch level, calls of original code
  uint64_t failures = 0;    // internal errors
};

namespace detail {
extern uint32_t enabled_channels;
}

inline bool enabled(Channel channel) {
  return (detail::enabled_channels >> static_cast<int>(channel)) & 1;
}

void log_event(Channel channel, std::string text,
               Severity severity = Severity::kInfo);
// Switches on exactly the channels of a comma-separated list ("all": each).
// False when a word names no channel; the others are switched on all the same.
bool set_enabled_channels(std::string_view list);
// Called for events of enabled channels, and for warnings. Must not throw or
// raise.
void set_event_sink(std::function<void(const Event&)> sink);

EventCounters& event_counters();
// Oldest first; at most the last 256, and only those after a number.
std::vector<Event> recent_events(uint64_t after = 0);
uint64_t last_event_number();
void clear_events();  // events and counters

}  // namespace framejit
