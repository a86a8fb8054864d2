#include "backend/scheduled_loops.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

#include "backend/cuda_report.h"
#include "backend/kernel_names.h"
#include "backend/profiled.h"
#include "backend/scratch.h"
#include "frame_hook/options.h"

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

// A tensor of its own with the same content and strides. (Elements that share a
// place go on to.)
at::Tensor copy_of(const at::Tensor& tensor) {
  if (tensor.is_conj()) return at::_conj(copy_of(at::_conj(tensor)));
  if (tensor.is_neg()) return at::_neg_view(copy_of(at::_neg_view(tensor)));
  if (at::has_internal_overlap(tensor) == at::MemOverlap::No) {
    at::Tensor copy =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    return copy.copy_(tensor);
  }
  int64_t places = 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    places += (tensor.size(dim) - 1) * tensor.stride(dim);
  return tensor.as_strided({tensor.numel() == 0 ? 0 : places}, {1})
      .clone()
      .as_strided(tensor.sizes(), tensor.strides());
}

char* data_of(const at::Storage& storage) {
  return static_cast<char*>(const_cast<void*>(storage.data()));
}

int64_t first_byte_of(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
}

// Of a kernel's results, the nodes that made them.
void note_refused(const LoweredGraph& graph, const codegen::Schedule& schedule,
                  int kernel, const std::string& why, RefusedNodes* refused) {
  for (const Step& step : schedule.steps) {
    if (step.kernel != kernel) continue;
    for (BufferId result : step.results) {
      if (static_cast<size_t>(result) >= graph.node_of.size()) continue;
      const graph::Node* node = graph.node_of[result];
      if (node && std::count(graph.lowered.begin(), graph.lowered.end(), node))
        refused->emplace_back(node, "no machine code: " + why);
    }
  }
}

// The loops, and which calls write their result where that is to lie.
codegen::LoopGraph with_out_calls(const LoweredGraph& graph,
                                  const std::vector<const OutCall*>& calls) {
  codegen::LoopGraph out = graph.loops;
  for (codegen::Definition& d : out.definitions) {
    if (d.kind != codegen::DefinitionKind::kExtern || !calls[d.callee])
      continue;
    d.into = true;
    const int over = calls[d.callee]->over;
    if (over < 0) continue;
    const LoweredGraph::Callee& callee = graph.callees[d.callee];
    const graph::Value* argument = callee.node->args[over].get<graph::Value*>();
    int uses = 0;
    for (const graph::Arg& arg : callee.node->args)
      graph::for_each_value(
          arg, [&](const graph::Value* value) { uses += value == argument; });
    // What is read in another way, too, cannot be written meanwhile.
    if (uses == 1)
      d.over = static_cast<int>(
          std::find(callee.operands.begin(), callee.operands.end(), argument) -
          callee.operands.begin());
  }
  return out;
}

}  // namespace

// ---- what is known before any run

ScheduledLoops::Layout::Layout(const TensorMeta& meta)
    : sizes(meta.sizes.begin(), meta.sizes.end()),
      strides(meta.strides.begin(), meta.strides.end()),
      dtype(meta.dtype),
      is_conj(meta.is_conj),
      is_neg(meta.is_neg) {}

std::unique_ptr<ScheduledLoops> ScheduledLoops::make(
    const LoweredGraph& graph, const LoopOperands::RegisterOf& register_of,
    Request request, RefusedNodes* refused, std::string* reason) {
  std::unique_ptr<ScheduledLoops> made(new ScheduledLoops(
      LoopOperands(graph, register_of), describe_nodes(graph)));
  made->machine_ = request.machine;
  codegen::TargetInfo target = request.machine->target();
  target.hints = request.hints;
  const codegen::LoopGraph loops = with_out_calls(graph, request.out_calls);
  made->schedule_ = codegen::make_schedule(loops, target);
  made->target_ = std::move(target);
  made->names_ = kernel_names(graph, made->schedule_);
  std::vector<codegen::Kernel> kernels = made->schedule_.kernels;
  for (size_t k = 0; k < kernels.size(); ++k)
    kernels[k].name = made->name_of_kernel(k);
  auto compiled = request.machine->compile(kernels, request.hints);
  for (size_t k = 0; k < compiled.size(); ++k) {
    if (!compiled[k].kernel) {
      *reason = compiled[k].refused;
      note_refused(graph, made->schedule_, static_cast<int>(k), *reason,
                   refused);
    }
    made->codes_.push_back(std::move(compiled[k].kernel));
  }
  if (!reason->empty()) return nullptr;
  if (CudaReport* report = CudaReport::wanted())
    report->add(graph, loops, request.hints);
  made->work_out(request);
  if (options().perf_map) {
    for (size_t k = 0; k < made->codes_.size(); ++k)
      made->codes_[k]->give_name(made->name_of_kernel(k) + " of " +
                                 request.name);
  }
  return made;
}

