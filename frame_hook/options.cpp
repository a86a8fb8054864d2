#include "frame_hook/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace framejit {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(separator);
    parts.emplace_back(trimmed(text.substr(0, end)));
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return parts;
}

enum class Accepts { kAnything, kAnyList, kOneWord, kWords, kNumber };

Accepts kind_of(std::string_view accepted) {
  if (accepted.starts_with('<')) {
    return accepted.ends_with('>') ? Accepts::kAnything : Accepts::kAnyList;
  }
  if (accepted.ends_with("..")) return Accepts::kNumber;
  if (accepted.find('|') != std::string_view::npos) return Accepts::kOneWord;
  return Accepts::kWords;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = char(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool parse_number(std::string_view text, int* out) {
  const char* end = text.data() + text.size();
  auto [stop, code] = std::from_chars(text.data(), end, *out);
  return !text.empty() && code == std::errc() && stop == end;
}

// The word of `words` that `value` means.
std::optional<std::string> find_word(const std::vector<std::string>& words,
                                     std::string_view value) {
  std::string wanted = lower(value);
  bool is_switch = words == std::vector<std::string>{"0", "1"};
  if (is_switch && (wanted == "off" || wanted == "false")) wanted = "0";
  if (is_switch && (wanted == "on" || wanted == "true")) wanted = "1";
  auto found = std::find(words.begin(), words.end(), wanted);
  if (found == words.end()) return std::nullopt;
  return *found;
}

// The value as the option keeps it; nothing: it is none.
std::optional<std::string> normal_form(std::string_view accepted,
                                       std::string_view given) {
  std::string_view value = trimmed(given);
  const std::vector<std::string> words = accepted_words(accepted);
  switch (kind_of(accepted)) {
    case Accepts::kAnything:
      return std::string(given);
    case Accepts::kOneWord:
      return find_word(words, value);
    case Accepts::kNumber: {
      int least = 0, number = 0;
      parse_number(accepted.substr(0, accepted.size() - 2), &least);
      if (!parse_number(value, &number) || number < least) return std::nullopt;
      return std::to_string(number);
    }
    case Accepts::kAnyList:
    case Accepts::kWords: {
      const bool any = kind_of(accepted) == Accepts::kAnyList;
      std::string result;
      for (const std::string& word : split(value, ',')) {
        if (word.empty()) continue;
        std::optional<std::string> found = any ? word : find_word(words, word);
        if (!found) return std::nullopt;
        result += (result.empty() ? "" : ",") + *found;
      }
      if (result.empty()) return std::nullopt;
      return result;
    }
  }
  return std::nullopt;
}

// From a normal form.
void convert(const std::string& value, bool* out) { *out = value == "1"; }
void convert(const std::string& value, int* out) { parse_number(value, out); }
void convert(const std::string& value, std::string* out) { *out = value; }

std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(int value) { return std::to_string(value); }
std::string text_of(const std::string& value) { return value; }

// False: not a value. `target` is unchanged then.
template <typename T>
bool assign(std::string_view accepted, std::string_view value, T default_value,
            T* target) {
  if (trimmed(value).empty()) {
    *target = std::move(default_value);
    return true;
  }
  std::optional<std::string> normal = normal_form(accepted, value);
  if (normal) convert(*normal, target);
  return normal.has_value();
}

std::string refusal(std::string_view keyword, std::string_view accepted,
                    std::string_view value) {
  int number = 0;
  const bool is_number =
      kind_of(accepted) == Accepts::kNumber && parse_number(value, &number);
  const char* quote = is_number ? "" : "'";
  return std::string(keyword) + ": expected " + accepted_text(accepted) +
         ", got " + quote + std::string(value) + quote;
}

struct State {
  Options options;
  std::vector<RefusedValue> refused;
};

const OptionRow* find_row(std::string_view keyword) {
  for (const OptionRow& row : option_rows()) {
    if (keyword == row.keyword) return &row;
  }
  return nullptr;
}

State from_environment() {
  using text = std::string;
  State state;
#define FJ_OPTION(member, type, env, keyword, default_value, scope, accepted, \
                  help)                                                       \
  if (const char* value = std::getenv(env);                                   \
      value &&                                                                \
      !assign<type>(accepted, value, default_value, &state.options.member)) { \
    state.refused.push_back({find_row(keyword), value});                      \
  }
#include "frame_hook/options.def"
#undef FJ_OPTION
  return state;
}

State& state() {
  static State instance = from_environment();
  return instance;
}

}  // namespace

