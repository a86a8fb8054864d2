// Random graphs: a schedule means what its graph does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "../random_loops.h"
#include "codegen/kernels/interpreter.h"
#include "codegen/loops/text.h"
#include "codegen/schedule/schedule.h"
#include "codegen/x86/compile.h"

namespace framejit::codegen {
namespace {

struct Tally {
  int kernels = 0, definitions = 0, failed = 0, compiled = 0;
  int placed = 0, places = 0;  // outputs made in an input's memory; asked for
  std::map<std::string, int> refused;
};

// FJ_SCHEDULES: how many graphs; FJ_SCHEDULE_SEED: which one comes first.
uint64_t environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void expect_same(uint64_t seed, const RandomLoopOptions& options,
                 const TargetInfo& target, Tally* tally) {
  RandomLoops program = random_loops(seed, options);
  TargetInfo hinted = target;
  if (seed % 2) hinted.hints = program.symbols;
  Schedule schedule;
  auto describe = [&] {
    return "seed " + std::to_string(seed) + "\n" + print(program.graph) +
           print(schedule, true);
  };
  ASSERT_NO_THROW(schedule = make_schedule(program.graph, hinted))
      << describe();
  ASSERT_EQ(verify(schedule), "") << describe();
  auto is_kept = [](const Definition& call) { return call.kept; };
  ASSERT_EQ(std::ranges::count_if(schedule.calls, is_kept),
            std::ranges::count_if(program.graph.definitions, is_kept))
      << describe();
  RunMemory expected = random_run(program, seed),
            got = random_run(program, seed);
  ExternCall call = copying_call(program);
  std::string outcome =
      interpret(program.graph, program.symbols.data(),
                expected.input_pointers(), expected.output_pointers(), call);
  ASSERT_EQ(interpret(schedule, program.symbols.data(), got.input_pointers(),
                      got.output_pointers(), call),
            outcome)
      << describe();
  ASSERT_EQ(compare_outputs(program, expected, got), "") << describe();
  // Its text is all of it.
  std::string error;
  std::optional<Schedule> parsed =
      parse_schedule(print(schedule, true), &error);
  ASSERT_TRUE(parsed) << error << "\n" << describe();
  ASSERT_EQ(print(*parsed, true), print(schedule, true));
  ASSERT_EQ(verify(*parsed), "") << describe();
  RunMemory read_back = random_run(program, seed);
  ASSERT_EQ(
      interpret(*parsed, program.symbols.data(), read_back.input_pointers(),
                read_back.output_pointers(), call),
      outcome)
      << describe();
  ASSERT_EQ(compare_outputs(program, expected, read_back), "") << describe();
  // The kernels as machine code, too; of all graphs with FJ_SCHEDULE_X86=1.
  if (outcome.empty() && (seed % 4 == 0 || environment("FJ_SCHEDULE_X86", 0))) {
    for (X86Isa isa : cpu_isas()) {
      RunMemory compiled = random_run(program, seed);
      KernelRun run = [&](const Kernel& kernel, const int64_t* symbols,
                          std::span<void* const> arguments) {
        Compiled code = compile(kernel, isa);
        if (code.code) {
          ++tally->compiled;
        } else {
          ++tally->refused[code.refused];
        }
        if (!code.code) return interpret(kernel, symbols, arguments);
        return framejit::codegen::run(*code.code, kernel, symbols,
                                      arguments.data());
      };
      ASSERT_EQ(
          interpret(schedule, program.symbols.data(), compiled.input_pointers(),
                    compiled.output_pointers(), call, run),
          outcome)
          << describe();
      ASSERT_EQ(compare_outputs(program, expected, compiled), "")
          << isa_name(isa) << " " << describe();
    }
  }
  tally->kernels += static_cast<int>(schedule.steps.size());
  tally->failed += !outcome.empty();
  for (BufferId place : program.graph.places)
    tally->places += place != kNoBuffer;
  for (BufferId place : schedule.places) tally->placed += place != kNoBuffer;
  for (const Definition& d : program.graph.definitions)
    tally->definitions += d.kind != DefinitionKind::kInput;
}

TEST(RandomSchedules, MeanWhatTheirGraphsDo) {
  const uint64_t first = environment("FJ_SCHEDULE_SEED", 0);
  const uint64_t count = environment("FJ_SCHEDULES", 3000);
  Tally tally;
  for (uint64_t seed = first; seed < first + count && !HasFatalFailure();
       ++seed) {
    RandomLoopOptions options;
    options.externs = seed % 3 == 0;
    options.definitions = seed % 17 == 0 ? 40 : 4 + static_cast<int>(seed % 13);
    if (seed % 5 == 0) options.types = {DType::kF32};
    if (seed % 7 == 0) options.types = {DType::kI32, DType::kBool};
    TargetInfo target;
    target.threads = 1 + static_cast<int>(seed % 4);
    if (seed % 11 == 0) target.max_nodes = 20;
    expect_same(seed, options, target, &tally);
  }
  if (count >= 1000) {
    EXPECT_LT(tally.kernels, tally.definitions);
    EXPECT_GT(tally.failed, 10);
    EXPECT_GT(tally.placed, 100);
    EXPECT_GT(tally.places, tally.placed);
  }
  std::printf("%d of %d outputs in their places\n", tally.placed, tally.places);
  std::printf("%d definitions, %d steps, %d failed runs, %d kernels compiled\n",
              tally.definitions, tally.kernels, tally.failed, tally.compiled);
  for (const auto& [reason, times] : tally.refused)
    std::printf("%d not compiled: %s\n", times, reason.c_str());
}

}  // namespace
}  // namespace framejit::codegen
