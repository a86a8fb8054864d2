// Which sizes and strides of a tensor are to be symbols.
#pragma once

#include <cstdint>

namespace framejit {

struct DynamicDims {
  uint64_t sizes = 0;  // bit d: the size of dim d
  // Bit d: the stride of dim d, where it does not follow from symbolic sizes.
  uint64_t strides = 0;

  static DynamicDims all() { return {~uint64_t{0}, ~uint64_t{0}}; }
};

}  // namespace framejit
