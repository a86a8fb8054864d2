// 1 / pi in binary, 32 bits a word from 2^-1 on. Printed by
// scripts/fit_coefficients.py; do not edit by hand.
#pragma once

#include <cstdint>

namespace framejit::codegen {

inline constexpr uint32_t kInversePi[] = {
    0x517cc1b7, 0x27220a94, 0xfe13abe8, 0xfa9a6ee0,
    0x6db14acc, 0x9e21c820, 0xff28b1d5, 0xef5de2b0,
};

}  // namespace framejit::codegen
