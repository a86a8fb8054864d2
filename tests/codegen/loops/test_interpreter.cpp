// The interpreter against what C++ says, written by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "codegen/loops/interpreter.h"
#include "codegen/loops/text.h"
#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

LoopGraph parsed(const std::string& text) {
  std::string error;
  auto graph = parse_loops(text, &error);
  EXPECT_TRUE(graph.has_value()) << error;
  if (!graph) return {};
  EXPECT_EQ(verify(*graph), "");
  return *graph;
}

template <class Out, class... In>
std::vector<Out> run(const std::string& text, size_t count,
                     std::vector<int64_t> symbols,
                     const std::vector<In>&... inputs) {
  LoopGraph graph = parsed(text);
  std::vector<Out> out(count);
  std::vector<const void*> in{inputs.data()...};
  void* outputs[] = {out.data()};
  EXPECT_EQ(interpret(graph, symbols.data(), in, outputs), "");
  return out;
}

template <class T>
std::vector<T> numbers(size_t count, int seed) {
  std::vector<T> out;
  uint64_t state = seed * 2654435761u + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back(
        static_cast<T>(static_cast<int64_t>(state >> 40) % 200 - 100) /
        (std::is_floating_point_v<T> ? T(7) : T(1)));
  }
  return out;
}

template <class T>
struct Named;
template <>
struct Named<float> {
  static constexpr const char* text = "f32";
};
template <>
struct Named<double> {
  static constexpr const char* text = "f64";
};
template <>
struct Named<int64_t> {
  static constexpr const char* text = "i64";
};
template <>
struct Named<int32_t> {
  static constexpr const char* text = "i32";
};
template <>
struct Named<int8_t> {
  static constexpr const char* text = "i8";
};
template <>
struct Named<uint8_t> {
  static constexpr const char* text = "u8";
};

// `text` with T for the type.
template <class T>
std::string with_type(std::string text) {
  for (size_t at; (at = text.find('T')) != std::string::npos;)
    text.replace(at, 1, Named<T>::text);
  return text;
}

template <class T>
class OfType : public testing::Test {};
using Types = testing::Types<float, double, int64_t, int32_t, int8_t, uint8_t>;
TYPED_TEST_SUITE(OfType, Types);

TYPED_TEST(OfType, MapsOverSizes) {
  using T = TypeParam;
  for (int64_t n : {0, 1, 7, 17}) {
    auto a = numbers<T>(n, 1), b = numbers<T>(n, 2);
    auto out = run<T>(with_type<T>(R"(loops(s0) {
  %0 : T[s0] = input
  %1 : T[s0] = input
  %2 : T[s0] = map (i0 < s0) sub(mul(%0[i0], %1[i0]), %1[i0*-1 + (s0-1)])
  return %2
})"),
                      n, {n}, a, b);
    for (int64_t i = 0; i < n; ++i) {
      T product = static_cast<T>(a[i] * b[i]);
      EXPECT_EQ(out[i], static_cast<T>(product - b[n - 1 - i])) << i;
    }
  }
}

TYPED_TEST(OfType, ReadsStridedTransposedAndBroadcast) {
  using T = TypeParam;
  // x: 3 x 5 in memory of a transposed 5 x 3, every second element.
  auto x = numbers<T>(30, 3), y = numbers<T>(5, 4);
  auto out = run<T>(with_type<T>(R"(loops() {
  %0 : T[3, 5] strides [2, 6] = input
  %1 : T[5] = input
  %2 : T[5, 3] = map (i0 < 5, i1 < 3) add(%0[i1, i0], %1[i0])
  return %2
})"),
                    15, {}, x, y);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 3; ++j)
      EXPECT_EQ(out[i * 3 + j], static_cast<T>(x[j * 2 + i * 6] + y[i]));
}

