#include "backend/scheduled_loops.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>

#include "backend/profiled.h"

namespace framejit::backend {

using codegen::Allocation;
using codegen::BufferId;
using codegen::MemoryKind;
using codegen::Step;
using graph::TensorMeta;

namespace {

// What a kernel of so many elements takes is little more than a call costs.
constexpr int64_t kBriefBytes = 16384;
constexpr size_t kBriefSteps = 4;
// Elements a thread has to have for its start to pay.
constexpr int64_t kGrain = 16384;

using Sizes = c10::SmallVector<int64_t, 6>;

Sizes values_of(const std::vector<Expr>& list, const int64_t* symbols) {
  Sizes out;
  for (const Expr& e : list) out.push_back(e.evaluate(symbols));
  return out;
}

at::Storage new_storage(int64_t bytes) {
  return at::Storage(at::Storage::use_byte_size_t(), bytes,
                     c10::GetCPUAllocator(), /*resizable=*/true);
}

// Memory of the storage as a tensor.
at::Tensor tensor_at(const at::Storage& storage, int64_t first_byte,
                     const TensorMeta& meta, const int64_t* symbols) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      at::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::fromScalarType(meta.dtype));
  const int64_t item = static_cast<int64_t>(tensor.itemsize());
  FJ_CHECK(first_byte % item == 0);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      values_of(meta.sizes, symbols), values_of(meta.strides, symbols),
      first_byte / item);
  if (meta.is_conj) tensor = at::_conj(tensor);
  if (meta.is_neg) tensor = at::_neg_view(tensor);
  return tensor;
}

// A tensor of its own with the same content and strides.
at::Tensor copy_of(const at::Tensor& tensor) {
  at::Tensor copy =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  return copy.copy_(tensor);
}

}  // namespace

std::unique_ptr<ScheduledLoops> ScheduledLoops::make(
    const LoweredGraph& graph, codegen::X86Isa isa,
    const LoopOperands::RegisterOf& register_of, std::vector<bool> freed,
    std::string* reason) {
  std::unique_ptr<ScheduledLoops> made(
      new ScheduledLoops(LoopOperands(graph, register_of), std::move(freed),
                         describe_nodes(graph)));
  codegen::TargetInfo target;
  target.threads = at::get_num_threads();
  target.vector_bytes = isa == codegen::X86Isa::kAvx512 ? 64 : 32;
  made->schedule_ = codegen::make_schedule(graph.loops, target);
  for (const codegen::Kernel& kernel : made->schedule_.kernels) {
    codegen::Compiled compiled = codegen::compile(kernel, isa);
    if (!compiled.code) {
      *reason = compiled.refused;
      return nullptr;
    }
    made->kernels_.push_back(
        {std::move(compiled.code), "fj::kernel " + kernel.name});
  }
  made->dying_.resize(made->schedule_.steps.size());
  for (size_t i = 0; i < made->schedule_.allocations.size(); ++i) {
    const Allocation& allocation = made->schedule_.allocations[i];
    const auto last = static_cast<size_t>(allocation.last);
    if (allocation.kind != MemoryKind::kOutput && last < made->dying_.size())
      made->dying_[last].push_back(static_cast<int>(i));
  }
  return made;
}

// One run: where each allocation is.
class ScheduledLoops::Run {
 public:
  Run(const ScheduledLoops& loops, const int64_t* symbols,
      c10::IValue* registers)
      : loops_(loops),
        schedule_(loops.schedule_),
        symbols_(symbols),
        registers_(registers),
        memory_(schedule_.allocations.size()) {
    const int64_t arena_bytes = schedule_.arena_bytes.evaluate(symbols);
    if (arena_bytes > 0) arena_ = new_storage(arena_bytes);
    for (size_t i = 0; i < memory_.size(); ++i) place(i);
  }

  void kernel(const Step& step) {
    const codegen::Kernel& kernel = schedule_.kernels[step.kernel];
    const Native& native = loops_.kernels_[step.kernel];
    const Profiled profiled(native.name);
    c10::SmallVector<void*, 16> arguments;
    for (BufferId buffer : step.arguments)
      arguments.push_back(pointer_of(buffer));
    c10::SmallVector<int64_t, 16> parameters;
    for (const Expr& parameter : native.code->parameters)
      parameters.push_back(parameter.evaluate(symbols_));
    const codegen::KernelCall call{arguments.data(), parameters.data()};
    int64_t points = 1, inner = 1;
    for (const Expr& extent : kernel.loops) points *= extent.evaluate(symbols_);
    for (const codegen::Stage& stage : kernel.stages) {
      int64_t elements = 1;
      for (const Expr& extent : stage.loops)
        elements *= extent.evaluate(symbols_);
      inner = std::max(inner, elements);
    }
    if (points <= 0) return;
    std::atomic<bool> failed = false;
    const int64_t grain = std::max<int64_t>(1, kGrain / inner);
    if (points <= grain || at::get_num_threads() == 1) {
      failed = native.code->function(&call, 0, points) != 0;
    } else {
      at::parallel_for(0, points, grain, [&](int64_t begin, int64_t end) {
        if (native.code->function(&call, begin, end) != 0) failed = true;
      });
    }
    TORCH_CHECK(!failed, "framejit: a check of a kernel failed");
  }

