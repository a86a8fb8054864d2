#include "graph/fx/names.h"

namespace framejit::graph {

namespace {

std::unordered_set<std::string>& reserved() {
  static auto* names = new std::unordered_set<std::string>;
  return *names;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         c == '_';
}

// Every run of other characters is one underscore.
std::string identifier(std::string_view text) {
  std::string out;
  bool in_run = false;
  for (char c : text) {
    if (is_word(c)) {
      out += c;
    } else if (!in_run) {
      out += '_';
    }
    in_run = !is_word(c);
  }
  if (out.empty()) return "_unnamed";
  return is_digit(out[0]) ? "_" + out : out;
}

// "add_12" -> "add" and 12; the base keeps one character at least.
struct Parts {
  std::string base;
  int64_t number = -1;  // none
};

Parts parts_of(const std::string& name) {
  size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  // More digits than an int64_t has are part of the base.
  constexpr size_t kMostDigits = 18;
  if (digits == name.size() || digits < 2 || name[digits - 1] != '_' ||
      name.size() - digits > kMostDigits)
    return {name};
  return {name.substr(0, digits - 1), std::stoll(name.substr(digits))};
}

std::string valid_name(std::string_view candidate) {
  bool is_valid = !candidate.empty() && !is_digit(candidate[0]);
  for (size_t i = 0; is_valid && i < candidate.size(); ++i)
    is_valid = is_word(candidate[i]);
  return is_valid ? std::string(candidate) : identifier(candidate);
}

}  // namespace

std::string Names::create(std::string_view candidate, bool may_be_reserved) {
  std::string name = valid_name(candidate);
  Parts parts = parts_of(name);
  int64_t number = parts.number;
  int64_t& last = last_number_[parts.base];
  if (number < 0 || used_.contains(name)) {
    number = last;
    if (!may_be_reserved && is_reserved_name(name))
      name = parts.base + "_" + std::to_string(++number);
  }
  while (!used_.insert(name).second)
    name = parts.base + "_" + std::to_string(++number);
  last = number;
  return name;
}

Names::Series Names::series(std::string_view candidate) {
  Series made;
  made.candidate = valid_name(candidate);
  Parts parts = parts_of(made.candidate);
  made.base = parts.base;
  made.last = &last_number_[parts.base];
  return made;
}

std::string Names::next(Series& series) {
  if (!series.is_taken) {
    std::string name = create(series.candidate);
    // (One with a number of its own is no base to count from.)
    series.is_taken =
        series.base == series.candidate && used_.contains(series.candidate);
    return name;
  }
  std::string name;
  do {
    name = series.base + "_" + std::to_string(++*series.last);
  } while (!used_.insert(name).second);
  return name;
}

void reserve_name(std::string name) { reserved().insert(std::move(name)); }

bool is_reserved_name(const std::string& name) {
  return reserved().contains(name);
}

std::string snake_case(std::string_view text) {
  auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (is_upper(c)) {
      if (i > 0 && text[i - 1] >= 'a' && text[i - 1] <= 'z') out += '_';
      c = static_cast<char>(c - 'A' + 'a');
    }
    out += c;
  }
  return out;
}

}  // namespace framejit::graph
