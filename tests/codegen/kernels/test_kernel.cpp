// Kernels: text that parses back, what verify() refuses, and what they compute.
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/kernels/interpreter.h"
#include "codegen/kernels/text.h"

namespace framejit::codegen {
namespace {

const char* const kSoftmax =
    R"(kernel softmax(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32, r1: f32) {
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

const char* const kEverything =
    R"(kernel all_of_it(%0: f32, %1: i64, %2: out f32, %3: out i64, %4: out b8) outer (i0 < s0*2, i1 < 3) columns rows (r0: f32, r1: i64, r2: f32, r3: f32) numbers (n0 = s0+1, n1 = f0*0.5) {
  stage (i2 < 4) {
    v0: i64 = load %1[i2]
    v1: i64 = const 0
    v2: b8 = le v1, v0
    v3: f32 = load %0[i1 + @(v0)*(s0*3) + 7] when v2
    v4: b8 = check v2
    v5: f32 = const -0.5
    v6: f32 = const nan:2143289345
    v7: f32 = mul v3, v5
    v8: i64 = index i2
    r0, r1 = argmax v7
    r2 = sum v7
    store %3[@(v0)] = sum v8
    store %2[i0*12 + i1*4 + i2] = prefix 1
    store %4[i0 + 100] when v2 = v2
  }
  stage () {
    v0: f32 = row r0
    r3 = v0
  }
}
)";

Kernel parsed(const std::string& text) {
  std::string error;
  std::optional<Kernel> kernel = parse_kernel(text, &error);
  EXPECT_TRUE(kernel) << error;
  return kernel.value_or(Kernel{});
}

TEST(KernelText, ParsesBack) {
  for (const char* text : {kSoftmax, kEverything}) {
    Kernel kernel = parsed(text);
    EXPECT_EQ(print(kernel), text);
    EXPECT_EQ(verify(kernel), "");
  }
}

TEST(KernelText, SaysWhatIsWrong) {
  auto error_of = [](std::string text, const std::string& from,
                     const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    std::string error;
    EXPECT_FALSE(parse_kernel(text, &error));
    return error;
  };
  EXPECT_EQ(error_of(kSoftmax, "exp v2", "expp v2"),
            "line 10: unknown operation expp");
  EXPECT_EQ(error_of(kSoftmax, "sub v0, v1", "sub v0, v7"),
            "line 9: sub: an operand that is not there");
  EXPECT_EQ(error_of(kSoftmax, "i0*s1 + i1]", "i0*s1 + i7]"),
            "line 3: a loop that is not there");
}

TEST(KernelVerify, RefusesMalformedKernels) {
  auto wrong = [](const char* kernel, const std::string& from,
                  const std::string& to) {
    std::string text = kernel;
    text.replace(text.find(from), from.size(), to);
    return verify(parsed(text));
  };
  EXPECT_EQ(wrong(kSoftmax, "row r0", "row r7"),
            "stage 1: row of an entry that is not there");
  EXPECT_EQ(wrong(kSoftmax, "out f32", "f32"),
            "stage 1: a store to an argument that is no output");
  EXPECT_EQ(wrong(kSoftmax, "r1: f32", "r1: i64"), "stage 0: r1 is not f32");
  EXPECT_EQ(wrong(kEverything, "sum v7", "any v7"),
            "stage 0: any does not take f32");
  EXPECT_EQ(wrong(kEverything, "r3 = v0", "r2 = v0"),
            "stage 1: r2 is given twice");
  EXPECT_EQ(wrong(kEverything, "@(v0)*(s0*3)", "@(v2)*(s0*3)"),
            "stage 0: data is not i64");
  EXPECT_EQ(wrong(kEverything, "load %1[i2]", "load %0[i2]"),
            "stage 0: a load that is not of its argument's type");
}

TEST(KernelInterpreter, ComputesASoftmax) {
  Kernel kernel = parsed(kSoftmax);
  std::vector<float> x = {1, 2, 3, 0.5f, -1, 100}, y(6);
  int64_t symbols[] = {2, 3};
  void* arguments[] = {x.data(), y.data()};
  EXPECT_EQ(outer_points(kernel, symbols), 2);
  EXPECT_TRUE(interpret(kernel, symbols, arguments));
  for (int row = 0; row < 2; ++row) {
    double sum = 0;
    for (int i = 0; i < 3; ++i) sum += std::exp(double(x[row * 3 + i]));
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(y[row * 3 + i], std::exp(double(x[row * 3 + i])) / sum, 1e-6);
    }
  }
}

TEST(KernelInterpreter, GathersScattersAndPrefixes) {
  Kernel kernel = parsed(
      R"(kernel k(%0: f32, %1: i64, %2: out f32, %3: out f32) outer () inner rows (r0: f32) {
  stage (i0 < 5) {
    v0: i64 = load %1[i0]
    v1: i64 = const 0
    v2: b8 = le v1, v0
    v3: f32 = load %0[@(v0)] when v2
    v4: b8 = check v2
    r0 = sum v3
    store %2[i0] = prefix 0
    store %3[@(v0)] when v2 = sum v3
  }
}
)");
  ASSERT_EQ(verify(kernel), "");
  std::vector<float> x = {1, 10, 100}, y(5), z = {0.5f, 0.5f, 0.5f};
  std::vector<int64_t> index = {2, 0, 2, 1, 0};
  void* arguments[] = {x.data(), index.data(), y.data(), z.data()};
  EXPECT_TRUE(interpret(kernel, nullptr, arguments));
  EXPECT_EQ(y, (std::vector<float>{100, 101, 201, 211, 212}));
  EXPECT_EQ(z, (std::vector<float>{2.5f, 10.5f, 200.5f}));
  index[1] = -1;
  EXPECT_FALSE(interpret(kernel, nullptr, arguments));
}

}  // namespace
}  // namespace framejit::codegen
