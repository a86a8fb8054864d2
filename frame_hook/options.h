// Process-wide options: one table (options.def), one struct.
//
// The environment is read once, at the first use; Python may change a value
// later by its keyword. Options that belong to a compile() call (backend,
// fullgraph, dynamic ...) travel with the CompiledFunction instead.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace framejit {

struct Options {
  using text = std::string;
#define FJ_OPTION(member, type, env, keyword, default_value, help) \
  type member = default_value;
#include "frame_hook/options.def"
#undef FJ_OPTION
};

struct OptionRow {
  const char* environment;
  const char* keyword;
  const char* type;
  const char* default_text;
  const char* help;
};

const Options& options();
std::span<const OptionRow> option_rows();

// Sets one option from text, by keyword. False: no such option, or the text
// does not fit its type (`error` says which).
bool set_option(std::string_view keyword, std::string_view value,
                std::string* error);
// The current value as text; empty optional-like "" for an unknown keyword.
std::string option_text(std::string_view keyword);
// Forgets changes and reads the environment again (tests).
void reload_options();

// Is `name` one of the comma-separated words of `list`?
bool list_contains(std::string_view list, std::string_view name);

}  // namespace framejit
