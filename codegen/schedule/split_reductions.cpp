#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/simplify.h"
#include "codegen/schedule/cost.h"
#include "codegen/schedule/expand.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

// A block has so many elements at least.
constexpr int64_t kSmallBlock = 1 << 8;

bool is_splittable(Combiner combiner) {
  return combiner != Combiner::kSoftmaxSum;
}

// What changes nothing when it is combined with what came before it.
Element neutral(Combiner combiner, DType type) {
  bool is_min = combiner == Combiner::kMin || combiner == Combiner::kArgMin;
  switch (combiner) {
    case Combiner::kProduct:
      return element_of(type, 1);
    case Combiner::kAll:
      return element_of_integer(type, 1);
    case Combiner::kMin:
    case Combiner::kArgMin:
    case Combiner::kMax:
    case Combiner::kArgMax: {
      if (is_float(type)) {
        double infinity = std::numeric_limits<double>::infinity();
        return element_of(type, is_min ? infinity : -infinity);
      }
      if (type == DType::kBool) return element_of_integer(type, is_min);
      if (type == DType::kU8) return element_of_integer(type, is_min ? 255 : 0);
      int bits = static_cast<int>(dtype_size(type)) * 8 - 1;
      int64_t low = std::numeric_limits<int64_t>::min() >> (63 - bits);
      return element_of_integer(type, is_min ? ~low : low);
    }
    default:
      return element_of_integer(type, 0);
  }
}

class Splitter {
 public:
  Splitter(LoopGraph* graph, const TargetInfo& target)
      : graph_(*graph), target_(target), numbers_(&graph_.numbers) {}

  void run() {
    std::vector<Definition> definitions = std::move(graph_.definitions);
    for (Definition& d : definitions) {
      if (!split(d)) out_.push_back(std::move(d));
    }
    graph_.definitions = std::move(out_);
  }

 private:
  // How the reduced loops become blocks (one loop) and what is within.
  struct Blocks {
    Expr count;
    std::vector<Expr> within;
    std::vector<Index> map;  // what the loops of the definition are
    bool is_guarded = false;
    Expr size;  // elements of a block
  };

  bool split(const Definition& d) {
    if (target_.threads < 2 || d.kind != DefinitionKind::kReduce) return false;
    if (!is_splittable(*d.combiner) || has_check(d.body)) return false;
    std::vector<Expr> outer(d.loops.begin(), d.loops.end() - d.reduced);
    std::vector<Expr> reduced(d.loops.end() - d.reduced, d.loops.end());
    if (target_.hint(outer) / side_by_side(d) >= 2 * target_.threads ||
        target_.hint(d.loops) < target_.large_reduction)
      return false;
    int64_t wanted = int64_t{target_.parts_per_thread} * target_.threads;
    if (target_.points_are_parts)
      wanted = std::max<int64_t>(
          2, wanted * side_by_side(d) /
                 std::max<int64_t>(target_.hint(outer), side_by_side(d)));
    Blocks blocks = choose_blocks(outer, reduced, wanted);
    if (blocks.is_guarded && *d.combiner == Combiner::kWelford) return false;
    std::vector<BufferId> partial = add_partial(d, outer, blocks);
    add_final(d, outer, blocks, partial);
    return true;
  }

  // How many results one vector holds: columns are reduced side by side.
  int64_t side_by_side(const Definition& d) const {
    std::vector<char> is_inner(d.loops.size());
    std::fill(is_inner.end() - d.reduced, is_inner.end(), 1);
    for (const Access& access : d.accesses)
      if (walks_columns(graph_, access, is_inner))
        return target_.vector_bytes / static_cast<int64_t>(dtype_size(
                                          graph_.buffers[access.buffer].type));
    return 1;
  }

  Blocks choose_blocks(const std::vector<Expr>& outer,
                       const std::vector<Expr>& reduced, int64_t most) {
    Blocks out;
    const int64_t first = target_.hint(reduced[0]);
    std::vector<Expr> rest(reduced.begin() + 1, reduced.end());
    const size_t kept = outer.size();
    if (first >= 2 * target_.threads && target_.hint(rest) >= kSmallBlock &&
        !target_.points_are_parts) {
      // The first loop, as it is.
      out.count = reduced[0];
      out.within = rest;
      for (size_t i = 0; i < kept + reduced.size(); ++i)
        out.map.push_back(
            loop_index(static_cast<int>(i), kept + reduced.size()));
    } else {
      out = pieces(outer, reduced, most);
    }
    out.size = 1;
    for (const Expr& loop : out.within) out.size = out.size * loop;
    return out;
  }

