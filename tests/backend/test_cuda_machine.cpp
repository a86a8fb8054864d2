// Graphs of CUDA tensors without a GPU: tests/cuda_stand_in.cpp is the driver
// and the compiler, the allocator and the device guard are of this file, so
// what is seen here is all that the host does: variants, launches, streams,
// contexts, lifetimes and errors.
#include "backend/cuda_machine.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "backend/program.h"
#include "frame_hook/options.h"
#include "tests/backend/torch_helpers.h"
#include "tests/cuda_stand_in.h"

namespace framejit::backend::testing {
namespace {

using graph::Arg;
using graph::Graph;

thread_local c10::DeviceIndex device_now = 0;
int stream_now = 0;  // its address is the stream

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, device_now}; }
  void setDevice(c10::Device device) const override {
    device_now = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    device_now = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream;
  }
  void* getStreamNativeHandle(const c10::Stream /*stream*/) const override {
    return &stream_now;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
};

int64_t blocks_of_memory = 0;
bool has_memory = true;

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_WITH(OutOfMemoryError, has_memory, "no memory");
    ++blocks_of_memory;
    void* block = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
    return {block, block, &Memory::free, {c10::kCUDA, device_now}};
  }
  static void free(void* block) {
    --blocks_of_memory;
    std::free(block);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::free; }
  void copy_data(void* to, const void* from, size_t count) const override {
    if (count) std::memcpy(to, from, count);
  }
};

class CudaMachineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static Guard guard;
    static Memory memory;
    c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)]
        .store(&guard);
    c10::SetAllocator(c10::kCUDA, &memory, 100);
    CudaLibraries libraries;
    libraries.drivers = {FJ_CUDA_STAND_IN};
    libraries.nvrtc = [] { return std::vector<std::string>{FJ_CUDA_STAND_IN}; };
    set_cuda_libraries(std::move(libraries));
    std::string error;
    ASSERT_TRUE(set_option("kernel_cache", "0", &error)) << error;
    library_ = dlopen(FJ_CUDA_STAND_IN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library_) << dlerror();
  }
  static StandInCounts& counts() {
    return *reinterpret_cast<StandInCounts* (*)()>(
        dlsym(library_, "stand_in_counts"))();
  }
  static void fail(const char* what, int code) {
    reinterpret_cast<void (*)(const char*, int)>(
        dlsym(library_, "stand_in_fail"))(what, code);
  }

  static graph::TensorMeta on_cuda(std::vector<Expr> sizes, int device = 0) {
    graph::TensorMeta out = meta(std::move(sizes));
    out.device = {c10::kCUDA, static_cast<c10::DeviceIndex>(device)};
    return out;
  }

  // first: its element of the storage.
  static at::Tensor tensor_of(const std::vector<float>& values,
                              std::vector<int64_t> sizes, int64_t first = 0,
                              int device = 0) {
    const c10::DeviceIndex before =
        std::exchange(device_now, static_cast<c10::DeviceIndex>(device));
    c10::Allocator* allocator = c10::GetAllocator(c10::kCUDA);
    const size_t bytes = (values.size() + static_cast<size_t>(first)) * 4;
    at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                     allocator->allocate(bytes), allocator, true),
        c10::DispatchKeySet(c10::DispatchKey::CUDA),
        caffe2::TypeMeta::Make<float>());
    device_now = before;
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;)
      strides[i - 1] = strides[i] * sizes[i];
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, first);
    std::copy(values.begin(), values.end(),
              static_cast<float*>(out.mutable_data_ptr()));
    return out;
  }
  static std::vector<float> values_of(const at::Tensor& tensor) {
    const auto* data = static_cast<const float*>(tensor.const_data_ptr());
    return {data, data + tensor.numel()};
  }
  static std::vector<float> numbers(size_t count) {
    std::vector<float> out;
    for (size_t i = 0; i < count; ++i)
      out.push_back(std::sin(static_cast<float>(i) * 0.37f) * 2);
    return out;
  }

  static std::shared_ptr<const Program> build(const Graph& graph,
                                              std::vector<int64_t> hints = {}) {
    ProgramOptions options;
    options.loops = LoopTarget::kAvx2;  // loops are wanted, anywhere
    options.hints = std::move(hints);
    auto program = Program::build(graph, options);
    EXPECT_TRUE(program.ok());
    if (!program.ok()) return nullptr;
    return program.value();
  }
  static at::Tensor run(const Program& program, const at::Tensor& input,
                        std::vector<int64_t> symbols = {}) {
    const at::Tensor* inputs[] = {&input};
    at::Tensor output;
    program.run(inputs, symbols.data(), &output, nullptr);
    return output;
  }

  // relu(x * 2 + x)
  static std::unique_ptr<Graph> map(std::vector<Expr> sizes, int device = 0) {
    auto g = std::make_unique<Graph>();
    auto* x = g->add_input("x", on_cuda(sizes, device));
    auto* y = aten(*g, "mul", "Tensor", {x, Arg(2.0)}, on_cuda(sizes, device));
    auto* z = aten(*g, "add", "Tensor", {y, x, Arg(int64_t{1})},
                   on_cuda(sizes, device));
    g->set_outputs({aten(*g, "relu", "", {z}, on_cuda(sizes, device))});
    return g;
  }
  static void expect_mapped(const at::Tensor& found,
                            const std::vector<float>& x) {
    std::vector<float> expected;
    for (float each : x) expected.push_back(std::fmax(each * 2 + each, 0.f));
    EXPECT_EQ(values_of(found), expected);
  }

  static void* library_;
};
void* CudaMachineTest::library_ = nullptr;

