#include "random_loops.h"

#include <algorithm>

#include "codegen/loops/text.h"
#include "guards/result.h"
#include "random_scalars.h"
#include "random_source.h"

namespace framejit::codegen {
namespace {

bool computes(DType type) { return !is_small_float(type); }

class Generator {
 public:
  Generator(uint64_t seed, const RandomLoopOptions& options)
      : random_(seed), options_(options) {}

  RandomLoops run() {
    int symbols = random_.below(3);
    for (int i = 0; i < symbols; ++i) {
      out_.symbols.push_back(
          random_.pick<int64_t>({0, 1, 2, 3, 5, 7, 8, 16, 17, 19}));
      extents_.push_back(Expr::symbol(i));
      if (random_.chance(3)) extents_.push_back(Expr::symbol(i) * 2);
      if (random_.chance(4)) extents_.push_back(Expr::symbol(i) + 1);
    }
    while (extents_.size() < 3)
      extents_.push_back(
          random_.pick<int64_t>({0, 1, 2, 3, 4, 7, 8, 16, 17, 33}));
    for (int i = 0; i < options_.inputs; ++i) input();
    for (int i = 0; i < options_.definitions; ++i) definition();
    outputs();
    // Text leaves out what no value needs.
    std::string error;
    auto graph = parse_loops(print(out_.graph), &error);
    FJ_CHECK(graph.has_value());
    out_.graph = std::move(*graph);
    return std::move(out_);
  }

 private:
  LoopGraph& graph() { return out_.graph; }
  int64_t value_of(const Expr& e) { return e.evaluate(out_.symbols.data()); }
  int64_t count_of(const std::vector<Expr>& sizes) {
    int64_t out = 1;
    for (const Expr& size : sizes) out *= value_of(size);
    return out;
  }
  const Expr& extent() { return random_.pick(extents_); }
  DType type() { return random_.pick(options_.types); }

  // ---- buffers

  std::vector<Expr> random_sizes() {
    // Often those of a buffer that is there, so that things fit together.
    if (!graph().buffers.empty() && random_.chance(2)) {
      auto sizes = random_.pick(graph().buffers).sizes;
      if (random_.chance(4)) random_.shuffle(&sizes);
      if (!sizes.empty() && random_.chance(6)) sizes.pop_back();
      return sizes;
    }
    std::vector<Expr> sizes(random_.below(4));
    for (Expr& size : sizes) size = extent();
    while (count_of(sizes) > 3000) sizes.pop_back();
    return sizes;
  }

  // Dense, in a random order of dims.
  std::vector<Expr> permuted_strides(const std::vector<Expr>& sizes) {
    std::vector<int> order;
    for (size_t i = 0; i < sizes.size(); ++i) order.push_back(i);
    random_.shuffle(&order);
    std::vector<Expr> strides(sizes.size());
    Expr stride = 1;
    for (int dim : order) {
      strides[dim] = stride;
      stride = stride * sizes[dim];
    }
    return strides;
  }

  BufferId add_buffer(DType type, std::vector<Expr> sizes,
                      std::vector<Expr> strides, Known known) {
    known_.push_back(known);
    is_read_.push_back(false);
    Buffer buffer;
    buffer.type = type;
    buffer.sizes = std::move(sizes);
    buffer.strides = std::move(strides);
    return graph().add_buffer(std::move(buffer));
  }

  void input() {
    std::vector<Expr> sizes = random_sizes();
    std::vector<Expr> strides = contiguous_strides(sizes);
    switch (random_.below(6)) {
      case 0:
        strides = permuted_strides(sizes);
        break;
      case 1:  // every second element, or one for all
        for (Expr& stride : strides) stride = stride * 2;
        if (!strides.empty() && random_.chance(2))
          strides[random_.below(strides.size())] = 0;
        break;
      default:
        break;
    }
    DType chosen = type();
    Known known;
    if (chosen == DType::kBool) known.bound = 1;
    Definition definition;
    definition.kind = DefinitionKind::kInput;
    definition.results = {add_buffer(chosen, sizes, strides, known)};
    graph().definitions.push_back(std::move(definition));
  }

