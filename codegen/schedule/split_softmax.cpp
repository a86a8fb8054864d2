#include "codegen/schedule/cost.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

// sum(exp(value - maximum)), which is what the combiner's second result means:
// -inf adds 0, but NaN where nothing else is there, and so do +inf and NaN.
Definition sum_of(const Definition& d, DType type) {
  Definition sum = d;
  sum.combiner = Combiner::kSum;
  sum.results = {d.results[1]};
  std::vector<Index> kept;
  for (size_t i = 0; i + d.reduced < d.loops.size(); ++i)
    kept.push_back(loop_index(static_cast<int>(i), d.loops.size()));
  sum.accesses.push_back({d.results[0], std::move(kept), kNoScalar});
  Body& body = sum.body;
  ScalarId maximum = body.emit(ScalarOp::kLoad, type, {-1, -1, -1},
                               static_cast<int64_t>(sum.accesses.size()) - 1);
  sum.value =
      body.unary(ScalarOp::kExp, body.binary(ScalarOp::kSub, d.value, maximum));
  return sum;
}

}  // namespace

void split_softmax(LoopGraph* graph) {
  std::vector<Definition> definitions;
  for (Definition& d : graph->definitions) {
    if (d.kind != DefinitionKind::kReduce ||
        d.combiner != Combiner::kSoftmaxSum || has_check(d.body)) {
      definitions.push_back(std::move(d));
      continue;
    }
    Definition sum = sum_of(d, graph->buffers[d.results[0]].type);
    d.combiner = Combiner::kMax;
    d.results.resize(1);
    definitions.push_back(std::move(d));
    definitions.push_back(std::move(sum));
  }
  graph->definitions = std::move(definitions);
}

}  // namespace framejit::codegen
