#include "backend/cuda_report.h"

#include <ATen/Context.h>

#include <algorithm>

#include "backend/kernel_names.h"
#include "backend/loop_runner.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/print_cuda.h"
#include "codegen/schedule/schedule.h"

namespace framejit::backend {

namespace {

thread_local CudaReport* current = nullptr;

// "fj::kernel mul_add_3" -> "mul_add_3", of what an identifier may have.
std::string entry_of(const std::string& name) {
  std::string entry = name.substr(name.find_last_of(' ') + 1);
  for (char& c : entry) {
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                      (c >= 'A' && c <= 'Z');
    if (!fits) c = '_';
  }
  return "fj_" + entry;
}

// Each symbol that the parameters name has a value; those seen, or a guess.
std::vector<int64_t> values_of(const codegen::CudaKernel& kernel,
                               std::vector<int64_t> hints) {
  std::vector<int> symbols;
  for (const Expr& each : kernel.parameters) each.collect_symbols(&symbols);
  for (int symbol : symbols) {
    if (static_cast<size_t>(symbol) >= hints.size())
      hints.resize(static_cast<size_t>(symbol) + 1,
                   codegen::TargetInfo::kUnknownSize);
  }
  return hints;
}

}  // namespace

CudaReport::CudaReport(int architecture)
    : architecture_(architecture), outer_(current) {
  current = this;
}

CudaReport::~CudaReport() { current = outer_; }

CudaReport* CudaReport::wanted() { return current; }

void CudaReport::add(const LoweredGraph& graph, const codegen::LoopGraph& loops,
                     const std::vector<int64_t>& hints) {
  codegen::TargetInfo target = codegen::cuda_target(architecture_);
  target.hints = hints;
  const codegen::Schedule schedule = codegen::make_schedule(loops, target);
  const auto names = kernel_names(graph, schedule);
  const auto nodes = fused_nodes(graph, schedule);
  std::vector<char> seen(schedule.kernels.size(), 0);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const codegen::Step& step = schedule.steps[i];
    // Steps that do the same share a kernel.
    if (step.kernel < 0 || seen[step.kernel]++) continue;
    CudaKernelReport& report = kernels_.emplace_back();
    codegen::Kernel kernel = schedule.kernels[step.kernel];
    report.name = names[i];
    kernel.name = report.entry = entry_of(names[i]);
    codegen::CudaOptions options;
    options.team = codegen::cuda_team(kernel, target);
    options.deterministic = at::globalContext().deterministicAlgorithms();
    codegen::CudaKernel text = codegen::print_cuda(kernel, options);
    if (text.refused.empty() &&
        codegen::fits_32_bits(kernel, values_of(text, hints).data())) {
      options.wide_indices = false;
      text = codegen::print_cuda(kernel, options);
    }
    report.refused = text.refused;
    if (text.refused.empty())
      report.source = codegen::cuda_prelude() + ("\n" + text.source);
    report.block = text.block;
    report.team = text.team;
    report.bytes = codegen::bytes_moved(schedule, step, target);
    for (const graph::Node* node : nodes[i]) {
      std::string line = brief_place(node->span);
      if (!line.empty() &&
          std::ranges::find(report.lines, line) == report.lines.end())
        report.lines.push_back(std::move(line));
    }
  }
  for (std::string& call : describe_calls(graph))
    calls_.push_back(std::move(call));
}

}  // namespace framejit::backend
