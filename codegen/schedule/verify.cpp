// What must hold of a schedule. Overlaps in the arena are found where offsets
// are constant; those that have symbols are of regions of their own.
#include <algorithm>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/memory_plan.h"
#include "codegen/schedule/schedule.h"

namespace framejit::codegen {

namespace {

class Verifier {
 public:
  explicit Verifier(const Schedule& schedule) : schedule_(schedule) {}

  std::string run() {
    for (const Kernel& kernel : schedule_.kernels)
      if (std::string wrong = framejit::codegen::verify(kernel); !wrong.empty())
        return "kernel " + kernel.name + ": " + wrong;
    if (schedule_.allocation_of.size() != schedule_.buffers.size())
      return "not an allocation a buffer";
    for (int allocation : schedule_.allocation_of)
      if (allocation >= static_cast<int>(schedule_.allocations.size()))
        return "an allocation that is not there";
    holder_.assign(schedule_.allocations.size(), kNoBuffer);
    for (BufferId input : schedule_.inputs) hold(input);
    for (size_t s = 0; s < schedule_.steps.size() && wrong_.empty(); ++s) {
      step_ = static_cast<int>(s);
      step(schedule_.steps[s]);
      if (!wrong_.empty()) wrong_ = "step " + std::to_string(s) + ": " + wrong_;
    }
    step_ = static_cast<int>(schedule_.steps.size());
    for (BufferId output : schedule_.outputs)
      if (wrong_.empty()) reads(output);
    if (wrong_.empty()) arena();
    if (wrong_.empty()) places();
    return wrong_;
  }

 private:
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  BufferId root(BufferId buffer) const {
    BufferId base = schedule_.buffers[buffer].alias_of;
    return base == kNoBuffer ? buffer : base;
  }
  int allocation(BufferId buffer) {
    int number = schedule_.allocation(buffer);
    if (number < 0) fail("%" + std::to_string(buffer) + " has no memory");
    return number;
  }
  void hold(BufferId buffer) {
    int number = allocation(buffer);
    if (number >= 0) holder_[number] = root(buffer);
  }
  // Its memory holds it, and not what came before or behind it.
  void reads(BufferId buffer) {
    int number = allocation(buffer);
    if (number < 0) return;
    if (holder_[number] != root(buffer))
      fail("%" + std::to_string(buffer) + " is not in its memory");
    const Allocation& allocation = schedule_.allocations[number];
    if (allocation.kind == MemoryKind::kArena &&
        (step_ < allocation.first || step_ > allocation.last))
      fail("%" + std::to_string(buffer) + " is read after its time");
  }
  void writes(BufferId buffer) {
    int number = allocation(buffer);
    if (number < 0) return;
    const Allocation& allocation = schedule_.allocations[number];
    if (allocation.kind == MemoryKind::kInput) {
      bool is_place = false;
      for (size_t i = 0; i < schedule_.outputs.size(); ++i)
        is_place |= schedule_.places[i] != kNoBuffer &&
                    schedule_.allocation(schedule_.outputs[i]) == number;
      if (!is_place) fail("an input is written");
    }
    if (step_ < allocation.first || step_ > allocation.last)
      fail("%" + std::to_string(buffer) + " is written after its time");
    if (schedule_.buffers[buffer].alias_of != kNoBuffer)
      fail("an alias is written");
    if (allocation.bytes != bytes_of(schedule_.buffers[buffer]))
      fail("%" + std::to_string(buffer) + " is not as large as its memory");
  }