// Steps that do the same share a kernel: of the first one.
std::string ScheduledLoops::name_of_kernel(size_t kernel) const {
  for (size_t i = 0; i < schedule_.steps.size(); ++i)
    if (schedule_.steps[i].kernel == static_cast<int>(kernel)) return names_[i];
  return "fj::kernel";
}

ScheduledLoops::Part ScheduledLoops::part(BufferId id) const {
  const codegen::Buffer& buffer = schedule_.buffers[id];
  const int allocation = schedule_.allocation(id);
  return {id, allocation,
          Amount(buffer.offset *
                 Expr(static_cast<int64_t>(codegen::dtype_size(buffer.type)))),
          schedule_.allocations[allocation].kind == MemoryKind::kInput &&
              buffer.alias_of == codegen::kNoBuffer};
}

void ScheduledLoops::work_out(const Request& request) {
  arena_bytes_ = Amount(schedule_.arena_bytes);
  first_write_ = schedule_.first_write();
  for (const Allocation& allocation : schedule_.allocations) {
    Place place;
    place.kind = allocation.kind;
    place.bytes = Amount(allocation.bytes);
    place.offset = Amount(allocation.offset);
    if (place.kind == MemoryKind::kInput) {
      place.input_register = operands_.inputs[allocation.number].reg;
      place.is_freed = request.freed[allocation.number];
      place.came_as = schedule_.inputs[allocation.number];
      place.promise = Promise(operands_.inputs[allocation.number].meta);
    }
    places_.push_back(std::move(place));
  }
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    const Step& step = schedule_.steps[i];
    for (BufferId argument : step.arguments)
      places_[schedule_.allocation(argument)].is_read = true;
    for (BufferId result : step.results)
      places_[schedule_.allocation(result)].is_written = true;
    if (step.kernel >= 0) {
      KernelStep out;
      out.kernel = codes_[step.kernel];
      out.name = names_[i];
      for (BufferId buffer : step.arguments)
        out.arguments.push_back(part(buffer));
      at_.push_back(static_cast<int>(kernels_.size()));
      kernels_.push_back(std::move(out));
      continue;
    }
    CallStep out;
    out.callee = schedule_.calls[step.call].callee;
    out.keeps_operands = request.keeps_operands[out.callee];
    for (BufferId buffer : step.arguments) out.operands.push_back(part(buffer));
    for (const LoopOperand& operand : operands_.callees[out.callee].operands)
      out.layouts.emplace_back(operand.meta);
    if (request.out_calls[out.callee])
      out.out.emplace(operands_.callees[out.callee].results[0].meta);
    for (BufferId buffer : step.results) {
      out.results.push_back(part(buffer));
      places_[out.results.back().allocation].brings_memory = !out.out;
    }
    if (out.out) {
      const Part& result = out.results[0];
      out.is_placed =
          schedule_.allocations[result.allocation].kind == MemoryKind::kInput;
      const int over = schedule_.calls[step.call].over;
      if (over >= 0 && out.operands[over].allocation == result.allocation)
        out.over_register = operands_.callees[out.callee].operands[over].reg;
    }
    at_.push_back(-1 - static_cast<int>(calls_.size()));
    calls_.push_back(std::move(out));
  }
  for (size_t i = 0; i < schedule_.outputs.size(); ++i) {
    outputs_.push_back(part(schedule_.outputs[i]));
    places_[outputs_.back().allocation].is_read = true;
    output_layouts_.emplace_back(operands_.outputs[i].meta);
  }
  dying_.resize(schedule_.steps.size());
  for (size_t i = 0; i < schedule_.allocations.size(); ++i) {
    const Allocation& allocation = schedule_.allocations[i];
    const auto last = static_cast<size_t>(allocation.last);
    if (allocation.kind != MemoryKind::kOutput && last < dying_.size() &&
        (allocation.kind != MemoryKind::kInput || places_[i].is_freed))
      dying_[last].push_back(static_cast<int>(i));
  }
}

// ---- one run: where each allocation is

class ScheduledLoops::Run {
 public:
  Run(const ScheduledLoops& loops, const int64_t* symbols,
      c10::IValue* registers)
      : loops_(loops),
        symbols_(symbols),
        registers_(registers),
        machine_(*loops.machine_),
        arena_(scratch(machine_, loops.arena_bytes_.at(symbols))),
        memory_(loops.places_.size()) {
    for (size_t i = 0; i < memory_.size(); ++i) place(i);
  }

  void kernel(const KernelStep& step) {
    const Profiled profiled(step.name);
    c10::SmallVector<void*, 24> arguments;
    for (const Part& part : step.arguments)
      arguments.push_back(memory_[part.allocation].first +
                          part.offset.at(symbols_));
    TORCH_CHECK(step.kernel->run(arguments.data(), symbols_),
                "framejit: a check of a kernel failed");
  }

