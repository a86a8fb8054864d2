#include "frame_hook/options.h"

#include <charconv>
#include <cstdlib>

namespace framejit {
namespace {

bool parse(std::string_view value, bool* out) {
  if (value == "1" || value == "true" || value == "on" || value == "True") {
    *out = true;
  } else if (value == "0" || value == "false" || value == "off" ||
             value == "False" || value.empty()) {
    *out = false;
  } else {
    return false;
  }
  return true;
}

bool parse(std::string_view value, int* out) {
  int number = 0;
  auto [end, code] =
      std::from_chars(value.data(), value.data() + value.size(), number);
  if (code != std::errc() || end != value.data() + value.size() || number < 0) {
    return false;
  }
  *out = number;
  return true;
}

bool parse(std::string_view value, std::string* out) {
  *out = value;
  return true;
}

std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(int value) { return std::to_string(value); }
std::string text_of(const std::string& value) { return value; }

// A malformed environment value leaves the default: the library never prints,
// and Python reports it through option_text().
Options from_environment() {
  Options result;
#define FJ_OPTION(member, type, env, keyword, default_value, help) \
  if (const char* value = std::getenv(env)) parse(value, &result.member);
#include "frame_hook/options.def"
#undef FJ_OPTION
  return result;
}

Options& mutable_options() {
  static Options instance = from_environment();
  return instance;
}

}  // namespace

const Options& options() { return mutable_options(); }

std::span<const OptionRow> option_rows() {
  static const OptionRow rows[] = {
#define FJ_OPTION(member, type, env, keyword, default_value, help) \
  {env, keyword, #type, #default_value, help},
#include "frame_hook/options.def"
#undef FJ_OPTION
  };
  return rows;
}

bool set_option(std::string_view keyword, std::string_view value,
                std::string* error) {
  Options& target = mutable_options();
#define FJ_OPTION(member, type, env, word, default_value, help)    \
  if (keyword == word) {                                           \
    if (parse(value, &target.member)) return true;                 \
    if (error)                                                     \
      *error = std::string(word) + ": expected " #type ", got '" + \
               std::string(value) + "'";                           \
    return false;                                                  \
  }
#include "frame_hook/options.def"
#undef FJ_OPTION
  if (error) *error = "no option named '" + std::string(keyword) + "'";
  return false;
}

std::string option_text(std::string_view keyword) {
#define FJ_OPTION(member, type, env, word, default_value, help) \
  if (keyword == word) return text_of(options().member);
#include "frame_hook/options.def"
#undef FJ_OPTION
  return "";
}

void reload_options() { mutable_options() = from_environment(); }

bool list_contains(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    size_t comma = list.find(',');
    std::string_view word = list.substr(0, comma);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    if (word == name) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace framejit
