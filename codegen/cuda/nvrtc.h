// NVRTC: CUDA C++ -> a cubin, by NVIDIA's library, which is loaded when it is
// first asked for and linked by nobody (its API: docs.nvidia.com/cuda/nvrtc).
// It needs no GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace framejit::codegen {

struct Cubin {
  std::vector<char> image;
  std::string log;    // what the compiler said
  std::string error;  // why there is no image
  // Of the kernel's threads, as ptxas has it.
  int registers = 0, spilled_bytes = 0, stack_bytes = 0;
  int shared_bytes = 0;  // of a block
};

class Nvrtc {
 public:
  // The library, from the first of these paths that opens (a name without a
  // folder is looked for as the system does). Null: *error says why.
  static std::shared_ptr<const Nvrtc> open(
      const std::vector<std::string>& paths, std::string* error);
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  // What kernels are compiled with, beside the architecture.
  static const std::string kOptions;

  int major() const { return major_; }
  int minor() const { return minor_; }
  // As numbers: 90 for sm_90.
  const std::vector<int>& architectures() const { return architectures_; }
  // name: for messages. Nothing is contracted (a * b + c is rounded twice), as
  // everywhere in FrameJIT.
  Cubin compile(const std::string& source, const std::string& name,
                int architecture) const;

 private:
  struct Functions;
  Nvrtc();
  std::string load(const std::string& path);

  void *builtins_ = nullptr, *library_ = nullptr;
  std::unique_ptr<Functions> functions_;
  int major_ = 0, minor_ = 0;
  std::vector<int> architectures_;
};

}  // namespace framejit::codegen
