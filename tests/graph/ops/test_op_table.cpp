#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <gtest/gtest.h>

#include <set>

#include "graph/ops/op_facts.h"
#include "graph/ops/op_table.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {
namespace {

// Every row against the operator of the running torch that it is about.
class OpTable : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }

  static std::optional<c10::OperatorHandle> find(const OpRow& row) {
    std::string name = row.name, overload;
    if (size_t dot = name.find('.'); dot != std::string::npos) {
      overload = name.substr(dot + 1);
      name.resize(dot);
    }
    if (name.find("::") == std::string::npos) name = "aten::" + name;
    return c10::Dispatcher::singleton().findSchema({name, overload});
  }

  template <class Check>
  static void for_each_row(Check check) {
    for (const OpRow& row : op_table()) {
      SCOPED_TRACE(row.name);
      if (auto op = find(row)) check(row, facts_of(*op));
    }
  }

  static bool returns_alias(const OpFacts& facts) {
    for (const auto& result : facts.op.schema().returns()) {
      if (result.alias_info()) return true;
    }
    return false;
  }
};

TEST_F(OpTable, NamesExistAndAreUnique) {
  std::set<std::string> names;
  for (const OpRow& row : op_table()) {
    EXPECT_TRUE(find(row)) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_GT(names.size(), 500);
}

TEST_F(OpTable, WritingFormsHaveRowsOnlyWhereThereIsNoOther) {
  for_each_row([](const OpRow& row, const OpFacts& facts) {
    EXPECT_FALSE(facts.functional) << "the row of the functional form is meant";
  });
}

TEST_F(OpTable, WritingFormsMeanTheRowOfTheFunctionalOne) {
  auto facts = [](const char* name, const char* overload) -> OpFacts& {
    return facts_of(*c10::Dispatcher::singleton().findSchema(
        {std::string("aten::") + name, overload}));
  };
  const OpRow* add = find_row("add.Tensor");
  ASSERT_TRUE(add);
  EXPECT_EQ(facts("add_", "Tensor").row, add);
  EXPECT_EQ(facts("add_", "Tensor").form, OpFacts::Form::kInPlace);
  EXPECT_EQ(facts("add", "out").row, add);
  EXPECT_EQ(facts("add", "out").form, OpFacts::Form::kOut);
  EXPECT_EQ(facts("sum", "IntList_out").row, find_row("sum.dim_IntList"));
}

TEST_F(OpTable, ViewsShareMemoryAndNothingElseDoes) {
  for_each_row([](const OpRow& row, const OpFacts& facts) {
    if (facts.op.schema().is_mutable()) return;
    bool says = returns_alias(facts);
    bool shares = says || row.aliasing == Aliasing::kFirst;
    EXPECT_EQ(row.has(kView), shares);
    EXPECT_EQ(shares, !facts.aliased_arguments.empty());
    EXPECT_FALSE(says && row.aliasing == Aliasing::kFirst)
        << "the schema says it already";
  });
}

TEST_F(OpTable, TraitsAgreeWithTheTags) {
  for_each_row([](const OpRow& row, const OpFacts& facts) {
    auto tagged = [&](at::Tag tag) { return facts.op.hasTag(tag); };
    EXPECT_EQ(row.has(kRandom), tagged(at::Tag::nondeterministic_seeded));
    EXPECT_TRUE(!tagged(at::Tag::pointwise) || row.has(kPointwise));
    EXPECT_TRUE(!tagged(at::Tag::reduction) || row.has(kReduction));
    EXPECT_TRUE(!tagged(at::Tag::data_dependent_output) || row.has(kReadsData));
    // The lengths of this overload are numbers.
    bool fixed = std::string(row.name) == "_ctc_loss";
    EXPECT_TRUE(!tagged(at::Tag::dynamic_output_shape) || fixed ||
                row.has(kDataShape | kMaskShape));
    EXPECT_FALSE(row.has(kPointwise) && row.has(kView));
  });
}

TEST_F(OpTable, MetadataComesFromWhereTheRowSays) {
  using Kind = MetaColumn::Kind;
  using Kernel = MetaKernel::Kind;
  for_each_row([](const OpRow& row, const OpFacts& facts) {
    bool in_cpp = facts.kernel.kind != Kernel::kNone &&
                  facts.kernel.kind != Kernel::kPython;
    bool writes = facts.op.schema().is_mutable();
    EXPECT_TRUE(row.meta.kind != Kind::kTorch || in_cpp || writes)
        << "torch has no kernel for it in C++";
    EXPECT_EQ(row.meta.kind == Kind::kNone, row.has(kReadsData | kDataShape));
    EXPECT_EQ(row.meta.kind == Kind::kRule || row.meta.kind == Kind::kChecked,
              row.meta.rule != nullptr);
  });
}

TEST_F(OpTable, OperatorsWithoutRowsAreKnownByTheirTags) {
  size_t without = 0;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    auto op = dispatcher.findSchema(name);
    if (!op) continue;
    const OpFacts& facts = facts_of(*op);
    if (facts.row) continue;
    ++without;
    EXPECT_EQ(facts.has(kRandom), op->hasTag(at::Tag::nondeterministic_seeded));
  }
  EXPECT_GT(without, 100);
}

}  // namespace
}  // namespace framejit::graph::testing
