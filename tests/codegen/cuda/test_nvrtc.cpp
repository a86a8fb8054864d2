// NVRTC takes the text of kernels, if it is there: FJ_NVRTC names the library.
#include <gtest/gtest.h>

#include <cstdlib>

#include "../random_loops.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/print_cuda.h"
#include "codegen/schedule/schedule.h"

namespace framejit::codegen {
namespace {

TEST(Nvrtc, SaysWhyItIsNotThere) {
  std::string error;
  EXPECT_EQ(Nvrtc::open({"/nowhere/libnvrtc.so.12"}, &error), nullptr);
  EXPECT_NE(error.find("/nowhere/libnvrtc.so.12"), std::string::npos) << error;
}

class NvrtcThere : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("FJ_NVRTC");
    if (!path || !*path)
      GTEST_SKIP() << "FJ_NVRTC names no library (pip: nvidia-cuda-nvrtc-cu12)";
    std::string error;
    nvrtc_ = Nvrtc::open({path}, &error);
    ASSERT_TRUE(nvrtc_) << error;
  }
  std::shared_ptr<const Nvrtc> nvrtc_;
};

TEST_F(NvrtcThere, TakesRandomKernels) {
  int compiled = 0;
  for (uint64_t seed = 0; seed < 12 && !HasFailure(); ++seed) {
    RandomLoops loops = random_loops(seed);
    TargetInfo target;
    Schedule schedule = make_schedule(loops.graph, target);
    std::string source = cuda_prelude();
    for (size_t k = 0; k < schedule.kernels.size(); ++k) {
      Kernel kernel = schedule.kernels[k];
      kernel.name = "k" + std::to_string(k);
      CudaOptions options;
      static constexpr int kTeams[] = {1, 32, 256};
      options.team = kTeams[seed % 3];
      options.wide_indices = seed % 2;
      CudaKernel text = print_cuda(kernel, options);
      ASSERT_EQ(text.refused, "");
      source +=
          "namespace n" + std::to_string(k) + " {\n" + text.source + "}\n";
    }
    const auto& all = nvrtc_->architectures();
    Cubin cubin = nvrtc_->compile(source, "kernels.cu", all[seed % all.size()]);
    EXPECT_EQ(cubin.error, "") << source;
    EXPECT_GT(cubin.registers, 0) << cubin.log;
    compiled += static_cast<int>(schedule.kernels.size());
  }
  std::printf("%d kernels\n", compiled);
}

TEST_F(NvrtcThere, SaysWhatIsWrong) {
  Cubin cubin = nvrtc_->compile("__global__ void k() { nonsense; }", "odd.cu",
                                nvrtc_->architectures().back());
  EXPECT_TRUE(cubin.image.empty());
  EXPECT_NE(cubin.error.find("odd.cu(1)"), std::string::npos) << cubin.error;
}

}  // namespace
}  // namespace framejit::codegen
