// RaiseBackOff: a function whose calls raise, each in another way, is not
// captured at each of them.
//
// Calls that raise do not count towards the recompile limit, so nothing else
// ends that. After kAttempts in a row few calls are compiled, fewer the longer
// it goes on; others run the original code. One of these that returns may be of
// a kind that is worth compiling, so the next call is an attempt, whatever it
// does; where that goes wrong again and again, this is done more rarely, too.
// The GIL guards it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace framejit {

class RaiseBackOff {
 public:
  // Does a call that would be compiled run the original code? Counts it.
  bool passes_over() {
    if (raised_ < kAttempts || std::exchange(next_is_attempt_, false))
      return false;
    const uint32_t shift = std::min(kFirst + raised_ - kAttempts, kLast);
    // One more than a power of two: programs have periods, too.
    return ++passed_over_ % ((uint32_t{1} << shift) + 1) != 0;
  }
  // How a call ended that was compiled, or was to be, ...
  void attempt_ended(bool returned) {
    if (returned) {
      raised_ = returned_ = passed_over_ = 0;
    } else {
      ++raised_;
    }
  }
  // ... and one that was passed over.
  void passed_over_ended(bool returned) {
    if (returned && std::has_single_bit(++returned_)) next_is_attempt_ = true;
  }

  bool said = false;

 private:
  static constexpr uint32_t kAttempts = 16;
  static constexpr uint32_t kFirst = 4, kLast = 12;

  uint32_t raised_ = 0;       // attempts in a row
  uint32_t passed_over_ = 0;  // calls since, and of them
  uint32_t returned_ = 0;
  bool next_is_attempt_ = false;
};

}  // namespace framejit
