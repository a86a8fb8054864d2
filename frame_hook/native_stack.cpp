#include "frame_hook/native_stack.h"

#include <pthread.h>

#include <algorithm>

namespace framejit {

constinit thread_local detail::StackMarks detail::stack_marks;

namespace {

// Stacks below this size keep a quarter, where larger ones keep a fixed size.
constexpr size_t kSmallStack = 2 * 1024 * 1024;
// Assumed where the system does not say how large the stack is.
constexpr size_t kUnknownStack = 256 * 1024;

constexpr size_t kGapAbove = 16 * 1024 * 1024;
constexpr size_t kGap = 1024 * 1024;

struct Bounds {
  uintptr_t lowest = 0;
  uintptr_t highest = 0;
};

bool ask_system(Bounds* bounds) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* lowest = nullptr;
  size_t size = 0, guard = 0;
  bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  // Whether the pages of the guard are among them differs between versions of
  // the C library.
  if (known && pthread_attr_getguardsize(&attributes, &guard) == 0 &&
      guard < size / 4) {
    lowest = static_cast<char*>(lowest) + guard;
    size -= guard;
  }
  pthread_attr_destroy(&attributes);
  if (!known || size == 0) return false;
  bounds->lowest = reinterpret_cast<uintptr_t>(lowest);
  bounds->highest = bounds->lowest + size;
  // One without a limit grows down to the next mapping, from which Linux keeps
  // a distance.
  if (size > kGapAbove) bounds->lowest += kGap;
  return true;
}

void set_marks(detail::StackMarks& marks, Bounds bounds) {
  size_t size = bounds.highest - bounds.lowest;
  auto reserve = [&](size_t bytes) {
    return bounds.lowest +
           (size < kSmallStack ? std::min(bytes, size / 4) : bytes);
  };
  marks.walk = reserve(kWalkReserve);
  marks.hook = reserve(kHookReserve);
  // A capture does not begin on a stack that has no room for it.
  marks.call = bounds.lowest + kCallReserve;
  marks.capture = bounds.lowest + kCaptureReserve;
  marks.middle = bounds.lowest + size / 2;
  marks.lowest = bounds.lowest;
  marks.highest = bounds.highest;
}

}  // namespace

bool detail::confirm_low(uintptr_t here, uintptr_t StackMarks::* mark) {
  StackMarks& marks = stack_marks;
  if (marks.highest == 0) {
    Bounds bounds;
    if (!ask_system(&bounds) || here < bounds.lowest ||
        here >= bounds.highest) {
      // A stack that the thread library did not make (fibers), or no answer.
      bounds = {here - std::min(here, uintptr_t(kUnknownStack)), here + 1};
    }
    set_marks(marks, bounds);
  }
  return here < marks.*mark;
}

size_t native_stack_left() {
  auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  detail::confirm_low(here, &detail::StackMarks::walk);
  uintptr_t lowest = detail::stack_marks.lowest;
  return here > lowest ? here - lowest : 0;
}

}  // namespace framejit
