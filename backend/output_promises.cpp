#include "backend/output_promises.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "backend/output_views.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/input_guards.h"
#include "guards/set/number_expr.h"
#include "guards/set/storage_memory.h"

namespace framejit::backend {

using graph::PromisedOutput;
using graph::TorchGraph;
using graph::Value;

namespace {

std::optional<Expr> number_of(const graph::Arg& arg) {
  if (arg.is<Expr>()) return arg.get<Expr>();
  if (arg.is<Value*>() && arg.get<Value*>()->kind == Value::Kind::kInt)
    return arg.get<Value*>()->expr;
  return std::nullopt;
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return storage_of(a) == storage_of(b) ||
         !storages_lie_apart({storage_of(a), storage_of(b)});
}

bool has_memory(const at::Tensor& tensor) {
  return storage_of(tensor)->nbytes() != 0;
}

}  // namespace

OutputPromises::OutputPromises(std::shared_ptr<const TorchGraph> graph)
    : graph_(std::move(graph)) {
  const std::vector<PromisedOutput>& promised = graph_->promised;
  const size_t count = graph_->graph->outputs.size();
  FJ_CHECK(promised.empty() || promised.size() == count);
  for (size_t i = 0; i < count; ++i) {
    Output output;
    if (promised.empty()) {
      // As it comes.
    } else if (promised[i].is_tensor) {
      output.promise = Promise(promised[i].meta);
      output.is_alone =
          promised[i].memory_of < 0 &&
          std::count_if(
              promised.begin(), promised.end(),
              [&](const auto& row) {
                return row.is_tensor && row.group == promised[i].group;
              }) == 1;
      const graph::TensorMeta& meta = promised[i].meta;
      output.is_plain = output.is_alone && promised[i].input < 0 &&
                        promised[i].same_as < 0 && !promised[i].is_parameter &&
                        meta.storage_offset.is_const() &&
                        meta.storage_offset.constant() == 0;
    } else {
      output.number = number_of(graph_->graph->outputs[i]);
    }
    outputs_.push_back(std::move(output));
  }
  for (size_t i = 0; i < graph_->input_objects.size(); ++i) {
    if (graph_->input_objects[i] >= 0)
      input_tensors_.push_back(graph_->input_objects[i]);
  }
}

// One call.
class OutputPromises::Taking {
 public:
  Taking(const OutputPromises& promises, const Ref& result,
         PyObject* const* inputs, const int64_t* symbols)
      : promises_(promises),
        graph_(*promises.graph_),
        inputs_(inputs),
        symbols_(symbols),
        only_ours_(Py_REFCNT(result.get()) == 1) {
    PyObject* object = result.get();
    if (!PyTuple_Check(object) && !PyList_Check(object)) {
      items_.push_back(result);
      only_ours_ = true;
      return;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      items_.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(object, i)));
  }

  std::optional<std::string> run() {
    if (items_.size() != promises_.outputs_.size())
      return "returned " + std::to_string(items_.size()) + " values, not " +
             std::to_string(promises_.outputs_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      std::string difference = take(i);
      if (difference.empty()) continue;
      return "returned as output " + std::to_string(i) + " " + difference;
    }
    return std::nullopt;
  }
  void give(PyObject** outputs) {
    for (Ref& item : items_) *outputs++ = item.release();
  }

 private:
  const PromisedOutput& promised(size_t i) const { return graph_.promised[i]; }
  const at::Tensor& tensor(size_t i) const {
    return graph::unpack_tensor(items_[i].get());
  }
  PyObject* input_object(int input) const {
    return inputs_[graph_.input_objects[input]];
  }

  // "": as promised, perhaps by now.
  std::string take(size_t i) {
    if (graph_.promised.empty()) return "";
    const PromisedOutput& wanted = promised(i);
    if (!wanted.is_tensor) return take_number(i);
    if (wanted.input >= 0) {
      items_[i] = Ref::borrow(input_object(wanted.input));
      return "";
    }
    if (wanted.same_as >= 0) {
      items_[i] = items_[wanted.same_as];
      return "";
    }
    std::string found = class_difference(i);
    if (found.empty()) found = history_difference(i);
    if (found.empty()) found = memory_difference(i);
    if (found.empty() && !lay_out(i))
      found = promises_.outputs_[i].promise.difference(tensor(i), symbols_);
    return found;
  }

