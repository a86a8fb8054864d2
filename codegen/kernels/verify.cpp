#include <algorithm>

#include "codegen/kernels/kernel.h"

namespace framejit::codegen {

namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel) {}

  std::string run() {
    written_.assign(kernel_.row_types.size(), false);
    for (const Expr& number : kernel_.numbers) {
      if (number.is_boolean()) return "a number that is a boolean";
    }
    for (size_t i = 0; i < kernel_.stages.size() && wrong_.empty(); ++i) {
      stage(kernel_.stages[i]);
      if (!wrong_.empty())
        wrong_ = "stage " + std::to_string(i) + ": " + wrong_;
    }
    return wrong_;
  }

 private:
  bool expect(bool holds, const std::string& what) {
    if (!holds && wrong_.empty()) wrong_ = what;
    return holds;
  }

  void stage(const Stage& stage);
  void node(const Stage& stage, ScalarId id);
  // before: a load's own node; values behind it do not exist yet.
  void place(const Stage& stage, const Place& place, ScalarId before);
  bool value(const Stage& stage, ScalarId id, DType type, const char* what) {
    int count = static_cast<int>(stage.body.nodes().size());
    return expect(id >= 0 && id < count, std::string(what) + " is not there") &&
           expect(stage.body.type(id) == type,
                  std::string(what) + " is not " + dtype_name(type));
  }
  // A row value is given once, before it is read.
  void give_row(int row, DType type) {
    if (!expect(row >= 0 && row < static_cast<int>(written_.size()),
                "a row value that is not there")) {
      return;
    }
    expect(kernel_.row_types[row] == type,
           "r" + std::to_string(row) + " is not " + dtype_name(type));
    expect(!written_[row], "r" + std::to_string(row) + " is given twice");
    given_.push_back(row);
  }

  const Kernel& kernel_;
  std::vector<char> written_;
  std::vector<int> given_;  // by the stage
  std::string wrong_;
};

void Verifier::place(const Stage& stage, const Place& place, ScalarId before) {
  if (!expect(place.argument >= 0 &&
                  place.argument < static_cast<int>(kernel_.arguments.size()),
              "an argument that is not there")) {
    return;
  }
  expect(place.strides.size() == kernel_.loops.size() + stage.loops.size(),
         "not one stride a loop");
  for (auto [id, stride] : place.data) {
    value(stage, id, DType::kI64, "data");
    expect(id < before, "data that comes behind its load");
  }
  if (place.when != kNoScalar) {
    value(stage, place.when, DType::kBool, "a condition");
    expect(place.when < before, "a condition that comes behind its load");
  }
}

void Verifier::node(const Stage& stage, ScalarId id) {
  const ScalarNode& node = stage.body.node(id);
  auto entry = [&](size_t count) {
    return expect(
        node.payload >= 0 && node.payload < static_cast<int64_t>(count),
        std::string(scalar_op_row(node.op).text) +
            " of an entry that is not there");
  };
  switch (node.op) {
    case ScalarOp::kLoad:
      if (!entry(stage.loads.size())) return;
      place(stage, stage.loads[node.payload], id);
      if (wrong_.empty()) {
        int argument = stage.loads[node.payload].argument;
        expect(kernel_.arguments[argument].type == node.type,
               "a load that is not of its argument's type");
      }
      break;
    case ScalarOp::kIndex:
      entry(kernel_.loops.size() + stage.loops.size());
      break;
    case ScalarOp::kNumber:
      if (!entry(kernel_.numbers.size())) return;
      expect(kernel_.numbers[node.payload].is_float() ==
                 (node.type == DType::kF64),
             "a number that is not of its node's type");
      break;
    case ScalarOp::kRow:
      if (!entry(written_.size())) return;
      expect(written_[node.payload], "a row value that no earlier stage gives");
      expect(kernel_.row_types[node.payload] == node.type,
             "a row value of another type");
      break;
    default:
      break;
  }
}

void Verifier::stage(const Stage& stage) {
  const auto& nodes = stage.body.nodes();
  for (size_t i = 0; i < nodes.size() && wrong_.empty(); ++i) {
    node(stage, static_cast<ScalarId>(i));
  }
  if (!wrong_.empty()) return;
  const auto end = static_cast<ScalarId>(nodes.size());
  given_.clear();
  for (const Reduction& reduction : stage.reductions) {
    const CombinerRow& row = combiner_row(reduction.combiner);
    if (!expect(reduction.value >= 0 && reduction.value < end,
                "a reduction of a value that is not there")) {
      return;
    }
    DType type = stage.body.type(reduction.value);
    expect(accepts(row.types, type),
           std::string(row.text) + " does not take " + dtype_name(type));
    give_row(reduction.row, type);
    if (row.results > 1) {
      give_row(reduction.row + 1, row.place ? DType::kI64 : type);
    }
  }
  for (const Store& store : stage.stores) {
    place(stage, store.place, end);
    if (!wrong_.empty()) return;
    const KernelArgument& argument = kernel_.arguments[store.place.argument];
    expect(argument.is_written, "a store to an argument that is no output");
    if (store.prefix_of >= 0) {
      if (!expect(store.prefix_of < static_cast<int>(stage.reductions.size()),
                  "a prefix of a reduction that is not there")) {
        return;
      }
      const Reduction& reduction = stage.reductions[store.prefix_of];
      expect(combiner_row(reduction.combiner).operation.has_value(),
             "a prefix of a combiner that has none");
      expect(store.value == kNoScalar && !store.combiner,
             "a prefix and a value");
      expect(stage.body.type(reduction.value) == argument.type,
             "a prefix that is not of its argument's type");
      continue;
    }
    value(stage, store.value, argument.type, "a stored value");
    if (store.combiner) {
      expect(combiner_row(*store.combiner).operation &&
                 accepts(combiner_row(*store.combiner).types, argument.type),
             "a combiner that cannot update");
    }
  }
  expect(stage.rows.empty() || stage.loops.empty(),
         "row values given by the body of a loop");
  for (auto [id, row] : stage.rows) {
    if (!expect(id >= 0 && id < end, "a row value of nothing")) return;
    give_row(row, stage.body.type(id));
  }
  std::sort(given_.begin(), given_.end());
  expect(std::adjacent_find(given_.begin(), given_.end()) == given_.end(),
         "a row value given twice");
  for (int row : given_) written_[row] = true;
}

}  // namespace

int Kernel::add_number(const Expr& number) {
  auto found = std::find(numbers.begin(), numbers.end(), number);
  if (found == numbers.end()) found = numbers.insert(found, number);
  return static_cast<int>(found - numbers.begin());
}

std::string verify(const Kernel& kernel) { return Verifier(kernel).run(); }

}  // namespace framejit::codegen
