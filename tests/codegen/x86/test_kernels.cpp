// Whole kernels: walks over memory, reductions, gathers, scatters, checks.
#include <cmath>
#include <limits>
#include <random>

#include "tests/codegen/x86/harness.h"

namespace framejit::codegen {
namespace {

// Replaces each of the pairs' firsts by its second.
std::string with(std::string text,
                 std::vector<std::pair<std::string, std::string>> pairs) {
  for (const auto& [from, to] : pairs) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

const std::vector<int64_t> kSizes = {0, 1, 7, 16, 17, 33, 100, 1000};

// Loads and stores of each type, with strides 1, 0, 2, -1 and symbolic ones.
TEST(X86Kernels, WalkMemory) {
  const char* kText = R"(kernel walk(%0: T, %1: out T) outer LOOPS {
  stage INNER {
    v0: T = load %0[STRIDE]
    store %1[OUT] = v0
  }
}
)";
  for (DType type : all_dtypes()) {
    for (std::string stride : {"1", "0", "2", "(-1)", "3", "s1", "(s1*-1)"}) {
      for (std::string out : {"1", "2", "(-1)", "s1"}) {
        for (bool columns : {false, true}) {
          Kernel kernel = kernel_of(with(
              kText, {{"T,", std::string(dtype_name(type)) + ","},
                      {"T)", std::string(dtype_name(type)) + ")"},
                      {": T", ": " + std::string(dtype_name(type))},
                      {"LOOPS", columns ? "(i0 < s0) columns" : "() inner"},
                      {"INNER", columns ? "()" : "(i0 < s0)"},
                      {"STRIDE", stride == "0" ? "0" : "i0*" + stride},
                      {"OUT", "i0*" + out}}));
          for (int64_t size : kSizes) {
            auto data = [&](const std::string& s) {
              int64_t step = s == "s1" || s == "3" ? 3 : s == "2" ? 2 : 1;
              int64_t last =
                  s == "0" ? 0 : step * std::max<int64_t>(size - 1, 0);
              bool down = s[0] == '(';
              if (s == "(s1*-1)") last = 3 * std::max<int64_t>(size - 1, 0);
              return Data{down ? last : 0,
                          size == 0 ? 0 : (down ? 1 : last + 1)};
            };
            Comparison comparison(kernel, {size, 3}, {data(stride), data(out)});
            if (!comparison.run()) return;
          }
        }
      }
    }
  }
}

TEST(X86Kernels, WalkSeveralLoops) {
  // Two outer loops, of which one is broadcast, and a transposed operand.
  const char* kText =
      R"(kernel walk(%0: f32, %1: bf16, %2: i64, %3: out f64) outer (i0 < s0, i1 < s1, i2 < s2) WAY {
  stage () {
    v0: f32 = load %0[i0*(s1*s2) + i1*s2 + i2]
    v1: bf16 = load %1[i2*s1 + i1]
    v2: i64 = load %2[i1 + 3]
    v3: f32 = cast v1
    v4: f32 = mul v0, v3
    v5: f64 = cast v4
    v6: f64 = cast v2
    v7: f64 = add v5, v6
    v8: i64 = index i0
    v9: i64 = index i2
    v10: i64 = add v8, v9
    v11: f64 = cast v10
    v12: f64 = sub v7, v11
    store %3[i0*(s1*s2) + i1*s2 + i2] = v12
  }
}
)";
  for (std::string way : {"inner", "columns"}) {
    Kernel kernel = kernel_of(with(kText, {{"WAY", way}}));
    for (std::array<int64_t, 3> s : {std::array<int64_t, 3>{3, 5, 40},
                                     {2, 33, 7},
                                     {7, 1, 1},
                                     {1, 1, 100},
                                     {4, 16, 16}}) {
      Comparison comparison(kernel, {s[0], s[1], s[2]},
                            {{0, s[0] * s[1] * s[2]},
                             {0, s[1] * s[2]},
                             {0, s[1] + 3, Data::kTame},
                             {0, s[0] * s[1] * s[2]}});
      comparison.run();
    }
  }
}