  void extern_call(const Step& step, const Call& call) {
    const int number = schedule_.calls[step.call].callee;
    const LoopOperands::Callee& callee = loops_.operands_.callees[number];
    for (size_t i = 0; i < callee.operands.size(); ++i)
      registers_[callee.operands[i].reg] =
          operand(step.arguments[i], callee.operands[i]);
    call(number);
    for (const LoopOperand& place : callee.operands)
      if (!place.is_input) registers_[place.reg] = c10::IValue();
    for (size_t i = 0; i < callee.results.size(); ++i) {
      c10::IValue& result = registers_[callee.results[i].reg];
      at::Tensor tensor = result.toTensor();
      result = c10::IValue();
      if (!tensor.defined()) continue;
      // Others hold it, too (an operand, the operator itself): not ours to
      // write over.
      if (tensor.use_count() != 1 || tensor.storage().use_count() != 1)
        tensor = copy_of(tensor);
      Memory& memory = memory_[schedule_.allocation(step.results[i])];
      memory.tensor = tensor;
      memory.storage = tensor.storage();
      memory.first_byte =
          tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
      memory.first =
          static_cast<char*>(const_cast<void*>(tensor.storage().data())) +
          memory.first_byte;
    }
  }

  void release(const std::vector<int>& allocations) {
    for (int number : allocations) {
      const Allocation& allocation = schedule_.allocations[number];
      if (allocation.kind == MemoryKind::kInput) {
        if (!loops_.freed_[allocation.number]) continue;
        registers_[loops_.operands_.inputs[allocation.number].reg] =
            c10::IValue();
      }
      memory_[number].tensor = at::Tensor();
      memory_[number].storage = at::Storage();
    }
  }

  void give_outputs() {
    for (size_t i = 0; i < loops_.operands_.outputs.size(); ++i) {
      const LoopOperand& place = loops_.operands_.outputs[i];
      const BufferId buffer = schedule_.outputs[i];
      registers_[place.reg] = operand(buffer, place);
    }
  }

 private:
  struct Memory {
    at::Storage storage;
    int64_t first_byte = 0;  // of the storage
    char* first = nullptr;
    at::Tensor tensor;  // the whole of it, as it came
  };

  void place(size_t number) {
    const Allocation& allocation = schedule_.allocations[number];
    Memory& memory = memory_[number];
    switch (allocation.kind) {
      case MemoryKind::kInput:
        memory.tensor =
            registers_[loops_.operands_.inputs[allocation.number].reg]
                .toTensor();
        memory.storage = memory.tensor.storage();
        memory.first_byte = memory.tensor.storage_offset() *
                            static_cast<int64_t>(memory.tensor.itemsize());
        break;
      case MemoryKind::kOutput:
        memory.storage = new_storage(allocation.bytes.evaluate(symbols_));
        break;
      case MemoryKind::kArena:
        if (!arena_) return;
        memory.storage = arena_;
        memory.first_byte = allocation.offset.evaluate(symbols_);
        break;
    }
    memory.first =
        static_cast<char*>(const_cast<void*>(memory.storage.data())) +
        memory.first_byte;
  }

  int64_t offset_of(BufferId id) const {
    const codegen::Buffer& buffer = schedule_.buffers[id];
    return buffer.offset.evaluate(symbols_) *
           static_cast<int64_t>(codegen::dtype_size(buffer.type));
  }
  void* pointer_of(BufferId id) const {
    return memory_[schedule_.allocation(id)].first + offset_of(id);
  }
  at::Tensor operand(BufferId id, const LoopOperand& place) const {
    const Memory& memory = memory_[schedule_.allocation(id)];
    if (memory.tensor.defined() &&
        schedule_.buffers[id].alias_of == codegen::kNoBuffer)
      return memory.tensor;
    return tensor_at(memory.storage, memory.first_byte + offset_of(id),
                     place.meta, symbols_);
  }

  const ScheduledLoops& loops_;
  const codegen::Schedule& schedule_;
  const int64_t* symbols_;
  c10::IValue* registers_;
  at::Storage arena_;
  std::vector<Memory> memory_;
};

void ScheduledLoops::run(const int64_t* symbols, c10::IValue* registers,
                         const Call& call) const {
  Run run(*this, symbols, registers);
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    const Step& step = schedule_.steps[i];
    if (step.kernel >= 0) {
      run.kernel(step);
    } else {
      run.extern_call(step, call);
    }
    run.release(dying_[i]);
  }
  run.give_outputs();
}

std::vector<std::string> ScheduledLoops::texts() const {
  return {codegen::print(schedule_, /*with_bodies=*/true) + nodes_};
}

bool ScheduledLoops::is_brief() const {
  if (schedule_.steps.size() > kBriefSteps || !schedule_.calls.empty())
    return false;
  return std::all_of(schedule_.allocations.begin(), schedule_.allocations.end(),
                     [](const Allocation& allocation) {
                       return allocation.bytes.is_const() &&
                              allocation.bytes.constant() <= kBriefBytes;
                     });
}

}  // namespace framejit::backend
