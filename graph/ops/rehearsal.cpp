#include "graph/ops/rehearsal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>

#include <mutex>
#include <sstream>
#include <unordered_map>

#include "graph/ops/meta_inference.h"
#include "graph/ops/op_facts.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {
namespace {

constexpr size_t kMostBytes = size_t{1} << 28;

[[noreturn]] void refuse(const OpFacts& facts, const std::string& why) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, facts.name,
                              " has no rule for what it returns, and ", why);
}

// Puts the state of a generator back.
class KeepGenerator {
 public:
  explicit KeepGenerator(const at::Generator& generator)
      : generator_(generator) {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeepGenerator() {
    try {
      std::lock_guard<std::mutex> lock(generator_.mutex());
      generator_.set_state(state_);
    } catch (const std::exception&) {
      // The device is lost, which the next call says.
    }
  }
  KeepGenerator(const KeepGenerator&) = delete;
  KeepGenerator& operator=(const KeepGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

class Rehearsal {
 public:
  Rehearsal(OpFacts& facts, c10::Device device)
      : facts_(facts), device_(device) {}

  void run(Stack* stack) {
    Stack call(stack->end() - facts_.num_arguments, stack->end());
    {
      // Memory that can be written to and viewed in either mode.
      c10::InferenceMode normal(false);
      for (c10::IValue& value : call) {
        value =
            map_tensors(value, [&](const at::Tensor& t) { return real(t); });
      }
      if (facts_.device_argument >= 0) {
        c10::IValue& device = call[facts_.device_argument];
        if (device.isDevice()) device = device_;
      }
      perform(&call);
    }
    for (c10::IValue& value : call) {
      value = map_tensors(value, [&](const at::Tensor& t) { return meta(t); });
    }
    stack->resize(stack->size() - facts_.num_arguments);
    for (c10::IValue& value : call) stack->push_back(std::move(value));
  }

 private:
  void perform(Stack* call) {
    std::vector<std::unique_ptr<KeepGenerator>> kept;
    if (facts_.op.hasTag(at::Tag::nondeterministic_seeded)) {
      kept.push_back(std::make_unique<KeepGenerator>(
          at::detail::getDefaultCPUGenerator()));
      if (!device_.is_cpu())
        kept.push_back(std::make_unique<KeepGenerator>(
            at::globalContext().defaultGenerator(device_)));
      for (const c10::IValue& value : *call) {
        if (value.isGenerator()) {
          kept.push_back(std::make_unique<KeepGenerator>(value.toGenerator()));
        }
      }
    }
    try {
      facts_.op.callBoxed(call);
    } catch (const c10::Error&) {
      // What it says may be of the elements, which are not the program's.
      refuse(
          facts_,
          "eager's kernel, asked for it with made-up elements, refused them");
    }
  }

  // Memory with harmless values in the place of a companion's.
  at::Tensor real(const at::Tensor& meta) {
    if (!meta.is_meta()) return meta;
    if (meta.layout() != c10::kStrided || meta.is_quantized()) {
      refuse(facts_, "an argument is not a strided tensor");
    }
    c10::StorageImpl* storage = storage_of(meta);
    at::Tensor& memory = memories_[storage];
    if (!memory.defined()) {
      bytes_ += storage->nbytes();
      if (bytes_ > kMostBytes) refuse(facts_, "its arguments are too large");
      int64_t count = static_cast<int64_t>(
          (storage->nbytes() + meta.element_size() - 1) / meta.element_size());
      memory =
          at::empty({count}, at::device(device_).dtype(meta.scalar_type()));
      fill(memory);
      metas_[storage_of(memory)] = meta;
    }
    at::Tensor tensor = view_of(memory, meta);
    if (is_floating(meta) && meta.dim() >= 2 && meta.size(-1) == meta.size(-2))
      tensor.diagonal(0, -2, -1).fill_(1);
    if (meta.is_conj()) tensor.unsafeGetTensorImpl()->_set_conj(true);
    if (meta.is_neg()) tensor.unsafeGetTensorImpl()->_set_neg(true);
    arguments_.emplace_back(tensor, meta);
    return tensor;
  }

  static bool is_floating(const at::Tensor& tensor) {
    return tensor.is_floating_point() || tensor.is_complex();
  }

  // Indices are 0; what is between 0 and 1 is a probability, too.
  static void fill(const at::Tensor& memory) {
    if (is_floating(memory)) {
      memory.fill_(0.01);
    } else {
      memory.zero_();
    }
  }

  // A tensor over the storage of `memory` that is laid out like `meta`.
  static at::Tensor view_of(const at::Tensor& memory, const at::Tensor& like) {
    auto* owner = memory.unsafeGetTensorImpl();
    c10::InferenceMode mode(owner->is_inference());
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(memory.storage()), owner->key_set(), like.dtype());
    auto* impl = tensor.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(like.sizes(), like.strides());
    impl->set_storage_offset(like.storage_offset());
    return tensor;
  }

  // The companion of a result.
  at::Tensor meta(const at::Tensor& result) {
    for (const auto& [tensor, argument] : arguments_) {
      if (tensor.is_same(result)) return argument;
    }
    if (result.layout() != c10::kStrided || result.is_quantized()) {
      refuse(facts_, "its result is not a strided tensor");
    }
    at::Tensor& owner = metas_[storage_of(result)];
    if (!owner.defined()) {
      auto bytes = static_cast<int64_t>(storage_of(result)->nbytes());
      owner = at::Tensor(at::detail::empty_meta({bytes}, at::kByte));
    }
    at::Tensor tensor = view_of(owner, result);
    if (result.device() != device_) note_result_device(tensor, result.device());
    auto* impl = tensor.unsafeGetTensorImpl();
    // The owner may be an argument, with bits of its own.
    impl->_set_conj(result.is_conj());
    impl->_set_neg(result.is_neg());
    return tensor;
  }

  OpFacts& facts_;
  c10::Device device_;
  size_t bytes_ = 0;
  // By the storage of a companion: its memory. And back.
  std::unordered_map<c10::StorageImpl*, at::Tensor> memories_, metas_;
  std::vector<std::pair<at::Tensor, at::Tensor>> arguments_;  // real, meta
};

}  // namespace

void rehearse(OpFacts& facts, Stack* stack, c10::Device device) {
  bool possible = !facts.is_custom && !facts.op.schema().is_mutable() &&
                  !facts.has(kReadsData | kDataShape);
  if (!possible) refuse(facts, "it cannot be run to find out");
  BelowTracing below;
  Rehearsal(facts, device).run(stack);
}

namespace {

std::vector<at::Tensor> tensors_of(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) tensors.push_back(t);
    }
  }
  return tensors;
}

