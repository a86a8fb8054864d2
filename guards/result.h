// Result<T>: how capture code says what happened.
//
// A step of capture ends in one of three ways: a value; a Python exception that
// belongs to the user's program (set in the thread state, like in CPython); or
// a Break, which stops the capture. A break is a value, not an exception, so no
// rollback code exists: the caller throws the capture away and starts again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "frame_hook/break_reason.h"
#include "frame_hook/py_ref.h"

namespace framejit {

// A place in the user's program: resolved to text only when shown.
struct Span {
  Ref code;             // code object, or empty
  int instruction = 0;  // byte offset within it
};
std::string format_span(const Span& span);  // "file.py:12 in name"
std::string brief_place(const Span& span);  // "file.py:12", without folders
int span_line(const Span& span);            // 0 when unknown

struct Break {
  BreakReason reason;
  std::string detail;  // what exactly, in the user's words
  Span span;           // filled in by the interpreter
};
std::string format_break(const Break& brk);  // "FJ101 branch on ...: detail"

// The moved-from / error payload is out of line: Result<Ref> is two words.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Break brk) : break_(std::make_unique<Break>(std::move(brk))) {}
  static Result raised() { return Result(RaisedTag{}); }

  bool ok() const { return value_.has_value(); }
  bool broke() const { return break_ != nullptr; }
  bool is_raised() const { return !ok() && !broke(); }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T take() { return std::move(*value_); }
  Break& brk() { return *break_; }
  Break take_break() { return std::move(*break_); }

  // Passes on a failed result as one of another type.
  template <class U>
  Result<U> forward() {
    if (broke()) return Result<U>(take_break());
    return Result<U>::raised();
  }

 private:
  struct RaisedTag {};
  explicit Result(RaisedTag) {}
  std::optional<T> value_;
  std::unique_ptr<Break> break_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok_status() { return Status(Unit{}); }

// A new reference from the C API, or the raised exception.
inline Result<Ref> from_api(PyObject* object) {
  if (!object) return Result<Ref>::raised();
  return Ref::steal(object);
}

#define FJ_CONCAT_(a, b) a##b
#define FJ_CONCAT(a, b) FJ_CONCAT_(a, b)
// FJ_TRY(auto x, expression): x is the value, or the function returns the
// failure. FJ_CHECK_OK(expression) does the same for a result not needed.
#define FJ_TRY(declaration, ...) \
  FJ_TRY_(FJ_CONCAT(fj_result_, __LINE__), declaration, __VA_ARGS__)
#define FJ_TRY_(name, declaration, ...)                               \
  auto name = (__VA_ARGS__);                                          \
  if (!name.ok()) return ::framejit::ForwardFailure(std::move(name)); \
  declaration = name.take()
#define FJ_CHECK_OK(...)                               \
  if (auto fj_status = (__VA_ARGS__); !fj_status.ok()) \
  return ::framejit::ForwardFailure(std::move(fj_status))

// Converts a failed Result<T> into any Result<U>.
template <class T>
class ForwardFailure {
 public:
  explicit ForwardFailure(Result<T>&& result) : result_(std::move(result)) {}
  template <class U>
  operator Result<U>() {
    return result_.template forward<U>();
  }

 private:
  Result<T> result_;
};

// A broken invariant inside FrameJIT: thrown, caught once at the dispatcher,
// which runs the original code (strict mode raises).
class InternalError {
 public:
  InternalError(const char* file, int line, std::string message);
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};
#define FJ_CHECK(condition, ...)                                   \
  do {                                                             \
    if (!(condition)) [[unlikely]]                                 \
      throw ::framejit::InternalError(__FILE__, __LINE__,          \
                                      #condition " " __VA_ARGS__); \
  } while (0)

}  // namespace framejit
