// What kernels look like as CUDA C++, what their threads wait for, and what the
// emulation finds when they do not.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/loops/text.h"
#include "codegen/schedule/schedule.h"
#include "tests/codegen/cuda/emulated.h"
#include "tests/codegen/x86/harness.h"

namespace framejit::codegen {
namespace {

constexpr const char* kSoftmax = R"(
kernel softmax(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32, r1: f32) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    r0, r1 = softmax_sum v0
  }
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    v1: f32 = row r0
    v2: f32 = sub v0, v1
    v3: f32 = exp v2
    v4: f32 = row r1
    v5: f32 = div v3, v4
    store %1[i0*s1 + i1] = v5
  }
}
)";

// The second stage reads what other threads have stored.
constexpr const char* kReversed = R"(
kernel reversed(%0: f32, %1: out f32, %2: out f32) outer (i0 < 3) inner {
  stage (i1 < 200) {
    v0: f32 = load %0[i0*200 + i1]
    v1: f32 = add v0, v0
    store %1[i0*200 + i1] = v1
  }
  stage (i1 < 200) {
    v0: f32 = load %1[i0*200 + i1*(-1) + 199]
    store %2[i0*200 + i1] = v0
  }
}
)";

constexpr const char* kAdded = R"(
kernel added(%0: f32, %1: i64, %2: out f32) outer () inner {
  stage (i0 < 300) {
    v0: f32 = load %0[i0]
    v1: i64 = load %1[i0]
    store %2[@(v1)] = sum v0
  }
}
)";

size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1))
    ++count;
  return count;
}

Comparison comparison_of(const char* text, std::vector<int64_t> symbols,
                         std::vector<Data> data) {
  Comparison comparison(kernel_of(text), std::move(symbols), std::move(data));
  comparison.tolerance = {1e-6, 1e-6};
  return comparison;
}

TEST(CudaText, AWarpDoesARow) {
  CudaOptions options;
  options.team = 32;
  options.wide_indices = false;
  options.vectors = false;
  CudaKernel text = print_cuda(kernel_of(kSoftmax), options);
  ASSERT_EQ(text.refused, "");
  EXPECT_EQ(text.block, 256);
  EXPECT_EQ(text.parameters,
            (std::vector<Expr>{Expr::symbol(0), Expr::symbol(1)}));
  for (const char* part :
       {"typedef i32 idx;", "struct softmax_sum_f32 { float s0; float s1; };",
        "softmax(\n    const float* __restrict__ a0, float* __restrict__ a1, "
        "i64 q0, i64 q1, i32* __restrict__ failed)",
        "const idx p0 = (idx)q0;",
        "flat = (idx)blockIdx.x * 8 + threadIdx.x / 32; flat < p0; flat += "
        "(idx)gridDim.x * 8",
        "for (idx i1 = lane; i1 < p1; i1 += 32) {",
        "f0 = step(f0, v0, (i64)i1);",
        "f0 = join_team<32>(f0, (softmax_sum_f32*)0);", "r1 = result1(f0);",
        "const float v3 = expf(v2);", "a1[i0 * p1 + i1] = v5;"}) {
    EXPECT_NE(text.source.find(part), std::string::npos) << part << "\n"
                                                         << text.source;
  }
  // No thread reads what another one has stored.
  EXPECT_EQ(count_of(text.source, "sync_team"), 0u);
  EXPECT_EQ(count_of(text.source, "__shared__"), 0u);
}

TEST(CudaText, ElementsSideBySideMoveAsOne) {
  CudaOptions options;
  options.team = 32;
  options.wide_indices = false;
  CudaKernel text = print_cuda(kernel_of(kSoftmax), options);
  EXPECT_EQ(text.width, 4);
  EXPECT_EQ(text.multiples, (std::vector<Expr>{Expr::symbol(1)}));
  EXPECT_EQ(text.alignments,
            (std::vector<std::pair<int, int>>{{0, 16}, {1, 16}}));
  for (const char* part :
       {"for (idx b1 = lane * 4; b1 < p1; b1 += 128) {",
        "const vec<float, 4> l0 = *(const vec<float, 4>*)&a0[i0 * p1 + b1];",
        "*(vec<float, 4>*)&a1[i0 * p1 + b1] = s0;"}) {
    EXPECT_NE(text.source.find(part), std::string::npos) << part << "\n"
                                                         << text.source;
  }
}

