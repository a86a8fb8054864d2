// Types of elements: a tensor's own, but for complex numbers.
//
// Nothing is computed in f16 or bf16: they are loaded, stored and converted
// (`cast`), and what happens between is f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace framejit::codegen {

enum class DType : uint8_t {
#define FJ_DTYPE(name, ...) k##name,
#include "codegen/scalar/dtypes.def"
#undef FJ_DTYPE
};

enum class DTypeClass : uint8_t {
  kBool,
  kUnsigned,
  kSigned,
  kSmallFloat,
  kFloat,
};

const char* dtype_name(DType type);
std::optional<DType> dtype_named(std::string_view name);
size_t dtype_size(DType type);
DTypeClass dtype_class(DType type);

inline bool is_float(DType type) {
  return dtype_class(type) >= DTypeClass::kSmallFloat;
}
inline bool is_small_float(DType type) {
  return dtype_class(type) == DTypeClass::kSmallFloat;
}
inline bool is_integer(DType type) {
  return dtype_class(type) == DTypeClass::kUnsigned ||
         dtype_class(type) == DTypeClass::kSigned;
}

}  // namespace framejit::codegen
