#include "graph/ops/op_table.h"

#include <unordered_map>

#include "graph/ops/meta_families.h"
#include "graph/ops/shape_families.h"

namespace framejit::graph {
namespace {

constexpr Aliasing aliasing_schema = Aliasing::kSchema;
constexpr Aliasing aliasing_first = Aliasing::kFirst;
constexpr ShapeRuleFunction shape_none = nullptr;
constexpr MetaColumn::Kind meta_torch = MetaColumn::Kind::kTorch;
constexpr MetaColumn::Kind meta_rehearse = MetaColumn::Kind::kRehearse;
constexpr MetaCheck meta_strided_first{check_strides_first};
constexpr MetaCheck meta_strided_second{check_strides_second};
constexpr MetaCheck meta_addmm{check_addmm};
constexpr MetaColumn::Kind meta_none = MetaColumn::Kind::kNone;

const OpRow kRows[] = {
#define FJ_OP(name, traits, aliasing, shape, meta) \
  {name, traits, aliasing_##aliasing, shape_##shape, meta_##meta},
#include "graph/ops/table/data.def"
#include "graph/ops/table/factories.def"
#include "graph/ops/table/indexing.def"
#include "graph/ops/table/linear_algebra.def"
#include "graph/ops/table/lists.def"
#include "graph/ops/table/networks.def"
#include "graph/ops/table/own.def"
#include "graph/ops/table/pointwise.def"
#include "graph/ops/table/random.def"
#include "graph/ops/table/reductions.def"
#include "graph/ops/table/views.def"
#undef FJ_OP
};

}  // namespace

std::span<const OpRow> op_table() { return kRows; }

const OpRow* find_row(std::string_view name) {
  static const auto* index = [] {
    auto* made = new std::unordered_map<std::string_view, const OpRow*>();
    for (const OpRow& row : kRows) made->emplace(row.name, &row);
    return made;
  }();
  auto found = index->find(name);
  return found == index->end() ? nullptr : found->second;
}

}  // namespace framejit::graph
