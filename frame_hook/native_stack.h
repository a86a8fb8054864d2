// How much of this thread's native stack is left: the one limit of recursion.
//
// A walk of ours over objects of the program (or over what a capture made of
// them) recurses as deep as they are nested, and each Python call that is
// interpreted in place nests on the native stack, too. So every recursion asks
// here before it goes down, whatever the thread: the main one, one that Python
// made with any threading.stack_size(), one of foreign code. The answer "low"
// becomes a break, "not equal", or RecursionError, whatever the walk can say.
// Paths and expressions, which are walked where nothing can fail, are not made
// deeper than the constants below.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framejit {

// What is left for the rest, in bytes. (Sanitizers and builds without
// optimisation have larger frames.)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    !defined(__OPTIMIZE__)
inline constexpr size_t kStackScale = 3;
#else
inline constexpr size_t kStackScale = 1;
#endif
// For the innermost step of a walk. (Of a small stack: a quarter of it.)
inline constexpr size_t kWalkReserve = kStackScale * 96 * 1024;
// For a Python frame beneath the evaluation hook. (Likewise.)
inline constexpr size_t kHookReserve = kStackScale * 256 * 1024;
// For what an interpreted call may come to: an operator of torch, or the
// import of a library by one.
inline constexpr size_t kCallReserve = kStackScale * 320 * 1024;
// For a capture to begin at all.
inline constexpr size_t kCaptureReserve = kStackScale * 512 * 1024;

// Steps of a path from the arguments (`a.next.next`), and nested operations of
// an expression over sizes.
inline constexpr int kMaxPathDepth = 250;
inline constexpr int kMaxExprDepth = 400;
inline constexpr int kMaxExprSize = 4000;
// Constants in constants (tuples, frozensets, slices), and arguments of
// operators in arguments.
inline constexpr int kMaxConstantDepth = 50;
inline constexpr int kMaxArgDepth = 32;

namespace detail {
struct StackMarks {
  // Addresses below which less is left; until they are known everything is
  // below them.
  uintptr_t walk = UINTPTR_MAX;
  uintptr_t hook = UINTPTR_MAX;
  uintptr_t call = UINTPTR_MAX;
  uintptr_t capture = UINTPTR_MAX;
  uintptr_t middle = UINTPTR_MAX;
  uintptr_t lowest = 0;
  uintptr_t highest = 0;  // 0: not asked for yet
};
extern constinit thread_local StackMarks stack_marks;
// Beneath a mark: measures when the marks are not those of this stack.
bool confirm_low(uintptr_t here, uintptr_t StackMarks::* mark);

[[gnu::always_inline]] inline bool is_below(uintptr_t StackMarks::* mark) {
  auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (here >= stack_marks.*mark) [[likely]]
    return false;
  return confirm_low(here, mark);
}
}  // namespace detail

// Nothing may go deeper.
[[gnu::always_inline]] inline bool native_stack_low() {
  return detail::is_below(&detail::StackMarks::walk);
}
// No Python frame should nest on the native stack from here.
[[gnu::always_inline]] inline bool low_for_hook() {
  return detail::is_below(&detail::StackMarks::hook);
}
// No Python call may be interpreted in place.
inline bool low_for_call() {
  return detail::is_below(&detail::StackMarks::call);
}
// No capture may begin.
inline bool low_for_capture() {
  return detail::is_below(&detail::StackMarks::capture);
}
// Half of it is used: calls that need not nest on it should not.
inline bool native_stack_half_used() {
  return detail::is_below(&detail::StackMarks::middle);
}
// Bytes left, roughly; 0 when unknown.
size_t native_stack_left();

}  // namespace framejit
