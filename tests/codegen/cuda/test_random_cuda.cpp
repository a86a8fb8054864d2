// The text of CUDA kernels does what the interpreter does: kernels of random
// graphs, by teams of every size, with indices of both widths.
// FJ_CUDA_SEEDS=first:count asks for others than the few that run each time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "../random_loops.h"
#include "codegen/cuda/print_cuda.h"
#include "codegen/kernels/text.h"
#include "codegen/loops/text.h"
#include "codegen/schedule/schedule.h"
#include "tests/codegen/cuda/emulated.h"
#include "tests/codegen/x86/random_kernels.h"

namespace framejit::codegen {
namespace {

struct Program {
  RandomLoops loops;
  Schedule schedule;
  CudaOptions options;
  std::vector<int> numbers;  // of its kernels, as emulated; -1: refused
};

// Any order of updates gives the same.
bool is_order_free(const Schedule& schedule) {
  for (const Kernel& kernel : schedule.kernels) {
    for (const Stage& stage : kernel.stages) {
      for (const Store& store : stage.stores) {
        const auto& strides = store.place.strides;
        const bool repeats = std::any_of(
            strides.end() - static_cast<std::ptrdiff_t>(stage.loops.size()),
            strides.end(), [](const Expr& e) { return e.is_const(0); });
        if (!store.combiner && repeats) return false;
        if (!store.combiner && store.place.data.empty()) continue;
        const DType type = kernel.arguments[store.place.argument].type;
        const bool orders = store.combiner == Combiner::kMin ||
                            store.combiner == Combiner::kMax;
        if (!store.combiner || (is_float(type) && !orders)) return false;
      }
    }
  }
  return true;
}

Program make_program(uint64_t seed) {
  RandomLoopOptions options;
  options.externs = seed % 3 == 0;
  options.definitions = 4 + static_cast<int>(seed % 13);
  if (seed % 5 == 0) options.types = {DType::kF32};
  if (seed % 7 == 0) options.types = {DType::kI32, DType::kBool};
  Program program;
  program.loops = random_loops(seed, options);
  TargetInfo target = seed % 2 ? cuda_target(90) : TargetInfo();
  target.threads = 1 + static_cast<int>(seed % 4);
  if (seed % 3 == 0) target.large_reduction = 1 << 6;
  program.schedule = make_schedule(program.loops.graph, target);
  static constexpr int kTeams[] = {32, 64, 256, 1};
  program.options.team = kTeams[seed % 4];
  program.options.wide_indices = seed % 2;
  program.options.deterministic =
      seed % 8 == 0 || !is_order_free(program.schedule);
  return program;
}

void choose_seeds(uint64_t* first, uint64_t* count) {
  if (const char* wanted = std::getenv("FJ_CUDA_SEEDS")) {
    char* rest;
    *first = std::strtoull(wanted, &rest, 10);
    if (*rest == ':') *count = std::strtoull(rest + 1, nullptr, 10);
  }
}

TEST(RandomCuda, GraphsEqualTheInterpreter) {
  uint64_t first = 0, count = 60;
  choose_seeds(&first, &count);
  EmulatedKernels emulated;
  std::vector<Program> programs;
  int kernels = 0, refused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Program& program = programs.emplace_back(make_program(seed));
    for (const Kernel& kernel : program.schedule.kernels) {
      program.numbers.push_back(emulated.add(kernel, program.options));
      refused += program.numbers.back() < 0;
      ++kernels;
    }
  }
  EXPECT_EQ(refused, 0);
  ASSERT_EQ(emulated.build(), "");
  for (uint64_t i = 0; i < count && !HasFatalFailure(); ++i) {
    const Program& program = programs[i];
    const uint64_t seed = first + i;
    auto describe = [&] {
      std::string text = "seed " + std::to_string(seed) + "\n" +
                         print(program.loops.graph) +
                         print(program.schedule, true);
      for (int number : program.numbers) text += emulated.kernel(number).source;
      return text;
    };
    RunMemory expected = random_run(program.loops, seed),
              got = random_run(program.loops, seed);
    ExternCall call = copying_call(program.loops);
    const int64_t* symbols = program.loops.symbols.data();
    std::string outcome =
        interpret(program.loops.graph, symbols, expected.input_pointers(),
                  expected.output_pointers(), call);
    KernelRun run = [&](const Kernel& kernel, const int64_t* values,
                        std::span<void* const> arguments) {
      const auto place =
          static_cast<size_t>(&kernel - program.schedule.kernels.data());
      return emulated.run(program.numbers[place], values, arguments,
                          1 + seed % 3, static_cast<unsigned>(seed % 5));
    };
    ASSERT_EQ(interpret(program.schedule, symbols, got.input_pointers(),
                        got.output_pointers(), call, run),
              outcome)
        << describe();
    if (!outcome.empty()) continue;
    ASSERT_EQ(compare_outputs(program.loops, expected, got), "") << describe();
  }
  std::printf("%d kernels, %zu runs with wide accesses\n", kernels,
              emulated.wide_runs);
  EXPECT_GT(emulated.wide_runs, 0u);
}

TEST(RandomCuda, KernelsEqualTheInterpreter) {
  uint64_t first = 0, count = 60;
  choose_seeds(&first, &count);
  EmulatedKernels emulated;
  std::vector<std::pair<Comparison, int>> all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RandomKernel random(seed);
    std::optional<Comparison> comparison = random.make();
    ASSERT_TRUE(comparison);
    CudaOptions options;
    static constexpr int kTeams[] = {1, 32, 96, 256};
    options.team = kTeams[seed % 4];
    options.wide_indices = seed % 2;
    all.emplace_back(*std::move(comparison),
                     emulated.add(random.kernel(), options));
    ASSERT_GE(all.back().second, 0) << print(random.kernel());
  }
  ASSERT_EQ(emulated.build(), "");
  for (uint64_t i = 0; i < count && !HasFailure(); ++i) {
    auto& [comparison, number] = all[i];
    auto run = [&](const int64_t* symbols, std::span<void* const> arguments) {
      return emulated.run(number, symbols, arguments, 1 + i % 3,
                          static_cast<unsigned>(i % 5));
    };
    EXPECT_TRUE(comparison.run_as("cuda", run))
        << emulated.kernel(number).source;
  }
}

}  // namespace
}  // namespace framejit::codegen
