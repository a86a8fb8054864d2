#include "bytecode/code/code_tables.h"

#include <algorithm>

namespace framejit::bytecode {
namespace {

// Entry kinds of the location table.
constexpr int kNoLocation = 15;
constexpr int kLongForm = 14;
constexpr int kNoColumns = 13;
constexpr int kOneLineForm = 10;  // 10, 11, 12: the line advances by 0, 1, 2
constexpr int kMaxUnitsPerEntry = 8;

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return position_ >= bytes_.size(); }
  int byte() {
    return done() ? 0 : static_cast<unsigned char>(bytes_[position_++]);
  }
  // Exception table: most significant group first.
  int big_endian() {
    unsigned first = byte();
    unsigned value = first & 63;
    while ((first & 64) && !done()) {
      first = byte();
      value = value << 6 | (first & 63);
    }
    return static_cast<int>(value);
  }
  // Location table: least significant group first.
  int little_endian() {
    unsigned group = byte();
    unsigned value = group & 63;
    int shift = 0;
    while ((group & 64) && !done() && shift < 24) {
      group = byte();
      shift += 6;
      value |= (group & 63) << shift;
    }
    return static_cast<int>(value);
  }
  int signed_little_endian() {
    int value = little_endian();
    return value & 1 ? -(value >> 1) : value >> 1;
  }

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

void append_big_endian(std::string& out, unsigned value, int first_bit) {
  int shift = 0;
  while (value >> shift >> 6) shift += 6;
  for (; shift >= 0; shift -= 6) {
    int group = value >> shift & 63;
    if (shift > 0) group |= 64;
    out.push_back(static_cast<char>(group | first_bit));
    first_bit = 0;
  }
}

void append_little_endian(std::string& out, unsigned value) {
  while (value >= 64) {
    out.push_back(static_cast<char>((value & 63) | 64));
    value >>= 6;
  }
  out.push_back(static_cast<char>(value));
}

void append_signed(std::string& out, int value) {
  append_little_endian(
      out, value < 0 ? unsigned(-value) << 1 | 1 : unsigned(value) << 1);
}

// One entry, at most kMaxUnitsPerEntry units. `line` is the running line.
void append_location(std::string& out, const Location& at, int units,
                     int& line) {
  auto head = [&](int kind) {
    out.push_back(static_cast<char>(0x80 | kind << 3 | (units - 1)));
  };
  if (at.line < 0) return head(kNoLocation);
  int delta = at.line - line;
  line = at.line;
  bool one_line = at.end_line == at.line || at.end_line < 0;
  if (at.column < 0 || at.end_column < 0) {
    if (one_line) {
      head(kNoColumns);
      append_signed(out, delta);
      return;
    }
  } else if (at.end_line == at.line) {
    int width = at.end_column - at.column;
    if (delta == 0 && at.column < 80 && width >= 0 && width < 16) {
      head(at.column >> 3);
      out.push_back(static_cast<char>((at.column & 7) << 4 | width));
      return;
    }
    if (delta >= 0 && delta < 3 && at.column < 128 && at.end_column < 128) {
      head(kOneLineForm + delta);
      out.push_back(static_cast<char>(at.column));
      out.push_back(static_cast<char>(at.end_column));
      return;
    }
  }
  head(kLongForm);
  append_signed(out, delta);
  append_little_endian(out, at.end_line - at.line);
  append_little_endian(out, at.column + 1);
  append_little_endian(out, at.end_column + 1);
}

}  // namespace

std::vector<ExceptionEntry> parse_exception_table(std::string_view table) {
  std::vector<ExceptionEntry> entries;
  Reader reader(table);
  while (!reader.done()) {
    ExceptionEntry entry;
    entry.start = reader.big_endian();
    entry.end = entry.start + reader.big_endian();
    entry.target = reader.big_endian();
    int depth_lasti = reader.big_endian();
    entry.depth = depth_lasti >> 1;
    entry.lasti = depth_lasti & 1;
    entries.push_back(entry);
  }
  return entries;
}

std::string emit_exception_table(const std::vector<ExceptionEntry>& entries) {
  std::string out;
  for (const ExceptionEntry& entry : entries) {
    append_big_endian(out, entry.start, 0x80);
    append_big_endian(out, entry.end - entry.start, 0);
    append_big_endian(out, entry.target, 0);
    append_big_endian(out, entry.depth << 1 | int(entry.lasti), 0);
  }
  return out;
}

std::vector<Location> parse_location_table(std::string_view table,
                                           int first_line) {
  std::vector<Location> locations;
  Reader reader(table);
  int line = first_line;
  while (!reader.done()) {
    int first = reader.byte();
    if (!(first & 0x80)) break;
    int kind = first >> 3 & 15;
    int units = (first & 7) + 1;
    Location at;
    if (kind == kNoLocation) {
    } else if (kind == kLongForm) {
      line += reader.signed_little_endian();
      at.line = line;
      at.end_line = line + reader.little_endian();
      at.column = reader.little_endian() - 1;
      at.end_column = reader.little_endian() - 1;
    } else if (kind == kNoColumns) {
      line += reader.signed_little_endian();
      at.line = at.end_line = line;
    } else if (kind >= kOneLineForm) {
      line += kind - kOneLineForm;
      at.line = at.end_line = line;
      at.column = reader.byte();
      at.end_column = reader.byte();
    } else {
      int second = reader.byte();
      at.line = at.end_line = line;
      at.column = kind << 3 | second >> 4;
      at.end_column = at.column + (second & 15);
    }
    locations.insert(locations.end(), units, at);
  }
  return locations;
}

std::string emit_location_table(const std::vector<LocationRun>& runs,
                                int first_line) {
  std::string out;
  int line = first_line;
  for (const LocationRun& run : runs) {
    for (int left = run.units; left > 0; left -= kMaxUnitsPerEntry)
      append_location(out, run.location, std::min(left, kMaxUnitsPerEntry),
                      line);
  }
  return out;
}

}  // namespace framejit::bytecode
