// The CUDA driver (docs.nvidia.com/cuda/cuda-driver-api), which is loaded when
// it is first asked for and linked by nobody: modules and launches, no memory.
//
// Contexts are the primary ones, which CUDA's runtime (and so torch) uses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace framejit::codegen {

class Driver;

// A function of a cubin, on one device. The module is never unloaded: nobody
// can say when the device, or a CUDA graph, has run it for the last time.
class LoadedKernel {
 public:
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  // Puts it on the stream (of the device; null: the default one), whose
  // context the thread gets if it has none. parameters: where each one's value
  // is. "", or what the driver said.
  std::string launch(unsigned blocks, unsigned threads, void* stream,
                     void** parameters) const;

 private:
  friend class Driver;
  LoadedKernel(std::shared_ptr<const Driver> driver, int device)
      : driver_(std::move(driver)), device_(device) {}

  std::shared_ptr<const Driver> driver_;
  int device_;
  void *module_ = nullptr, *function_ = nullptr;
};

class Driver : public std::enable_shared_from_this<Driver> {
 public:
  // From the first of these paths that opens ("libcuda.so.1"). Null: *error
  // says why.
  static std::shared_ptr<const Driver> open(
      const std::vector<std::string>& paths, std::string* error);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  struct Device {
    int architecture = 0;  // 90 for compute capability 9.0
    int multiprocessors = 0;
    int threads = 0;  // of a multiprocessor
  };
  // False: *error says why.
  bool describe(int device, Device* out, std::string* error) const;
  // Null: *error says why.
  std::shared_ptr<const LoadedKernel> load(int device,
                                           const std::vector<char>& image,
                                           const std::string& name,
                                           std::string* error) const;

 private:
  friend class LoadedKernel;
  struct Functions;
  Driver();
  std::string load_library(const std::string& path);
  std::string said(const char* what, int code) const;
  // The thread has a context of the device, its own or this one.
  int enter(int device) const;

  void* library_ = nullptr;
  std::unique_ptr<Functions> functions_;
};

}  // namespace framejit::codegen