  void extern_call(const CallStep& step, const Call& call) {
    const LoopOperands::Callee& callee = loops_.operands_.callees[step.callee];
    for (size_t i = 0; i < callee.operands.size(); ++i) {
      // An input's register has it.
      if (callee.operands[i].is_input) continue;
      at::Tensor tensor = operand(step.operands[i], step.layouts[i]);
      // Its memory may be written to again, by a later kernel or the program.
      if (step.keeps_operands) tensor = copy_of(tensor);
      registers_[callee.operands[i].reg] = std::move(tensor);
    }
    const bool writes_there = step.out && !are_calls_seen();
    if (writes_there) {
      const Part& part = step.results[0];
      Memory& memory = memory_[part.allocation];
      at::Tensor out = new_tensor(memory, part, *step.out);
      c10::IValue operand;
      if (step.over_register >= 0)
        operand = std::exchange(registers_[step.over_register], out);
      call(step.callee, &out);
      if (step.over_register >= 0)
        registers_[step.over_register] = std::move(operand);
      if (!step.is_placed) {
        memory.came_as = part.buffer;
        memory.tensor = std::move(out);
      }
    } else {
      call(step.callee, nullptr);
    }
    for (const LoopOperand& place : callee.operands)
      if (!place.is_input) registers_[place.reg] = c10::IValue();
    if (!writes_there) take_results(step);
  }

  void release(const std::vector<int>& allocations) {
    for (int number : allocations) {
      const Place& place = loops_.places_[number];
      if (place.is_freed) registers_[place.input_register] = c10::IValue();
      memory_[number].tensor = at::Tensor();
      memory_[number].storage = at::Storage();
    }
  }

  void give_outputs() {
    for (size_t i = 0; i < loops_.outputs_.size(); ++i)
      registers_[loops_.operands_.outputs[i].reg] =
          operand(loops_.outputs_[i], loops_.output_layouts_[i]);
  }

 private:
  struct Memory {
    char* first = nullptr;
    at::Storage storage;     // where there is no tensor
    int64_t first_byte = 0;  // of the storage
    at::Tensor tensor;       // the whole of it, as it came
    // What it was then. Another buffer may lie there by now, of other sizes.
    BufferId came_as = codegen::kNoBuffer;
  };
  using Sizes = c10::SmallVector<int64_t, 6>;

  // What a call returned, in the memory it lies in.
  void take_results(const CallStep& step) {
    const LoopOperands::Callee& callee = loops_.operands_.callees[step.callee];
    for (size_t i = 0; i < callee.results.size(); ++i) {
      at::Tensor tensor =
          std::move(registers_[callee.results[i].reg]).toTensor();
      registers_[callee.results[i].reg] = c10::IValue();
      if (!tensor.defined()) continue;
      if (step.is_placed) {
        const Part& part = step.results[i];
        new_tensor(memory_[part.allocation], part, *step.out).copy_(tensor);
        continue;
      }
      // Others hold it, too (an operand, the operator itself): not ours to
      // write over.
      if (tensor.use_count() != 1 || tensor.storage().use_count() != 1)
        tensor = copy_of(tensor);
      Memory& memory = memory_[step.results[i].allocation];
      memory.first_byte = first_byte_of(tensor);
      memory.first = data_of(tensor.storage()) + memory.first_byte;
      memory.storage = at::Storage();
      memory.came_as = step.results[i].buffer;
      memory.tensor = std::move(tensor);
    }
  }

  // Kernels read memory unseen. Guards look at the arguments of a call, but
  // what a hook of saved tensors gives back is anything.
  void expect(const Place& place, at::Tensor* tensor) const {
    const Promise::Kept kept = place.promise.kept_by(*tensor, symbols_);
    if (kept == Promise::Kept::kYes) return;
    const auto strides = place.promise.strides(symbols_);
    TORCH_CHECK(kept == Promise::Kept::kExceptStrides && !place.is_written &&
                    std::all_of(strides.begin(), strides.end(),
                                [](int64_t stride) { return stride > 0; }),
                "framejit: an input is ",
                place.promise.difference(*tensor, symbols_));
    at::Tensor copy =
        at::empty_strided(tensor->sizes(), strides, tensor->options());
    *tensor = copy.copy_(*tensor);
  }