// 500 numbers of a row by 32 threads: each has them in registers, and what is
// stored twice is stored once.
constexpr const char* kRow = R"(
kernel row(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32) {
  stage (i1 < 500) {
    v0: f32 = load %0[i0*500 + i1]
    v1: f32 = exp v0
    r0 = sum v1
    store %1[i0*500 + i1] = v1
  }
  stage (i1 < 500) {
    v0: f32 = load %1[i0*500 + i1]
    v1: f32 = load %0[i0*500 + i1]
    v2: f32 = row r0
    v3: f32 = div v0, v2
    v4: f32 = add v3, v1
    store %1[i0*500 + i1] = v4
  }
}
)";

TEST(CudaText, WhatStagesShareStaysInRegisters) {
  CudaOptions options;
  options.team = 32;
  CudaKernel text = print_cuda(kernel_of(kRow), options);
  EXPECT_EQ(count_of(text.source, "const vec<float, 4> l"), 1u) << text.source;
  EXPECT_EQ(count_of(text.source, "*(vec<float, 4>*)&a1"), 1u) << text.source;
  EXPECT_EQ(count_of(text.source, "sync_team"), 0u);
  EmulatedKernels emulated;
  for (int team : {32, 64, 256}) {
    options.team = team;
    const int number = emulated.add(kernel_of(kRow), options);
    ASSERT_EQ(emulated.build(), "");
    const Data rows{0, 3 * 500, Data::kTame};
    auto run = [&](const int64_t* symbols, std::span<void* const> arguments) {
      return emulated.run(number, symbols, arguments);
    };
    EXPECT_TRUE(comparison_of(kRow, {3}, {rows, rows}).run_as("cuda", run));
  }
}

// Along its rows one argument lies, along its columns the other.
TEST(CudaText, TransposesAreDoneInTiles) {
  const char* map = R"(
kernel both(%0: f32, %1: f32, %2: out f32) outer (i0 < 70, i1 < 45) columns {
  stage () {
    v0: f32 = load %0[i0 + i1*70]
    v1: f32 = load %1[i0*45 + i1]
    v2: f32 = add v0, v1
    store %2[i0*45 + i1] = v2
  }
}
)";
  EmulatedKernels emulated;
  const int number = emulated.add(kernel_of(map), {});
  EXPECT_NE(emulated.kernel(number).source.find("threadIdx.x % 32"),
            std::string::npos);
  ASSERT_EQ(emulated.build(), "");
  const Data matrix{0, 70 * 45, Data::kTame};
  auto run = [&](const int64_t* symbols, std::span<void* const> arguments) {
    return emulated.run(number, symbols, arguments, 3);
  };
  EXPECT_TRUE(
      comparison_of(map, {0}, {matrix, matrix, matrix}).run_as("cuda", run));
}

// Sums of columns, of which the last block has fewer than 32.
TEST(CudaText, WarpsShareTheRowsOfColumns) {
  const char* sums = R"(
kernel sums(%0: f32, %1: out f32) outer (i0 < s0) columns rows (r0: f32) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0 + i1*s0]
    r0 = sum v0
  }
  stage () {
    v0: f32 = row r0
    store %1[i0] = v0
  }
}
)";
  EmulatedKernels emulated;
  CudaOptions options;
  options.team = 8;
  const int number = emulated.add(kernel_of(sums), options);
  EXPECT_EQ(emulated.kernel(number).block, 256);
  ASSERT_EQ(emulated.build(), "");
  for (int64_t columns : {1, 32, 45}) {
    for (int64_t rows : {0, 3, 50}) {
      auto run = [&](const int64_t* symbols, std::span<void* const> arguments) {
        return emulated.run(number, symbols, arguments, 2);
      };
      EXPECT_TRUE(comparison_of(sums, {columns, rows},
                                {{0, columns * rows, Data::kTame},
                                 {0, columns, Data::kTame}})
                      .run_as("cuda", run));
    }
  }
}

