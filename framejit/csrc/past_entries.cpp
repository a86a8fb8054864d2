#include "framejit/csrc/past_entries.h"

#include <utility>

#include "frame_hook/break_reason.h"

namespace framejit {
namespace {

using Places = std::map<ReportPlace, std::shared_ptr<PastEntries>>;

// Never destroyed: entries go until the process ends.
Places& places() {
  static auto* instance = new Places;
  return *instance;
}

}  // namespace

std::shared_ptr<PastEntries> past_entries(ReportPlace place) {
  std::shared_ptr<PastEntries>& found = places()[std::move(place)];
  if (!found) found = std::make_shared<PastEntries>();
  return found;
}

const Places& all_past_entries() { return places(); }

void forget_past_entries() { places().clear(); }

PastBreak past_break(const Break& brk) {
  const BreakReasonRow& row = break_reason_row(brk.reason);
  return {row.id, row.title, brk.detail, format_span(brk.span)};
}

std::string place_of_pin(const Guard& guard) {
  return guard.span.code ? "at " + format_span(guard.span) : "in a gradient";
}

std::vector<PastPin> past_pins(const GuardSet& guards) {
  std::vector<PastPin> pins;
  for (const Guard& guard : guards.guards()) {
    if (guard.cause && pinned_expr(guard))
      pins.push_back({guard.cause, place_of_pin(guard)});
  }
  return pins;
}

}  // namespace framejit
