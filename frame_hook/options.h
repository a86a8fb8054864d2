// Options: one table (options.def), one struct.
//
// The environment is read once, at the first use; Python may change a value
// later by its keyword. What a value may be is a column of the table, so every
// value is checked alike, wherever it comes from; the library never prints, so
// those of the environment that are none are kept to be reported
// (framejit/_options.py). What a compile() call says of its own is in
// CallOptions, which travels with the CompiledFunction, as do the arguments
// that are no options (backend, fullgraph, dynamic ...).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace framejit {

struct Options {
  using text = std::string;
#define FJ_OPTION(member, type, env, keyword, default_value, ...) \
  type member = default_value;
#include "frame_hook/options.def"
#undef FJ_OPTION
};

struct CallOptions {
#define FJ_SCOPE_process(member, type)
#define FJ_SCOPE_call(member, type) std::optional<type> member;
#define FJ_OPTION(member, type, env, keyword, default_value, scope, ...) \
  FJ_SCOPE_##scope(member, type)
#include "frame_hook/options.def"
#undef FJ_OPTION
#undef FJ_SCOPE_call
#undef FJ_SCOPE_process
};
// Sets one of them. False: no row of scope `call`, or not a value (`error`).
bool set_call_option(CallOptions* options, std::string_view keyword,
                     std::string_view value, std::string* error);

struct OptionRow {
  const char* environment;
  const char* keyword;
  const char* type;
  std::string default_text;
  bool for_calls;        // scope
  const char* accepted;  // as in options.def
  const char* help;
};

const Options& options();
std::span<const OptionRow> option_rows();
// The column `accepted` in words: "auto, aten or reference".
std::string accepted_text(std::string_view accepted);
// The words it names; empty: it names none.
std::vector<std::string> accepted_words(std::string_view accepted);

// What of the environment was not taken, for the default is used instead.
struct RefusedValue {
  const OptionRow* row;
  std::string value;
};
const std::vector<RefusedValue>& refused_environment();

// Sets one option from text, by keyword. False: no such option, or not a value
// of it (`error` says which).
bool set_option(std::string_view keyword, std::string_view value,
                std::string* error);
// The current value as text; empty optional-like "" for an unknown keyword.
std::string option_text(std::string_view keyword);
// Forgets changes and reads the environment again (tests).
void reload_options();

// Is `name` one of the comma-separated words of `list`?
bool list_contains(std::string_view list, std::string_view name);

}  // namespace framejit