  void place(size_t number) {
    const Place& place = loops_.places_[number];
    Memory& memory = memory_[number];
    switch (place.kind) {
      case MemoryKind::kInput: {
        // A backward is not given what its pattern does not need.
        if (!place.is_read) break;
        memory.tensor = registers_[place.input_register].toTensor();
        TORCH_CHECK(memory.tensor.defined(), "framejit: an input is missing");
        expect(place, &memory.tensor);
        memory.came_as = place.came_as;
        memory.first_byte = first_byte_of(memory.tensor);
        // Memory that it shares until somebody writes is its own then.
        if (place.is_written) memory.tensor.storage().mutable_data();
        memory.first = data_of(memory.tensor.storage()) + memory.first_byte;
        break;
      }
      case MemoryKind::kOutput:
        // What a call returns is taken as it is.
        if (place.brings_memory) break;
        memory.storage = machine_.new_storage(place.bytes.at(symbols_));
        memory.first = data_of(memory.storage);
        break;
      case MemoryKind::kArena:
        if (place.brings_memory || !arena_.storage()) break;
        memory.first_byte = place.offset.at(symbols_);
        memory.first = data_of(arena_.storage()) + memory.first_byte;
        break;
    }
  }

  static Scratch scratch(const LoopMachine& machine, int64_t bytes) {
    if (machine.device().is_cpu()) return Scratch(bytes);
    return Scratch(bytes > 0 ? machine.new_storage(bytes) : at::Storage());
  }

  Sizes values_of(const Amounts& amounts) const {
    Sizes out;
    for (const Amount& amount : amounts) out.push_back(amount.at(symbols_));
    return out;
  }

  // What replaces an input in its memory may lie there in another order.
  bool lies_as(const at::Tensor& tensor, const Layout& layout) const {
    if (tensor.dim() != static_cast<int64_t>(layout.sizes.size())) return false;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      const int64_t size = layout.sizes[dim].at(symbols_);
      if (tensor.size(dim) != size) return false;
      if (size > 1 && tensor.stride(dim) != layout.strides[dim].at(symbols_))
        return false;
    }
    return true;
  }

  at::Tensor operand(const Part& part, const Layout& layout) const {
    const Memory& memory = memory_[part.allocation];
    if (memory.tensor.defined() &&
        (memory.came_as == part.buffer ||
         (part.is_input && lies_as(memory.tensor, layout))))
      return memory.tensor;
    return new_tensor(memory, part, layout);
  }

  // Of what an allocation holds, a tensor over its memory.
  at::Tensor new_tensor(const Memory& memory, const Part& part,
                        const Layout& layout) const {
    const at::Storage& storage = memory.tensor.defined()
                                     ? memory.tensor.storage()
                                 : memory.storage ? memory.storage
                                                  : arena_.storage();
    return tensor_at(storage, memory.first_byte + part.offset.at(symbols_),
                     layout);
  }

  // Memory of the storage as a tensor.
  at::Tensor tensor_at(const at::Storage& storage, int64_t first_byte,
                       const Layout& layout) const {
    // Elements there are none of may be of an arena without memory.
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        storage ? at::Storage(storage) : machine_.new_storage(0),
        c10::DispatchKeySet(machine_.device().is_cpu()
                                ? c10::DispatchKey::CPU
                                : c10::DispatchKey::CUDA),
        caffe2::TypeMeta::fromScalarType(layout.dtype));
    const auto item = static_cast<int64_t>(tensor.itemsize());
    FJ_CHECK(first_byte % item == 0);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
        values_of(layout.sizes), values_of(layout.strides), first_byte / item);
    if (layout.is_conj) tensor = at::_conj(tensor);
    if (layout.is_neg) tensor = at::_neg_view(tensor);
    return tensor;
  }

  const ScheduledLoops& loops_;
  const int64_t* symbols_;
  c10::IValue* registers_;
  const LoopMachine& machine_;
  Scratch arena_;
  c10::SmallVector<Memory, 8> memory_;
};

void ScheduledLoops::run(const int64_t* symbols, c10::IValue* registers,
                         Call call, bool* wrote) const {
  c10::OptionalDeviceGuard guard;
  if (!machine_->device().is_cpu()) guard.reset_device(machine_->device());
  Run run(*this, symbols, registers);
  for (size_t i = 0; i < at_.size(); ++i) {
    if (i == first_write_) *wrote = true;
    if (at_[i] >= 0) {
      run.kernel(kernels_[at_[i]]);
    } else {
      run.extern_call(calls_[-1 - at_[i]], call);
    }
    if (!dying_[i].empty()) run.release(dying_[i]);
  }
  run.give_outputs();
}

std::vector<std::string> ScheduledLoops::texts() const {
  return {schedule_text()};
}

std::string ScheduledLoops::schedule_text() const {
  return codegen::print(schedule_, /*with_bodies=*/true) + "# kernels move " +
         std::to_string(codegen::bytes_moved(schedule_, target_)) + " bytes\n" +
         nodes_;
}

std::vector<std::string> ScheduledLoops::listings() const {
  std::vector<std::string> texts;
  for (size_t k = 0; k < codes_.size(); ++k)
    texts.push_back(name_of_kernel(k) + "\n" + codes_[k]->listing());
  return texts;
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
