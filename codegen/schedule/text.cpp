#include <algorithm>
#include <numeric>

#include "codegen/kernels/text.h"
#include "codegen/loops/text.h"
#include "codegen/schedule/schedule.h"

namespace framejit::codegen {

namespace {

std::string list(const std::vector<Expr>& items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i)
    out += (i ? ", " : "") + items[i].str();
  return out + "]";
}

std::string list(const std::vector<BufferId>& buffers) {
  std::string out = "(";
  for (size_t i = 0; i < buffers.size(); ++i)
    out += (i ? ", %" : "%") + std::to_string(buffers[i]);
  return out + ")";
}

// number: of the allocation; -1: for people, who need not know it.
std::string memory_text(const Allocation& allocation, int number) {
  std::string out;
  switch (allocation.kind) {
    case MemoryKind::kInput:
      out = "input " + std::to_string(allocation.number);
      break;
    case MemoryKind::kOutput:
      out = "output " + std::to_string(allocation.number);
      break;
    case MemoryKind::kArena:
      out = "arena " + allocation.offset.str();
      break;
  }
  if (number >= 0 || allocation.kind == MemoryKind::kArena)
    out += " bytes " + allocation.bytes.str() + " steps " +
           std::to_string(allocation.first) + "-" +
           std::to_string(allocation.last);
  return number >= 0 ? out + " memory " + std::to_string(number) : out;
}

std::string stage_text(const Stage& stage) {
  std::string out = "    stage " + list(stage.loops) + ":";
  for (const Reduction& reduction : stage.reductions)
    out += std::string(" ") + combiner_row(reduction.combiner).text;
  if (!stage.rows.empty()) out += " rows " + std::to_string(stage.rows.size());
  std::vector<int> loads;
  for (const Place& place : stage.loads) loads.push_back(place.argument);
  std::sort(loads.begin(), loads.end());
  loads.erase(std::unique(loads.begin(), loads.end()), loads.end());
  for (int argument : loads) out += " load " + std::to_string(argument);
  for (const Store& store : stage.stores)
    out += " store " + std::to_string(store.place.argument);
  return out + "\n";
}

std::string kernel_text(const Kernel& kernel, size_t number) {
  std::string out =
      "  kernel " + std::to_string(number) + " " + kernel.name + " outer " +
      list(kernel.loops) + " vectors " +
      (kernel.vectorised == Vectorised::kOuter ? "outer" : "inner") + "\n";
  for (const Stage& stage : kernel.stages) out += stage_text(stage);
  return out;
}

// Elements that a place meets, however often.
int64_t elements_met(const Kernel& kernel, const Stage& stage,
                     const Place& place, const TargetInfo& target) {
  int64_t out = 1;
  for (size_t loop = 0; loop < place.strides.size(); ++loop) {
    const size_t outer = kernel.loops.size();
    const Expr& extent =
        loop < outer ? kernel.loops[loop] : stage.loops[loop - outer];
    if (!place.strides[loop].is_const(0) || !place.data.empty())
      out *= std::max<int64_t>(target.hint(extent), 0);
  }
  return out;
}

}  // namespace

std::string print(const Schedule& schedule, bool with_bodies) {
  std::string out = "schedule {\n";
  if (with_bodies) {
    out += "  inputs " + list(schedule.inputs) + "\n";
    out += "  arena " + schedule.arena_bytes.str() + "\n";
  }
  for (size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    int allocation = schedule.allocation(static_cast<BufferId>(i));
    if (allocation < 0) continue;
    out += "  %" + std::to_string(i) + " : " + dtype_name(buffer.type) +
           list(buffer.sizes);
    if (buffer.strides != contiguous_strides(buffer.sizes))
      out += " strides " + list(buffer.strides);
    if (buffer.alias_of != kNoBuffer) {
      out += " alias %" + std::to_string(buffer.alias_of);
      if (!buffer.offset.is_const(0)) out += " offset " + buffer.offset.str();
    } else {
      out += " " + memory_text(schedule.allocations[allocation],
                               with_bodies ? allocation : -1);
    }
    out += "\n";
  }
  for (const Step& step : schedule.steps) {
    if (step.kernel >= 0) {
      out +=
          "  run " + std::to_string(step.kernel) + " " + list(step.arguments);
      if (with_bodies) out += " -> " + list(step.results);
      if (step.base != kNoBuffer) out += " over %" + std::to_string(step.base);
      out += "\n";
    } else {
      const Definition& call = schedule.calls[step.call];
      out += "  " + call_text(call) + " " + list(step.arguments) + " -> " +
             list(step.results) + "\n";
    }
  }
  for (size_t i = 0; i < schedule.kernels.size(); ++i) {
    out += kernel_text(schedule.kernels[i], i);
    if (with_bodies) out += print(schedule.kernels[i]);
  }
  out += "  return " + list(schedule.outputs);
  for (size_t i = 0; i < schedule.outputs.size(); ++i)
    if (schedule.places[i] != kNoBuffer)
      out += ", %" + std::to_string(schedule.outputs[i]) + " into %" +
             std::to_string(schedule.places[i]);
  return out + "\n}\n";
}

int64_t bytes_moved(const Schedule& schedule, const Step& step,
                    const TargetInfo& target) {
  if (step.kernel < 0) return 0;
  int64_t bytes = 0;
  const Kernel& kernel = schedule.kernels[step.kernel];
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const int64_t size = target.hint(schedule.buffers[step.arguments[i]].sizes);
    int64_t read = 0, written = 0;
    bool is_stored = false;
    for (const Stage& stage : kernel.stages) {
      int64_t in_stage = 0;
      for (const Place& place : stage.loads)
        // What an earlier stage stored is in cache.
        if (place.argument == static_cast<int>(i) && !is_stored)
          in_stage += elements_met(kernel, stage, place, target);
      read = std::max(read, std::min(in_stage, size));
      for (const Store& store : stage.stores) {
        if (store.place.argument != static_cast<int>(i)) continue;
        int64_t met = elements_met(kernel, stage, store.place, target);
        written = std::min(written + met, size);
        if (store.combiner) read = std::max(read, std::min(met, size));
        is_stored = true;
      }
    }
    bytes += (read + written) *
             static_cast<int64_t>(dtype_size(kernel.arguments[i].type));
  }
  return bytes;
}

int64_t bytes_moved(const Schedule& schedule, const TargetInfo& target) {
  int64_t bytes = 0;
  for (const Step& step : schedule.steps)
    bytes += bytes_moved(schedule, step, target);
  return bytes;
}

}  // namespace framejit::codegen
