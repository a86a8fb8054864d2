#include "codegen/scalar/lookup.h"

#include <array>
#include <cmath>

#include "codegen/scalar/erf_pieces.h"
#include "codegen/scalar/inverse_pi.h"

namespace framejit::codegen {

namespace {

// The bit of weight 2^-place in 1 / pi.
int bit_of_inverse_pi(int place) {
  if (place < 1 || place > static_cast<int>(std::size(kInversePi)) * 32) {
    return 0;
  }
  return kInversePi[(place - 1) / 32] >> (31 - (place - 1) % 32) & 1;
}

using Table = std::array<double, 256>;

// Bits of weights 2^-first ... of 2^(e-150) / pi.
Table turns(int first, int count) {
  Table table;
  for (int e = 0; e < 256; ++e) {
    double value = 0;
    for (int place = first; place < first + count; ++place) {
      value += std::ldexp(bit_of_inverse_pi(place + e - 150), -place);
    }
    table[e] = value;
  }
  return table;
}

}  // namespace

std::span<const double, 256> lookup_table(int64_t number) {
  static const Table tables[kLookupTables] = {turns(0, 28), turns(28, 28),
                                              turns(56, 52)};
  return tables[number];
}

std::span<const float, 16> word_table(int64_t number) {
  static_assert(std::size(kErfPieces) == kErfTables);
  return kErfPieces[number];
}

}  // namespace framejit::codegen
