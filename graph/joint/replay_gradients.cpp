// The gradients of a replayed graph: the backward that the engine dispatches
// for symbolic tangents, and what the graph's own use of autograd leaves of it.
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string_view>

#include "graph/joint/joint_replay.h"
#include "graph/joint/saving_nodes.h"
#include "graph/ops/shape_rules.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/gradient_link.h"

namespace framejit::graph {
namespace {

// For a scope.
class DefaultDtype {
 public:
  explicit DefaultDtype(std::optional<c10::ScalarType> dtype)
      : before_(c10::get_default_dtype()) {
    if (dtype) c10::set_default_dtype(c10::scalarTypeToTypeMeta(*dtype));
  }
  ~DefaultDtype() { c10::set_default_dtype(before_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta before_;
};

std::vector<at::Tensor> tensors_in(PyObject* object) {
  std::vector<at::Tensor> tensors;
  if (is_tensor_object(object)) tensors.push_back(unpack_tensor(object));
  for (Py_ssize_t i = 0; PyTuple_Check(object) && i < PyTuple_GET_SIZE(object);
       ++i)
    if (is_tensor_object(PyTuple_GET_ITEM(object, i)))
      tensors.push_back(unpack_tensor(PyTuple_GET_ITEM(object, i)));
  return tensors;
}

// What torch raises where something that a backward needs was written to or
// freed since.
bool is_of_used_history(std::string_view text) {
  return text.find("modified by an inplace operation") != text.npos ||
         text.find("backward through the graph a second time") != text.npos;
}

}  // namespace

// ---- before the backward

// What torch.autograd.grad in the graph frees.
void JointReplay::note_freed(const Node& node,
                             const std::vector<PyObject*>& args) {
  PyObject* function = node.callable.get();
  if (!PyFunction_Check(function) || args.size() < 2) return;
  auto* code = reinterpret_cast<PyFunctionObject*>(function);
  auto is = [](PyObject* text, const char* expected) {
    return text && PyUnicode_Check(text) &&
           !PyUnicode_CompareWithASCIIString(text, expected);
  };
  if (!is(code->func_qualname, "grad") ||
      !is(code->func_module, "torch.autograd"))
    return;
  joint_.differentiates = true;
  bool retains = false;
  for (size_t i = 0; i < node.kwargs.size(); ++i) {
    const std::string& name = node.kwargs[i].first;
    if (name == "retain_graph" || name == "create_graph")
      retains |= args[node.args.size() + i] == Py_True;
  }
  if (retains) return;
  for (const SavingNode& freed :
       saving_nodes(tensors_in(args[0]), tensors_in(args[1])))
    freed_.insert(freed.node);
}

// Does every way from it to an input lead through what is freed?
bool JointReplay::is_spent(const at::Tensor& tensor) const {
  if (freed_.empty()) return false;
  std::unordered_set<const torch::autograd::Node*> seen, goals;
  for (const at::Tensor& input : inputs_)
    if (input.defined() && input.requires_grad())
      goals.insert(torch::autograd::impl::gradient_edge(input).function.get());
  std::vector<const torch::autograd::Node*> open;
  auto visit = [&](const torch::autograd::Node* node) {
    if (node && seen.insert(node).second) open.push_back(node);
  };
  visit(torch::autograd::impl::gradient_edge(tensor).function.get());
  bool met = false;
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (goals.contains(node)) return false;
    if (freed_.contains(node)) {
      met = true;
      continue;
    }
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return met;
}

// What a gradient function reads as it is by then must not be written to
// meanwhile: not by the graph, and nobody else may have its memory.
Status JointReplay::check_late_reads() {
  for (const auto& [late, version, reader] : late_) {
    auto shares = [&, tensor = late](const at::Tensor& other) {
      return other.defined() && storage_of(other) == storage_of(tensor);
    };
    if (late._version() != version ||
        std::any_of(inputs_.begin(), inputs_.end(), shares) ||
        std::any_of(tensors_.begin(), tensors_.end(), shares))
      return torch_level_only(TorchLevel::kLateRead, place_of_node(reader));
  }
  return ok_status();
}

// The formula of an operator that is written in Python, as by
// torch.library.register_autograd, may read anything.
Status JointReplay::check_history(const at::Tensor& tensor) {
  std::vector<NodePtr<torch::autograd::Node>> open;
  auto visit = [&](const NodePtr<torch::autograd::Node>& node) {
    if (node && known_nodes_.insert(node.get()).second) {
      kept_nodes_.push_back(node);
      open.push_back(node);
    }
  };
  visit(tensor.grad_fn());
  while (!open.empty()) {
    auto node = std::move(open.back());
    open.pop_back();
    if (is_python_formula(*node))
      return torch_level_only(TorchLevel::kPythonFormula,
                              place_of_node(tracer_.source()));
    for (const auto& edge : node->next_edges()) visit(edge.function);
  }
  return ok_status();
}

// Who holds what of the inputs and outputs.
void JointReplay::note_saved(const std::vector<SavingNode>& nodes) {
  joint_.held_inputs.resize(inputs_.size());
  joint_.held_outputs.resize(tensors_.size());
  struct Seen {
    const at::Tensor* tensor;
    HeldTensor* held;
  };
  std::unordered_map<const c10::StorageImpl*, std::vector<Seen>> seen;
  auto see = [&](const std::vector<at::Tensor>& tensors,
                 std::vector<HeldTensor>* held) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].defined())
        seen[storage_of(tensors[i])].push_back({&tensors[i], &(*held)[i]});
  };
  see(inputs_, &joint_.held_inputs);
  see(tensors_, &joint_.held_outputs);
  for (const SavingNode& saving : nodes) {
    const int64_t number = tracer_.number_of(*saving.node);
    joint_.saving_nodes.push_back(number);
    for (const at::Tensor& saved : saving.saved) {
      auto found = seen.find(items_.memory_in_eager(storage_of(saved)));
      if (found == seen.end()) continue;
      for (auto& [tensor, held] : found->second) {
        const bool itself = saved.is_same(*tensor);
        held->itself |= itself;
        // What is made by .data has versions of its own.
        if (!itself && is_read_as_data(saved)) continue;
        std::vector<int64_t>& readers = held->readers;
        if (readers.empty() || readers.back() != number)
          readers.push_back(number);
      }
    }
  }
}

