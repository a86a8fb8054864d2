// Values worth trying, of each type.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

inline const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> types = {
#define FJ_DTYPE(name, ...) DType::k##name,
#include "codegen/scalar/dtypes.def"
#undef FJ_DTYPE
  };
  return types;
}

inline std::vector<Element> special_elements(DType type) {
  std::vector<Element> result;
  if (is_float(type)) {
    const double kInf = std::numeric_limits<double>::infinity();
    for (double value :
         {0.0,     0.5,     1.0,          1.5,       2.0,        2.5,
          3.0,     7.0,     100.0,        127.0,     128.0,      255.0,
          256.0,   32767.5, 65504.0,      65520.0,   1e-5,       6e-8,
          3e-8,    1e-40,   1.4e-45,      5e-324,    1e-310,     1e10,
          0x1p31,  0x1p32,  0x1p63,       0x1p64,    3.4e38,     1e300,
          1.7e308, 0.1,     2147483647.0, 8388609.0, 3.14159265, kInf}) {
      result.push_back(element_of(type, value));
      result.push_back(element_of(type, -value));
    }
    result.push_back(element_of(type, std::nan("")));
    return result;
  }
  for (int64_t value :
       {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{10},
        int64_t{31}, int64_t{63}, int64_t{100}, int64_t{127}, int64_t{128},
        int64_t{255}, int64_t{32767}, int64_t{2147483647}, int64_t{16777217},
        int64_t{1} << 32, int64_t{1} << 53 | 1,
        std::numeric_limits<int64_t>::max()}) {
    for (int64_t sample : {value, -value, -value - 1}) {
      result.push_back(element_of_integer(type, sample));
    }
  }
  return result;
}

}  // namespace framejit::codegen
