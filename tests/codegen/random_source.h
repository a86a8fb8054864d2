// Random choices that are the same everywhere for one seed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace framejit::codegen {

class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : state_(seed) {}

  uint64_t bits() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(bits() % static_cast<uint64_t>(limit));
  }
  bool chance(int one_in) { return below(one_in) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[below(static_cast<int64_t>(items.size()))];
  }
  template <class T>
  T pick(std::initializer_list<T> items) {
    return items.begin()[below(static_cast<int64_t>(items.size()))];
  }
  template <class T>
  void shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i)
      std::swap((*items)[i - 1], (*items)[below(static_cast<int64_t>(i))]);
  }

 private:
  uint64_t state_;
};

}  // namespace framejit::codegen
