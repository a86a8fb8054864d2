// What shape rules of more than one family are written with.
#pragma once

#include <string_view>
#include <vector>

#include "graph/ops/shape_rules.h"

namespace framejit::graph {

// The position of the argument of this name; -1: none.
int argument_index(const ShapeCall& call, std::string_view name);
// A new tensor whose dims lie in the companion's order, whatever the sizes are.
// False: the layout cannot be told at other sizes.
bool fresh_nested(ShapeCall& call, size_t result, std::vector<Expr> sizes);
// A list with one item stands for all spatial dims.
int64_t list_item(const std::vector<int64_t>& list, size_t i,
                  int64_t otherwise);
Expr list_item(const std::vector<Expr>& list, size_t i, int64_t otherwise);
// How often a window fits.
Expr window_count(const Expr& size, const Expr& kernel, const Expr& stride,
                  const Expr& padding, const Expr& dilation);

}  // namespace framejit::graph
