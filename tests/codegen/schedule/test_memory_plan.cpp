// Where buffers lie, what is done in place, and what must come before what.
#include <gtest/gtest.h>

#include "codegen/loops/text.h"
#include "codegen/schedule/memory_plan.h"
#include "codegen/schedule/schedule.h"

namespace framejit::codegen {
namespace {

Schedule scheduled(const std::string& text) {
  std::string error;
  auto graph = parse_loops(text, &error);
  EXPECT_TRUE(graph) << error;
  if (!graph) return {};
  EXPECT_EQ(verify(*graph), "");
  Schedule schedule = make_schedule(*graph, TargetInfo());
  EXPECT_EQ(verify(schedule), "") << print(schedule, true);
  return schedule;
}

TEST(MemoryPlan, AResultTakesThePlaceOfAnArgumentThatDies) {
  Schedule schedule = scheduled(R"(loops(s0) {
  %0 : f32[s0] = input
  %1 : f32[s0] = extern 0 (%0)
  %2 : f32[s0] = map (i0 < s0) exp(%1[i0])
  %3 : f32[s0] = extern 1 (%2)
  %4 : f32[s0] = map (i0 < s0) exp(%3[i0])
  return %4
}
)");
  EXPECT_EQ(schedule.allocation(1), schedule.allocation(2));
  // The second one dies into the output: it is made there.
  EXPECT_EQ(schedule.allocation(3), schedule.allocation(4));
  EXPECT_EQ(schedule.allocations[schedule.allocation(4)].kind,
            MemoryKind::kOutput);
  EXPECT_EQ(schedule.steps[1].arguments, std::vector<BufferId>{2});
  int64_t symbol = 100;
  EXPECT_EQ(schedule.arena_bytes.evaluate(&symbol), 448);
}

TEST(MemoryPlan, NotInPlaceWhereItIsReadElsewhereOrLater) {
  Schedule schedule = scheduled(R"(loops(s0) {
  %0 : f32[s0, s0] = input
  %1 : f32[s0, s0] = extern 0 (%0)
  %2 : f32[s0, s0] = map (i0 < s0, i1 < s0) exp(%1[i1, i0])
  %3 : f32[s0, s0] = extern 1 (%2)
  %4 : f32[s0, s0] = map (i0 < s0, i1 < s0) exp(%3[i0, i1])
  %5 : f32[s0, s0] = extern 2 (%3, %4)
  return %5
}
)");
  EXPECT_NE(schedule.allocation(1), schedule.allocation(2));
  EXPECT_NE(schedule.allocation(3), schedule.allocation(4));
}

TEST(MemoryPlan, MemoryThatIsFreeIsUsedAgain) {
  std::string text = "loops(s0) {\n  %0 : f32[s0, 64] = input\n";
  for (int i = 1; i <= 50; ++i)
    text += "  %" + std::to_string(i) + " : f32[s0, 64] = extern 0 (%" +
            std::to_string(i - 1) + ")\n";
  Schedule schedule = scheduled(text + "  return %50\n}\n");
  int64_t symbol = 7;
  EXPECT_EQ(schedule.arena_bytes.evaluate(&symbol), 2 * 7 * 64 * 4);
}

// Buffers that the graph does not have.
size_t copies(const Schedule& schedule, size_t in_graph) {
  return schedule.buffers.size() - in_graph;
}

TEST(MemoryPlan, AnUpdateIsInPlaceIfItsBaseDies) {
  const std::string start = R"(loops(s0) {
  %0 : f32[s0] = input
  %1 : f32[s0, s0] = extern 0 (%0)
  %2 : f32[s0] = reduce sum (i0 < s0; i1 < s0) %1[i0, i1]
  %3 : f32[s0, s0] = update %1 (i0 < s0) %0[i0] to [0, i0]
)";
  Schedule in_place = scheduled(start + "  return %2, %3\n}\n");
  EXPECT_EQ(copies(in_place, 4), 0u);
  EXPECT_EQ(in_place.allocation(1), in_place.allocation(3));
  Schedule copied = scheduled(start + "  return %1, %2, %3\n}\n");
  EXPECT_EQ(copies(copied, 4), 1u);
  EXPECT_NE(copied.allocation(1), copied.allocation(3));
  Schedule read_later = scheduled(start +
                                  "  %4 : f32[s0, s0] = extern 1 (%1, %3)\n"
                                  "  return %2, %4\n}\n");
  EXPECT_EQ(copies(read_later, 5), 1u);
  // All of it is written: what was there is of no matter.
  Schedule overwritten = scheduled(R"(loops(s0) {
  %0 : f32[s0] = input
  %1 : f32[s0] = input
  %2 : f32[s0] = update %0 (i0 < s0) %1[i0] to [i0]
  return %2
}
)");
  EXPECT_EQ(copies(overwritten, 3), 0u);
  EXPECT_EQ(overwritten.steps.size(), 1u);
}

