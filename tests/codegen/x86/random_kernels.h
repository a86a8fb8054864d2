// Random kernels from seeds: bodies over all types, walks, reductions, row
// values, conditions, on buffers that just hold them.
//
// Values that two targets may round differently (named functions, sums of
// floats) are kept from comparisons and conversions, which would make a small
// difference a large one: each node remembers whether it is exact.
#pragma once

#include "tests/codegen/x86/harness.h"

namespace framejit::codegen {

class RandomKernel {
 public:
  explicit RandomKernel(uint64_t seed) : random_(seed), seed_(seed) {}

  // With what it is to be compared on; nothing: what was made is malformed.
  std::optional<Comparison> make() {
    make_kernel();
    std::string wrong = verify(kernel_);
    if (!wrong.empty()) {
      ADD_FAILURE() << "seed " << seed_ << ": " << wrong << "\n"
                    << print(kernel_);
      return {};
    }
    Comparison comparison(kernel_, symbols_, data_, seed_);
    comparison.tolerance = {2e-5, 1e-6};
    comparison.expect_code = false;
    return comparison;
  }
  const Kernel& kernel() const { return kernel_; }

  // False: as make(), or another result came out.
  bool check(int* compiled) {
    std::optional<Comparison> comparison = make();
    if (!comparison) return false;
    bool fine = comparison->run();
    *compiled += comparison->compiled();
    return fine;
  }

 private:
  // Of a stage: the interpreter takes its time.
  static constexpr int64_t kMostPoints = 1500;

  struct Known {
    ScalarId id;
    bool exact;
  };

  size_t pick(size_t count) { return random_() % count; }
  bool chance(int percent) { return static_cast<int>(pick(100)) < percent; }
  DType any_type() { return all_dtypes()[pick(all_dtypes().size())]; }

  // An argument whose places reach from 0 to `last`, backwards or not.
  int add_argument(DType type, int64_t last, bool down, bool written) {
    kernel_.arguments.push_back({type, written});
    Data data;
    data.before = down && last >= 0 ? last : 0;
    data.count = last < 0 ? 0 : down ? 1 : last + 1;
    data.fill = chance(50) ? Data::kTame : Data::kMixed;
    data_.push_back(data);
    return static_cast<int>(kernel_.arguments.size()) - 1;
  }

  // A place over the loops with random strides; one that stores names every
  // element once.
  Place place(const std::vector<int64_t>& extents, DType type, bool stores) {
    Place result;
    const size_t loops = extents.size();
    std::vector<size_t> order(loops);
    for (size_t i = 0; i < loops; ++i) order[i] = i;
    if (chance(30)) std::shuffle(order.begin(), order.end(), random_);
    std::vector<int64_t> strides(loops);
    int64_t step = chance(20) ? static_cast<int64_t>(1 + pick(3)) : 1;
    int64_t last = 0;
    bool empty = false;
    const bool down = chance(10);
    for (size_t k = loops; k-- > 0;) {
      size_t loop = order[k];
      if (!stores && chance(15)) continue;
      strides[loop] = step;
      last += step * std::max<int64_t>(extents[loop] - 1, 0);
      step *= std::max<int64_t>(extents[loop], 1);
    }
    for (int64_t extent : extents) empty |= extent == 0;
    result.argument = add_argument(type, empty ? -1 : last, down, stores);
    for (size_t i = 0; i < loops; ++i) {
      int64_t stride = down ? -strides[i] : strides[i];
      if (stride != 0 && chance(30)) {
        symbols_.push_back(stride);
        result.strides.push_back(
            Expr::symbol(static_cast<int>(symbols_.size()) - 1));
      } else {
        result.strides.push_back(Expr(stride));
      }
    }
    return result;
  }

  Expr extent(int64_t value) {
    if (chance(50)) return Expr(value);
    symbols_.push_back(value);
    return Expr::symbol(static_cast<int>(symbols_.size()) - 1);
  }

