#include "codegen/cuda/driver.h"

#include <utility>

#include "codegen/cuda/library.h"

namespace framejit::codegen {

namespace {

using Context = void*;
using Module = void*;
using Function = void*;

// CUdevice_attribute
constexpr int kMultiprocessors = 16, kThreads = 39, kMajor = 75, kMinor = 76;
constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

}  // namespace

struct Driver::Functions {
  int (*init)(unsigned);
  int (*error_text)(int, const char**);
  int (*device)(int* device, int ordinal);
  int (*attribute)(int* value, int attribute, int device);
  int (*retain)(Context*, int device);
  int (*current)(Context*);
  int (*set_current)(Context);
  int (*context_device)(int* device);
  int (*capture_mode)(int* mode);
  int (*load)(Module*, const void* image);
  int (*function)(Function*, Module, const char* name);
  int (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z,
                unsigned shared_bytes, void* stream, void** parameters,
                void** extra);
};

namespace {

// Somebody may be capturing a stream, which loading would otherwise end
// (cuThreadExchangeStreamCaptureMode).
class Relaxed {
 public:
  explicit Relaxed(int (*exchange)(int*)) : exchange_(exchange) {
    exchange_(&mode_);
  }
  ~Relaxed() { exchange_(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  int (*exchange_)(int*);
  int mode_ = kRelaxed;
};

}  // namespace

Driver::Driver() : functions_(std::make_unique<Functions>()) {}

Driver::~Driver() {
  if (library_) dlclose(library_);
}

std::string Driver::load_library(const std::string& path) {
  LibraryFunctions library(path, &library_);
  library.find(functions_->init, "cuInit");
  library.find(functions_->error_text, "cuGetErrorString");
  library.find(functions_->device, "cuDeviceGet");
  library.find(functions_->attribute, "cuDeviceGetAttribute");
  library.find(functions_->retain, "cuDevicePrimaryCtxRetain");
  library.find(functions_->current, "cuCtxGetCurrent");
  library.find(functions_->set_current, "cuCtxSetCurrent");
  library.find(functions_->context_device, "cuCtxGetDevice");
  library.find(functions_->capture_mode, "cuThreadExchangeStreamCaptureMode");
  library.find(functions_->load, "cuModuleLoadData");
  library.find(functions_->function, "cuModuleGetFunction");
  library.find(functions_->launch, "cuLaunchKernel");
  if (!library.error().empty()) return library.error();
  const int code = functions_->init(0);
  return code == 0 ? "" : said("cuInit", code);
}

std::string Driver::said(const char* what, int code) const {
  const char* text = nullptr;
  if (functions_->error_text(code, &text) != 0 || !text) text = "unknown error";
  return std::string(what) + ": " + text + " (" + std::to_string(code) + ")";
}

std::shared_ptr<const Driver> Driver::open(
    const std::vector<std::string>& paths, std::string* error) {
  *error = "no CUDA driver is known of";
  for (const std::string& path : paths) {
    std::shared_ptr<Driver> made(new Driver);
    *error = made->load_library(path);
    if (error->empty()) return made;
  }
  return nullptr;
}

int Driver::enter(int device) const {
  Context context = nullptr;
  int code = functions_->current(&context);
  if (code != 0) return code;
  int now = -1;
  if (context && functions_->context_device(&now) == 0 && now == device)
    return 0;
  // Retained for good: it is the process's.
  code = functions_->retain(&context, device);
  return code != 0 ? code : functions_->set_current(context);
}

bool Driver::describe(int device, Device* out, std::string* error) const {
  int major = 0, minor = 0, handle = 0;
  int code = functions_->device(&handle, device);
  auto read = [&](int* value, int attribute) {
    if (code == 0) code = functions_->attribute(value, attribute, handle);
  };
  read(&major, kMajor);
  read(&minor, kMinor);
  read(&out->multiprocessors, kMultiprocessors);
  read(&out->threads, kThreads);
  out->architecture = 10 * major + minor;
  if (code != 0) *error = said("the device's attributes", code);
  return code == 0;
}

std::shared_ptr<const LoadedKernel> Driver::load(int device,
                                                 const std::vector<char>& image,
                                                 const std::string& name,
                                                 std::string* error) const {
  Relaxed relaxed(functions_->capture_mode);
  std::shared_ptr<LoadedKernel> out(
      new LoadedKernel(shared_from_this(), device));
  // The thread's context is what CUDA's runtime takes for its device.
  Context before = nullptr;
  functions_->current(&before);
  int code = enter(device);
  const char* what = "the device's context";
  if (code == 0) {
    what = "cuModuleLoadData";
    code = functions_->load(&out->module_, image.data());
  }
  if (code == 0) {
    what = "cuModuleGetFunction";
    code = functions_->function(&out->function_, out->module_, name.c_str());
  }
  functions_->set_current(before);
  if (code == 0) return out;
  *error = said(what, code);
  return nullptr;
}

std::string LoadedKernel::launch(unsigned blocks, unsigned threads,
                                 void* stream, void** parameters) const {
  const auto& functions = *driver_->functions_;
  auto put = [&] {
    return functions.launch(function_, blocks, 1, 1, threads, 1, 1, 0, stream,
                            parameters, nullptr);
  };
  int code = put();
  // A thread that has not used CUDA yet, or another device
  // (CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE).
  if (code == 201 || code == 400) {
    Context before = nullptr;
    functions.current(&before);
    if (driver_->enter(device_) == 0) code = put();
    if (before) functions.set_current(before);
  }
  return code == 0 ? "" : driver_->said("cuLaunchKernel", code);
}

}  // namespace framejit::codegen