TEST(MemoryPlan, ChecksComeBeforeCallsWithEffects) {
  Schedule schedule = scheduled(R"(loops() {
  %0 : i64[8] = input
  %1 : f32[8] = extern 0 ordered ()
  %2 : b8[8] = map (i0 < 8) check(lt(%0[i0], i64(8)))
  %3 : f32[8] = extern 1 ordered ()
  %4 : b8[8] = map (i0 < 8) check(lt(%1[i0], f32(2)))
  return
}
)");
  ASSERT_EQ(schedule.steps.size(), 4u);
  // Nothing reads what they give. They are done, in their order.
  EXPECT_EQ(schedule.steps[0].call, -1);
  EXPECT_EQ(schedule.calls[schedule.steps[1].call].callee, 0);
  EXPECT_EQ(schedule.steps[2].call, -1);
  EXPECT_EQ(schedule.calls[schedule.steps[3].call].callee, 1);
}

TEST(MemoryPlan, CallsThatMayRefuseAreMade) {
  Schedule schedule = scheduled(R"(loops() {
  %0 : f32[8] = input
  %1 : f32[8] = extern 0 kept (%0)
  %2 : f32[8] = map (i0 < 8) add(%1[i0], f32(1))
  %3 : f32[8] = extern 1 (%0)
  %4 : f32[8] = map (i0 < 8) add(%3[i0], f32(1))
  return
}
)");
  // Only loops that are not needed read what they give.
  ASSERT_EQ(schedule.steps.size(), 1u);
  EXPECT_EQ(schedule.calls[schedule.steps[0].call].callee, 0);
}

// Which outputs are made in the memory of an input.
std::vector<BufferId> places(const std::string& text) {
  return scheduled(text).places;
}

TEST(MemoryPlan, AnOutputIsMadeInItsPlace) {
  Schedule row = scheduled(R"(loops() {
  %0 : f32[8, 4] = input
  %1 : f32[4] = input
  %2 : f32[8, 4] = update %0 (i0 < 4) %1[i0] to [3, i0]
  %3 : f32[4] = reduce sum (i0 < 4; i1 < 8) %0[i1, i0]
  return %2 into %0, %3
}
)");
  EXPECT_EQ(row.places, (std::vector<BufferId>{0, kNoBuffer}));
  EXPECT_EQ(copies(row, 4), 0u);
  // The sum of what was there comes first.
  ASSERT_EQ(row.steps.size(), 2u);
  EXPECT_EQ(row.first_write(), 1u);
  EXPECT_EQ(row.steps[1].results, std::vector<BufferId>{2});

  Schedule whole = scheduled(R"(loops(s0) {
  %0 : f32[s0] = input
  %1 : f32[s0] = map (i0 < s0) add(%0[i0], f32(1))
  %2 : f32[s0] = update %1 () f32(7) to [0]
  return %2 into %0
}
)");
  EXPECT_EQ(whole.places, std::vector<BufferId>{0});
  EXPECT_EQ(whole.allocations.size(), 1u);
}

TEST(MemoryPlan, WhatIsReadLaterOrElsewhereIsNotOverwritten) {
  const std::string start = R"(loops() {
  %0 : f32[4, 4] = input
  %1 : f32[4, 4] = input
)";
  // Read at other places than it is written.
  EXPECT_EQ(places(start + R"(
  %2 : f32[4, 4] = map (i0 < 4, i1 < 4) exp(%0[i1, i0])
  return %2 into %0
}
)"),
            std::vector<BufferId>{kNoBuffer});
  // Each needs what was in the other: one of them goes elsewhere.
  EXPECT_EQ(places(start + R"(
  %2 : f32[4, 4] = map (i0 < 4, i1 < 4) exp(%1[i1, i0])
  %3 : f32[4, 4] = map (i0 < 4, i1 < 4) exp(%0[i1, i0])
  return %2 into %0, %3 into %1
}
)"),
            (std::vector<BufferId>{0, kNoBuffer}));
  // What was there is returned, too.
  EXPECT_EQ(places(start + R"(
  %2 : f32[4, 4] = update %0 (i0 < 4) f32(1) to [i0, 0]
  return %2 into %0, %0
}
)"),
            (std::vector<BufferId>{kNoBuffer, kNoBuffer}));
}

