// What the parsers of loops, kernels and schedules take their texts apart with.
// Spaces and newlines between tokens mean nothing.
#pragma once

#include <string>

#include "guards/expr/expr.h"

namespace framejit::codegen {

struct SyntaxError {
  std::string message;
};

class TextScanner {
 public:
  // The text must live as long.
  explicit TextScanner(const std::string& text) : text_(text) {}
  std::string where() const;  // "line 3"

  [[noreturn]] static void fail(const std::string& message) {
    throw SyntaxError{message};
  }

  char peek();  // the next character that is no space; 0: none
  bool accept(const char* token);
  void expect(const char* token);
  // As accept(), but not the beginning of a longer word.
  bool accept_word(const char* word);
  void expect_word(const char* word);
  std::string word();
  std::string next_word();  // without taking it
  int64_t integer();
  // Up to a character of `end`, or to `token`, outside of parentheses.
  Expr expression(const char* end, const char* token = nullptr);

 protected:
  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace framejit::codegen
