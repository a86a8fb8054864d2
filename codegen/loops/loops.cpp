#include "codegen/loops/loops.h"

#include <algorithm>

#include "guards/result.h"

namespace framejit::codegen {

const CombinerRow& combiner_row(Combiner combiner) {
  static constexpr CombinerRow kRows[] = {
#define FJ_COMBINER(name, text, results, types, place, operation) \
  {text, results, OperandTypes::types, place, operation},
#include "codegen/loops/combiners.def"
#undef FJ_COMBINER
  };
  return kRows[static_cast<int>(combiner)];
}

std::optional<Combiner> combiner_named(std::string_view name) {
#define FJ_COMBINER(combiner, text, ...) \
  if (name == text) return Combiner::k##combiner;
#include "codegen/loops/combiners.def"
#undef FJ_COMBINER
  return std::nullopt;
}

BufferId LoopGraph::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(buffers.size()) - 1;
}

int LoopGraph::add_number(const Expr& number) {
  auto found = std::find(numbers.begin(), numbers.end(), number);
  if (found != numbers.end()) return static_cast<int>(found - numbers.begin());
  numbers.push_back(number);
  return static_cast<int>(numbers.size()) - 1;
}

BufferId LoopGraph::root(BufferId buffer) const {
  BufferId base = buffers[buffer].alias_of;
  return base == kNoBuffer ? buffer : base;
}

bool can_write_over(const std::vector<Buffer>& buffers, const Definition& call,
                    BufferId root) {
  if (!call.into) return false;
  const Buffer& result = buffers[call.results[0]];
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Buffer& operand = buffers[call.operands[i]];
    const bool is_alias = operand.alias_of != kNoBuffer;
    if ((is_alias ? operand.alias_of : call.operands[i]) != root) continue;
    if (static_cast<int>(i) != call.over ||
        (is_alias && !operand.offset.is_const(0)) ||
        operand.type != result.type || operand.sizes != result.sizes ||
        operand.strides != result.strides)
      return false;
  }
  return true;
}

std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes) {
  std::vector<Expr> strides(sizes.size());
  Expr stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride = stride * sizes[dim];
  }
  return strides;
}

}  // namespace framejit::codegen
