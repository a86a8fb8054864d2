#include <algorithm>
#include <optional>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/expand.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

// A body that is put into others, and one with others in it, stay below.
constexpr int kMaxInlinedNodes = 48;
constexpr int kMaxExpandedNodes = 160;
// What is computed again rather than read again.
constexpr int kFree = 1;
constexpr int kCheap = 4;
constexpr int kWithoutLoads = 16;

class Inliner {
 public:
  Inliner(LoopGraph* graph, const TargetInfo& target)
      : graph_(*graph), target_(target), numbers_(&graph_.numbers) {}

  void run() {
    readers_ = readers_of(graph_);
    kept_ = kept_in_memory(graph_);
    inlined_.resize(graph_.buffers.size());
    std::vector<Definition> definitions = std::move(graph_.definitions);
    // Readers are those of the list as it was; they come later in it.
    old_ = &definitions;
    for (Definition& definition : definitions) {
      bool reads_inlined = false;
      for (const Access& access : definition.accesses)
        reads_inlined |= inlined_[access.buffer].has_value();
      Definition now =
          reads_inlined ? expanded(definition) : std::move(definition);
      if (may_inline(now)) {
        inlined_[now.results[0]] = std::move(now);
      } else {
        out_.push_back(std::move(now));
      }
    }
    graph_.definitions = std::move(out_);
  }

 private:
  bool fits(const Body& body, const Body& more) const {
    return body.nodes().size() + more.nodes().size() <= kMaxExpandedNodes &&
           target_.size(body) + target_.size(more) <= target_.max_nodes;
  }

  Definition expanded(const Definition& definition) {
    Definition out;
    out.kind = definition.kind;
    out.results = definition.results;
    out.loops = definition.loops;
    out.reduced = definition.reduced;
    out.combiner = definition.combiner;
    out.value = definition.value;
    out.base = definition.base;
    out.target = definition.target;
    const size_t loops = definition.loops.size();
    Expander expander(graph_, graph_.numbers, loops, &numbers_);
    expander.set_resolve([&](const Access& access) {
      auto& producer = inlined_[access.buffer];
      if (producer && !fits(expander.body(), producer->body)) {
        out_.push_back(std::move(*producer));  // to memory, after all
        producer.reset();
      }
      return producer ? expander.element(*producer, access)
                      : expander.load(access);
    });
    std::vector<Index> map;
    for (size_t loop = 0; loop < loops; ++loop)
      map.push_back(loop_index(static_cast<int>(loop), loops));
    std::vector<ScalarId*> roots = {&out.value};
    for (Index& index : out.target) roots.push_back(&index.data);
    std::vector<ScalarId> checks = checks_of(definition.body);
    for (ScalarId& check : checks) roots.push_back(&check);
    expander.expand(definition, map, kNoScalar, roots);
    out.body = std::move(expander.body());
    out.accesses = std::move(expander.accesses());
    return out;
  }

  bool may_inline(const Definition& d) const {
    if (d.kind != DefinitionKind::kMap) return false;
    const BufferId buffer = d.results[0];
    if (kept_[buffer] || has_check(d.body)) return false;
    if (static_cast<int>(d.body.nodes().size()) > kMaxInlinedNodes)
      return false;
    const int cost = body_cost(d.body);
    int loads = 0;
    for (const ScalarNode& node : d.body.nodes())
      loads += node.op == ScalarOp::kLoad;
    if (loads == 0 && cost <= kWithoutLoads) return true;
    if (loads <= 1 && cost <= kFree) return true;
    // How often an element is computed.
    const int64_t size = std::max<int64_t>(target_.hint(d.loops), 1);
    double times = 0;
    size_t reads = 0;
    for (const Reader& reader : readers_[buffer]) {
      const Definition& user = (*old_)[reader.definition];
      times += static_cast<double>(target_.hint(user.loops)) / size;
      ++reads;
    }
    if (reads == 1 && times <= 2) return true;
    return cost <= kCheap && times <= 2.0 * reads + 8 &&
           bytes_read(d, size) <= dtype_size(graph_.buffers[buffer].type);
  }

  // For an element; what is small is in cache.
  double bytes_read(const Definition& d, int64_t size) const {
    double bytes = 0;
    for (const Access& access : d.accesses) {
      double elements = elements_read(graph_, access, d.loops, target_);
      if (elements * 8 <= size) continue;
      bytes += elements * dtype_size(graph_.buffers[access.buffer].type) / size;
    }
    return bytes;
  }

  LoopGraph& graph_;
  const TargetInfo& target_;
  NumberTable numbers_;
  std::vector<std::vector<Reader>> readers_;
  std::vector<char> kept_;
  const std::vector<Definition>* old_ = nullptr;
  std::vector<std::optional<Definition>> inlined_;  // by buffer
  std::vector<Definition> out_;
};

}  // namespace

void inline_maps(LoopGraph* graph, const TargetInfo& target) {
  Inliner(graph, target).run();
}

}  // namespace framejit::codegen