  void alias() {
    BufferId base = random_.below(graph().buffers.size());
    base = graph().root(base);
    const Buffer of = graph().buffers[base];
    if (of.strides != contiguous_strides(of.sizes)) return;
    std::vector<Expr> sizes, strides;
    Expr all = 1;
    for (const Expr& size : of.sizes) all = all * size;
    Expr offset = 0;
    switch (random_.below(3)) {
      case 0:  // flat
        sizes = {all};
        strides = {Expr(1)};
        break;
      case 1:  // without the first row
        sizes = of.sizes;
        strides = of.strides;
        if (sizes.empty() || value_of(sizes[0]) < 2) return;
        offset = strides[0];
        sizes[0] = sizes[0] - 1;
        break;
      default:  // transposed, flipped or broadcast
        sizes = of.sizes;
        strides = of.strides;
        if (sizes.empty()) return;
        std::reverse(sizes.begin(), sizes.end());
        std::reverse(strides.begin(), strides.end());
        if (random_.chance(2) && value_of(sizes[0]) > 0) {
          offset = (sizes[0] - 1) * strides[0];
          strides[0] = strides[0] * -1;
        } else if (random_.chance(2)) {
          sizes.insert(sizes.begin(), extent());
          strides.insert(strides.begin(), Expr(0));
        }
        break;
    }
    if (count_of(sizes) > 5000) return;
    BufferId id = add_buffer(of.type, sizes, strides, known_[base]);
    graph().buffers[id].alias_of = base;
    graph().buffers[id].offset = offset;
  }

  // ---- reads

  // An index of a dim of this size within the loops; false: there is none.
  bool index_for(const Expr& size, Index* out, bool* conditional) {
    const auto& loops = definition_->loops;
    out->coefficients.assign(loops.size(), Expr(0));
    const int64_t length = value_of(size);
    std::vector<int> equal;
    for (size_t i = 0; i < loops.size(); ++i)
      if (loops[i] == size) equal.push_back(i);
    if (!equal.empty() && !random_.chance(5)) {
      int loop = random_.pick(equal);
      bool flipped = random_.chance(6);
      out->coefficients[loop] = flipped ? -1 : 1;
      if (flipped) out->offset = size - 1;
      return true;
    }
    if (length == 0) return false;
    switch (random_.below(5)) {
      case 0:
        return slice_index(length, out);
      case 1:
        return data_index(size, out);
      case 2:
        *conditional = true;
        if (loops.empty()) return true;
        out->coefficients[random_.below(loops.size())] = 1 + random_.below(2);
        out->offset = random_.below(5) - 2;
        return true;
      case 3:
        out->offset = size - 1;
        return true;
      default:
        return true;  // broadcast
    }
  }

  bool slice_index(int64_t length, Index* out) {
    int64_t room = length - 1;
    for (size_t i = 0; i < definition_->loops.size(); ++i) {
      int64_t way = value_of(definition_->loops[i]) - 1;
      if (way <= 0 || random_.chance(3)) continue;
      for (int64_t step : {3, 2, 1}) {
        if (way * step > room) continue;
        out->coefficients[i] = step;
        room -= way * step;
        break;
      }
    }
    out->offset = random_.below(room + 1);
    return true;
  }

  // Of an integer that is there already.
  bool data_index(const Expr& size, Index* out) {
    Body& body = definition_->body;
    const std::vector<ScalarId> integers = scalars_.integers_so_far();
    if (integers.empty()) return true;
    ScalarId wide = body.cast(DType::kI64, random_.pick(integers));
    ScalarId length = size.is_const()
                          ? body.integer(DType::kI64, size.constant())
                          : number(size);
    if (options_.checks && random_.chance(8)) {
      // As libraries take indices: from the end when negative, else an error.
      ScalarId zero = body.integer(DType::kI64, 0);
      ScalarId place = body.ternary(
          ScalarOp::kSelect, body.binary(ScalarOp::kLt, wide, zero),
          body.binary(ScalarOp::kAdd, wide, length), wide);
      ScalarId holds =
          body.binary(ScalarOp::kAnd, body.binary(ScalarOp::kLe, zero, place),
                      body.binary(ScalarOp::kLt, place, length));
      out->data = body.ternary(
          ScalarOp::kSelect, body.unary(ScalarOp::kCheck, holds), place, zero);
      return true;
    }
    out->data = body.binary(ScalarOp::kMod, wide, length);
    return true;
  }