// Blocks that are transposed, of 16, 8 and fewer rows, and what is left over.
TEST(X86Kernels, TransposeBlocks) {
  for (DType type : all_dtypes()) {
    for (int rows : {2, 3, 4, 5, 8, 9, 16, 17}) {
      Kernel kernel = kernel_of(with(
          R"(kernel transpose(%0: T, %1: out T) outer (i0 < s0, i1 < s1) columns {
  stage (i2 < ROWS) {
    v0: T = load %0[i0*ROWS + i1*(s0*ROWS) + i2]
    store %1[i0*(s1*ROWS) + i1 + i2*s1] = v0
  }
}
)",
          {{": T", std::string(": ") + dtype_name(type)},
           {"out T", std::string("out ") + dtype_name(type)},
           {"ROWS", std::to_string(rows)}}));
      for (auto [tiles, columns] :
           {std::pair<int64_t, int64_t>{1, 16}, {3, 50}, {2, 7}, {2, 33}}) {
        const int64_t count = tiles * columns * rows;
        Comparison comparison(kernel, {tiles, columns},
                              {{0, count}, {0, count}});
        comparison.run();
      }
    }
  }
}

// A range of points gives those of its points.
TEST(X86Kernels, RunAnyRange) {
  for (std::string way : {"inner", "columns"}) {
    Kernel kernel = kernel_of(with(
        R"(kernel range(%0: out i64) outer (i0 < 3, i1 < 5, i2 < 11) WAY {
  stage () {
    v0: i64 = index i0
    v1: i64 = index i1
    v2: i64 = index i2
    v3: i64 = const 100
    v4: i64 = mul v0, v3
    v5: i64 = add v4, v1
    v6: i64 = mul v5, v3
    v7: i64 = add v6, v2
    store %0[i0*55 + i1*11 + i2] = v7
  }
}
)",
        {{"WAY", way}}));
    for (X86Isa isa : cpu_isas()) {
      Compiled compiled = compile(kernel, isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      for (int64_t begin = 0; begin < 165; begin += 7) {
        for (int64_t end = begin; end <= 165; end += 13) {
          std::vector<int64_t> memory(165, -1), wanted(165, -1);
          void* arguments[] = {memory.data()};
          void* other[] = {wanted.data()};
          KernelCall call{arguments, nullptr};
          EXPECT_EQ(compiled.code->function(&call, begin, end), 0);
          interpret(kernel, nullptr, other, begin, end);
          EXPECT_EQ(memory, wanted) << begin << " " << end;
        }
      }
    }
  }
}

struct Case {
  const char* combiner;
  std::vector<DType> types;
};

const std::vector<Case>& combiner_cases() {
  static const std::vector<DType> numbers = {
      DType::kU8,  DType::kI8,  DType::kI16, DType::kI32,
      DType::kI64, DType::kF32, DType::kF64};
  static const std::vector<Case> cases = {
      {"sum", numbers},
      {"prod", numbers},
      {"min", all_dtypes()},
      {"max", all_dtypes()},
      {"any", {DType::kBool}},
      {"all", {DType::kBool}},
      {"argmin", all_dtypes()},
      {"argmax", all_dtypes()},
      {"welford", {DType::kF32, DType::kF64}},
      {"softmax_sum", {DType::kF32, DType::kF64}},
  };
  return cases;
}