  std::string take_number(size_t i) {
    const std::optional<Expr>& number = promises_.outputs_[i].number;
    if (!number) return "";
    items_[i] = Ref::steal(number_object(*number, symbols_));
    return items_[i] ? "" : "a number that there is no memory for";
  }

  std::string class_difference(size_t i) const {
    PyTypeObject* type = Py_TYPE(items_[i].get());
    PyObject* wanted =
        promised(i).is_parameter ? ParameterClass : THPVariableClass;
    if (reinterpret_cast<PyObject*>(type) != wanted)
      return std::string("an object of type ") + type->tp_name;
    const at::Tensor& result = tensor(i);
    const Promise& promise = promises_.outputs_[i].promise;
    if (!result.defined() ||
        promise.kept_by(result, symbols_) == Promise::Kept::kNo)
      return promise.difference(result, symbols_);
    return graph::unusual_tensor(result);
  }

  std::string history_difference(size_t i) const {
    const at::Tensor& result = tensor(i);
    const PromisedOutput& wanted = promised(i);
    if (result.requires_grad() != wanted.meta.requires_grad)
      return wanted.meta.requires_grad
                 ? "a tensor that does not require grad, where eager's does"
                 : "a tensor that requires grad, where eager's does not";
    if (result.is_leaf() != wanted.is_leaf)
      return wanted.is_leaf ? "a tensor with a history, where eager's has none"
                            : "a leaf, where eager's has a history";
    if (result.is_inference() != wanted.is_inference)
      return wanted.is_inference
                 ? "a normal tensor, where eager's is an inference tensor"
                 : "an inference tensor, where eager's is a normal one";
    return "";
  }

  // The memory of other tensors where eager's has its own, or the other way
  // round; or another tensor itself.
  std::string memory_difference(size_t i) const {
    const at::Tensor& result = tensor(i);
    if (promises_.outputs_[i].is_alone && is_held_once(i) &&
        result.storage().use_count() == 1 &&
        owns_its_memory(storage_of(result)))
      return "";
    const PromisedOutput& wanted = promised(i);
    for (int object : promises_.input_tensors_) {
      if (inputs_[object] == items_[i].get())
        return "an input, where eager's is a tensor of its own";
    }
    for (size_t j = 0; j < i; ++j) {
      if (items_[j].get() == items_[i].get())
        return "output " + std::to_string(j) + " once more";
    }
    if (!has_memory(result)) return "";
    if (wanted.memory_of >= 0) {
      const at::Tensor& input =
          graph::unpack_tensor(input_object(wanted.memory_of));
      if (storage_of(input) == storage_of(result)) return "";
      return "a tensor with memory of its own, where eager's is a view of an "
             "input";
    }
    for (int object : promises_.input_tensors_) {
      if (share_memory(graph::unpack_tensor(inputs_[object]), result))
        return "a tensor with the memory of an input, where eager's has its "
               "own";
    }
    for (size_t j = 0; j < i; ++j) {
      if (!promised(j).is_tensor || promised(j).memory_of >= 0) continue;
      if (promised(j).group == wanted.group) {
        if (storage_of(tensor(j)) != storage_of(result))
          return "a tensor with memory of its own, where eager's shares it "
                 "with output " +
                 std::to_string(j);
      } else if (share_memory(tensor(j), result)) {
        return "a tensor with the memory of output " + std::to_string(j) +
               ", where eager's has its own";
      }
    }
    return "";
  }

