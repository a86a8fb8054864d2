// Tables of numbers that expansions of functions look values up in.
#pragma once

#include <cstdint>
#include <span>

namespace framejit::codegen {

// In memory: 256 numbers of f64, at an i64 modulo 256.
enum class LookupTable : uint8_t {
  // 2^(e-150) / pi modulo 2, e = 0..255: its first 28 bits, the next 28, rest.
  kTurnsHigh,
  kTurnsMiddle,
  kTurnsLow,
};
constexpr int kLookupTables = 3;
std::span<const double, 256> lookup_table(int64_t number);

// A register of AVX-512: 16 numbers of f32, at an i32 modulo 16. Table k is
// coefficient k of the pieces of erf (erf_pieces.h).
constexpr int kErfTables = 7;
std::span<const float, 16> word_table(int64_t number);

}  // namespace framejit::codegen