TYPED_TEST(OfType, ReducesAndScans) {
  using T = TypeParam;
  for (int64_t n : {0, 1, 7, 17}) {
    auto x = numbers<T>(2 * n, 5);
    const std::string head =
        with_type<T>("loops(s0) {\n  %0 : T[2, s0] = input\n");
    auto sum =
        run<T>(head + with_type<T>("  %1 : T[2] = reduce sum (i0 < 2; i1 < "
                                   "s0) %0[i0, i1]\n  return %1\n}"),
               2, {n}, x);
    auto product =
        run<T>(head + with_type<T>("  %1 : T[2] = reduce prod (i0 < 2; i1 "
                                   "< s0) %0[i0, i1]\n  return %1\n}"),
               2, {n}, x);
    auto prefix =
        run<T>(head + with_type<T>("  %1 : T[2, s0] = scan sum (i0 < 2, i1 "
                                   "< s0) %0[i0, i1]\n  return %1\n}"),
               2 * n, {n}, x);
    for (int row = 0; row < 2; ++row) {
      // Integers wrap around.
      std::conditional_t<std::is_floating_point_v<T>, long double, uint64_t>
          s = 0,
          p = 1;
      for (int64_t i = 0; i < n; ++i) {
        s += x[row * n + i];
        p *= x[row * n + i];
        EXPECT_EQ(prefix[row * n + i], static_cast<T>(s));
      }
      EXPECT_EQ(sum[row], static_cast<T>(s));
      EXPECT_EQ(product[row], static_cast<T>(p));
    }
  }
}

TYPED_TEST(OfType, FindsTheLargestAndItsPlace) {
  using T = TypeParam;
  for (int64_t n : {1, 7, 17}) {
    auto x = numbers<T>(n, 6);
    LoopGraph graph = parsed(with_type<T>(R"(loops(s0) {
  %0 : T[s0] = input
  %1 : T[], %2 : i64[] = reduce argmax (; i0 < s0) %0[i0]
  %3 : T[], %4 : i64[] = reduce argmin (; i0 < s0) %0[i0]
  return %1, %2, %3, %4
})"));
    T largest, smallest;
    int64_t place, low;
    const void* in[] = {x.data()};
    void* out[] = {&largest, &place, &smallest, &low};
    ASSERT_EQ(interpret(graph, &n, in, out), "");
    auto top = std::max_element(x.begin(), x.end());
    auto bottom = std::min_element(x.begin(), x.end());
    EXPECT_EQ(largest, *top);
    EXPECT_EQ(place, top - x.begin());
    EXPECT_EQ(smallest, *bottom);
    EXPECT_EQ(low, bottom - x.begin());
  }
}

TYPED_TEST(OfType, UpdatesInOrder) {
  using T = TypeParam;
  auto base = numbers<T>(6, 7), value = numbers<T>(4, 8);
  std::vector<int64_t> place{2, 5, 2, 0};
  const std::string head = with_type<T>(
      "loops() {\n  %0 : T[6] = input\n  %1 : T[4] = input\n"
      "  %2 : i64[4] = input\n  %3 : T[6] = ");
  LoopGraph last =
      parsed(head + "update %0 (i0 < 4) %1[i0] to [@(%2[i0])]\n return %3 }");
  LoopGraph sum = parsed(
      head + "update sum %0 (i0 < 4) %1[i0] to [@(%2[i0])]\n return %3 }");
  std::vector<T> got(6), added(6);
  const void* in[] = {base.data(), value.data(), place.data()};
  void* out[] = {got.data()};
  ASSERT_EQ(interpret(last, nullptr, in, out), "");
  out[0] = added.data();
  ASSERT_EQ(interpret(sum, nullptr, in, out), "");
  std::vector<T> expected = base, sums = base;
  for (int i = 0; i < 4; ++i) expected[place[i]] = value[i];
  EXPECT_EQ(got, expected);
  for (int element = 0; element < 6; ++element) {
    std::conditional_t<std::is_floating_point_v<T>, long double, T> s =
        base[element];
    for (int i = 0; i < 4; ++i)
      if (place[i] == element) s += value[i];
    EXPECT_EQ(added[element], static_cast<T>(s));
  }
}

TEST(Interpreter, IntegersWrap) {
  std::vector<int8_t> x{127, -128, 100};
  auto out = run<int8_t>(R"(loops() {
  %0 : i8[3] = input
  %1 : i8[3] = scan sum (i0 < 3) mul(%0[i0], i8(2))
  return %1
})",
                         3, {}, x);
  EXPECT_EQ(out, (std::vector<int8_t>{-2, -2, -58}));
  std::vector<int64_t> y{INT64_MAX, 1};
  EXPECT_EQ(
      run<int64_t>("loops() { %0 : i64[2] = input\n"
                   "%1 : i64[] = reduce sum (; i0 < 2) %0[i0]\n return %1 }",
                   1, {}, y)[0],
      INT64_MIN);
}