  // Of the first loop, so that blocks keep the order of the elements.
  Blocks pieces(const std::vector<Expr>& outer,
                const std::vector<Expr>& reduced, int64_t most) {
    Blocks out;
    const Expr& loop = reduced[0];
    const int64_t length = target_.hint(loop);
    const int64_t wanted = std::clamp<int64_t>(length, 1, most);
    Expr piece;
    if (loop.is_const()) {
      int64_t count = wanted;
      const int64_t least =
          target_.points_are_parts ? (most + 1) / 2 : target_.threads;
      while (count > least && length % count != 0) --count;
      out.is_guarded = length % count != 0;
      if (out.is_guarded) count = wanted;
      out.count = count;
      piece = (length + count - 1) / count;
    } else {
      out.is_guarded = true;
      out.count = wanted;
      piece = floor_div(loop + Expr(wanted - 1), Expr(wanted));
    }
    out.within = {piece};
    out.within.insert(out.within.end(), reduced.begin() + 1, reduced.end());
    const size_t kept = outer.size(), loops = kept + 1 + out.within.size();
    for (size_t i = 0; i < kept + reduced.size(); ++i) {
      out.map.push_back(
          loop_index(static_cast<int>(i < kept ? i : i + 1), loops));
      if (i == kept) out.map.back().coefficients[kept] = piece;
    }
    return out;
  }