TEST_F(CudaMachineTest, AMapIsOneKernelOnTheCurrentStream) {
  auto g = map({40, 25});
  const int launched = counts().launched;
  auto program = build(*g);
  EXPECT_EQ(program->report().num_lowered, 3u);
  const std::vector<float> x = numbers(1000);
  at::Tensor found = run(*program, tensor_of(x, {40, 25}));
  expect_mapped(found, x);
  EXPECT_EQ(found.device(), c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(counts().launched, launched + 1);
  EXPECT_EQ(counts().last_stream, &stream_now);
  EXPECT_EQ(counts().last_threads, 256u);
  EXPECT_EQ(counts().last_blocks, 1u);  // 250 threads have 4 elements each
  EXPECT_EQ(std::string(counts().last_kernel), "fj_mul_add_relu_0");
}

TEST_F(CudaMachineTest, WhatIsNotAlignedMovesElementByElement) {
  auto g = map({1000});
  auto program = build(*g);
  const std::vector<float> x = numbers(1000);
  const int compiled = counts().compiled;
  expect_mapped(run(*program, tensor_of(x, {1000})), x);
  EXPECT_EQ(counts().compiled, compiled);  // it was made with the program
  for (int64_t first : {1, 2, 3})
    expect_mapped(run(*program, tensor_of(x, {1000}, first)), x);
  EXPECT_EQ(counts().compiled, compiled + 1);
  expect_mapped(run(*program, tensor_of(x, {1000}, 4)), x);
  EXPECT_EQ(counts().compiled, compiled + 1);
}

TEST_F(CudaMachineTest, SizesDecideTheVariant) {
  const Expr rows = Expr::symbol(0), columns = Expr::symbol(1);
  Graph g;
  auto* x = g.add_input("x", on_cuda({rows, columns}));
  g.set_outputs({aten(g, "_softmax", "", {x, Arg(int64_t{1}), Arg(false)},
                      on_cuda({rows, columns}))});
  auto program = build(g, {8, 64});
  for (auto [r, c] : {std::pair<int64_t, int64_t>{8, 64},
                      {3, 7},
                      {1, 1},
                      {5, 1000},
                      {0, 9},
                      {4, 0}}) {
    const std::vector<float> values = numbers(static_cast<size_t>(r * c));
    const std::vector<float> found =
        values_of(run(*program, tensor_of(values, {r, c}), {r, c}));
    ASSERT_EQ(found.size(), values.size());
    for (int64_t i = 0; i < r; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < c; ++k) sum += std::exp(values[i * c + k]);
      for (int64_t k = 0; k < c; ++k)
        EXPECT_NEAR(found[i * c + k], std::exp(values[i * c + k]) / sum, 1e-6);
    }
  }
}

TEST_F(CudaMachineTest, AThreadWithoutAContextGetsTheDevices) {
  auto g = map({64});
  auto program = build(*g);
  const std::vector<float> x = numbers(64);
  const at::Tensor input = tensor_of(x, {64});
  at::Tensor found;
  std::thread([&] { found = run(*program, input); }).join();
  expect_mapped(found, x);
}