TEST(CudaText, EveryThreadOfAMapHasAPoint) {
  const char* map = R"(
kernel twice(%0: bf16, %1: out bf16) outer (i0 < s0, i1 < 3) columns {
  stage () {
    v0: bf16 = load %0[i0*3 + i1]
    v1: f32 = cast v0
    v2: f32 = add v1, v1
    v3: bf16 = cast v2
    store %1[i0*3 + i1] = v3
  }
}
)";
  CudaKernel text = print_cuda(kernel_of(map), {});
  EXPECT_EQ(text.team, 1);
  for (const char* part :
       {"flat < q0 * 3LL;", "const idx i1 = flat % 3LL;",
        "const float v1 = from_bf16(v0);", "const u16 v3 = to_bf16(v2);"}) {
    EXPECT_NE(text.source.find(part), std::string::npos) << part << "\n"
                                                         << text.source;
  }
}

TEST(CudaText, UpdatesAreAtomicUnlessTheirOrderCounts) {
  CudaOptions options;
  CudaKernel text = print_cuda(kernel_of(kAdded), options);
  EXPECT_NE(text.source.find("update<with_add>(&a2[v1], (float)v0);"),
            std::string::npos)
      << text.source;
  EXPECT_EQ(text.team, 1);  // each point is a thread's
  options.deterministic = true;
  text = print_cuda(kernel_of(kAdded), options);
  EXPECT_NE(text.source.find("if (lane == 0) for (idx i0 = 0;"),
            std::string::npos)
      << text.source;
  EXPECT_EQ(text.source.find("update<"), std::string::npos);
}

TEST(CudaText, SizesDecideTheWidthOfIndices) {
  const Kernel kernel = kernel_of(kSoftmax);
  for (auto [rows, columns, fits] :
       {std::tuple<int64_t, int64_t, bool>{64, 512, true},
        {0, 512, true},
        {1 << 15, 1 << 15, true},
        {1 << 16, 1 << 15, false},
        {1, int64_t{1} << 33, false}}) {
    const int64_t symbols[] = {rows, columns};
    EXPECT_EQ(fits_32_bits(kernel, symbols), fits) << rows << " " << columns;
  }
}

TEST(CudaEmulation, RunsWhatWaits) {
  for (int team : {32, 64, 256}) {
    EmulatedKernels emulated;
    CudaOptions options;
    options.team = team;
    int softmax = emulated.add(kernel_of(kSoftmax), options);
    int reversed = emulated.add(kernel_of(kReversed), options);
    int added = emulated.add(kernel_of(kAdded), options);
    ASSERT_EQ(emulated.build(), "");
    for (unsigned order = 0; order < 4; ++order) {
      auto run = [&](int number) {
        return [&emulated, number, order](const int64_t* symbols,
                                          std::span<void* const> arguments) {
          return emulated.run(number, symbols, arguments, 2, order);
        };
      };
      for (int64_t columns : {1, 31, 33, 300}) {
        const Data matrix{0, 5 * columns, Data::kTame};
        EXPECT_TRUE(comparison_of(kSoftmax, {5, columns}, {matrix, matrix})
                        .run_as("cuda", run(softmax)));
      }
      const Data rows{0, 600, Data::kTame};
      EXPECT_TRUE(comparison_of(kReversed, {0}, {rows, rows, rows})
                      .run_as("cuda", run(reversed)));
      const Data values{0, 300, Data::kTame};
      const Data indices{0, 300, Data::kIndices, 7};
      const Data sums{0, 7, Data::kTame};
      EXPECT_TRUE(comparison_of(kAdded, {0}, {values, indices, sums})
                      .run_as("cuda", run(added)));
    }
  }
}

TEST(CudaEmulation, FindsABarrierThatIsMissing) {
  CudaOptions options;
  options.team = 256;
  EmulatedKernels emulated;
  emulated.spoil = [](std::string* source) {
    const std::string wait = "sync_team<256>();";
    const size_t at = source->find(wait);
    ASSERT_NE(at, std::string::npos) << *source;
    source->erase(at, wait.size());
  };
  const int number = emulated.add(kernel_of(kReversed), options);
  ASSERT_EQ(emulated.build(), "");
  std::vector<float> input(600), doubled(600), output(600);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i);
  void* arguments[] = {input.data(), doubled.data(), output.data()};
  const int64_t symbols[] = {0};
  int wrong = 0;
  for (unsigned order = 0; order < 2; ++order) {
    std::ranges::fill(doubled, -1.f);
    emulated.run(number, symbols, arguments, 1, order);
    wrong += output[0] != 2 * input[199];
  }
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace framejit::codegen