  std::vector<BufferId> add_partial(const Definition& d,
                                    const std::vector<Expr>& outer,
                                    const Blocks& blocks) {
    Definition partial;
    partial.kind = DefinitionKind::kReduce;
    partial.combiner = d.combiner;
    partial.loops = outer;
    partial.loops.push_back(blocks.count);
    std::vector<Expr> sizes = partial.loops;
    partial.loops.insert(partial.loops.end(), blocks.within.begin(),
                         blocks.within.end());
    partial.reduced = static_cast<int>(blocks.within.size());
    Expander expander(graph_, graph_.numbers, partial.loops.size(), &numbers_);
    expander.set_resolve(
        [&](const Access& access) { return expander.load(access); });
    std::vector<Index> map = blocks.map;
    for (Index& index : map) index.coefficients.resize(partial.loops.size());
    ScalarId when = kNoScalar;
    Body& body = expander.body();
    if (blocks.is_guarded) {
      const size_t kept = outer.size();
      ScalarId block = body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1},
                                 static_cast<int64_t>(kept));
      ScalarId within = body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1},
                                  static_cast<int64_t>(kept + 1));
      ScalarId at = body.binary(
          ScalarOp::kAdd,
          emit_simplified(body, ScalarOp::kMul, DType::kI64,
                          {block, expander.number(blocks.within[0]), -1}),
          within);
      when = body.binary(ScalarOp::kLt, at,
                         expander.number(d.loops[outer.size()]));
    }
    ScalarId value = expander.expand(d, map, when, d.value);
    if (when != kNoScalar) {
      DType type = body.type(value);
      value = emit_simplified(
          body, ScalarOp::kSelect, type,
          {when, value, body.emit_element(type, neutral(*d.combiner, type))});
    }
    partial.value = value;
    partial.body = std::move(body);
    partial.accesses = std::move(expander.accesses());
    for (BufferId result : d.results) {
      Buffer buffer;
      buffer.type = graph_.buffers[result].type;
      buffer.sizes = sizes;
      buffer.strides = contiguous_strides(sizes);
      partial.results.push_back(graph_.add_buffer(std::move(buffer)));
    }
    std::vector<BufferId> results = partial.results;
    out_.push_back(std::move(partial));
    return results;
  }

  // A definition under construction over these loops.
  struct Builder {
    Definition d;
    const LoopGraph& graph;
    ScalarId load(BufferId buffer, std::vector<Index> indices) {
      d.accesses.push_back({buffer, std::move(indices), kNoScalar});
      return d.body.emit(ScalarOp::kLoad, graph.buffers[buffer].type,
                         {-1, -1, -1},
                         static_cast<int64_t>(d.accesses.size()) - 1);
    }
    std::vector<Index> first_loops(size_t count) const {
      std::vector<Index> out;
      for (size_t i = 0; i < count; ++i)
        out.push_back(loop_index(static_cast<int>(i), d.loops.size()));
      return out;
    }
  };
  Builder reduction(Combiner combiner, const std::vector<Expr>& outer,
                    const Expr& count) {
    Builder out{{}, graph_};
    out.d.kind = DefinitionKind::kReduce;
    out.d.combiner = combiner;
    out.d.loops = outer;
    out.d.loops.push_back(count);
    out.d.reduced = 1;
    return out;
  }
  BufferId temporary(DType type, const std::vector<Expr>& sizes) {
    Buffer buffer;
    buffer.type = type;
    buffer.sizes = sizes;
    buffer.strides = contiguous_strides(sizes);
    return graph_.add_buffer(std::move(buffer));
  }
  ScalarId number(Body* body, DType type, const Expr& value) {
    ScalarId out = value.is_const()
                       ? body->integer(DType::kI64, value.constant())
                       : body->emit(ScalarOp::kNumber, DType::kI64,
                                    {-1, -1, -1}, numbers_.add(value));
    return emit_simplified(*body, ScalarOp::kCast, type, {out, -1, -1});
  }

  void add_final(const Definition& d, const std::vector<Expr>& outer,
                 const Blocks& blocks, const std::vector<BufferId>& partial) {
    const size_t kept = outer.size();
    if (*d.combiner == Combiner::kWelford)
      return add_final_welford(d, outer, blocks, partial);
    Builder total = reduction(*d.combiner, outer, blocks.count);
    total.d.value = total.load(partial[0], total.first_loops(kept + 1));
    total.d.results = {d.results[0]};
    if (partial.size() == 1) {
      out_.push_back(std::move(total.d));
      return;
    }
    // Which block has it, and where it is within that.
    BufferId block = temporary(DType::kI64, outer);
    total.d.results.push_back(block);
    out_.push_back(std::move(total.d));
    Builder place{{}, graph_};
    place.d.loops = outer;
    ScalarId number_of_block = place.load(block, place.first_loops(kept));
    std::vector<Index> indices = place.first_loops(kept);
    Index chosen;
    chosen.coefficients.resize(kept);
    chosen.data = number_of_block;
    // Of no blocks, the first has it.
    if (!blocks.count.is_const()) {
      ScalarId is_there =
          place.d.body.binary(ScalarOp::kLt, number_of_block,
                              number(&place.d.body, DType::kI64, blocks.count));
      indices.push_back(chosen);
      place.d.accesses.push_back({partial[1], indices, is_there});
    } else {
      indices.push_back(chosen);
      place.d.accesses.push_back({partial[1], indices, kNoScalar});
    }
    ScalarId within =
        place.d.body.emit(ScalarOp::kLoad, DType::kI64, {-1, -1, -1},
                          static_cast<int64_t>(place.d.accesses.size()) - 1);
    Body& body = place.d.body;
    place.d.value = emit_simplified(
        body, ScalarOp::kAdd, DType::kI64,
        {emit_simplified(
             body, ScalarOp::kMul, DType::kI64,
             {number_of_block, number(&body, DType::kI64, blocks.size), -1}),
         within, -1});
    place.d.results = {d.results[1]};
    out_.push_back(std::move(place.d));
  }

  // Means and squared distances of blocks of one size.
  void add_final_welford(const Definition& d, const std::vector<Expr>& outer,
                         const Blocks& blocks,
                         const std::vector<BufferId>& partial) {
    const size_t kept = outer.size();
    const DType type = graph_.buffers[d.results[0]].type;
    Builder sum = reduction(Combiner::kSum, outer, blocks.count);
    sum.d.value = sum.load(partial[0], sum.first_loops(kept + 1));
    sum.d.results = {temporary(type, outer)};
    Builder mean{{}, graph_};
    mean.d.loops = outer;
    Body* body = &mean.d.body;
    ScalarId total = mean.load(sum.d.results[0], mean.first_loops(kept));
    ScalarId count = number(body, type, blocks.count);
    ScalarId zero = body->constant(type, 0);
    mean.d.value = emit_simplified(
        *body, ScalarOp::kSelect, type,
        {emit_simplified(*body, ScalarOp::kEq, DType::kBool, {count, zero, -1}),
         zero,
         emit_simplified(*body, ScalarOp::kDiv, type, {total, count, -1})});
    mean.d.results = {d.results[0]};
    Builder squares = reduction(Combiner::kSum, outer, blocks.count);
    body = &squares.d.body;
    ScalarId difference = body->binary(
        ScalarOp::kSub, squares.load(partial[0], squares.first_loops(kept + 1)),
        squares.load(d.results[0], squares.first_loops(kept)));
    ScalarId between =
        emit_simplified(*body, ScalarOp::kMul, type,
                        {body->binary(ScalarOp::kMul, difference, difference),
                         number(body, type, blocks.size), -1});
    squares.d.value = body->binary(
        ScalarOp::kAdd, squares.load(partial[1], squares.first_loops(kept + 1)),
        between);
    squares.d.results = {d.results[1]};
    out_.push_back(std::move(sum.d));
    out_.push_back(std::move(mean.d));
    out_.push_back(std::move(squares.d));
  }

  LoopGraph& graph_;
  const TargetInfo& target_;
  NumberTable numbers_;
  std::vector<Definition> out_;
};

}  // namespace

void split_reductions(LoopGraph* graph, const TargetInfo& target) {
  Splitter(graph, target).run();
}

}  // namespace framejit::codegen