std::string text_of(const at::Tensor& t) {
  if (!t.defined()) return "undefined";
  std::ostringstream text;
  text << t.scalar_type() << t.sizes() << t.strides() << "+"
       << t.storage_offset();
  if (t.is_conj()) text << " conj";
  if (t.is_neg()) text << " neg";
  return text.str();
}

// The first argument that is the tensor, or shares its memory; -1: none.
int place_of(const at::Tensor& tensor, const std::vector<at::Tensor>& arguments,
             bool itself) {
  if (!tensor.defined()) return -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) continue;
    if (itself ? tensor.is_same(arguments[i])
               : storage_of(tensor) == storage_of(arguments[i]))
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

std::string difference_from_rehearsal(OpFacts& facts, Stack arguments,
                                      c10::ArrayRef<c10::IValue> results,
                                      c10::Device device) {
  std::vector<at::Tensor> given = tensors_of(arguments);
  std::vector<at::Tensor> ours = tensors_of(results);
  try {
    rehearse(facts, &arguments, device);
  } catch (const c10::Error&) {
    return "";
  }
  std::vector<at::Tensor> eagers = tensors_of(arguments);
  std::string call = facts.name + "(";
  for (const at::Tensor& t : given) call += text_of(t) + ", ";
  call += "): ";
  if (ours.size() != eagers.size()) return call + "the number of results";
  for (size_t i = 0; i < ours.size(); ++i) {
    std::string a = text_of(ours[i]), b = text_of(eagers[i]);
    for (bool itself : {true, false}) {
      a += " " + std::to_string(place_of(ours[i], given, itself));
      b += " " + std::to_string(place_of(eagers[i], given, itself));
    }
    if (a != b) {
      return call + "result " + std::to_string(i) + " is " + a + ", eager's " +
             b;
    }
  }
  return "";
}

}  // namespace framejit::graph
