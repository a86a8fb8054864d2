#include "codegen/kernels/interpreter.h"

#include "codegen/loops/accumulator.h"
#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

namespace {

// A Place with its numbers.
struct FixedPlace {
  DType type;
  char* memory;
  int64_t offset;
  std::vector<int64_t> strides;
  std::vector<std::pair<ScalarId, int64_t>> data;
  ScalarId when;

  char* address(const std::vector<int64_t>& point,
                const std::vector<Element>& values) const {
    int64_t element = offset;
    for (size_t i = 0; i < strides.size(); ++i)
      element += strides[i] * point[i];
    for (auto [id, stride] : data) {
      element += stride * static_cast<int64_t>(values[id]);
    }
    return memory + element * static_cast<int64_t>(dtype_size(type));
  }
  bool is_done(const std::vector<Element>& values) const {
    return when == kNoScalar || values[when];
  }
};

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, const int64_t* symbols,
              std::span<void* const> arguments)
      : kernel_(kernel),
        symbols_(symbols),
        arguments_(arguments),
        rows_(kernel.row_types.size()) {
    for (const Expr& extent : kernel.loops) {
      extents_.push_back(extent.evaluate(symbols));
    }
    for (const Expr& number : kernel.numbers) {
      numbers_.push_back(static_cast<Element>(number.evaluate(symbols)));
    }
    for (const Stage& stage : kernel.stages) {
      auto& places = places_.emplace_back();
      for (const Place& place : stage.loads) places.push_back(fixed(place));
      for (const Store& store : stage.stores) {
        places.push_back(fixed(store.place));
      }
      auto& inner = inner_.emplace_back();
      for (const Expr& extent : stage.loops) {
        inner.push_back(extent.evaluate(symbols));
      }
    }
  }

  void run(int64_t flat) {
    std::vector<int64_t> point(extents_.size());
    for (size_t i = extents_.size(); i-- > 0;) {
      point[i] = flat % extents_[i];
      flat /= extents_[i];
    }
    for (size_t i = 0; i < kernel_.stages.size(); ++i) stage(i, point);
  }
  bool holds() const { return holds_; }

 private:
  FixedPlace fixed(const Place& place) const {
    FixedPlace result{kernel_.arguments[place.argument].type,
                      static_cast<char*>(arguments_[place.argument]),
                      place.offset.evaluate(symbols_),
                      {},
                      {},
                      place.when};
    for (const Expr& stride : place.strides) {
      result.strides.push_back(stride.evaluate(symbols_));
    }
    for (const auto& [id, stride] : place.data) {
      result.data.emplace_back(id, stride.evaluate(symbols_));
    }
    return result;
  }

  // Whether the Checks of the body up to here hold: data that fails one names
  // no memory.
  bool checked(const Stage& stage) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (stage.body.nodes()[i].op == ScalarOp::kCheck && !values_[i]) {
        return false;
      }
    }
    return true;
  }
  void stage(size_t number, std::vector<int64_t> point);
  void body(const Stage& stage, const std::vector<FixedPlace>& places,
            const std::vector<int64_t>& point);

  const Kernel& kernel_;
  const int64_t* symbols_;
  std::span<void* const> arguments_;
  std::vector<int64_t> extents_;
  std::vector<Element> numbers_;
  std::vector<std::vector<FixedPlace>> places_;  // of a stage: loads, stores
  std::vector<std::vector<int64_t>> inner_;
  std::vector<Element> rows_;
  std::vector<Element> values_;
  // Of the stage: what its reductions are given, in order.
  std::vector<std::vector<Element>> elements_;
  std::vector<std::optional<Accumulator>> prefixes_;
  bool holds_ = true;
};

void Interpreter::body(const Stage& stage,
                       const std::vector<FixedPlace>& places,
                       const std::vector<int64_t>& point) {
  auto leaf = [&](const ScalarNode& node) -> Element {
    switch (node.op) {
      case ScalarOp::kIndex:
        return static_cast<Element>(point[node.payload]);
      case ScalarOp::kNumber:
        return numbers_[node.payload];
      case ScalarOp::kRow:
        return rows_[node.payload];
      default: {
        const FixedPlace& place = places[node.payload];
        return place.is_done(values_) && (place.data.empty() || checked(stage))
                   ? load_element(place.type, place.address(point, values_))
                   : 0;
      }
    }
  };
  holds_ &= evaluate(stage.body, leaf, &values_);
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    Element value = values_[stage.reductions[i].value];
    elements_[i].push_back(value);
    if (prefixes_[i]) prefixes_[i]->add(value);
  }
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    const Store& store = stage.stores[i];
    const FixedPlace& place = places[stage.loads.size() + i];
    if (!place.is_done(values_) || !checked(stage)) continue;
    char* address = place.address(point, values_);
    Element value;
    if (store.prefix_of >= 0) {
      value = prefixes_[store.prefix_of]->value();
    } else if (store.combiner) {
      Accumulator updated(*store.combiner, place.type,
                          load_element(place.type, address));
      updated.add(values_[store.value]);
      value = updated.value();
    } else {
      value = values_[store.value];
    }
    store_element(place.type, value, address);
  }
}

void Interpreter::stage(size_t number, std::vector<int64_t> point) {
  const Stage& stage = kernel_.stages[number];
  elements_.assign(stage.reductions.size(), {});
  prefixes_.assign(stage.reductions.size(), std::nullopt);
  for (const Store& store : stage.stores) {
    if (store.prefix_of < 0) continue;
    const Reduction& reduction = stage.reductions[store.prefix_of];
    prefixes_[store.prefix_of].emplace(reduction.combiner,
                                       stage.body.type(reduction.value));
  }
  int64_t points = 1;
  for (int64_t extent : inner_[number]) points *= extent;
  const size_t outer = point.size();
  point.resize(outer + stage.loops.size());
  for (int64_t flat = 0; flat < points; ++flat) {
    int64_t rest = flat;
    for (size_t i = stage.loops.size(); i-- > 0;) {
      point[outer + i] = rest % inner_[number][i];
      rest /= inner_[number][i];
    }
    body(stage, places_[number], point);
  }
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const Reduction& reduction = stage.reductions[i];
    std::array<Element, 2> results = combine(
        reduction.combiner, stage.body.type(reduction.value), elements_[i]);
    rows_[reduction.row] = results[0];
    if (combiner_row(reduction.combiner).results > 1) {
      rows_[reduction.row + 1] = results[1];
    }
  }
  for (auto [id, row] : stage.rows) rows_[row] = values_[id];
}

}  // namespace

int64_t outer_points(const Kernel& kernel, const int64_t* symbols) {
  int64_t points = 1;
  for (const Expr& extent : kernel.loops) points *= extent.evaluate(symbols);
  return points;
}

bool interpret(const Kernel& kernel, const int64_t* symbols,
               std::span<void* const> arguments, int64_t begin, int64_t end) {
  if (end < 0) end = outer_points(kernel, symbols);
  Interpreter interpreter(kernel, symbols, arguments);
  for (int64_t flat = begin; flat < end; ++flat) interpreter.run(flat);
  return interpreter.holds();
}

}  // namespace framejit::codegen
