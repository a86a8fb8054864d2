// Past entries: what the report at exit says of those that are gone.
//
// An entry goes with an object that it guards, so those of a model and an
// optimizer that `main()` made are gone before the program ends, and options
// with what was compiled with them. What an entry did is added up here when it
// goes, by the place of its function. Nothing of the program is kept.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "bytecode/capture/capture.h"

namespace framejit {

// A function, or what is left of it behind a line (0: the whole).
struct ReportPlace {
  std::string name, file;
  int line = 0, behind = 0;
  auto operator<=>(const ReportPlace&) const = default;
};

struct PastBreak {
  std::string id, reason, detail, where;
  auto operator<=>(const PastBreak&) const = default;
};

// A size that an operator pinned, and where.
struct PastPin {
  std::string by, where;
  auto operator<=>(const PastPin&) const = default;
};

struct Figures {
  size_t entries = 0, hits = 0, operations = 0;
  double ms = 0;
  std::map<PastBreak, size_t> breaks;
  std::map<PastPin, size_t> pins;
};

// Of one place.
struct PastEntries {
  // Of a module that only hands over to its forward, apart.
  Figures own, handing_over;
};

// Made when missing.
std::shared_ptr<PastEntries> past_entries(ReportPlace place);
const std::map<ReportPlace, std::shared_ptr<PastEntries>>& all_past_entries();
// What goes later, of entries made before, is forgotten as well.
void forget_past_entries();

PastBreak past_break(const Break& brk);
// "at train.py:12 in f"; of what a derivative asked for nobody knows the line.
std::string place_of_pin(const Guard& guard);
// The sizes that operators pinned, one each.
std::vector<PastPin> past_pins(const GuardSet& guards);

}  // namespace framejit
