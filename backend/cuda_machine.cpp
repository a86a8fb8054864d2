#include "backend/cuda_machine.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "backend/amount.h"
#include "backend/cuda_text.h"
#include "codegen/cuda/cubin_cache.h"
#include "codegen/cuda/driver.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "frame_hook/event_log.h"
#include "frame_hook/options.h"
#include "frame_hook/progress.h"

namespace framejit::backend {

namespace {

using codegen::Kernel;
using codegen::LoadedKernel;

constexpr size_t kMostThreads = 16;  // that compile

// What compiles and loads kernels for one device.
class CudaDevice {
 public:
  CudaDevice(std::shared_ptr<const codegen::Driver> driver,
             std::shared_ptr<const codegen::Nvrtc> nvrtc,
             codegen::Driver::Device about, int index)
      : driver_(std::move(driver)),
        nvrtc_(std::move(nvrtc)),
        about_(about),
        index_(index) {}

  const codegen::Driver::Device& about() const { return about_; }
  int index() const { return index_; }

  // Kernels with the same text are one, and stay: the device may be running one
  // whose graph is gone, or somebody's CUDA graph have it, and to wait for the
  // device would end the captures of others. Null: *error says why.
  std::shared_ptr<const LoadedKernel> load(const codegen::CudaKernel& text,
                                           const std::string& folder,
                                           std::string* error) const {
    {
      std::lock_guard lock(mutex_);
      auto found = known_.find(text.source);
      if (found != known_.end()) return found->second;
    }
    const std::string source = codegen::cuda_prelude() + ("\n" + text.source);
    const std::string key = "sm_" + std::to_string(about_.architecture) +
                            " NVRTC " + std::to_string(nvrtc_->major()) + "." +
                            std::to_string(nvrtc_->minor()) + " " +
                            codegen::Nvrtc::kOptions + "\n" + source;
    const codegen::CubinCache disk(folder);
    std::vector<char> image = disk.find(key);
    std::shared_ptr<const LoadedKernel> loaded;
    // (One that the driver refuses is made anew.)
    if (!image.empty()) loaded = driver_->load(index_, image, text.name, error);
    if (!loaded) {
      codegen::Cubin cubin =
          nvrtc_->compile(source, text.name + ".cu", about_.architecture);
      *error = cubin.error;
      if (!error->empty()) return nullptr;
      disk.keep(key, cubin.image);
      loaded = driver_->load(index_, cubin.image, text.name, error);
    }
    if (!loaded) return nullptr;
    error->clear();
    std::lock_guard lock(mutex_);
    return known_.emplace(text.source, std::move(loaded)).first->second;
  }

 private:
  std::shared_ptr<const codegen::Driver> driver_;
  std::shared_ptr<const codegen::Nvrtc> nvrtc_;
  codegen::Driver::Device about_;
  int index_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const LoadedKernel>>
      known_;
};

class CudaLoopKernel final : public LoopKernel {
 public:
  CudaLoopKernel(std::shared_ptr<const CudaDevice> device, Kernel kernel,
                 codegen::TargetInfo target)
      : device_(std::move(device)),
        kernel_(std::move(kernel)),
        target_(std::move(target)),
        folder_(options().kernel_cache ? codegen::CubinCache::users_folder()
                                       : ""),
        is_deterministic_(at::globalContext().deterministicAlgorithms()) {
    text_ = print(true, true);
    refused_ = text_.refused;
    if (!refused_.empty()) return;
    has_symbols_ = std::any_of(text_.parameters.begin(), text_.parameters.end(),
                               [](const Expr& e) { return !e.is_const(); });
    is_narrow_ = seems_narrow(kernel_, text_, target_.hints);
    if (is_narrow_) text_ = print(false, true);
    width_ = text_.width;
    multiples_ = Amounts(text_.multiples.begin(), text_.multiples.end());
    alignments_ = text_.alignments;
  }

  // The variant that is probably needed. Once, before anybody runs it; on any
  // thread.
  void compile() noexcept {
    if (!refused_.empty()) return;
    try {
      std::string error;
      if (!make(text_, !is_narrow_, true, &error)) refused_ = error;
    } catch (const std::exception& error) {
      refused_ = error.what();
    }
  }
  const std::string& refused() const { return refused_; }