TEST(MemoryPlan, NothingThatCanFailComesBehindAWrite) {
  const std::string start = R"(loops() {
  %0 : f32[4] = input
  %1 : i64[2] = input
  %2 : f32[4] = map (i0 < 4) add(%0[i0], f32(1))
)";
  EXPECT_EQ(places(start + "  %3 : f32[4] = extern 0 (%2)\n"
                           "  return %2 into %0, %3\n}\n"),
            (std::vector<BufferId>{kNoBuffer, kNoBuffer}));
  EXPECT_EQ(places(start + "  %3 : f32[4] = extern 0 sure (%2)\n"
                           "  return %2 into %0, %3\n}\n"),
            (std::vector<BufferId>{0, kNoBuffer}));
  // It does not need the output: it comes first.
  Schedule before = scheduled(start +
                              "  %3 : f32[4] = extern 0 (%0)\n"
                              "  return %2 into %0, %3\n}\n");
  EXPECT_EQ(before.places, (std::vector<BufferId>{0, kNoBuffer}));
  EXPECT_EQ(before.steps[0].call, 0);
  // All indices are checked before any row is written.
  Schedule checked = scheduled(R"(loops() {
  %0 : f32[8, 4] = input
  %1 : i64[2] = input
  %2 : f32[8, 4] = update %0 (i0 < 2, i1 < 4)
    t0 = %1[i0]
    f32(1) to [@(select(check(lt(t0, i64(8))), t0, i64(0))), i1]
  return %2 into %0
}
)");
  EXPECT_EQ(checked.places, std::vector<BufferId>{0});
  EXPECT_EQ(checked.steps.size(), 2u);
  EXPECT_EQ(checked.first_write(), 1u);
}

TEST(MemoryPlan, ACallWritesWhereItsResultIsToLie) {
  const std::string start = R"(loops() {
  %0 : f32[4, 4] = input
  %1 : f32[4, 4] = input
  %2 : f32[1, 4, 4] = alias %0
  %3 : f32[4, 4] strides [1, 4] = alias %0
)";
  const auto of = [&](const std::string& call) {
    return places(start + "  %4 : f32[4, 4] = extern 0 " + call +
                  "\n  return %4 into %0\n}\n");
  };
  const std::vector<BufferId> placed{0}, elsewhere{kNoBuffer};
  EXPECT_EQ(of("sure into (%1)"), placed);
  EXPECT_EQ(of("sure into over 0 (%0, %1)"), placed);
  // It can fail; it brings its own memory.
  EXPECT_EQ(of("into (%1)"), elsewhere);
  EXPECT_EQ(of("sure (%1)"), elsewhere);
  // It reads, while it writes, what it has overwritten.
  EXPECT_EQ(of("sure into (%0)"), elsewhere);
  EXPECT_EQ(of("sure into over 0 (%0, %3)"), elsewhere);
  EXPECT_EQ(of("sure into over 0 (%1, %0)"), elsewhere);
  EXPECT_EQ(of("sure into over 0 (%3, %1)"), elsewhere);
  // The same elements in other dims are not the tensor that it may write over.
  EXPECT_EQ(of("sure into over 0 (%2, %1)"), elsewhere);
  // What was there is read first, or by a call that needs the result.
  Schedule first = scheduled(start + R"(
  %4 : f32[4, 4] = extern 0 sure into over 0 (%0, %1)
  %5 : f32[4] = reduce sum (i0 < 4; i1 < 4) %0[i0, i1]
  return %4 into %0, %5
}
)");
  EXPECT_EQ(first.places, (std::vector<BufferId>{0, kNoBuffer}));
  EXPECT_EQ(first.first_write(), first.steps.size() - 1);
  EXPECT_EQ(places(start + R"(
  %4 : f32[4, 4] = extern 0 sure into over 0 (%0, %1)
  %5 : f32[4, 4] = extern 1 (%4)
  return %4 into %0, %5
}
)"),
            (std::vector<BufferId>{kNoBuffer, kNoBuffer}));
  // What is written over its result is written there, too.
  EXPECT_EQ(places(start + R"(
  %4 : f32[4, 4] = extern 0 sure into over 0 (%0, %1)
  %5 : f32[4, 4] = update %4 (i0 < 4) f32(1) to [i0, 0]
  return %5 into %0
}
)"),
            placed);
}

}  // namespace
}  // namespace framejit::codegen