std::vector<float> reduced(const char* combiner, std::vector<float> x) {
  LoopGraph graph =
      parsed(std::string("loops(s0) { %0 : f32[s0] = input\n%1 : f32[]") +
             (combiner[0] == 'w' || combiner[0] == 's' ? ", %2 : f32[]" : "") +
             " = reduce " + combiner + " (; i0 < s0) %0[i0]\n return %1" +
             (combiner[0] == 'w' || combiner[0] == 's' ? ", %2 }" : " }"));
  int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> results(graph.outputs.size());
  std::vector<void*> out;
  for (float& result : results) out.push_back(&result);
  const void* in[] = {x.data()};
  EXPECT_EQ(interpret(graph, &n, in, out), "");
  return results;
}

TEST(Interpreter, SpecialNumbers) {
  const float inf = kInf, nan = kNaN;
  EXPECT_TRUE(std::isnan(reduced("max", {1, nan, 2})[0]));
  EXPECT_TRUE(std::isnan(reduced("min", {nan, 1})[0]));
  EXPECT_EQ(reduced("max", {})[0], -inf);
  EXPECT_EQ(reduced("min", {})[0], inf);
  EXPECT_EQ(reduced("max", {-inf, -inf})[0], -inf);
  EXPECT_EQ(reduced("prod", {})[0], 1);
  // 0.0 + -0.0: a sum begins with 0.0.
  EXPECT_FALSE(std::signbit(
      run<float>("loops() { %0 : f32[1] = input\n"
                 "%1 : f32[] = reduce sum (; i0 < 1) %0[i0]\n return %1 }",
                 1, {}, std::vector<float>{-0.f})[0]));
  EXPECT_FALSE(std::signbit(reduced("prod", {0.f, 5.f})[0]));
  EXPECT_TRUE(std::signbit(reduced("prod", {-0.f, 5.f})[0]));
  // Exact where a float accumulator is not.
  EXPECT_EQ(reduced("prod", {1e30f, 1e30f, 1e-30f, 1e-30f})[0], 1.f);
  auto welford = reduced("welford", {1, 2, 3, 6});
  EXPECT_EQ(welford, (std::vector<float>{3, 14}));
  EXPECT_EQ(reduced("welford", {}), (std::vector<float>{0, 0}));
  auto softmax = reduced("softmax_sum", {-inf, 2, 2});
  EXPECT_EQ(softmax, (std::vector<float>{2, 2}));
  EXPECT_TRUE(std::isnan(reduced("softmax_sum", {-inf, -inf})[1]));
  EXPECT_EQ(reduced("softmax_sum", {}), (std::vector<float>{-inf, 0}));
}

TEST(Interpreter, ArgmaxTakesTheFirstOfEqualsAndTheFirstNaN) {
  auto place = [](std::vector<float> x) {
    int64_t n = static_cast<int64_t>(x.size());
    return run<int64_t>(
        "loops(s0) { %0 : f32[s0] = input\n"
        "%1 : f32[], %2 : i64[] = reduce argmax (; i0 < s0) %0[i0]\n return %2 "
        "}",
        1, {n}, x)[0];
  };
  const float inf = kInf, nan = kNaN;
  EXPECT_EQ(place({1, 3, 3, 2}), 1);
  EXPECT_EQ(place({1, nan, 3, nan}), 1);
  EXPECT_EQ(place({-inf, -inf}), 0);
  EXPECT_EQ(place({-inf, -1}), 1);
}

TEST(Interpreter, SmallFloatsAreConverted) {
  std::vector<uint16_t> x{float_to_bf16(1.5f), float_to_bf16(-2.f)};
  auto out = run<uint16_t>(R"(loops() {
  %0 : bf16[2] = input
  %1 : bf16[2] = map (i0 < 2) cast.bf16(mul(cast.f32(%0[i0]), f32(1.01)))
  return %1
})",
                           2, {}, x);
  EXPECT_EQ(out[0], float_to_bf16(1.5f * 1.01f));
  EXPECT_EQ(out[1], float_to_bf16(-2.f * 1.01f));
}

TEST(Interpreter, AliasesSeeTheMemoryOfTheirBase) {
  std::vector<float> x(12);
  std::iota(x.begin(), x.end(), 0.f);
  auto out = run<float>(R"(loops() {
  %0 : f32[3, 4] = input
  %1 : f32[3, 4] = map (i0 < 3, i1 < 4) neg(%0[i0, i1])
  %2 : f32[2, 6] = alias %1
  %3 : f32[3] strides [4] = alias %1 offset 1
  %4 : f32[2, 3] = map (i0 < 2, i1 < 3) add(%2[i0, i1*2], %3[i1])
  return %4
})",
                        6, {}, x);
  EXPECT_EQ(out, (std::vector<float>{-1, -7, -13, -7, -13, -19}));
}