TEST_F(CudaMachineTest, EachDeviceHasItsKernels) {
  auto first = map({96}), second = map({96}, 1);
  auto one = build(*first), other = build(*second);
  const std::vector<float> x = numbers(96);
  for (int turn = 0; turn < 2; ++turn) {
    expect_mapped(run(*one, tensor_of(x, {96})), x);
    EXPECT_EQ(counts().last_device, 0);
    at::Tensor found = run(*other, tensor_of(x, {96}, 0, 1));
    expect_mapped(found, x);
    EXPECT_EQ(counts().last_device, 1);
    EXPECT_EQ(found.device().index(), 1);
    EXPECT_EQ(device_now, 0);  // as it was
  }
}

TEST_F(CudaMachineTest, EqualTextsAreOneModuleThatStays) {
  const int loaded = counts().loaded;
  auto first = map({77}), second = map({77});
  auto one = build(*first), other = build(*second);
  EXPECT_EQ(counts().loaded, loaded + 1);
  one.reset();
  other.reset();
  const std::vector<float> x = numbers(77);
  expect_mapped(run(*build(*first), tensor_of(x, {77})), x);
  EXPECT_EQ(counts().loaded, loaded + 1);
}

TEST_F(CudaMachineTest, CompiledKernelsAreKeptOnDisk) {
  std::string folder =
      (std::filesystem::temp_directory_path() / "framejit-kept-XXXXXX")
          .string();
  std::string error;
  ASSERT_TRUE(mkdtemp(folder.data()));
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  ASSERT_TRUE(set_option("kernel_cache", "1", &error)) << error;
  // Devices share files, not modules.
  const std::vector<float> x = numbers(88);
  const int compiled = counts().compiled, loaded = counts().loaded;
  auto g = map({88});
  expect_mapped(run(*build(*g), tensor_of(x, {88})), x);
  EXPECT_EQ(counts().compiled, compiled + 1);
  auto other = map({88}, 1);
  expect_mapped(run(*build(*other), tensor_of(x, {88}, 0, 1)), x);
  EXPECT_EQ(counts().compiled, compiled + 1);
  EXPECT_EQ(counts().loaded, loaded + 2);
  // What the driver refuses is made anew.
  auto again = map({89}), third = map({89}, 1);
  build(*again);
  EXPECT_EQ(counts().compiled, compiled + 2);
  fail("load", 209);
  build(*third);
  EXPECT_EQ(counts().compiled, compiled + 3);
  ASSERT_TRUE(set_option("kernel_cache", "0", &error)) << error;
  build(*map({90}));
  build(*map({90}, 1));
  EXPECT_EQ(counts().compiled, compiled + 5);
  unsetenv("XDG_CACHE_HOME");
  std::filesystem::remove_all(folder);
}

TEST_F(CudaMachineTest, ErrorsOfTheDriverAreErrorsOfTheRun) {
  auto g = map({55});
  auto program = build(*g);
  const at::Tensor x = tensor_of(numbers(55), {55});
  const int64_t blocks = blocks_of_memory;
  fail("launch", 719);
  try {
    run(*program, x);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("cuLaunchKernel: stand-in error"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(blocks_of_memory, blocks);
  expect_mapped(run(*program, x), numbers(55));  // and again
  has_memory = false;
  EXPECT_THROW(run(*program, x), c10::OutOfMemoryError);
  has_memory = true;
  EXPECT_EQ(blocks_of_memory, blocks);
}

TEST_F(CudaMachineTest, WhatDoesNotCompileIsACall) {
  for (const char* what : {"compile", "load"}) {
    auto g = map({what[0] == 'c' ? 31 : 33});
    fail(what, 6);
    auto program = build(*g);
    ASSERT_TRUE(program);
    // The node is a call, then the rest is compiled as ever.
    EXPECT_LT(program->report().num_lowered, 3u) << what;
    ASSERT_FALSE(program->report().not_lowered.empty());
    EXPECT_NE(program->report().not_lowered[0].find("no machine code"),
              std::string::npos)
        << program->report().not_lowered[0];
  }
}

}  // namespace
}  // namespace framejit::backend::testing
