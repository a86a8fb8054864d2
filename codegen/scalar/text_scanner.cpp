#include "codegen/scalar/text_scanner.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace framejit::codegen {

namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

}  // namespace

std::string TextScanner::where() const {
  auto end =
      text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size()));
  return "line " + std::to_string(1 + std::count(text_.begin(), end, '\n'));
}

char TextScanner::peek() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool TextScanner::accept(const char* token) {
  peek();
  const size_t size = std::strlen(token);
  if (text_.compare(at_, size, token) != 0) return false;
  at_ += size;
  return true;
}

void TextScanner::expect(const char* token) {
  if (!accept(token)) fail(std::string("expected ") + token);
}

bool TextScanner::accept_word(const char* word) {
  peek();
  const size_t size = std::strlen(word);
  if (text_.compare(at_, size, word) != 0) return false;
  if (at_ + size < text_.size() && is_word(text_[at_ + size])) return false;
  at_ += size;
  return true;
}

void TextScanner::expect_word(const char* word) {
  if (!accept_word(word)) fail(std::string("expected ") + word);
}

std::string TextScanner::next_word() {
  peek();
  size_t end = at_;
  while (end < text_.size() && is_word(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

std::string TextScanner::word() {
  std::string out = next_word();
  if (out.empty()) fail("expected a word");
  at_ += out.size();
  return out;
}

int64_t TextScanner::integer() {
  peek();
  const char* start = text_.c_str() + at_;
  char* end;
  errno = 0;
  const int64_t value = std::strtoll(start, &end, 10);
  if (end == start || errno == ERANGE) fail("expected an integer");
  at_ += static_cast<size_t>(end - start);
  return value;
}

Expr TextScanner::expression(const char* end, const char* token) {
  peek();
  const size_t start = at_;
  const size_t size = token ? std::strlen(token) : 0;
  int depth = 0;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (depth == 0 && std::strchr(end, c)) break;
    if (depth == 0 && token && text_.compare(at_, size, token) == 0) break;
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  Expr out;
  const std::string part = text_.substr(start, at_ - start);
  if (!Expr::parse(part, &out)) fail("not an expression: " + part);
  return out;
}

}  // namespace framejit::codegen