// Each combiner over rows, columns, and two inner loops.
TEST(X86Kernels, Reduce) {
  struct Shape {
    const char *way, *inner, *place;
  };
  int kernels = 0;
  for (const Shape& shape :
       {Shape{"inner", "(i1 < s1)", "i0*s1 + i1"},
        Shape{"columns", "(i1 < s1)", "i0 + i1*s0"},
        Shape{"columns", "(i1 < s1)", "i0*s1 + i1"},
        Shape{"inner", "(i1 < s1)", "i0 + i1*s0"},
        Shape{"inner", "(i1 < 3, i2 < s1)", "i0*(s1*3) + i1*s1 + i2"},
        Shape{"columns", "(i1 < 3, i2 < s1)", "i0 + i1*(s0*s1) + i2*s0"}}) {
    for (const Case& each : combiner_cases()) {
      for (DType type : each.types) {
        if (is_small_float(type)) continue;
        const std::string combiner = each.combiner;
        const bool place = combiner.substr(0, 3) == "arg";
        const bool two =
            place || combiner == "welford" || combiner == "softmax_sum";
        const std::string second = place ? "i64" : dtype_name(type);
        std::string text = with(
            R"(kernel reduce(%0: T, %1: out T, %2: out U) outer (i0 < s0) WAY rows (r0: T, r1: U) {
  stage INNER {
    v0: T = load %0[PLACE]
    RESULT = COMBINER v0
  }
  stage () {
    v0: T = row r0
    v1: U = row SECOND
    store %1[i0] = v0
    store %2[i0] = v1
  }
}
)",
            {{": T", std::string(": ") + dtype_name(type)},
             {"out T", std::string("out ") + dtype_name(type)},
             {"WAY", shape.way},
             {"INNER", shape.inner},
             {"PLACE", shape.place},
             {"RESULT", two ? "r0, r1" : "r0"},
             {"    v1: U = row SECOND\n", two ? "    v1: U = row r1\n" : ""},
             {"= v1", two ? "= v1" : "= v0"},
             {"COMBINER", combiner},
             {"U", two ? second : dtype_name(type)}});
        Kernel kernel = kernel_of(text);
        for (auto [rows, count] : {std::pair<int64_t, int64_t>{1, 1000},
                                   {5, 0},
                                   {17, 1},
                                   {3, 7},
                                   {40, 16},
                                   {2, 17},
                                   {7, 100}}) {
          for (Data::Fill fill : {Data::kMixed, Data::kTame}) {
            // Sums of wild numbers cancel, or do not depend on order alone.
            bool sums = combiner == "sum" || combiner == "prod" ||
                        combiner == "welford" || combiner == "softmax_sum";
            if (sums && is_float(type) && fill == Data::kMixed) continue;
            int64_t elements = rows * count * (shape.inner[6] == '3' ? 3 : 1);
            Comparison comparison(kernel, {rows, count},
                                  {{0, elements, fill}, {0, rows}, {0, rows}},
                                  kernels);
            double unit = type == DType::kF32 ? 0x1p-23 : 0x1p-52;
            if (sums) {
              // (Elements that cancel keep the rounding of what they were.)
              const auto summed = static_cast<double>(elements / rows);
              comparison.tolerance = {unit * (combiner == "sum" ? 4 : 40),
                                      unit * std::max(4.0, summed / 8)};
            }
            if (!comparison.run()) return;
            kernels += comparison.compiled();
          }
        }
      }
    }
  }
  EXPECT_GT(kernels, 1000);
}

// The error of a sum is that of a few roundings, however many elements it has.
template <class T>
void expect_exact_sum(DType type) {
  Kernel kernel = kernel_of(
      with(R"(kernel sum(%0: T, %1: out T) outer () inner rows (r0: T) {
  stage (i0 < s0) {
    v0: T = load %0[i0]
    r0 = sum v0
  }
  stage () {
    v0: T = row r0
    store %1[0] = v0
  }
}
)",
           {{": T", std::string(": ") + dtype_name(type)},
            {"out T", std::string("out ") + dtype_name(type)}}));
  std::mt19937_64 random(7);
  for (int64_t count : {63, 4096, 1 << 20}) {
    std::vector<T> x;
    long double sum = 0, sizes = 0;
    for (int64_t i = 0; i < count; ++i) {
      x.push_back(static_cast<T>(random() >> 11) * T(0x1p-53));
      sum += x.back();
      sizes += std::fabs(x.back());
    }
    for (X86Isa isa : cpu_isas()) {
      Compiled compiled = compile(kernel, isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      T got = 0;
      void* arguments[] = {x.data(), &got};
      run(*compiled.code, kernel, &count, arguments);
      const long double unit = std::numeric_limits<T>::epsilon() / 2;
      EXPECT_LE(std::fabs(got - sum), 3 * unit * sizes) << count;
    }
  }
}
TEST(X86Kernels, SumsOfManyElements) {
  expect_exact_sum<float>(DType::kF32);
  expect_exact_sum<double>(DType::kF64);
}