  ScalarId number(const Expr& e) {
    return definition_->body.emit(ScalarOp::kNumber, DType::kI64, {-1, -1, -1},
                                  graph().add_number(e));
  }

  // index in [0, size), as the body computes it.
  ScalarId in_range(const Index& index, const Expr& size) {
    Body& body = definition_->body;
    ScalarId place = number(index.offset);
    for (size_t i = 0; i < index.coefficients.size(); ++i) {
      if (index.coefficients[i].is_const(0)) continue;
      ScalarId loop = body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1}, i);
      place = body.binary(
          ScalarOp::kAdd, place,
          body.binary(ScalarOp::kMul, loop, number(index.coefficients[i])));
    }
    if (index.data != kNoScalar)
      place = body.binary(ScalarOp::kAdd, place, index.data);
    return body.binary(
        ScalarOp::kAnd,
        body.binary(ScalarOp::kLe, body.integer(DType::kI64, 0), place),
        body.binary(ScalarOp::kLt, place, number(size)));
  }

  void read() {
    if (graph().buffers.empty()) return;
    BufferId id = random_.below(graph().buffers.size());
    const Buffer buffer = graph().buffers[id];
    Body& body = definition_->body;
    Access access;
    access.buffer = id;
    for (const Expr& size : buffer.sizes) {
      Index index;
      bool conditional = false;
      if (!index_for(size, &index, &conditional)) return;
      if (conditional) {
        ScalarId holds = in_range(index, size);
        access.when = access.when == kNoScalar
                          ? holds
                          : body.binary(ScalarOp::kAnd, access.when, holds);
      }
      access.indices.push_back(std::move(index));
    }
    auto& accesses = definition_->accesses;
    size_t place =
        std::find(accesses.begin(), accesses.end(), access) - accesses.begin();
    if (place == accesses.size()) accesses.push_back(access);
    ScalarId value =
        body.emit(ScalarOp::kLoad, buffer.type, {-1, -1, -1}, place);
    is_read_[id] = true;
    Known known = known_[id];
    if (is_small_float(buffer.type)) value = body.cast(DType::kF32, value);
    scalars_.add(value, known);
  }

  // ---- definitions

  void start(Definition* definition, std::vector<Expr> loops) {
    definition_ = definition;
    definition->loops = std::move(loops);
    scalars_.start(&definition->body);
    for (size_t i = 0; i < definition->loops.size(); ++i)
      if (random_.chance(6))
        scalars_.add(definition->body.emit(ScalarOp::kIndex, DType::kI64,
                                           {-1, -1, -1}, i),
                     {});
    int reads = 1 + random_.below(3);
    for (int i = 0; i < reads; ++i) read();
    if (scalars_.empty())
      scalars_.add(definition->body.constant(DType::kF32, random_.below(9) - 4),
                   {4, 0});
  }

  void compute() {
    int operations = random_.below(options_.body + 1);
    for (int i = 0; i < operations; ++i)
      scalars_.empty() ? read() : scalars_.operation();
  }

  void definition() {
    if (random_.chance(8)) alias();
    if (options_.externs && random_.chance(10)) return call();
    switch (random_.below(8)) {
      case 0:
      case 1:
        return reduce();
      case 2:
        return scan();
      case 3:
        return update();
      default:
        return map();
    }
  }

  BufferId finish(Definition definition, DType type, std::vector<Expr> sizes,
                  Known known) {
    bool odd = sizes.size() > 1 && random_.chance(6);
    auto strides = odd ? permuted_strides(sizes) : contiguous_strides(sizes);
    BufferId id = add_buffer(type, std::move(sizes), std::move(strides), known);
    definition.results.insert(definition.results.begin(), id);
    graph().definitions.push_back(std::move(definition));
    return id;
  }

  void map() {
    Definition definition;
    start(&definition, random_sizes());
    compute();
    DType to = type();
    auto [value, known] = scalars_.scalar_of(to, false);
    definition.value = value;
    std::vector<Expr> sizes = definition.loops;
    finish(std::move(definition), to, std::move(sizes), known);
  }

