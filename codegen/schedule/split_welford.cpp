#include <algorithm>

#include "codegen/scalar/simplify.h"
#include "codegen/schedule/cost.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

class Splitter {
 public:
  Splitter(LoopGraph* graph, const TargetInfo& target)
      : graph_(*graph), target_(target) {}

  void run() {
    std::vector<Definition> definitions = std::move(graph_.definitions);
    for (Definition& d : definitions) {
      if (is_short_row(d)) {
        split(d);
      } else {
        out_.push_back(std::move(d));
      }
    }
    graph_.definitions = std::move(out_);
  }

 private:
  int64_t elements(const Definition& d) const {
    int64_t count = 1;
    for (size_t i = d.loops.size() - static_cast<size_t>(d.reduced);
         i < d.loops.size(); ++i) {
      if (!d.loops[i].is_const()) return -1;
      count *= d.loops[i].constant();
      if (count > target_.short_row) return -1;
    }
    return count;
  }

  bool is_short_row(const Definition& d) const {
    if (d.kind != DefinitionKind::kReduce || d.combiner != Combiner::kWelford ||
        has_check(d.body) ||
        d.body.type(d.value) != graph_.buffers[d.results[0]].type ||
        (d.body.type(d.value) != DType::kF32 &&
         d.body.type(d.value) != DType::kF64) ||
        elements(d) <= 0)
      return false;
    std::vector<char> is_inner(d.loops.size());
    std::fill(is_inner.end() - d.reduced, is_inner.end(), 1);
    return std::ranges::none_of(d.accesses, [&](const Access& access) {
      return walks_columns(graph_, access, is_inner);
    });
  }

  void split(const Definition& d) {
    const DType type = graph_.buffers[d.results[0]].type;
    const std::vector<Expr> outer(d.loops.begin(), d.loops.end() - d.reduced);
    // In f64, so that the mean of equal numbers is that number, and of large
    // ones no infinity.
    Definition sum = d;
    sum.combiner = Combiner::kSum;
    sum.value = emit_simplified(sum.body, ScalarOp::kCast, DType::kF64,
                                {d.value, -1, -1});
    Buffer buffer;
    buffer.type = DType::kF64;
    buffer.sizes = outer;
    buffer.strides = contiguous_strides(outer);
    sum.results = {graph_.add_buffer(std::move(buffer))};

    Definition mean;
    mean.loops = outer;
    Body& body = mean.body;
    ScalarId total = load(&mean, sum.results[0], DType::kF64, outer.size());
    ScalarId count =
        emit_simplified(body, ScalarOp::kCast, DType::kF64,
                        {body.integer(DType::kI64, elements(d)), -1, -1});
    ScalarId quotient =
        emit_simplified(body, ScalarOp::kDiv, DType::kF64, {total, count, -1});
    mean.value =
        emit_simplified(body, ScalarOp::kCast, type, {quotient, -1, -1});
    mean.results = {d.results[0]};

    Definition squares = d;
    squares.combiner = Combiner::kSum;
    squares.results = {d.results[1]};
    ScalarId difference =
        squares.body.binary(ScalarOp::kSub, d.value,
                            load(&squares, d.results[0], type, outer.size()));
    squares.value = squares.body.binary(ScalarOp::kMul, difference, difference);
    out_.push_back(std::move(sum));
    out_.push_back(std::move(mean));
    out_.push_back(std::move(squares));
  }

  // By the first loops.
  static ScalarId load(Definition* d, BufferId buffer, DType type,
                       size_t loops) {
    std::vector<Index> indices;
    for (size_t i = 0; i < loops; ++i)
      indices.push_back(loop_index(static_cast<int>(i), d->loops.size()));
    d->accesses.push_back({buffer, std::move(indices), kNoScalar});
    return d->body.emit(ScalarOp::kLoad, type, {-1, -1, -1},
                        static_cast<int64_t>(d->accesses.size()) - 1);
  }

  LoopGraph& graph_;
  const TargetInfo& target_;
  std::vector<Definition> out_;
};

}  // namespace

void split_welford(LoopGraph* graph, const TargetInfo& target) {
  if (target.short_row > 0) Splitter(graph, target).run();
}

}  // namespace framejit::codegen
