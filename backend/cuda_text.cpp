#include "backend/cuda_text.h"

namespace framejit::backend {

std::string cuda_entry(const std::string& name) {
  std::string entry = name.substr(name.find_last_of(' ') + 1);
  for (char& c : entry) {
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                      (c >= 'A' && c <= 'Z');
    if (!fits) c = '_';
  }
  return "fj_" + entry;
}

codegen::CudaKernel print_for_cuda(const codegen::Kernel& kernel,
                                   const codegen::TargetInfo& target,
                                   bool deterministic, bool wide_indices,
                                   bool vectors) {
  codegen::CudaOptions options;
  options.team = codegen::cuda_team(kernel, target);
  options.deterministic = deterministic;
  options.wide_indices = wide_indices;
  options.vectors = vectors;
  return codegen::print_cuda(kernel, options);
}

bool seems_narrow(const codegen::Kernel& kernel,
                  const codegen::CudaKernel& text, std::vector<int64_t> hints) {
  // A guess where nothing was seen.
  std::vector<int> symbols;
  for (const Expr& each : text.parameters) each.collect_symbols(&symbols);
  for (int symbol : symbols) {
    if (static_cast<size_t>(symbol) >= hints.size())
      hints.resize(static_cast<size_t>(symbol) + 1,
                   codegen::TargetInfo::kUnknownSize);
  }
  return codegen::fits_32_bits(kernel, hints.data());
}

}  // namespace framejit::backend