  void reduce() {
    Definition definition;
    definition.kind = DefinitionKind::kReduce;
    std::vector<Expr> kept = random_sizes(), loops;
    if (!kept.empty() && random_.chance(2)) kept.pop_back();
    loops = kept;
    do {
      loops.push_back(extent());
      ++definition.reduced;
    } while (random_.chance(4));
    if (count_of(loops) > 20000) return;
    start(&definition, loops);
    compute();
    int64_t elements = 1;
    for (size_t i = kept.size(); i < loops.size(); ++i)
      elements *= value_of(loops[i]);
    definition.combiner = random_.pick<Combiner>(
        {Combiner::kSum, Combiner::kSum, Combiner::kSum, Combiner::kProduct,
         Combiner::kMin, Combiner::kMax, Combiner::kAny, Combiner::kAll,
         Combiner::kArgMin, Combiner::kArgMax, Combiner::kWelford,
         Combiner::kSoftmaxSum});
    combine(std::move(definition), kept, elements);
  }

  // Chooses a value for the combiner, and adds the definition.
  void combine(Definition definition, const std::vector<Expr>& domain,
               int64_t elements) {
    Body& body = definition.body;
    definition_ = &definition;
    scalars_.go_on(&definition.body);
    const CombinerRow& row = combiner_row(*definition.combiner);
    const bool exact_only = row.place ||
                            *definition.combiner == Combiner::kAny ||
                            *definition.combiner == Combiner::kAll;
    DType to = row.types == OperandTypes::kBoolOnly ? DType::kBool
               : row.types == OperandTypes::kFloat  ? scalars_.float_type()
                                                    : type();
    while (!computes(to) ||
           (row.types == OperandTypes::kNumber && to == DType::kBool))
      to = type_that_computes();
    auto value = scalars_.scalar_of(to, exact_only);
    Known known{}, second{};
    const double n = static_cast<double>(std::max<int64_t>(elements, 1));
    if (is_float(to)) {
      switch (*definition.combiner) {
        case Combiner::kSum:
        case Combiner::kWelford:
        case Combiner::kSoftmaxSum:
          value = scalars_.bounded(value, 5);
          known = {5.1 * n,
                   n * value.second.error + 5 * n * kRelative * (4 + n / 8)};
          if (*definition.combiner == Combiner::kWelford) {
            known = {5.1, known.error};
            second = {110 * n,
                      n * (22 * known.error + 110 * kRelative * (4 + n / 8))};
          }
          if (*definition.combiner == Combiner::kSoftmaxSum) {
            known = value.second;
            second = {1.1 * n,
                      n * (3 * value.second.error + kRelative * (8 + n / 8))};
          }
          break;
        case Combiner::kProduct:
          value = scalars_.bounded(value, 1);
          known = {1.1, n * value.second.error + n * kRelative * 2};
          break;
        default: {
          // One zero only: which of 0.0 and -0.0 wins is open.
          value.first =
              body.binary(ScalarOp::kAdd, value.first, body.constant(to, 0));
          known = value.second;
        }
      }
      // Of nothing: infinite.
      if (elements == 0) known.bound = Known().bound;
    }
    if (to == DType::kBool) known.bound = 1;
    definition.value = value.first;
    if (row.results == 2) {
      BufferId place = add_buffer(row.place ? DType::kI64 : to, domain,
                                  contiguous_strides(domain), second);
      definition.results = {place};
    }
    finish(std::move(definition), to, domain, known);
  }

  DType type_that_computes() {
    return random_.pick<DType>(
        {DType::kI32, DType::kI64, DType::kF32, DType::kF64, DType::kU8});
  }

  void scan() {
    Definition definition;
    definition.kind = DefinitionKind::kScan;
    std::vector<Expr> loops = random_sizes();
    if (loops.empty()) loops.push_back(extent());
    start(&definition, loops);
    compute();
    definition.combiner = random_.pick<Combiner>(
        {Combiner::kSum, Combiner::kProduct, Combiner::kMin, Combiner::kMax,
         Combiner::kAny});
    combine(std::move(definition), loops, value_of(loops.back()));
  }

