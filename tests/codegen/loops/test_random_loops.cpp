// Random graphs: what the generator promises, and that text keeps the meaning.
#include <gtest/gtest.h>

#include <map>

#include "../random_loops.h"
#include "codegen/loops/text.h"

namespace framejit::codegen {
namespace {

TEST(RandomLoops, AreWellFormedAndKeepTheirMeaningAsText) {
  RandomLoopOptions options;
  options.externs = true;
  int done = 0, failed = 0;
  std::map<DefinitionKind, int> kinds;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    RandomLoops program = random_loops(seed, options);
    const std::string text = print(program.graph);
    ASSERT_EQ(verify(program.graph), "") << "seed " << seed << "\n" << text;
    std::string error;
    auto parsed = parse_loops(text, &error);
    ASSERT_TRUE(parsed) << "seed " << seed << " " << error << "\n" << text;
    ASSERT_EQ(print(*parsed), text);
    ASSERT_EQ(verify(*parsed), "");
    for (const Definition& definition : program.graph.definitions)
      ++kinds[definition.kind];

    ExternCall call = copying_call(program);
    RunMemory first = random_run(program, seed),
              second = random_run(program, seed);
    std::string outcome =
        interpret(program.graph, program.symbols.data(), first.input_pointers(),
                  first.output_pointers(), call);
    ASSERT_EQ(
        interpret(*parsed, program.symbols.data(), second.input_pointers(),
                  second.output_pointers(), call),
        outcome);
    ASSERT_TRUE(outcome.empty() || outcome == "a check failed") << outcome;
    (outcome.empty() ? done : failed) += 1;
    ASSERT_EQ(compare_outputs(program, first, second), "") << text;
  }
  // Enough of everything.
  EXPECT_GT(done, 1500);
  EXPECT_GT(failed, 5);
  for (DefinitionKind kind : {DefinitionKind::kInput, DefinitionKind::kMap,
                              DefinitionKind::kReduce, DefinitionKind::kScan,
                              DefinitionKind::kUpdate, DefinitionKind::kExtern})
    EXPECT_GT(kinds[kind], 200);
}

TEST(RandomLoops, ComparisonsFindAWrongElement) {
  int found = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomLoops program = random_loops(seed);
    RunMemory first = random_run(program, seed);
    if (!interpret(program.graph, program.symbols.data(),
                   first.input_pointers(), first.output_pointers())
             .empty())
      continue;
    for (size_t i = 0; i < first.outputs.size(); ++i) {
      RunMemory second = first;
      for (size_t j = 0; j < first.outputs.size(); ++j)
        second.outputs[j].first =
            second.outputs[j].bytes.data() +
            (first.outputs[j].first - first.outputs[j].bytes.data());
      if (program.tolerance[i] > 0) continue;
      second.outputs[i].bytes.back() ^= 0x7f;
      found += !compare_outputs(program, first, second).empty();
    }
  }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace framejit::codegen
