#include "backend/cuda_report.h"

#include <ATen/Context.h>

#include <algorithm>

#include "backend/cuda_text.h"
#include "backend/kernel_names.h"
#include "backend/loop_runner.h"
#include "codegen/cuda/prelude.h"
#include "codegen/schedule/schedule.h"

namespace framejit::backend {

namespace {

thread_local CudaReport* current = nullptr;

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
    kernel.name = report.entry = cuda_entry(names[i]);
    const bool deterministic = at::globalContext().deterministicAlgorithms();
    codegen::CudaKernel text =
        print_for_cuda(kernel, target, deterministic, true);
    if (text.refused.empty() && seems_narrow(kernel, text, hints))
      text = print_for_cuda(kernel, target, deterministic, false);
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