TEST(X86Kernels, ReduceSpecialNumbers) {
  const double kInf = std::numeric_limits<double>::infinity();
  const double kNan = std::nan("");
  const std::vector<std::vector<double>> inputs = {
      {-kInf, -kInf, -kInf}, {-kInf, 1, 2},       {kInf, 1, 2},
      {kNan, 1, 2},          {1, kNan, kInf},     {3, 3, 3},
      {-kInf, 5, -kInf},     {1, 2, kInf, -kInf}, {0.0, -0.0},
      {1e300, -1e300, 1},    {kNan, 5, kNan}};
  for (DType type : {DType::kF32, DType::kF64}) {
    for (std::string combiner :
         {"sum", "max", "argmax", "argmin", "softmax_sum", "min", "prod"}) {
      const bool place = combiner.substr(0, 3) == "arg";
      const bool two = place || combiner == "softmax_sum";
      Kernel kernel = kernel_of(with(
          R"(kernel reduce(%0: T, %1: out T, %2: out U) outer () inner rows (r0: T, r1: U) {
  stage (i0 < s0) {
    v0: T = load %0[i0]
    RESULT = COMBINER v0
  }
  stage () {
    v0: T = row r0
    v1: U = row SECOND
    store %1[0] = v0
    store %2[0] = v1
  }
}
)",
          {{": T", std::string(": ") + dtype_name(type)},
           {"out T", std::string("out ") + dtype_name(type)},
           {"RESULT", two ? "r0, r1" : "r0"},
           {"    v1: U = row SECOND\n", two ? "    v1: U = row r1\n" : ""},
           {"= v1", two ? "= v1" : "= v0"},
           {"COMBINER", combiner},
           {"U", place ? "i64" : dtype_name(type)}}));
      for (X86Isa isa : cpu_isas()) {
        Compiled compiled = compile(kernel, isa);
        ASSERT_TRUE(compiled.code) << compiled.refused;
        for (const auto& input : inputs) {
          for (int64_t size : {input.size(), size_t{40}}) {
            std::vector<uint64_t> x(40), got(2), want(2);
            for (int64_t i = 0; i < size; ++i) {
              store_element(
                  type, element_of(type, input[i % input.size()]),
                  reinterpret_cast<char*>(x.data()) + i * dtype_size(type));
            }
            void* arguments[] = {x.data(), &got[0], &got[1]};
            void* other[] = {x.data(), &want[0], &want[1]};
            run(*compiled.code, kernel, &size, arguments);
            interpret(kernel, &size, other);
            DType second = place ? DType::kI64 : type;
            const double unit = type == DType::kF32 ? 1e-6 : 1e-14;
            EXPECT_TRUE(is_near(type, got[0], want[0], {unit, 0}) &&
                        is_near(second, got[1], want[1], {unit, 0}))
                << isa_name(isa) << " " << combiner << " " << input[0] << " "
                << input[1] << ": " << as_double(type, got[0]) << " "
                << as_double(second, got[1]) << " instead of "
                << as_double(type, want[0]) << " "
                << as_double(second, want[1]);
          }
        }
      }
    }
  }
}

TEST(X86Kernels, SoftmaxAndLayerNorm) {
  Kernel softmax = kernel_of(
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
)");
  for (int64_t columns : kSizes) {
    Comparison comparison(softmax, {7, columns},
                          {{0, 7 * columns, Data::kTame}, {0, 7 * columns}});
    comparison.tolerance = {2e-6, 1e-30};
    comparison.run();
  }
  Kernel norm = kernel_of(
      R"(kernel layer_norm(%0: bf16, %1: f32, %2: out bf16, %3: out f32) outer (i0 < s0) inner rows (r0: f32, r1: f32, r2: f32) numbers (n0 = s1, n1 = f2) {
  stage (i1 < s1) {
    v0: bf16 = load %0[i0*s1 + i1]
    v1: f32 = cast v0
    r0, r1 = welford v1
  }
  stage () {
    v0: f32 = row r1
    v1: i64 = number n0
    v2: f32 = cast v1
    v3: f32 = div v0, v2
    v4: f64 = number n1
    v5: f32 = cast v4
    v6: f32 = add v3, v5
    v7: f32 = sqrt v6
    r2 = v7
    store %3[i0] = v7
  }
  stage (i1 < s1) {
    v0: bf16 = load %0[i0*s1 + i1]
    v1: f32 = cast v0
    v2: f32 = row r0
    v3: f32 = sub v1, v2
    v4: f32 = row r2
    v5: f32 = div v3, v4
    v6: f32 = load %1[i1]
    v7: f32 = mul v5, v6
    v8: bf16 = cast v7
    store %2[i0*s1 + i1] = v8
  }
}
)");
  for (int64_t columns : {1, 7, 16, 17, 100, 1000}) {
    Comparison comparison(norm, {5, columns, std::bit_cast<int64_t>(1e-5)},
                          {{0, 5 * columns, Data::kTame},
                           {0, columns, Data::kTame},
                           {0, 5 * columns},
                           {0, 5}});
    comparison.tolerance = {8e-3, 1e-6};  // bf16 may round the other way
    comparison.run();
  }
}

