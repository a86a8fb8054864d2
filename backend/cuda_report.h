// The CUDA kernels that graphs would have, on a machine that needs no GPU.
//
// While a CudaReport lives, each graph that this thread lowers is also
// scheduled and printed for its device. (The graph is one of CPU tensors: what
// ATen does otherwise on CUDA is not seen.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/lowering/lower.h"

namespace framejit::backend {

struct CudaKernelReport {
  std::string name;    // after the operators in it
  std::string entry;   // of the function in the source
  std::string source;  // all of it, "" when refused
  std::string refused;
  int block = 0;                   // threads of a block
  int team = 0;                    // threads of one outer point
  int64_t bytes = 0;               // moved, at the sizes that were seen
  std::vector<std::string> lines;  // of the program: "model.py:12"
};

class CudaReport {
 public:
  // architecture: 90 for sm_90.
  explicit CudaReport(int architecture);
  ~CudaReport();
  CudaReport(const CudaReport&) = delete;
  CudaReport& operator=(const CudaReport&) = delete;

  // The one that this thread fills, or null.
  static CudaReport* wanted();

  void add(const LoweredGraph& graph, const codegen::LoopGraph& loops,
           const std::vector<int64_t>& hints);

  const std::vector<CudaKernelReport>& kernels() const { return kernels_; }
  // What stays a call of ATen, a line each (describe_calls()).
  const std::vector<std::string>& calls() const { return calls_; }

 private:
  int architecture_;
  CudaReport* outer_;
  std::vector<CudaKernelReport> kernels_;
  std::vector<std::string> calls_;
};

}  // namespace framejit::backend
