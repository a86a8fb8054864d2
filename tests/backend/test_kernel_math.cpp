// Kernel IR: emitted code equals the interpreter bit for bit, and the
// transcendental functions are accurate.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/emit_avx512.h"
#include "backend/kernel_math.h"

namespace framejit::backend {
namespace {

using Function = Lane (*)(KernelBody&, Lane);

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> special_values() {
  std::vector<float> values = {
      0.f,         -0.f,       1.f,      -1.f,      0.5f,      -0.5f,  kInf,
      -kInf,       kNan,       88.f,     89.f,      90.f,      -87.f,  -88.f,
      -103.f,      -104.f,     -105.f,   1e-38f,    -1e-38f,   1e-40f, -1e-45f,
      3.4e38f,     -3.4e38f,   0.625f,   0.624999f, 0.928f,    4.f,    4.0001f,
      10.f,        1e5f,       104999.f, 105001.f,  -105001.f, 1e10f,  -3e20f,
      3.14159265f, 1.57079633f};
  return values;
}

// Special values, a sweep over all magnitudes, and the usual range.
std::vector<float> sweep() {
  std::vector<float> values = special_values();
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 100003) {
    uint32_t word = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &word, 4);
    values.push_back(value);
  }
  for (float x = -12.f; x < 12.f; x += 0.0007f) values.push_back(x);
  for (float x = -300.f; x < 300.f; x += 0.013f) values.push_back(x);
  return values;
}

Kernel unary_kernel(Function function) {
  Kernel kernel;
  kernel.operands.resize(2);
  kernel.num_inputs = 1;
  Lane x = kernel.body.emit(KernelOp::kLoadF, {-1, -1, -1}, 0);
  kernel.stores = {{1, function(kernel.body, x)}};
  return kernel;
}

// Returns the retry flag of the emitted code.
uint32_t run_flat(const Kernel& kernel, KernelFn function,
                  std::vector<std::vector<float>*> buffers) {
  KernelArgs args{};
  args.rows = 1;
  args.columns = static_cast<int64_t>(buffers[0]->size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    args.pointers[i] = reinterpret_cast<char*>(buffers[i]->data());
  }
  if (function) return function(&args);
  interpret(kernel, args);
  return 0;
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, 4) == 0;
}

double ulp_error(float got, double want) {
  float rounded = static_cast<float>(want);
  if (std::isnan(want) || std::isnan(got)) {
    return std::isnan(want) == std::isnan(got) ? 0 : 1e9;
  }
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  float size = std::max(std::abs(rounded), std::numeric_limits<float>::min());
  double unit = std::nextafter(size, kInf) - static_cast<double>(size);
  return std::abs(got - want) / unit;
}

struct Case {
  const char* name;
  Function function;
  double (*reference)(double);
  double max_ulp;
  float low = -kInf;  // accuracy is asked for above this
};

double reference_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const Case kCases[] = {
    {"exp", emit_exp, std::exp, 1.5},
    {"log", emit_log, std::log, 1.5},
    {"tanh", emit_tanh, std::tanh, 2.0},
    {"erf", emit_erf, std::erf, 1.5},
    {"sin", emit_sin, std::sin, 2.0},
    {"cos", emit_cos, std::cos, 2.0},
    {"sigmoid", emit_sigmoid, reference_sigmoid, 3.0, -87.f},
};

class KernelMath : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Functions, KernelMath, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(KernelMath, Accurate) {
  Kernel kernel = unary_kernel(GetParam().function);
  std::vector<float> x = sweep(), y(x.size());
  run_flat(kernel, nullptr, {&x, &y});
  double worst = 0;
  float where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] < GetParam().low) continue;
    double error = ulp_error(y[i], GetParam().reference(x[i]));
    if (error > worst) {
      worst = error;
      where = x[i];
    }
  }
  RecordProperty("max_ulp", std::to_string(worst));
  EXPECT_LT(worst, GetParam().max_ulp) << "at " << where;
}

TEST_P(KernelMath, KeepsTheSignOfZero) {
  Kernel kernel = unary_kernel(GetParam().function);
  std::vector<float> x = {0.f, -0.f}, y(2);
  run_flat(kernel, nullptr, {&x, &y});
  for (int i = 0; i < 2; ++i) {
    float want = static_cast<float>(GetParam().reference(x[i]));
    EXPECT_TRUE(same_bits(y[i], want)) << y[i] << " " << want;
  }
}