// Index data: uniform (rows of a table), per lane, under a condition, checked.
TEST(X86Kernels, GatherAndScatter) {
  for (DType type : all_dtypes()) {
    const std::string name = dtype_name(type);
    Kernel embedding = kernel_of(with(
        R"(kernel embedding(%0: T, %1: i64, %2: out T) outer (i0 < s0) inner {
  stage (i1 < s1) {
    v0: i64 = load %1[i0]
    v1: i64 = const 0
    v2: b8 = le v1, v0
    v3: b8 = check v2
    v4: T = load %0[i1 + @(v0)*s1]
    store %2[i0*s1 + i1] = v4
  }
}
)",
        {{": T", ": " + name}, {"out T", "out " + name}}));
    Kernel gather = kernel_of(with(
        R"(kernel gather(%0: T, %1: i64, %2: b8, %3: out T) outer (i0 < s0) WAY {
  stage INNER {
    v0: i64 = load %1[i0*s1 + i1]
    v1: b8 = load %2[i0*s1 + i1]
    v2: T = load %0[i1*20 + @(v0)] when v1
    store %3[i0*s1 + i1] = v2
  }
}
)",
        {{": T", ": " + name},
         {"out T", "out " + name},
         {"WAY", "inner"},
         {"INNER", "(i1 < s1)"}}));
    for (int64_t columns : {1, 7, 16, 50}) {
      Comparison rows(
          embedding, {9, columns},
          {{0, 20 * columns}, {0, 9, Data::kIndices, 20}, {0, 9 * columns}});
      rows.run();
      Comparison lanes(gather, {9, columns},
                       {{0, 20 * columns},
                        {0, 9 * columns, Data::kIndices, 20},
                        {0, 9 * columns, Data::kIndices, 2},
                        {0, 9 * columns}});
      lanes.run();
    }
    if (is_small_float(type) || type == DType::kBool) continue;
    for (std::string combiner : {"sum ", "max ", ""}) {
      Kernel scatter = kernel_of(with(
          R"(kernel scatter(%0: T, %1: i64, %2: out T) outer () inner {
  stage (i0 < s0) {
    v0: T = load %0[i0]
    v1: i64 = load %1[i0]
    store %2[@(v1)] = COMBINERv0
  }
}
)",
          {{": T", ": " + name},
           {"out T", "out " + name},
           {"COMBINER", combiner}}));
      for (int64_t size : {1, 16, 77}) {
        Comparison comparison(scatter, {size},
                              {{0, size, Data::kTame},
                               {0, size, Data::kIndices, 10},
                               {0, 10, Data::kTame}});
        comparison.tolerance = {type == DType::kF32 ? 1e-5 : 1e-14, 1e-5};
        comparison.run();
      }
      Kernel rows = kernel_of(with(
          R"(kernel scatter_rows(%0: T, %1: i64, %2: out T) outer () inner {
  stage (i0 < s0, i1 < s1) {
    v0: T = load %0[i0*s1 + i1]
    v1: i64 = load %1[i0]
    store %2[i1 + @(v1)*s1] = COMBINERv0
  }
}
)",
          {{": T", ": " + name},
           {"out T", "out " + name},
           {"COMBINER", combiner}}));
      for (int64_t columns : {1, 16, 23}) {
        Comparison comparison(rows, {15, columns},
                              {{0, 15 * columns, Data::kTame},
                               {0, 15, Data::kIndices, 4},
                               {0, 4 * columns, Data::kTame}});
        comparison.tolerance = {type == DType::kF32 ? 1e-5 : 1e-14, 1e-5};
        comparison.run();
      }
      Kernel within = kernel_of(with(
          R"(kernel scatter_within(%0: T, %1: i64, %2: out T) outer (i0 < s0) columns {
  stage (i1 < s1) {
    v0: T = load %0[i0*s1 + i1]
    v1: i64 = load %1[i0*s1 + i1]
    store %2[i0*10 + @(v1)] = COMBINERv0
  }
}
)",
          {{": T", ": " + name},
           {"out T", "out " + name},
           {"COMBINER", combiner}}));
      for (int64_t lanes : {1, 16, 23}) {
        Comparison comparison(within, {lanes, 7},
                              {{0, 7 * lanes, Data::kTame},
                               {0, 7 * lanes, Data::kIndices, 10},
                               {0, 10 * lanes, Data::kTame}});
        comparison.tolerance = {type == DType::kF32 ? 1e-5 : 1e-14, 1e-5};
        comparison.run();
      }
    }
  }
}