  bool run(void* const* arguments, const int64_t* symbols) const override {
    const bool wide =
        has_symbols_ ? !codegen::fits_32_bits(kernel_, symbols) : !is_narrow_;
    const bool vectors = takes_vectors(arguments, symbols);
    const Variant* variant =
        variants_[wide][vectors].load(std::memory_order_acquire);
    if (!variant) {
      std::string error;
      variant = make(print(wide, vectors), wide, vectors, &error);
      TORCH_CHECK(variant, "framejit: ", error);
    }
    const int64_t points = product(variant->points, symbols);
    if (points <= 0) return true;
    c10::SmallVector<int64_t, 16> values;
    for (const Amount& parameter : variant->parameters)
      values.push_back(parameter.at(symbols));
    void* no_flag = nullptr;
    c10::SmallVector<void*, 40> parameters;
    for (size_t i = 0; i < kernel_.arguments.size(); ++i)
      parameters.push_back(const_cast<void**>(&arguments[i]));
    for (int64_t& value : values) parameters.push_back(&value);
    parameters.push_back(&no_flag);
    const int64_t blocks = std::min(
        (points + variant->teams - 1) / variant->teams, variant->most_blocks);
    const std::string said = variant->loaded->launch(
        static_cast<unsigned>(blocks), static_cast<unsigned>(variant->block),
        stream(), parameters.data());
    TORCH_CHECK(said.empty(), "framejit: ", said);
    return true;
  }

  std::string listing() const override { return text_.source; }

 private:
  struct Variant {
    std::shared_ptr<const LoadedKernel> loaded;
    Amounts parameters, points;
    int64_t teams;  // of a block
    int block;
    int64_t most_blocks;
  };

  codegen::CudaKernel print(bool wide, bool vectors) const {
    return print_for_cuda(kernel_, target_, is_deterministic_, wide, vectors);
  }

  bool takes_vectors(void* const* arguments, const int64_t* symbols) const {
    for (const Amount& each : multiples_)
      if (each.at(symbols) % width_ != 0) return false;
    for (auto [argument, bytes] : alignments_)
      if (reinterpret_cast<uintptr_t>(arguments[argument]) %
              static_cast<uintptr_t>(bytes) !=
          0)
        return false;
    return true;
  }

  void* stream() const {
    const c10::Device device(c10::kCUDA,
                             static_cast<c10::DeviceIndex>(device_->index()));
    const auto* guard = c10::impl::getDeviceGuardImpl(c10::kCUDA);
    return guard->getStreamNativeHandle(guard->getStream(device));
  }

  // Null: *error says why.
  const Variant* make(const codegen::CudaKernel& text, bool wide, bool vectors,
                      std::string* error) const {
    std::lock_guard lock(mutex_);
    auto& place = variants_[wide][vectors];
    if (const Variant* made = place.load()) return made;
    auto variant = std::make_unique<Variant>();
    variant->loaded = device_->load(text, folder_, error);
    if (!variant->loaded) return nullptr;
    variant->parameters =
        Amounts(text.parameters.begin(), text.parameters.end());
    variant->points = Amounts(text.points.begin(), text.points.end());
    variant->teams = text.block / text.team;
    variant->block = text.block;
    // Some blocks wait for a place, so that those which end early leave none
    // idle.
    const codegen::Driver::Device& about = device_->about();
    variant->most_blocks = int64_t{4} * about.multiprocessors *
                           std::max(1, about.threads / text.block);
    owned_.push_back(std::move(variant));
    place.store(owned_.back().get(), std::memory_order_release);
    return owned_.back().get();
  }

  std::shared_ptr<const CudaDevice> device_;
  Kernel kernel_;
  codegen::TargetInfo target_;
  std::string folder_;        // of the cache on disk
  bool is_deterministic_;     // a flag that captures are guarded by
  codegen::CudaKernel text_;  // of the variant that is probably needed
  bool has_symbols_ = false, is_narrow_ = false;
  // Where its elements are moved side by side.
  int64_t width_ = 1;
  Amounts multiples_;
  std::vector<std::pair<int, int>> alignments_;
  std::string refused_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<const Variant>> owned_;
  // [wide indices][vectors]
  mutable std::array<std::array<std::atomic<const Variant*>, 2>, 2> variants_{};
};

class CudaMachine final : public LoopMachine {
 public:
  explicit CudaMachine(std::shared_ptr<const CudaDevice> device)
      : device_(std::move(device)) {}

  c10::Device device() const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(device_->index())};
  }

