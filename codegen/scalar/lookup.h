// Tables of numbers that expansions of functions look values up in.
#pragma once

#include <cstdint>
#include <span>

namespace framejit::codegen {

enum class LookupTable : uint8_t {
  // 2^(e-150) / pi modulo 2, e = 0..255: its first 28 bits, the next 28, rest.
  kTurnsHigh,
  kTurnsMiddle,
  kTurnsLow,
};

std::span<const double> lookup_table(int64_t number);

}  // namespace framejit::codegen