TEST(X86Kernels, FailedChecksStopTheRun) {
  Kernel kernel = kernel_of(
      R"(kernel checked(%0: f32, %1: i64, %2: out f32) outer (i0 < s0) columns {
  stage () {
    v0: i64 = load %1[i0]
    v1: i64 = const 10
    v2: b8 = lt v0, v1
    v3: b8 = check v2
    v4: f32 = load %0[@(v0)]
    store %2[i0] = v4
  }
}
)");
  for (int64_t limit : {int64_t{10}, int64_t{1000000000000}}) {
    for (int64_t size : {1, 16, 100}) {
      Comparison comparison(
          kernel, {size},
          {{0, 10}, {0, size, Data::kIndices, limit}, {0, size}});
      comparison.expect_success = limit == 10;
      comparison.run();
    }
  }
}

TEST(X86Kernels, Prefixes) {
  for (DType type : {DType::kI64, DType::kI32, DType::kF32, DType::kF64}) {
    for (std::string combiner : {"sum", "prod", "max"}) {
      Kernel kernel = kernel_of(with(
          R"(kernel scan(%0: T, %1: out T) outer (i0 < s0) columns rows (r0: T) {
  stage (i1 < s1) {
    v0: T = load %0[i0 + i1*s0]
    r0 = COMBINER v0
    store %1[i0 + i1*s0] = prefix 0
  }
}
)",
          {{": T", std::string(": ") + dtype_name(type)},
           {"out T", std::string("out ") + dtype_name(type)},
           {"COMBINER", combiner}}));
      for (int64_t columns : {1, 16, 35}) {
        Comparison comparison(
            kernel, {columns, 20},
            {{0, columns * 20, Data::kTame}, {0, columns * 20}});
        // (Of f64, twenty roundings, which may cancel.)
        const double unit = type == DType::kF32 ? 0x1p-22 : 0x1p-47;
        comparison.tolerance = {unit, unit};
        comparison.run();
      }
    }
  }
}

// Along the vectorised loop, and the whole of it as a row value behind.
TEST(X86Kernels, PrefixesOfRows) {
  for (DType type : {DType::kI64, DType::kI32, DType::kI8, DType::kF32,
                     DType::kF64, DType::kBool}) {
    for (std::string combiner : {"sum", "prod", "max", "min", "any"}) {
      if ((combiner == "any") != (type == DType::kBool)) continue;
      Kernel kernel = kernel_of(with(
          R"(kernel scan(%0: T, %1: out T, %2: out T) outer (i0 < s0) inner rows (r0: T) {
  stage (i1 < s1) {
    v0: T = load %0[i0*s1 + i1]
    r0 = COMBINER v0
    store %1[i0*s1 + i1] = prefix 0
  }
  stage () {
    v0: T = row r0
    store %2[i0] = v0
  }
}
)",
          {{": T", std::string(": ") + dtype_name(type)},
           {"out T", std::string("out ") + dtype_name(type)},
           {"COMBINER", combiner}}));
      for (int64_t columns : kSizes) {
        Comparison comparison(
            kernel, {3, columns},
            {{0, 3 * columns, Data::kTame}, {0, 3 * columns}, {0, 3}});
        const double unit = type == DType::kF32 ? 0x1p-20 : 0x1p-47;
        comparison.tolerance = {unit, unit * 30};
        comparison.run();
      }
    }
  }
}

TEST(X86Kernels, WhatIsRefusedSaysWhy) {
  Kernel one = kernel_of(
      R"(kernel one(%0: f32, %1: out f32) outer (i0 < s0) columns {
  stage () {
    v0: f32 = load %0[i0]
    store %1[0] = v0
  }
}
)");
  EXPECT_EQ(compile(one, cpu_isas()[0]).refused,
            "many points that store to one element");
}

}  // namespace
}  // namespace framejit::codegen
