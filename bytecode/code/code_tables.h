// The two side tables of a code object, as plain vectors and back.
//
// The exception table says which handler covers which instructions; the
// location table gives each instruction its place in the source. Both are
// variable-length byte strings (CPython's Objects/exception_handling_notes.txt
// and locations.md). Positions are in code units (two bytes), as in the tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace framejit::bytecode {

struct ExceptionEntry {
  int start = 0;
  int end = 0;  // exclusive
  int target = 0;
  int depth = 0;
  bool lasti = false;
};

// A malformed table ends the list early; it never reads out of bounds.
std::vector<ExceptionEntry> parse_exception_table(std::string_view table);
std::string emit_exception_table(const std::vector<ExceptionEntry>& entries);

// Lines and columns as CPython has them; -1: not known.
struct Location {
  int line = -1;
  int end_line = -1;
  int column = -1;
  int end_column = -1;
  bool operator==(const Location&) const = default;
};

// One location per code unit.
std::vector<Location> parse_location_table(std::string_view table,
                                           int first_line);

struct LocationRun {
  Location location;
  int units = 0;
};
std::string emit_location_table(const std::vector<LocationRun>& runs,
                                int first_line);

}  // namespace framejit::bytecode