const Options& options() { return state().options; }

const std::vector<RefusedValue>& refused_environment() {
  return state().refused;
}

std::span<const OptionRow> option_rows() {
  enum Scope : bool { process = false, call = true };
  using text = std::string;
  // Never destroyed: asked for while the process ends, too.
  static const auto* rows = new std::vector<OptionRow>{
#define FJ_OPTION(member, type, env, keyword, default_value, scope, accepted, \
                  help)                                                       \
  {env,   keyword,  #type, text_of(static_cast<type>(default_value)),         \
   scope, accepted, help},
#include "frame_hook/options.def"
#undef FJ_OPTION
  };
  return *rows;
}

std::vector<std::string> accepted_words(std::string_view accepted) {
  switch (kind_of(accepted)) {
    case Accepts::kOneWord:
      return split(accepted, '|');
    case Accepts::kWords:
      return split(accepted, ',');
    default:
      return {};
  }
}

std::string accepted_text(std::string_view accepted) {
  const Accepts kind = kind_of(accepted);
  if (kind == Accepts::kAnything)
    return std::string(accepted.substr(1, accepted.size() - 2));
  if (kind == Accepts::kAnyList) {
    return std::string(accepted.substr(1, accepted.find('>') - 1)) +
           ", comma-separated";
  }
  if (kind == Accepts::kNumber) {
    return "a whole number, " +
           std::string(accepted.substr(0, accepted.size() - 2)) + " or more";
  }
  const std::vector<std::string> words = accepted_words(accepted);
  const bool is_list = kind == Accepts::kWords;
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i) text += !is_list && i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return is_list ? "any of " + text + ", comma-separated" : text;
}

bool set_option(std::string_view keyword, std::string_view value,
                std::string* error) {
  using text = std::string;
  Options& target = state().options;
#define FJ_OPTION(member, type, env, word, default_value, scope, accepted, \
                  help)                                                    \
  if (keyword == word) {                                                   \
    if (assign<type>(accepted, value, default_value, &target.member))      \
      return true;                                                         \
    if (error) *error = refusal(keyword, accepted, value);                 \
    return false;                                                          \
  }
#include "frame_hook/options.def"
#undef FJ_OPTION
  if (error) *error = "no option named '" + std::string(keyword) + "'";
  return false;
}

bool set_call_option(CallOptions* options, std::string_view keyword,
                     std::string_view value, std::string* error) {
#define FJ_SCOPE_process(member, type, word, accepted)
#define FJ_SCOPE_call(member, type, word, accepted)                   \
  if (keyword == word) {                                              \
    std::optional<std::string> normal = normal_form(accepted, value); \
    if (normal) {                                                     \
      convert(*normal, &options->member.emplace());                   \
    } else if (error) {                                               \
      *error = refusal(keyword, accepted, value);                     \
    }                                                                 \
    return normal.has_value();                                        \
  }
#define FJ_OPTION(member, type, env, word, default_value, scope, accepted, \
                  help)                                                    \
  FJ_SCOPE_##scope(member, type, word, accepted)
#include "frame_hook/options.def"
#undef FJ_OPTION
#undef FJ_SCOPE_call
#undef FJ_SCOPE_process
  if (error)
    *error = "no option of compile() named '" + std::string(keyword) + "'";
  return false;
}

std::string option_text(std::string_view keyword) {
#define FJ_OPTION(member, type, env, word, ...) \
  if (keyword == word) return text_of(options().member);
#include "frame_hook/options.def"
#undef FJ_OPTION
  return "";
}

void reload_options() { state() = from_environment(); }

bool list_contains(std::string_view list, std::string_view name) {
  if (list.empty()) return false;
  const std::vector<std::string> words = split(list, ',');
  return std::find(words.begin(), words.end(), name) != words.end();
}

}  // namespace framejit