  codegen::TargetInfo target() const override {
    codegen::TargetInfo target =
        codegen::cuda_target(device_->about().architecture);
    target.threads = device_->about().multiprocessors;
    return target;
  }

  // Compilations are independent, and each takes tens of milliseconds.
  std::vector<Compiled> compile(
      const std::vector<Kernel>& kernels,
      const std::vector<int64_t>& hints) const override {
    codegen::TargetInfo target = this->target();
    target.hints = hints;
    std::vector<std::shared_ptr<CudaLoopKernel>> made;
    for (const Kernel& kernel : kernels) {
      Kernel named = kernel;
      named.name = cuda_entry(kernel.name);
      made.push_back(
          std::make_shared<CudaLoopKernel>(device_, std::move(named), target));
    }
    std::atomic<size_t> next = 0, done = 0;
    auto work = [&](bool tells) {
      for (size_t k; (k = next++) < made.size();) {
        made[k]->compile();
        ++done;
        if (tells) note_progress(CompilePhase::kKernels, done, made.size());
      }
    };
    const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(),
                                           1, kMostThreads);
    std::vector<std::thread> others;
    try {
      for (size_t i = 1; i < std::min(most, made.size()); ++i)
        others.emplace_back(work, false);
    } catch (const std::system_error&) {
      // As many as there are.
    }
    work(true);
    for (std::thread& other : others) other.join();
    std::vector<Compiled> out;
    for (auto& kernel : made) {
      Compiled& each = out.emplace_back();
      each.refused = kernel->refused();
      if (each.refused.empty()) each.kernel = std::move(kernel);
    }
    return out;
  }

  at::Storage new_storage(int64_t bytes) const override {
    const c10::DeviceGuard guard(device());
    c10::Allocator* allocator = c10::GetAllocator(c10::kCUDA);
    return {c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
            allocator->allocate(static_cast<size_t>(bytes)), allocator,
            /*resizable=*/true};
  }

 private:
  std::shared_ptr<const CudaDevice> device_;
};

std::mutex mutex;
CudaLibraries wanted;

// What every device shares, or why there is nothing. Tried once.
struct Libraries {
  std::shared_ptr<const codegen::Driver> driver;
  std::shared_ptr<const codegen::Nvrtc> nvrtc;
  std::string reason;

  Libraries(const std::vector<std::string>& drivers,
            const std::vector<std::string>& nvrtc_paths) {
    std::string error;
    driver = codegen::Driver::open(drivers, &error);
    if (!driver) {
      reason = "no CUDA driver: " + error;
      return;
    }
    nvrtc = codegen::Nvrtc::open(nvrtc_paths, &error);
    if (!nvrtc)
      reason = "no NVRTC (pip install nvidia-cuda-nvrtc-cu12): " + error;
  }
};

}  // namespace

void set_cuda_libraries(CudaLibraries libraries) {
  std::lock_guard lock(mutex);
  wanted = std::move(libraries);
}

std::shared_ptr<const LoopMachine> cuda_machine(c10::Device device,
                                                std::string* reason) {
  // They stay: threads may still run kernels when the process ends.
  static const Libraries* libraries = nullptr;
  static auto& known = *new std::map<int, std::shared_ptr<const LoopMachine>>;
  const int index = device.index();
  std::unique_lock lock(mutex);
  if (!libraries) {
    // Runs Python code, in which another thread may come here.
    const CudaLibraries now = wanted;
    lock.unlock();
    const auto paths = now.nvrtc ? now.nvrtc() : std::vector<std::string>();
    lock.lock();
    if (!libraries) {
      libraries = new Libraries(now.drivers, paths);
      // So does whoever hears of it.
      lock.unlock();
      if (!libraries->reason.empty())
        log_event(Channel::k_fallbacks,
                  "graphs of CUDA tensors call ATen: " + libraries->reason,
                  Severity::kWarning);
      lock.lock();
    }
  }
  auto found = known.find(index);
  if (found != known.end()) return found->second;
  *reason = libraries->reason;
  if (!reason->empty()) return nullptr;
  codegen::Driver::Device about;
  if (!libraries->driver->describe(index, &about, reason)) return nullptr;
  auto made = std::make_shared<CudaMachine>(std::make_shared<CudaDevice>(
      libraries->driver, libraries->nvrtc, about, index));
  known.emplace(index, made);
  return made;
}

}  // namespace framejit::backend