  // Its strides and its offset are made those of the promise. False: that
  // cannot be helped.
  bool lay_out(size_t i) {
    const bool only_ours = is_only_ours(i);
    const at::Tensor result = tensor(i);
    const PromisedOutput& wanted = promised(i);
    const Promise& promise = promises_.outputs_[i].promise;
    auto strides = promise.strides(symbols_);
    int64_t offset = wanted.meta.storage_offset.evaluate(symbols_);
    if (wanted.memory_of >= 0) {
      offset +=
          graph::unpack_tensor(input_object(wanted.memory_of)).storage_offset();
    }
    bool in_place = result.storage_offset() == offset || !result.numel();
    if (in_place && result.strides() == at::IntArrayRef(strides)) return true;
    bool idle = promise.kept_by(result, symbols_) == Promise::Kept::kYes;
    if (in_place && idle && only_ours &&
        result.unsafeGetTensorImpl()->allow_tensor_metadata_change()) {
      set_idle_strides(result, wanted.meta.strides, symbols_);
      return true;
    }
    if (!promises_.outputs_[i].is_alone || offset || wanted.is_parameter ||
        (wanted.is_leaf && wanted.meta.requires_grad) || wanted.meta.is_conj ||
        wanted.meta.is_neg)
      return false;
    at::Tensor copy;
    {
      c10::InferenceMode mode(wanted.is_inference);
      c10::AutoGradMode grad(wanted.meta.requires_grad);
      copy = at::empty_strided(result.sizes(), strides, result.options());
      if (at::has_internal_overlap(copy) != at::MemOverlap::No) return false;
      copy.copy_(result);
      auto* impl = copy.unsafeGetTensorImpl();
      if (impl->version_counter().enabled())
        impl->set_version_counter(c10::VariableVersion(0));
    }
    items_[i] = graph::wrap_tensor(copy);
    return static_cast<bool>(items_[i]);
  }

  // Nobody else has the tensor: it is no input, no other output, and nobody
  // sees when it is changed.
  bool is_only_ours(size_t i) const { return only_ours_ && is_held_once(i); }

  // What was returned has the one reference to the tensor: it is no input and
  // no other output, and no array, capsule or view was made of it that lives.
  bool is_held_once(size_t i) const {
    return Py_REFCNT(items_[i].get()) == 2 && tensor(i).use_count() == 1;
  }

  const OutputPromises& promises_;
  const TorchGraph& graph_;
  PyObject* const* inputs_;
  const int64_t* symbols_;
  bool only_ours_;  // what holds the items
  c10::SmallVector<Ref, 8> items_;
};

// What Taking does in the usual case, without a text. (Nearly all of what a
// call costs beyond its graph.)
bool OutputPromises::is_as_promised(size_t i, PyObject* item,
                                    const int64_t* symbols) const {
  const Output& output = outputs_[i];
  if (!output.is_plain || Py_REFCNT(item) != 1 ||
      reinterpret_cast<PyObject*>(Py_TYPE(item)) != THPVariableClass)
    return false;
  const at::Tensor& result = graph::unpack_tensor(item);
  const PromisedOutput& wanted = graph_->promised[i];
  return output.promise.exactly_kept_by(result, symbols) &&
         !graph::is_unusual_tensor(result) &&
         result.requires_grad() == wanted.meta.requires_grad &&
         result.is_leaf() == wanted.is_leaf &&
         result.is_inference() == wanted.is_inference &&
         result.storage_offset() == 0 && result.use_count() == 1 &&
         result.storage().use_count() == 1 &&
         owns_its_memory(storage_of(result));
}

bool OutputPromises::take_plain(PyObject* const* items, size_t count,
                                const int64_t* symbols,
                                PyObject** outputs) const {
  if (count != outputs_.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!is_as_promised(i, items[i], symbols)) return false;
  }
  for (size_t i = 0; i < count; ++i) outputs[i] = Py_NewRef(items[i]);
  return true;
}

std::optional<std::string> OutputPromises::take(const Ref& result,
                                                PyObject* const* inputs,
                                                const int64_t* symbols,
                                                PyObject** outputs) const {
  PyObject* object = result.get();
  const bool is_plain =
      PyTuple_Check(object) || PyList_Check(object)
          ? take_plain(PySequence_Fast_ITEMS(object),
                       static_cast<size_t>(PySequence_Fast_GET_SIZE(object)),
                       symbols, outputs)
          : take_plain(&object, 1, symbols, outputs);
  if (is_plain) return std::nullopt;
  Taking taking(*this, result, inputs, symbols);
  std::optional<std::string> difference = taking.run();
  if (!difference) taking.give(outputs);
  return difference;
}

}  // namespace framejit::backend
