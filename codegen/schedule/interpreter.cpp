#include <cstring>

#include "codegen/kernels/interpreter.h"
#include "codegen/schedule/memory_plan.h"
#include "codegen/schedule/schedule.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

// What nobody has written yet: NaN, and no small number.
constexpr char kUnwritten = static_cast<char>(0xfb);

class Runner {
 public:
  Runner(const Schedule& schedule, const int64_t* symbols)
      : schedule_(schedule), symbols_(symbols) {}

  std::string run(std::span<const void* const> inputs,
                  std::span<void* const> outputs, const ExternCall& call,
                  const KernelRun& run) {
    place(inputs);
    for (const Step& step : schedule_.steps) {
      if (step.kernel < 0) {
        const Definition& definition = schedule_.calls[step.call];
        if (!call ||
            !call(definition, pointers(step.arguments), pointers(step.results)))
          return "an extern call failed";
      } else if (!run(schedule_.kernels[step.kernel], symbols_,
                      pointers(step.arguments))) {
        return "a check failed";
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      copy(schedule_.outputs[i], static_cast<char*>(outputs[i]));
    return "";
  }

 private:
  void place(std::span<const void* const> inputs) {
    arena_.assign(schedule_.arena_bytes.evaluate(symbols_), kUnwritten);
    owned_.resize(schedule_.allocations.size());
    for (size_t i = 0; i < schedule_.allocations.size(); ++i) {
      const Allocation& allocation = schedule_.allocations[i];
      const int64_t bytes = allocation.bytes.evaluate(symbols_);
      switch (allocation.kind) {
        case MemoryKind::kInput: {
          // Of one that is written, a copy.
          auto* input =
              static_cast<char*>(const_cast<void*>(inputs[allocation.number]));
          if (is_place(i)) {
            owned_[i].assign(input, input + bytes);
            input = owned_[i].data();
          }
          first_.push_back(input);
          break;
        }
        case MemoryKind::kOutput:
          owned_[i].assign(bytes, kUnwritten);
          first_.push_back(owned_[i].data());
          break;
        case MemoryKind::kArena: {
          int64_t offset = allocation.offset.evaluate(symbols_);
          FJ_CHECK(offset >= 0 && offset % kAlignment == 0 &&
                   offset + bytes <= static_cast<int64_t>(arena_.size()));
          first_.push_back(arena_.data() + offset);
          break;
        }
      }
    }
  }

  bool is_place(size_t allocation) const {
    for (BufferId place : schedule_.places)
      if (place != kNoBuffer &&
          schedule_.allocation(place) == static_cast<int>(allocation))
        return true;
    return false;
  }

  char* pointer(BufferId id) {
    const Buffer& buffer = schedule_.buffers[id];
    int64_t offset = buffer.offset.evaluate(symbols_);
    return first_[schedule_.allocation(id)] +
           offset * static_cast<int64_t>(dtype_size(buffer.type));
  }
  std::vector<void*> pointers(const std::vector<BufferId>& buffers) {
    std::vector<void*> out;
    for (BufferId buffer : buffers) out.push_back(pointer(buffer));
    return out;
  }

  // An output in its own layout, from its first element on.
  void copy(BufferId id, char* to) {
    const Buffer& buffer = schedule_.buffers[id];
    const char* from = pointer(id);
    const int64_t item = static_cast<int64_t>(dtype_size(buffer.type));
    std::vector<int64_t> sizes, strides, at(buffer.sizes.size());
    for (size_t i = 0; i < at.size(); ++i) {
      sizes.push_back(buffer.sizes[i].evaluate(symbols_));
      strides.push_back(buffer.strides[i].evaluate(symbols_));
      if (sizes.back() == 0) return;
    }
    for (;;) {
      int64_t offset = 0;
      for (size_t i = 0; i < at.size(); ++i) offset += at[i] * strides[i];
      std::memcpy(to + offset * item, from + offset * item, item);
      size_t dim = at.size();
      while (dim > 0 && ++at[dim - 1] == sizes[dim - 1]) at[--dim] = 0;
      if (dim == 0) return;
    }
  }

  const Schedule& schedule_;
  const int64_t* symbols_;
  std::vector<char> arena_;
  std::vector<std::vector<char>> owned_;
  std::vector<char*> first_;  // of each allocation
};

}  // namespace

std::string interpret(const Schedule& schedule, const int64_t* symbols,
                      std::span<const void* const> inputs,
                      std::span<void* const> outputs, const ExternCall& call,
                      const KernelRun& run) {
  const KernelRun interpreter = [](const Kernel& kernel, const int64_t* values,
                                   std::span<void* const> arguments) {
    return framejit::codegen::interpret(kernel, values, arguments);
  };
  return Runner(schedule, symbols)
      .run(inputs, outputs, call, run ? run : interpreter);
}

}  // namespace framejit::codegen
