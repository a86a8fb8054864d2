#include "codegen/scalar/dtype.h"

#include <array>

namespace framejit::codegen {

namespace {

struct DTypeRow {
  const char* text;
  size_t bytes;
  DTypeClass type_class;
};

constexpr DTypeRow kRows[] = {
#define FJ_DTYPE(name, text, bytes, type_class) \
  {text, bytes, DTypeClass::type_class},
#include "codegen/scalar/dtypes.def"
#undef FJ_DTYPE
};

const DTypeRow& row(DType type) { return kRows[static_cast<int>(type)]; }

}  // namespace

const char* dtype_name(DType type) { return row(type).text; }
size_t dtype_size(DType type) { return row(type).bytes; }
DTypeClass dtype_class(DType type) { return row(type).type_class; }

std::optional<DType> dtype_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (name == kRows[i].text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace framejit::codegen
