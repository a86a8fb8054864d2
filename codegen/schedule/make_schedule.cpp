#include <algorithm>
#include <unordered_map>

#include "codegen/kernels/text.h"
#include "codegen/schedule/arrange_loops.h"
#include "codegen/schedule/build_kernel.h"
#include "codegen/schedule/group.h"
#include "codegen/schedule/keep_values.h"
#include "codegen/schedule/memory_plan.h"
#include "codegen/schedule/passes.h"
#include "codegen/schedule/schedule.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

class Maker {
 public:
  Maker(const LoopGraph& graph, const TargetInfo& target)
      : graph_(graph), target_(target) {}

  Schedule run() {
    split_softmax(&graph_);
    split_welford(&graph_, target_);
    recompute_views(&graph_, target_);
    remove_dead(&graph_);
    split_reductions(&graph_, target_);
    inline_maps(&graph_, target_);
    order_effects(&graph_);
    choose_places(&graph_);
    copy_bases(&graph_);
    Grouping grouping = group(graph_, target_);
    KernelContext context{graph_, {}, {}, grouping.dims};
    find_stored(grouping, &context);
    out_.buffers = graph_.buffers;
    out_.outputs = graph_.outputs;
    out_.places = graph_.places;
    out_.places.resize(out_.outputs.size(), kNoBuffer);
    for (const Definition& d : graph_.definitions)
      if (d.kind == DefinitionKind::kInput) out_.inputs.push_back(d.results[0]);
    for (const Unit& unit : grouping.units) {
      if (unit.is_kernel) {
        add_kernel(context, unit);
      } else {
        add_call(graph_.definitions[unit.definitions[0]]);
      }
    }
    plan_memory(&out_);
    share_kernels();
    return std::move(out_);
  }

 private:
  // A result lies in memory if somebody outside of its unit needs it.
  void find_stored(const Grouping& grouping, KernelContext* context) {
    context->producer.assign(graph_.buffers.size(), -1);
    context->stored = kept_in_memory(graph_);
    std::vector<int> unit_of(graph_.definitions.size());
    for (size_t u = 0; u < grouping.units.size(); ++u)
      for (int d : grouping.units[u].definitions)
        unit_of[d] = static_cast<int>(u);
    for (size_t d = 0; d < graph_.definitions.size(); ++d)
      for (BufferId result : graph_.definitions[d].results)
        context->producer[result] = static_cast<int>(d);
    for (size_t d = 0; d < graph_.definitions.size(); ++d) {
      for (const Access& access : graph_.definitions[d].accesses) {
        int producer = context->producer[access.buffer];
        if (producer >= 0 && unit_of[producer] != unit_of[d])
          context->stored[access.buffer] = true;
      }
    }
  }

  void add_call(const Definition& d) {
    if (d.kind != DefinitionKind::kExtern) return;
    Step step;
    step.call = static_cast<int>(out_.calls.size());
    step.arguments = d.operands;
    step.results = d.results;
    out_.calls.push_back(d);
    out_.steps.push_back(std::move(step));
  }

  void add_kernel(KernelContext& context, const Unit& unit) {
    BuiltKernel built = build_kernel(context, unit);
    const size_t count = unit.definitions.size();
    int nodes = 0;
    for (const Stage& stage : built.kernel.stages)
      nodes += target_.size(stage.body);
    if (count > 1 &&
        (nodes > 2 * target_.max_nodes ||
         static_cast<int>(built.arguments.size()) > 2 * target_.max_arguments))
      return split(context, unit);
    const Definition& last = graph_.definitions[unit.definitions.back()];
    const bool is_update = last.kind == DefinitionKind::kUpdate;
    arrange_loops(&built.kernel, is_update, target_);
    keep_values(&built.kernel, target_);
    built.kernel.name = is_update                            ? "update"
                        : last.kind == DefinitionKind::kScan ? "scan"
                        : unit.is_staged                     ? "reduce"
                                                             : "map";
    Step step;
    step.kernel = static_cast<int>(out_.kernels.size());
    step.arguments = built.arguments;
    if (is_update) step.base = last.base;
    for (size_t i = 0; i < built.arguments.size(); ++i)
      if (built.kernel.arguments[i].is_written)
        step.results.push_back(built.arguments[i]);
    out_.kernels.push_back(std::move(built.kernel));
    out_.steps.push_back(std::move(step));
  }

  // Too large after all, for elements are computed again in several stages: the
  // first half of the definitions, then the rest.
  void split(KernelContext& context, const Unit& unit) {
    Unit halves[2] = {unit, unit};
    const auto middle = unit.definitions.begin() + unit.definitions.size() / 2;
    halves[0].definitions.assign(unit.definitions.begin(), middle);
    halves[1].definitions.assign(middle, unit.definitions.end());
    for (int d : halves[1].definitions) {
      for (const Access& access : graph_.definitions[d].accesses) {
        int producer = context.producer[access.buffer];
        if (std::binary_search(halves[0].definitions.begin(),
                               halves[0].definitions.end(), producer))
          context.stored[access.buffer] = true;
      }
    }
    for (const Unit& half : halves) add_kernel(context, half);
  }

  // Steps that do the same have one kernel.
  void share_kernels() {
    std::unordered_map<std::string, int> known;
    std::vector<Kernel> kernels;
    for (Step& step : out_.steps) {
      if (step.kernel < 0) continue;
      Kernel& kernel = out_.kernels[step.kernel];
      auto [found, is_new] =
          known.emplace(print(kernel), static_cast<int>(kernels.size()));
      if (is_new) {
        if (std::string wrong = verify(kernel); !wrong.empty())
          throw InternalError(__FILE__, __LINE__, wrong + "\n" + print(kernel));
        kernels.push_back(std::move(kernel));
      }
      step.kernel = found->second;
    }
    out_.kernels = std::move(kernels);
  }

  LoopGraph graph_;
  const TargetInfo& target_;
  Schedule out_;
};

}  // namespace

Schedule make_schedule(const LoopGraph& graph, const TargetInfo& target) {
  return Maker(graph, target).run();
}

}  // namespace framejit::codegen
