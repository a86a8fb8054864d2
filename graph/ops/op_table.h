// The op table: everything the project knows of an ATen operator, in one row.
//
// The rows are in table/*.def, one file per family:
//
//   FJ_OP("add.Tensor", kPointwise, schema, pointwise, torch)
//          name         traits      alias   shape      meta
//
// A column that does not apply says so (kNoTraits, schema, none); a missing one
// does not compile. Only functional operators have rows, and the few that exist
// in place alone: add_.Tensor and add.out mean the row of add.Tensor
// (op_facts.h). An operator without a row is known by its schema, its tags and
// torch's own meta kernel, and specialises symbolic sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "graph/ops/meta_rule.h"
#include "graph/ops/shape_rules.h"

namespace framejit::graph {

enum Traits : uint32_t {
  kNoTraits = 0,
  kPointwise = 1 << 0,  // each element of the result from one of each argument,
                        // broadcast; cheap to compute again
  kReduction = 1 << 1,
  kView = 1 << 2,    // the results are views of arguments
  kCheap = 1 << 3,   // not pointwise, but cheap to compute again: fills, copies
  kRandom = 1 << 4,  // advances a generator
  // Looks at the values of its arguments and may refuse them: an index out of
  // range, a singular matrix, an integer division by zero. Eager raises whether
  // or not the result is used.
  kRefuses = 1 << 5,
  kAnyTypes = 1 << 6,   // its kernels take every real type, and mixed ones
  kReadsData = 1 << 7,  // the answer is tensor data, or which values there are
  kDataShape = 1 << 8,  // the sizes of the result depend on data: nonzero
  kMaskShape = 1 << 9,  // the same, where an index is a boolean mask
  kConstructs = 1 << 10,  // makes a tensor of torch.tensor() ready: lift_fresh
  // Writes running statistics (arguments 3 and 4, where argument 5 is true),
  // which its schema does not say.
  kHidesWrites = 1 << 11,
  kIntegers = 1 << 12,  // its kernels take no floats
  // Its kernel calls operators that autocast casts, where it is on. (A graph
  // runs without autocast: what is cast is in it.)
  kCastsWithin = 1 << 13,
  // Holds on to tensors that it is given, after it has returned. (So may an
  // operator of a package, which has no row.)
  kKeepsArguments = 1 << 14,
};
constexpr Traits operator|(Traits a, Traits b) {
  return static_cast<Traits>(static_cast<uint32_t>(a) |
                             static_cast<uint32_t>(b));
}

// Whose memory a result may share.
enum class Aliasing : uint8_t {
  kSchema,  // as the schema says
  kFirst,   // argument 0's, although the schema does not say so
};

struct OpRow {
  const char* name;  // without "aten::"; of our own: the whole
  Traits traits;
  Aliasing aliasing;
  ShapeRuleFunction shape;  // null: symbols are pinned to their values
  MetaColumn meta;

  bool has(Traits some) const {
    return (static_cast<uint32_t>(traits) & static_cast<uint32_t>(some)) != 0;
  }
};

std::span<const OpRow> op_table();
// By the name of a row; null: no row.
const OpRow* find_row(std::string_view name);

}  // namespace framejit::graph