  void update() {
    BufferId base = random_.below(graph().buffers.size());
    const Buffer of = graph().buffers[base];
    Definition definition;
    definition.kind = DefinitionKind::kUpdate;
    definition.base = base;
    is_read_[base] = true;
    // Loops over the target, or over something else that is scattered.
    std::vector<Expr> loops = of.sizes;
    for (Expr& loop : loops)
      if (random_.chance(3)) loop = extent();
    if (count_of(loops) > 3000) return;
    start(&definition, loops);
    compute();
    for (size_t dim = 0; dim < of.sizes.size(); ++dim) {
      Index index;
      index.coefficients.assign(loops.size(), Expr(0));
      if (loops[dim] == of.sizes[dim] && !random_.chance(4)) {
        index.coefficients[dim] = 1;
      } else if (value_of(of.sizes[dim]) == 0) {
        return;
      } else if (random_.chance(2)) {
        data_index(of.sizes[dim], &index);
      } else {
        slice_index(value_of(of.sizes[dim]), &index);
      }
      definition.target.push_back(std::move(index));
    }
    auto value = scalars_.scalar_of(of.type, false);
    Known known{std::max(known_[base].bound, value.second.bound),
                std::max(known_[base].error, value.second.error)};
    if (computes(of.type) && of.type != DType::kBool && random_.chance(2)) {
      definition.combiner = Combiner::kSum;
      if (is_float(of.type)) {
        // The sums must stay bounded.
        if (known_[base].bound > 1e3) return;
        value = scalars_.bounded(value, 5);
        const double n = static_cast<double>(count_of(loops) + 1);
        known.bound = known_[base].bound + 5.1 * n;
        known.error = known_[base].error + n * value.second.error +
                      known.bound * kRelative * (4 + n);
      }
    }
    definition.value = value.first;
    finish(std::move(definition), of.type, of.sizes, known);
  }

  void call() {
    BufferId operand = random_.below(graph().buffers.size());
    const Buffer of = graph().buffers[operand];
    is_read_[operand] = true;
    Definition definition;
    definition.kind = DefinitionKind::kExtern;
    definition.callee = 0;
    definition.sure = random_.chance(2);
    definition.kept = !definition.sure && random_.chance(3);
    definition.into = random_.chance(2);
    definition.operands = {operand};
    finish(std::move(definition), of.type, of.sizes, known_[operand]);
  }

  void outputs() {
    for (size_t i = 0; i < graph().buffers.size(); ++i) {
      if (is_read_[i] && !random_.chance(6)) continue;
      // Memory that is written through these strides has a place for each.
      const Buffer& buffer = graph().buffers[i];
      bool overlaps = false;
      for (const Expr& stride : buffer.strides)
        overlaps |= value_of(stride) <= 0;
      if (overlaps) continue;
      graph().outputs.push_back(static_cast<BufferId>(i));
      out_.tolerance.push_back(known_[i].error);
    }
    for (const Definition& d : graph().definitions)
      if (d.kind == DefinitionKind::kInput && random_.chance(2))
        place(d.results[0]);
  }

  // Some output becomes the content of the input, if one can.
  void place(BufferId input) {
    const Buffer& to = graph().buffers[input];
    for (const Expr& stride : to.strides)
      if (value_of(stride) <= 0) return;
    graph().places.resize(graph().outputs.size(), kNoBuffer);
    for (size_t i = graph().outputs.size(); i-- > 0;) {
      const BufferId output = graph().outputs[i];
      Buffer& from = graph().buffers[output];
      if (output == input || graph().places[i] != kNoBuffer ||
          from.type != to.type || from.sizes != to.sizes)
        continue;
      if (from.strides != to.strides) {
        bool is_seen_otherwise = from.alias_of != kNoBuffer;
        for (const Definition& d : graph().definitions)
          is_seen_otherwise |=
              d.kind == DefinitionKind::kInput && d.results[0] == output;
        for (const Buffer& other : graph().buffers)
          is_seen_otherwise |= other.alias_of == output;
        if (is_seen_otherwise) continue;
        from.strides = to.strides;
      }
      graph().places[i] = input;
      return;
    }
  }

  RandomSource random_;
  const RandomLoopOptions& options_;
  RandomLoops out_;
  std::vector<Expr> extents_;
  std::vector<Known> known_;  // of buffers
  std::vector<bool> is_read_;
  Definition* definition_ = nullptr;
  RandomScalars scalars_{random_, options_.types};
};

}  // namespace

RandomLoops random_loops(uint64_t seed, const RandomLoopOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace framejit::codegen
