// The text of a Kernel, which says everything and parses back to an equal one.
// kernel.h has a sample. A body is one line a node, v0 the first; a place is a
// sum of terms: i0 a loop, i0*64, @(v3)*64 for data, and the offset; `when v2`
// behind a place is its condition, `sum` before the stored value a combiner.
#pragma once

#include <optional>
#include <string>

#include "codegen/kernels/kernel.h"

namespace framejit::codegen {

std::string print(const Kernel& kernel);
// Nothing: *error says what and where. What is parsed is not verified.
std::optional<Kernel> parse_kernel(const std::string& text, std::string* error);

}  // namespace framejit::codegen
