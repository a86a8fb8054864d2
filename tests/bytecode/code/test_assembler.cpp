// Re-making the standard library byte for byte, and the stack analysis of it.
#include <gtest/gtest.h>

#include "bytecode/code/code_tables.h"
#include "tests/bytecode/bytecode_module.h"

namespace framejit::bytecode {
namespace {

TEST(Assembler, RemakesTheStandardLibraryByteForByte) {
  EXPECT_EQ(run_python_test("code/assembler_checks.py", "remakes_library"), "");
}

TEST(Assembler, StackDepthsOfTheStandardLibrary) {
  EXPECT_EQ(run_python_test("code/assembler_checks.py", "stack_depths"), "");
}

TEST(CodeTables, LargeNumbersSurvive) {
  std::vector<ExceptionEntry> entries = {{0, 1, 2, 0, false},
                                         {63, 64, 4095, 17, true},
                                         {70, 300000, 16777215, 1023, true}};
  auto parsed = parse_exception_table(emit_exception_table(entries));
  ASSERT_EQ(parsed.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(parsed[i].start, entries[i].start);
    EXPECT_EQ(parsed[i].end, entries[i].end);
    EXPECT_EQ(parsed[i].target, entries[i].target);
    EXPECT_EQ(parsed[i].depth, entries[i].depth);
    EXPECT_EQ(parsed[i].lasti, entries[i].lasti);
  }
}

TEST(CodeTables, EveryFormOfALocationSurvives) {
  std::vector<LocationRun> runs = {
      {{5, 5, 0, 4}, 3},      {{5, 5, 79, 94}, 20}, {{5, 5, 80, 81}, 1},
      {{7, 7, 100, 127}, 1},  {{10, 10, 3, 9}, 2},  {{-1, -1, -1, -1}, 9},
      {{4, 4, -1, -1}, 1},    {{4, 9, 2, 1}, 1},    {{2000, 2001, 5, 6}, 1},
      {{3, 3, 200, 5000}, 1}, {{3, 3, 10, 2000}, 1}};
  auto parsed = parse_location_table(emit_location_table(runs, 5), 5);
  std::vector<Location> expected;
  for (const LocationRun& run : runs)
    expected.insert(expected.end(), run.units, run.location);
  EXPECT_EQ(parsed, expected);
}

TEST(CodeTables, TruncatedTablesDoNotReadPastTheEnd) {
  std::string handlers = emit_exception_table({{1000, 3000, 5000, 9, true}});
  std::string places = emit_location_table({{{900, 950, 700, 800}, 3}}, 1);
  for (size_t i = 0; i < handlers.size(); ++i)
    parse_exception_table(std::string_view(handlers).substr(0, i));
  for (size_t i = 0; i < places.size(); ++i)
    parse_location_table(std::string_view(places).substr(0, i), 1);
}

}  // namespace
}  // namespace framejit::bytecode