  void add_leaf(Stage* stage, const std::vector<int64_t>& extents) {
    DType type = any_type();
    switch (pick(6)) {
      case 0:
        if (chance(50) && !extents.empty()) {
          known_.push_back(
              {stage->body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1},
                                static_cast<int64_t>(pick(extents.size()))),
               true});
          return;
        }
        if (!given_.empty()) {
          auto [row, exact] = given_[pick(given_.size())];
          known_.push_back(
              {stage->body.emit(ScalarOp::kRow, kernel_.row_types[row],
                                {-1, -1, -1}, row),
               exact});
          return;
        }
        [[fallthrough]];
      case 1: {
        auto values = special_elements(type);
        known_.push_back(
            {stage->body.emit_element(type, values[pick(values.size())]),
             true});
        return;
      }
      default: {
        Place at = place(extents, type, false);
        if (chance(20)) {
          for (const Known& each : known_) {
            if (stage->body.type(each.id) == DType::kBool && each.exact) {
              at.when = each.id;
            }
          }
        }
        stage->loads.push_back(at);
        ScalarId id =
            stage->body.emit(ScalarOp::kLoad, type, {-1, -1, -1},
                             static_cast<int64_t>(stage->loads.size()) - 1);
        known_.push_back({id, true});
      }
    }
  }

  void add_operation(Stage* stage) {
    auto op =
        static_cast<ScalarOp>(pick(static_cast<size_t>(ScalarOp::kLgamma)));
    const ScalarOpRow& row = scalar_op_row(op);
    if (row.operands == 0) return;
    bool divides = op == ScalarOp::kTruncDiv || op == ScalarOp::kFloorDiv ||
                   op == ScalarOp::kMod || op == ScalarOp::kFmod;
    ScalarNode node{op, any_type()};
    bool exact = true;
    const Known first = known_[pick(known_.size())];
    DType type = stage->body.type(first.id);
    for (int i = 0; i < row.operands; ++i) {
      // Something of the type that is wanted, if there is something.
      DType want = type;
      if (row.types == OperandTypes::kSelect && i == 0) want = DType::kBool;
      std::vector<Known> fit;
      for (const Known& each : known_) {
        if (stage->body.type(each.id) == want) fit.push_back(each);
      }
      if (fit.empty()) return;
      Known chosen = fit[pick(fit.size())];
      node.in[i] = chosen.id;
      exact &= chosen.exact;
    }
    if (row.result == ResultType::kBool) node.type = DType::kBool;
    if (row.result == ResultType::kSame) node.type = type;
    if (!malformed(stage->body, node).empty()) return;
    if (divides && is_integer(type)) {
      // By something that is not 0.
      node.in[1] = stage->body.binary(ScalarOp::kOr, node.in[1],
                                      stage->body.integer(type, 1));
    }
    const bool named = op > ScalarOp::kSqrt;
    // What is not exact may cancel, or decide.
    if (!exact) return;
    known_.push_back({stage->body.emit(node.op, node.type, node.in), !named});
  }

  void make_stage(const std::vector<int64_t>& outer, bool last) {
    Stage stage;
    std::vector<int64_t> extents = outer;
    const size_t loops = last && chance(40) ? 0 : pick(3);
    static const int64_t kExtents[] = {0, 1, 2, 7, 8, 16, 17, 33, 70};
    int64_t points = 1;
    for (int64_t each : outer) points *= std::max<int64_t>(each, 1);
    for (size_t i = 0; i < loops; ++i) {
      int64_t value = kExtents[pick(std::size(kExtents))];
      if (points * value > kMostPoints) value = 1;
      points *= std::max<int64_t>(value, 1);
      stage.loops.push_back(extent(value));
      extents.push_back(value);
    }
    known_.clear();
    for (int i = 0; i < 4; ++i) add_leaf(&stage, extents);
    // Some have more values than registers.
    const size_t operations = chance(12) ? 50 + pick(80) : 1 + pick(14);
    for (size_t i = 0; i < operations; ++i) {
      if (chance(15)) add_leaf(&stage, extents);
      add_operation(&stage);
    }
    // Of a long body, what holds many of its values together.
    if (operations >= 50) {
      DType type = stage.body.type(known_.back().id);
      Known all = known_.back();
      for (const Known& each : known_) {
        if (stage.body.type(each.id) != type || !each.exact || !all.exact ||
            is_small_float(type)) {
          continue;
        }
        all.id = stage.body.binary(ScalarOp::kMax, all.id, each.id);
      }
      known_.push_back(all);
    }
    const Known final = known_.back();
    std::vector<std::pair<int, bool>> given;
    auto give = [&](DType type, bool exact) {
      kernel_.row_types.push_back(type);
      given.push_back({static_cast<int>(kernel_.row_types.size()) - 1, exact});
      return given.back().first;
    };
    const DType type = stage.body.type(final.id);
    if (!is_small_float(type) && chance(stage.loops.empty() ? 20 : 60)) {
      std::vector<Combiner> fit;
      for (Combiner each :
           {Combiner::kSum, Combiner::kMin, Combiner::kMax, Combiner::kAny,
            Combiner::kAll, Combiner::kArgMin, Combiner::kArgMax}) {
        const CombinerRow& row = combiner_row(each);
        if (!accepts(row.types, type)) continue;
        // Sums of wild floats cancel; places of what is not exact differ.
        if (each == Combiner::kSum && is_float(type)) continue;
        if (row.place && !final.exact) continue;
        fit.push_back(each);
      }
      Combiner combiner = fit[pick(fit.size())];
      Reduction reduction{combiner, final.id, give(type, final.exact)};
      if (combiner_row(combiner).results > 1) give(DType::kI64, true);
      stage.reductions.push_back(reduction);
      if (combiner_row(combiner).operation && final.exact && chance(25)) {
        Store store;
        store.prefix_of = 0;
        store.place = place(extents, type, true);
        stage.stores.push_back(store);
      }
    } else if (stage.loops.empty() && chance(40)) {
      stage.rows.emplace_back(final.id, give(type, final.exact));
    }
    if (last || chance(40) || given.empty()) {
      Store store;
      store.value = final.id;
      store.place = place(extents, type, true);
      stage.stores.push_back(store);
    }
    given_.insert(given_.end(), given.begin(), given.end());
    kernel_.stages.push_back(std::move(stage));
  }

  void make_kernel() {
    kernel_ = Kernel{};
    kernel_.vectorised = chance(50) ? Vectorised::kInner : Vectorised::kOuter;
    static const int64_t kExtents[] = {0, 1, 2, 5, 16, 17, 40};
    std::vector<int64_t> outer;
    int64_t points = 1;
    const size_t loops = pick(4);
    for (size_t i = 0; i < loops; ++i) {
      int64_t value = kExtents[pick(std::size(kExtents))];
      if (points * value > kMostPoints) value = 1;
      points *= std::max<int64_t>(value, 1);
      kernel_.loops.push_back(extent(value));
      outer.push_back(value);
    }
    const size_t stages = 1 + pick(3);
    for (size_t i = 0; i < stages; ++i) make_stage(outer, i + 1 == stages);
  }

  std::mt19937_64 random_;
  uint64_t seed_;
  Kernel kernel_;
  std::vector<int64_t> symbols_ = {0};
  std::vector<Data> data_;
  std::vector<Known> known_;
  std::vector<std::pair<int, bool>> given_;  // row values, exact or not
};

}  // namespace framejit::codegen