TEST(Interpreter, OutputsHaveTheirStrides) {
  std::vector<float> x{1, 2, 3, 4, 5, 6};
  auto out = run<float>(R"(loops() {
  %0 : f32[2, 3] = input
  %1 : f32[2, 3] strides [1, 4] = map (i0 < 2, i1 < 3) %0[i0, i1]
  return %1
})",
                        12, {}, x);
  // What lies between is not touched.
  EXPECT_EQ(out, (std::vector<float>{1, 4, 0, 0, 2, 5, 0, 0, 3, 6, 0, 0}));
}

TEST(Interpreter, LoadsUnderAConditionAreZeroElsewhere) {
  std::vector<float> x{5, 6};
  auto out = run<float>(R"(loops() {
  %0 : f32[2] = input
  %1 : f32[4] = map (i0 < 4)
    t0 = and(le(i64(1), i0), lt(i0, i64(3)))
    select(t0, when(t0, %0[i0 + -1]), f32(9))
  return %1
})",
                        4, {}, x);
  EXPECT_EQ(out, (std::vector<float>{9, 5, 6, 9}));
}

TEST(Interpreter, AFailedCheckFailsTheRunAndWritesNothing) {
  LoopGraph graph = parsed(R"(loops() {
  %0 : f32[3] = input
  %1 : i64[2] = input
  %2 : f32[2] = map (i0 < 2)
    t0 = %1[i0]
    t1 = and(le(i64(0), t0), lt(t0, i64(3)))
    %0[@(select(check(t1), t0, i64(0)))]
  return %2
})");
  std::vector<float> x{1, 2, 3}, out{7, 7};
  std::vector<int64_t> good{2, 0}, bad{2, 3};
  void* outputs[] = {out.data()};
  const void* inputs[] = {x.data(), bad.data()};
  EXPECT_EQ(interpret(graph, nullptr, inputs, outputs), "a check failed");
  EXPECT_EQ(out, (std::vector<float>{7, 7}));
  inputs[1] = good.data();
  EXPECT_EQ(interpret(graph, nullptr, inputs, outputs), "");
  EXPECT_EQ(out, (std::vector<float>{3, 1}));
}

TEST(Interpreter, NumbersAndSizesComeFromSymbols) {
  std::vector<float> x{1, 2};
  int64_t symbols[] = {2, std::bit_cast<int64_t>(0.25)};
  LoopGraph graph = parsed(R"(loops(s0, f1) {
  %0 : f32[s0] = input
  %1 : f64[s0+1] = map (i0 < s0+1) add(number(f1*2.0), cast.f64(number(s0*3)))
  return %1
})");
  std::vector<double> out(3);
  const void* inputs[] = {x.data()};
  void* outputs[] = {out.data()};
  ASSERT_EQ(interpret(graph, symbols, inputs, outputs), "");
  EXPECT_EQ(out, (std::vector<double>{6.5, 6.5, 6.5}));
  symbols[0] = -5;
  EXPECT_EQ(interpret(graph, symbols, inputs, outputs), "a negative size");
}

TEST(Interpreter, ExternsAreTheCallers) {
  LoopGraph graph = parsed(R"(loops() {
  %0 : f32[4] = input
  %1 : f32[2] strides [2] = alias %0 offset 1
  %2 : f32[2] = extern 5 (%1)
  %3 : f32[2] = map (i0 < 2) neg(%2[i0])
  return %3
})");
  std::vector<float> x{1, 2, 3, 4}, out(2);
  const void* inputs[] = {x.data()};
  void* outputs[] = {out.data()};
  auto reversed = [](const Definition& definition,
                     std::span<void* const> operands,
                     std::span<void* const> results) {
    EXPECT_EQ(definition.callee, 5);
    auto from = static_cast<float*>(operands[0]);
    auto to = static_cast<float*>(results[0]);
    to[0] = from[2];
    to[1] = from[0];
    return true;
  };
  ASSERT_EQ(interpret(graph, nullptr, inputs, outputs, reversed), "");
  EXPECT_EQ(out, (std::vector<float>{-4, -2}));
  EXPECT_EQ(interpret(graph, nullptr, inputs, outputs),
            "an extern call failed");
}

}  // namespace
}  // namespace framejit::codegen