  void step(const Step& step) {
    if (step.kernel < 0) {
      if (step.call < 0 ||
          step.call >= static_cast<int>(schedule_.calls.size()))
        return fail("a call that is not there");
      for (BufferId buffer : step.arguments) reads(buffer);
      for (BufferId buffer : step.results) {
        writes(buffer);
        for (BufferId argument : step.arguments)
          if (schedule_.allocation(argument) == schedule_.allocation(buffer) &&
              !can_write_over(schedule_.buffers, schedule_.calls[step.call],
                              root(argument)))
            fail("a call's result lies in an operand's memory");
        hold(buffer);
      }
      return;
    }
    if (step.kernel >= static_cast<int>(schedule_.kernels.size()))
      return fail("a kernel that is not there");
    const Kernel& kernel = schedule_.kernels[step.kernel];
    if (step.base != kNoBuffer) {
      reads(step.base);
      if (step.results.size() != 1 || schedule_.allocation(step.base) !=
                                          schedule_.allocation(step.results[0]))
        fail("an update that is not in the place of its base");
    }
    if (kernel.arguments.size() != step.arguments.size())
      return fail("not as many buffers as arguments");
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      BufferId buffer = step.arguments[i];
      if (schedule_.buffers[buffer].type != kernel.arguments[i].type)
        fail("an argument of another type");
      bool is_result =
          std::count(step.results.begin(), step.results.end(), buffer) > 0;
      if (is_result != kernel.arguments[i].is_written)
        fail("results are what is written");
      if (!is_result) reads(buffer);
      if (!is_result) continue;
      writes(buffer);
      for (size_t j = 0; j < step.arguments.size(); ++j)
        if (j != i && schedule_.allocation(step.arguments[j]) ==
                          schedule_.allocation(buffer))
          fail("two arguments share memory that is written");
    }
    for (BufferId buffer : step.results) hold(buffer);
  }

  void places() {
    if (schedule_.places.size() != schedule_.outputs.size())
      return fail("not a place an output");
    for (size_t i = 0; i < schedule_.places.size(); ++i)
      if (schedule_.places[i] != kNoBuffer &&
          schedule_.allocation(schedule_.outputs[i]) !=
              schedule_.allocation(schedule_.places[i]))
        fail("an output that is not in its place");
    for (size_t s = schedule_.first_write(); s < schedule_.steps.size(); ++s)
      if (can_fail(schedule_, schedule_.steps[s]))
        fail("step " + std::to_string(s) + " can fail behind a write");
  }

  void arena() {
    struct Part {
      int64_t begin, end;
      int first, last;
    };
    std::vector<Part> parts;
    for (const Allocation& allocation : schedule_.allocations) {
      if (allocation.kind != MemoryKind::kArena ||
          !allocation.offset.is_const() || !allocation.bytes.is_const() ||
          allocation.bytes.is_const(0))
        continue;
      int64_t begin = allocation.offset.constant();
      parts.push_back({begin, begin + allocation.bytes.constant(),
                       allocation.first, allocation.last});
      if (schedule_.arena_bytes.is_const() &&
          parts.back().end > schedule_.arena_bytes.constant())
        fail("an allocation beyond the arena");
    }
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < parts.size(); ++i)
      for (size_t j = i + 1; j < parts.size() && parts[j].begin < parts[i].end;
           ++j)
        if (parts[i].first <= parts[j].last && parts[j].first <= parts[i].last)
          fail("two allocations overlap in the arena");
  }

  const Schedule& schedule_;
  std::vector<BufferId> holder_;  // of each allocation
  int step_ = 0;
  std::string wrong_;
};

}  // namespace

bool can_fail(const Schedule& schedule, const Step& step) {
  if (step.kernel < 0) return !schedule.calls[step.call].sure;
  const auto& stages = schedule.kernels[step.kernel].stages;
  return std::any_of(stages.begin(), stages.end(),
                     [](const Stage& stage) { return has_check(stage.body); });
}

size_t Schedule::first_write() const {
  for (size_t s = 0; s < steps.size(); ++s)
    for (BufferId result : steps[s].results)
      if (allocations[allocation(result)].kind == MemoryKind::kInput) return s;
  return steps.size();
}

std::string verify(const Schedule& schedule) {
  return Verifier(schedule).run();
}

}  // namespace framejit::codegen