TEST_P(KernelMath, EmittedEqualsInterpreted) {
  if (!cpu_has_avx512()) GTEST_SKIP();
  Kernel kernel = unary_kernel(GetParam().function);
  KernelCode code = emit_avx512(kernel);
  ASSERT_NE(code, nullptr);
  auto function = code->function<KernelFn>();
  std::vector<float> x;
  for (float value : sweep()) {
    // Larger arguments of sine and cosine raise the flag instead.
    if (!(std::abs(value) > 105000.f) || std::isinf(value)) x.push_back(value);
  }
  std::vector<float> y(x.size()), z(x.size());
  ASSERT_EQ(run_flat(kernel, function, {&x, &y}), 0u);
  run_flat(kernel, nullptr, {&x, &z});
  size_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (same_bits(y[i], z[i])) continue;
    if (++wrong < 5) ADD_FAILURE() << x[i] << ": " << y[i] << " " << z[i];
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(KernelRetry, LargeArgumentsRaiseTheFlag) {
  if (!cpu_has_avx512()) GTEST_SKIP();
  Kernel kernel = unary_kernel(emit_cos);
  KernelCode code = emit_avx512(kernel);
  auto function = code->function<KernelFn>();
  for (size_t size : {1, 7, 16, 33, 64, 100}) {
    std::vector<float> x(size, 1.f), y(size);
    EXPECT_EQ(run_flat(kernel, function, {&x, &y}), 0u);
    for (size_t at = 0; at < size; ++at) {
      x[at] = 2e5f;
      EXPECT_NE(run_flat(kernel, function, {&x, &y}), 0u) << size << " " << at;
      x[at] = kInf;  // gives NaN without a retry
      EXPECT_EQ(run_flat(kernel, function, {&x, &y}), 0u);
      EXPECT_TRUE(std::isnan(y[at]));
      x[at] = 1.f;
    }
  }
}

// Random bodies over every operation and every walk, at awkward sizes.
TEST(KernelFuzz, EmittedEqualsInterpreted) {
  if (!cpu_has_avx512()) GTEST_SKIP();
  std::mt19937 random(7);
  auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<float> specials = special_values();
  for (int round = 0; round < 300; ++round) {
    Kernel kernel;
    KernelBody& b = kernel.body;
    std::vector<Lane> floats, masks;
    const int inputs = 1 + below(4);
    for (int i = 0; i < inputs; ++i) {
      bool is_mask = i > 0 && below(3) == 0;
      Walk walk = static_cast<Walk>(i == 0 ? 0 : below(4));
      kernel.operands.push_back(
          {is_mask ? OperandType::kBool : OperandType::kF32, walk});
      Lane lane = b.emit(is_mask ? KernelOp::kLoadMask : KernelOp::kLoadF,
                         {-1, -1, -1}, i);
      (is_mask ? masks : floats).push_back(lane);
    }
    kernel.num_inputs = inputs;
    floats.push_back(b.constant(specials[below(specials.size())]));
    masks.push_back(b.less(floats[0], floats.back()));
    const int length = 1 + below(30);
    for (int i = 0; i < length; ++i) {
      auto op =
          static_cast<KernelOp>(below(static_cast<int>(KernelOp::kSelect) + 1));
      auto f = [&] { return floats[below(floats.size())]; };
      auto m = [&] { return masks[below(masks.size())]; };
      // The bits of a NaN are not part of the IR's meaning.
      auto number = [&] {
        Lane x = f();
        return b.select(b.unordered(x, x), b.constant(1.5f), x);
      };
      switch (op) {
        case KernelOp::kConstF:
          floats.push_back(b.constant(specials[below(specials.size())]));
          break;
        case KernelOp::kConstI:
        case KernelOp::kLoadF:
        case KernelOp::kLoadMask:
          break;
        case KernelOp::kShiftLeft:
          floats.push_back(b.shift_left(number(), below(32)));
          break;
        case KernelOp::kSelect:
          floats.push_back(b.select(m(), f(), f()));
          break;
        case KernelOp::kMaskAnd:
        case KernelOp::kMaskOr:
        case KernelOp::kMaskXor:
          masks.push_back(b.emit(op, {m(), m(), -1}));
          break;
        case KernelOp::kMaskNot:
          masks.push_back(b.mask_not(m()));
          break;
        case KernelOp::kAnd:
        case KernelOp::kOr:
        case KernelOp::kXor:
        case KernelOp::kAndNot:
          floats.push_back(b.emit(op, {number(), number(), -1}));
          break;
        default: {
          std::array<int, 3> in = {-1, -1, -1};
          for (int k = 0; k < kernel_op_operands(op); ++k) in[k] = f();
          Lane lane = b.emit(op, in);
          (b.type(lane) == LaneType::kMask ? masks : floats).push_back(lane);
        }
      }
    }
    kernel.operands.push_back({OperandType::kF32, Walk::kElement});
    kernel.stores.push_back({inputs, floats.back()});
    kernel.operands.push_back({OperandType::kBool, Walk::kElement});
    kernel.stores.push_back({inputs + 1, masks.back()});
    KernelCode code = emit_avx512(kernel);
    ASSERT_NE(code, nullptr) << kernel.str();
    auto function = code->function<KernelFn>();
    static const int kColumns[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 100};
    const int rows = 1 + below(3), columns = kColumns[below(10)];
    const size_t numel = static_cast<size_t>(rows) * columns;
    std::vector<std::vector<char>> buffers, expected;
    KernelArgs args{}, reference{};
    args.rows = reference.rows = rows;
    args.columns = reference.columns = columns;
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      const KernelOperand& operand = kernel.operands[i];
      size_t item = item_size(operand.type);
      std::vector<char> data(numel * item + 8, 0x55);
      for (size_t k = 0; k < numel && i < kernel.num_inputs; ++k) {
        if (operand.type == OperandType::kBool) {
          data[k] = static_cast<char>(below(2));
          continue;
        }
        float value = below(3) ? (below(2000) - 1000) / 97.f
                               : specials[below(specials.size())];
        std::memcpy(&data[k * 4], &value, 4);
      }
      buffers.push_back(data);
      expected.push_back(data);
      int64_t stride = operand.walk == Walk::kElement ? columns * item
                       : operand.walk == Walk::kRow   ? item
                                                      : 0;
      args.row_strides[i] = reference.row_strides[i] = stride;
    }
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      args.pointers[i] = buffers[i].data();
      reference.pointers[i] = expected[i].data();
    }
    ASSERT_EQ(function(&args), 0u) << kernel.str();
    interpret(kernel, reference);
    for (size_t k = 0; k < numel; ++k) {
      float a, e;
      std::memcpy(&a, &buffers[inputs][k * 4], 4);
      std::memcpy(&e, &expected[inputs][k * 4], 4);
      ASSERT_TRUE(same_bits(a, e)) << a << " " << e << " at " << k << "\n"
                                   << kernel.str();
    }
    // Bytes beyond the end stay as they were.
    ASSERT_EQ(std::memcmp(&buffers[inputs][numel * 4],
                          &expected[inputs][numel * 4], 8),
              0);
    ASSERT_EQ(buffers[inputs + 1], expected[inputs + 1]) << kernel.str();
  }
}

