#include <algorithm>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/expand.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

bool is_identity(const Access& access, size_t loops) {
  if (access.when != kNoScalar || access.indices.size() != loops) return false;
  for (size_t i = 0; i < loops; ++i)
    if (access.indices[i] != loop_index(static_cast<int>(i), loops))
      return false;
  return true;
}

Expr count_of(const std::vector<Expr>& sizes) {
  Expr count = 1;
  for (const Expr& size : sizes) count = count * size;
  return count;
}

bool is_contiguous(const Buffer& buffer) {
  return buffer.strides == contiguous_strides(buffer.sizes);
}

class Pass {
 public:
  explicit Pass(LoopGraph* graph) : graph_(*graph) {}

  void run() {
    std::vector<Definition> definitions = std::move(graph_.definitions);
    for (Definition& d : definitions) {
      for (Access& access : d.accesses)
        if (auto found = instead_.find(access.buffer); found != instead_.end())
          access.buffer = found->second;
      out_.push_back(std::move(d));
      if (is_of_one(out_.back())) view(Definition(out_.back()));
    }
    graph_.definitions = std::move(out_);
  }

 private:
  // Each element of one of another buffer, in the same order.
  bool is_of_one(const Definition& d) const {
    if (d.kind != DefinitionKind::kMap || d.accesses.size() != 1) return false;
    const Buffer& made = graph_.buffers[d.results[0]];
    const Buffer& from = graph_.buffers[d.accesses[0].buffer];
    return std::ranges::none_of(d.body.nodes(),
                                [](const ScalarNode& node) {
                                  return node.op == ScalarOp::kIndex ||
                                         node.op == ScalarOp::kCheck;
                                }) &&
           is_identity(d.accesses[0], d.loops.size()) &&
           from.sizes == d.loops && made.sizes == d.loops &&
           is_contiguous(from) && is_contiguous(made);
  }

  void view(const Definition& d) {
    const BufferId made = d.results[0], from = d.accesses[0].buffer;
    const size_t count = graph_.buffers.size();
    for (size_t i = 0; i < count; ++i) {
      const Buffer seen = graph_.buffers[i];
      if (seen.alias_of != made || !seen.offset.is_const(0) ||
          !is_contiguous(seen) || count_of(seen.sizes) != count_of(d.loops))
        continue;
      Buffer source = seen;
      source.type = graph_.buffers[from].type;
      source.alias_of = graph_.root(from);
      source.offset = graph_.buffers[from].offset;
      Buffer fresh = seen;
      fresh.alias_of = kNoBuffer;
      Definition again = d;
      again.loops = seen.sizes;
      again.accesses[0].buffer = graph_.add_buffer(std::move(source));
      again.accesses[0].indices.clear();
      for (size_t loop = 0; loop < seen.sizes.size(); ++loop)
        again.accesses[0].indices.push_back(
            loop_index(static_cast<int>(loop), seen.sizes.size()));
      again.results = {graph_.add_buffer(std::move(fresh))};
      instead_[static_cast<BufferId>(i)] = again.results[0];
      out_.push_back(std::move(again));
    }
  }

  LoopGraph& graph_;
  std::unordered_map<BufferId, BufferId> instead_;
  std::vector<Definition> out_;
};

}  // namespace

void recompute_views(LoopGraph* graph, const TargetInfo& target) {
  if (target.recomputes_views) Pass(graph).run();
}

}  // namespace framejit::codegen