// ---- the backward

// Of the outputs that are differentiated.
std::string JointReplay::places_of_tangents() const {
  std::string places;
  for (int output : joint_.tangent_of) {
    const std::string place = place_of_output(static_cast<size_t>(output));
    if (place.empty() || places.find(place) != std::string::npos) continue;
    places += (places.empty() ? "" : ", ") + place;
  }
  return places;
}

Status JointReplay::differentiate() {
  std::vector<at::Tensor> outputs, tangents, primals;
  std::vector<size_t> primal_index;
  gradients_.assign(joint_.num_primals, Arg());
  size_t number = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    OutputInfo& info = joint_.outputs[i];
    if (!info.requires_grad || info.alias != OutputInfo::Alias::kNone) {
      continue;
    }
    info.spent = is_spent(tensors_[i]);
    if (info.spent) continue;
    if (pattern_ && !pattern_->tangents.at(number++)) continue;
    const TensorMeta& meta = output_args_[i].get<Value*>()->meta;
    outputs.push_back(tensors_[i]);
    TensorMeta tangent = meta;
    tangent.storage_offset = Expr(0);
    // AotNode::tangent resolves a lazy conjugate or negative.
    tangent.is_conj = tangent.is_neg = false;
    // A gradient can only be copied to a dense one. That of what the caller
    // does not get is what autograd puts together of its parts'.
    const bool is_hidden =
        source_.captured && i >= source_.captured->graph->outputs.size();
    if (is_hidden || !is_dense(tangent)) {
      tangent.strides = contiguous_strides(tangent.sizes);
    }
    tangents.push_back(tracer_.add_tensor_input(
        "tangent_" + std::to_string(joint_.tangent_of.size()), tangent, false));
    joint_.tangent_of.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].defined() || !inputs_[i].requires_grad()) continue;
    if (pattern_ && !pattern_->inputs.at(i)) continue;
    primals.push_back(inputs_[i]);
    primal_index.push_back(i);
  }
  if (outputs.empty()) return ok_status();
  if (primals.empty()) {
    return torch_level_only(TorchLevel::kMadeLeaf,
                            place_of_output(joint_.tangent_of.at(0)));
  }
  joint_.has_backward = true;
  note_saved(saving_nodes(outputs, primals));
  tracer_.start_backward();
  tracer_.set_source(nullptr);
  std::vector<at::Tensor> gradients;
  bool used_before = false;
  {
    // Outside of autocast, as torch's manual asks for, unless it is known to be
    // otherwise.
    const CastScope casts(pattern_ ? pattern_->casts
                                   : AmbientState::Autocast());
    const DefaultDtype dtype(pattern_ ? pattern_->default_dtype : std::nullopt);
    // The engine takes the GIL itself where it needs it.
    ReleaseGil released;
    try {
      gradients = torch::autograd::grad(outputs, primals, tangents,
                                        /*retain_graph=*/false,
                                        /*create_graph=*/false,
                                        /*allow_unused=*/true);
    } catch (const c10::Error& error) {
      if (tracer_.has_break() || !joint_.differentiates ||
          !is_of_used_history(error.what_without_backtrace()))
        throw;
      used_before = true;
    }
  }
  if (used_before) {
    return torch_level_only(TorchLevel::kUsedHistory, places_of_tangents());
  }
  if (tracer_.has_break()) return failure("");
  tracer_.find_lines_of_derivatives();
  bool connected = false;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    Value* value = tracer_.value_of(gradients[i]);
    if (!value) {
      return torch_level_only(TorchLevel::kUnexpected,
                              place_of_input(primal_index[i]),
                              "a gradient that is not in it");
    }
    gradients_[primal_index[i]] = Arg(value);
    connected = true;
    if (has_two_ways(primal_index[i]))
      return torch_level_only(TorchLevel::kTwoWays,
                              place_of_input(primal_index[i]));
  }
  if (!connected && !pattern_) {
    return torch_level_only(TorchLevel::kNoGradient, places_of_tangents());
  }
  return ok_status();
}

// Their sum has the layout of the one that comes first.
bool JointReplay::has_two_ways(size_t input) const {
  const TensorMeta& meta = source_.graph->inputs[input]->meta;
  if (meta.sizes.size() < 2) return false;
  bool plain = is_contiguous(meta.sizes, meta.strides);
  return std::any_of(joint_.outputs.begin(), joint_.outputs.end(),
                     [&](const OutputInfo& info) {
                       return info.alias == OutputInfo::Alias::kViewOfInput &&
                              info.base == static_cast<int>(input) &&
                              info.requires_grad &&
                              !(plain && keeps_order(info.views));
                     });
}

}  // namespace framejit::graph