TEST(EmitAvx512, EqualKernelsShareCodeThatGoesWithTheLast) {
  if (!cpu_has_avx512()) GTEST_SKIP();
  auto kernel = [](float number) {
    Kernel made = unary_kernel([](KernelBody&, Lane x) { return x; });
    made.stores[0].value =
        made.body.mul(made.stores[0].value, made.body.constant(number));
    return made;
  };
  const size_t before = MachineCode::mapped_bytes();
  KernelCode first = emit_avx512(kernel(2)), second = emit_avx512(kernel(2));
  KernelCode other = emit_avx512(kernel(3));
  EXPECT_EQ(first->begin(), second->begin());
  EXPECT_NE(first->begin(), other->begin());
  const size_t two = MachineCode::mapped_bytes() - before;
  first.reset();
  EXPECT_EQ(MachineCode::mapped_bytes() - before, two);
  std::vector<float> x(5, 1.5f), y(5);
  EXPECT_EQ(run_flat(kernel(2), second->function<KernelFn>(), {&x, &y}), 0u);
  EXPECT_EQ(y[4], 3.f);
  second.reset();
  other.reset();
  EXPECT_EQ(MachineCode::mapped_bytes(), before);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(emit_avx512(kernel(static_cast<float>(i))));
  }
  EXPECT_EQ(MachineCode::mapped_bytes(), before);
}

TEST(KernelIr, NodesAreSharedAndPrinted) {
  Kernel kernel = unary_kernel(
      [](KernelBody& b, Lane x) { return b.add(b.mul(x, x), b.mul(x, x)); });
  EXPECT_EQ(kernel.body.nodes().size(), 3u);
  EXPECT_EQ(kernel.str(),
            "kernel(in0: f32 element, out1: f32 element)\n"
            "  v0 = LoadF in0\n  v1 = Mul v0 v0\n  v2 = Add v1 v1\n"
            "  out1 = v2\n");
}

}  // namespace
}  // namespace framejit::backend
