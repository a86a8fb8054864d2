// What a replayed graph did to its inputs, and what its outputs are to a
// caller: a value of the graph, an input, or a view that is made of one of them
// outside.
//
//   y = x + 1                 outputs[0]: computed
//   return y, y[0], x.t()     outputs[1]: of output 0, by select
//                             outputs[2]: of input 0, by t
#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "graph/joint/joint_replay.h"
#include "graph/ops/shape_rules.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {
namespace {

namespace functional = at::functionalization::impl;

// Above functionalization, autograd counts as in eager.
uint32_t writes_to(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

// One of several views (unbind), or one made without grad mode: autograd
// refuses to write to it, which it would not if the output were computed.
bool refuses_writes(const at::Tensor& output) {
  namespace autograd = torch::autograd;
  auto* meta = autograd::impl::get_view_autograd_meta(output);
  if (!meta || !meta->has_bw_view()) return false;
  auto how = meta->get_creation_meta();
  if (how == autograd::CreationMeta::DEFAULT) return false;
  return how != autograd::CreationMeta::NO_GRAD_MODE ||
         meta->get_backward_view().base_.requires_grad();
}

// One of several views without a history, which a view of what is computed can
// stand for: it refuses the same.
bool is_part_without_history(const at::Tensor& output) {
  namespace autograd = torch::autograd;
  auto* meta = autograd::impl::get_view_autograd_meta(output);
  return meta->get_creation_meta() ==
             autograd::CreationMeta::MULTI_OUTPUT_NODE &&
         !output.requires_grad() &&
         !meta->get_backward_view().base_.requires_grad();
}

// A view whose elements share memory, with a history: what is written to it has
// gradients that autograd cannot write to such a view of the base's.
bool refuses_gradients_of_writes(const at::Tensor& output) {
  auto* meta = torch::autograd::impl::get_view_autograd_meta(output);
  if (!meta || !meta->has_bw_view() || !output.requires_grad()) return false;
  SymbolicShape shape = shape_of(output);
  return decide_repeats(shape.sizes, shape.strides);
}

// In which grad mode autograd believes that it was made; nothing: it is no view
// to autograd.
std::optional<bool> grad_mode_of_view(const at::Tensor& view) {
  namespace autograd = torch::autograd;
  auto* meta = autograd::impl::get_view_autograd_meta(view);
  if (!meta || !meta->has_bw_view()) return std::nullopt;
  return meta->get_creation_meta() != autograd::CreationMeta::NO_GRAD_MODE;
}

// What the tensor is a view of to autograd: itself, if it is none or was
// detached.
at::Tensor viewed_by(const at::Tensor& tensor) {
  auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  return meta && meta->has_bw_view() ? meta->get_backward_view().base_ : tensor;
}

bool are_views_of_one(const at::Tensor& a, const at::Tensor& b) {
  return viewed_by(a).is_same(viewed_by(b));
}

// Taken from one list of tensors, which is made once.
bool are_parts_of_one(const std::vector<ViewStep>& a,
                      const std::vector<ViewStep>& b) {
  return std::any_of(a.begin(), a.end(), [&](const ViewStep& step) {
    return step.list >= 0 &&
           std::any_of(b.begin(), b.end(), [&](const ViewStep& other) {
             return other.list == step.list && other.result != step.result;
           });
  });
}

// The version that autograd believes its history to be of.
uint32_t writes_before(const at::Tensor& view) {
  auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  return meta && meta->has_bw_view() ? meta->get_attr_version() : 0;
}

bool is_one_of_several(const std::vector<ViewStep>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const ViewStep& step) { return step.result >= 0; });
}

}  // namespace

std::optional<Expr> expr_of_object(PyObject* object) {
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) return std::nullopt;
    return Expr(value);
  }
  std::optional<c10::SymInt> value = sym_int_of(object);
  return value ? to_expr(*value) : std::nullopt;
}

// ---- what the graph did to its inputs

bool JointReplay::shares_storage(int input) const {
  if (guards_->storage_groups().empty()) return false;
  const int object = source_.input_objects[input];
  const Source* source = guards_->gathered()[object];
  for (const auto& relation : guards_->storage_groups()) {
    auto found =
        std::find(relation.tensors.begin(), relation.tensors.end(), source);
    if (found == relation.tensors.end()) continue;
    const int group = relation.groups[found - relation.tensors.begin()];
    if (std::count(relation.groups.begin(), relation.groups.end(), group) > 1)
      return true;
  }
  return false;
}

Status JointReplay::find_mutations() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& input = inputs_[i];
    if (!input.defined()) continue;
    Value* now = tracer_.value_of(input);
    if (input.requires_grad() != source_.graph->inputs[i]->meta.requires_grad) {
      if (!input.requires_grad() || input.grad_fn() || now != initial_[i])
        return torch_level_only(TorchLevel::kRequiresGradChanged,
                                place_of_input(i));
      joint_.made_leaves.push_back(static_cast<int>(i));
    }
    auto* wrapper = functional::unsafeGetFunctionalWrapper(input);
    if (wrapper->has_metadata_mutation() || wrapper->was_storage_changed()) {
      return torch_level_only(TorchLevel::kInputReshaped, place_of_input(i));
    }
    if (now == initial_[i]) {
      if (uint32_t writes = writes_to(input))
        joint_.touched.emplace_back(static_cast<int>(i), writes);
      continue;
    }
    // The commit would be seen in the version of the input.
    if (const Node* read = data_read_of(input)) {
      const Value& value = *source_.graph->inputs[i];
      return torch_level_only(TorchLevel::kInputThroughData,
                              name_of_input(value) + ".data at " +
                                  line_in_program(read->span, read->caller));
    }
    if (!now) {
      return torch_level_only(TorchLevel::kUnexpected, place_of_input(i),
                              "an input lost its value");
    }
    bool differs =
        input.requires_grad() != source_.graph->inputs[i]->meta.requires_grad ||
        input.grad_fn();
    if (differs) {
      return torch_level_only(TorchLevel::kWrittenInGradient,
                              place_of_input(i));
    }
    const TensorMeta& meta = source_.graph->inputs[i]->meta;
    if (decide_repeats(meta.sizes, meta.strides)) {
      return torch_level_only(TorchLevel::kWrittenRepeats, place_of_input(i));
    }
    // No history: the check above.
    mutations_.push_back({static_cast<int>(i), now, false, writes_to(input)});
  }
  for (const Graph::Mutation& mutation : mutations_) {
    if (guards_ && shares_storage(mutation.input))
      return Break{BreakReason::kAliasedMutation,
                   "an input is written to and shares memory with another one",
                   {}};
  }
  return ok_status();
}

// ---- outputs

Status JointReplay::find_outputs() {
  for (const Arg& arg : source_.graph->outputs) {
    if (arg.is<Value*>()) {
      FJ_CHECK_OK(add_output(arg.get<Value*>()));
    } else {
      OutputInfo info;
      info.is_tensor = false;
      joint_.outputs.push_back(info);
      tensors_.emplace_back();
      output_args_.push_back(arg);
    }
  }
  joint_.num_user_outputs = output_args_.size();
  for (size_t i = 0; i < tensors_.size(); ++i) choose_base(i);
  for (size_t i = 0; i < tensors_.size(); ++i) describe_view(i);
  if (bases_) {
    *bases_ = hidden_bases();
    if (!bases_->empty())
      return torch_level_only(TorchLevel::kViewsOfHidden,
                              place_of_value(*bases_->front()));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    bool computed = joint_.outputs[i].alias == OutputInfo::Alias::kNone;
    if (!computed || !tensors_[i].defined()) continue;
    const bool refuses = refuses_writes(tensors_[i]);
    const bool by_itself = refuses && is_part_without_history(tensors_[i]);
    if (refuses && !by_itself)
      return torch_level_only(TorchLevel::kRefusesWrites, place_of_output(i));
    describe_hidden_base(i);
    if (by_itself)
      joint_.outputs[i].is_view = joint_.outputs[i].is_one_of_several = true;
    const TraceTensorImpl* inner = as_trace(tensors_[i]);
    if (inner->is_neg() != tensors_[i].is_neg() ||
        inner->is_conj() != tensors_[i].is_conj())
      return torch_level_only(TorchLevel::kWrittenNegative, place_of_output(i));
    // A part that was written to is a tensor of its own in functional form.
    if (i >= source_.promised.size()) continue;
    const Expr& seen = source_.promised[i].meta.storage_offset;
    const Expr made = inner->shape().storage_offset;
    if (hint_of(seen) != hint_of(made))
      return torch_level_only(TorchLevel::kLiesElsewhere, place_of_output(i));
    if (seen != made) decide(expr_eq(seen, made));  // not by chance
  }
  return ok_status();
}

Status JointReplay::add_output(Value* value) {
  OutputInfo info;
  auto found = objects_.find(value);
  FJ_CHECK(found != objects_.end(), "an output without a value");
  PyObject* object = found->second.get();
  if (!is_tensor_object(object)) {
    info.is_tensor = false;
    Arg arg;
    if (symbols_.count(value)) {
      arg = Arg(symbols_[value]);
    } else if (auto expr = expr_of_object(object)) {
      arg = Arg(*expr);
    } else {
      return torch_level_only(TorchLevel::kUnexpected, place_of_value(*value),
                              "an output that is no tensor");
    }
    joint_.outputs.push_back(info);
    tensors_.emplace_back();
    output_args_.push_back(arg);
    return ok_status();
  }
  const at::Tensor& tensor = unpack_tensor(object);
  Value* output = tracer_.value_of(tensor);
  if (!output) {
    return torch_level_only(TorchLevel::kUnexpected, place_of_value(*value),
                            "an output that is not in it");
  }
  info.requires_grad = tensor.requires_grad();
  info.writes = writes_to(tensor);
  find_alias(tensor, &info);
  bool external = output->node->op != Opcode::kCallFunction;
  if (external && info.alias == OutputInfo::Alias::kNone) {
    return torch_level_only(TorchLevel::kIsInputOrConstant,
                            place_of_value(*value));
  }
  if (is_made_leaf(tensor)) {
    return torch_level_only(TorchLevel::kMadeLeaf, place_of_value(*value));
  }
  // The capture knows what eager does with dims that do not matter.
  for (const Expr& size : value->meta.sizes) {
    if (size.is_const(0) || size.is_const(1))
      info.idle_strides = value->meta.strides;
  }
  joint_.outputs.push_back(info);
  tensors_.push_back(tensor);
  output_args_.push_back(Arg(output));
  return ok_status();
}

void JointReplay::find_alias(const at::Tensor& tensor, OutputInfo* info) {
  using Alias = OutputInfo::Alias;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].defined()) continue;
    if (storage_of(inputs_[i]) != storage_of(tensor)) continue;
    info->alias =
        tensor.is_same(inputs_[i]) ? Alias::kInput : Alias::kViewOfInput;
    info->base = static_cast<int>(i);
    return;
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].defined()) continue;
    if (storage_of(tensors_[i]) != storage_of(tensor)) continue;
    info->alias = Alias::kOutput;
    info->base = static_cast<int>(i);
    return;
  }
}

// A backward fills its .grad, which nobody sees of one that stays inside: a
// tensor made with requires_grad, or a view of a parameter taken without grad
// mode (it says that it requires grad, too).
bool JointReplay::is_made_leaf(const at::Tensor& tensor) const {
  return tensor.requires_grad() && !tensor.grad_fn() &&
         std::none_of(inputs_.begin(), inputs_.end(),
                      [&](const at::Tensor& input) {
                        return input.defined() && input.is_same(tensor);
                      });
}

// Of outputs that share memory, the first that holds all elements of the
// others is computed, the others are made of it.
void JointReplay::choose_base(size_t first) {
  using Alias = OutputInfo::Alias;
  if (!tensors_[first].defined() ||
      joint_.outputs[first].alias != Alias::kNone) {
    return;
  }
  std::vector<size_t> group{first};
  for (size_t i = first + 1; i < tensors_.size(); ++i) {
    const OutputInfo& info = joint_.outputs[i];
    if (info.alias == Alias::kOutput && info.base == int(first))
      group.push_back(i);
  }
  for (bool by_views : {true, false}) {
    for (size_t base : group) {
      bool all = std::all_of(group.begin(), group.end(), [&](size_t view) {
        if (view == base) return true;
        return is_remade(tensors_[base], tensors_[view]) &&
               (!by_views || view_chain(tensors_[base], tensors_[view]));
      });
      if (!all) continue;
      for (size_t member : group) {
        joint_.outputs[member].alias =
            member == base ? Alias::kNone : Alias::kOutput;
        joint_.outputs[member].base = member == base ? -1 : int(base);
      }
      return;
    }
  }
}

void JointReplay::describe_view(size_t output) {
  using Alias = OutputInfo::Alias;
  OutputInfo& info = joint_.outputs[output];
  bool of_input = info.alias == Alias::kViewOfInput;
  if (!of_input && info.alias != Alias::kOutput) return;
  // Functional form has its own idea of how an input lies that was written
  // to; what is a view of it was seen at capture.
  if (of_input && is_mutated(info.base) &&
      (output >= source_.promised.size() ||
       source_.promised[output].memory_of != info.base))
    return;
  // Such a view may be older than what the input has become.
  if (of_input && std::count(joint_.made_leaves.begin(),
                             joint_.made_leaves.end(), info.base))
    return;
  const at::Tensor& base = of_input ? inputs_[info.base] : tensors_[info.base];
  const at::Tensor& view = tensors_[output];
  if (!is_remade(base, view)) return;
  auto views = view_chain(base, view);
  const bool detached = !are_views_of_one(base, view);
  if (detached && has_relatives(output, base, views)) return;
  if (of_input && is_mutated(info.base) && !views) return;
  SymbolicShape shape = shape_of(view);
  info.remade = true;
  if (views) info.views = *std::move(views);
  info.grad_mode = grad_mode_of_view(view);
  info.writes_before = writes_before(view);
  info.detached = detached;
  info.offset = shape.storage_offset - shape_of(base).storage_offset;
  info.sizes = std::move(shape.sizes);
  info.strides = std::move(shape.strides);
  output_args_[output] = Arg(int64_t{0});
}

// Is another output a view of what this one is a view of, or that itself? But
// for those that are made of the base together.
bool JointReplay::has_relatives(
    size_t output, const at::Tensor& base,
    const std::optional<std::vector<ViewStep>>& views) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (i == output || !tensors_[i].defined() ||
        !are_views_of_one(tensors_[i], tensors_[output]))
      continue;
    auto others = view_chain(base, tensors_[i]);
    if (!views || !others || !are_parts_of_one(*views, *others)) return true;
  }
  return false;
}

// Values that outputs are views of which cannot be made of another output: all
// that are wanted; none: not all are values of the graph.
std::vector<const Value*> JointReplay::hidden_bases() const {
  using Alias = OutputInfo::Alias;
  std::vector<const Value*> found;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    const OutputInfo& info = joint_.outputs[i];
    const bool is_wanted = info.alias == Alias::kOutput
                               ? !info.remade
                               : info.alias == Alias::kNone &&
                                     tensor.defined() &&
                                     (refuses_writes(tensor) ||
                                      refuses_gradients_of_writes(tensor));
    if (!is_wanted) continue;
    const at::Tensor base = viewed_by(tensor);
    const Value* value = base.is_same(tensor) ? nullptr : source_of(base);
    if (!value) return {};
    if (!std::count(found.begin(), found.end(), value)) found.push_back(value);
  }
  return found;
}

// Of a node's results; null: it is none of those.
const Value* JointReplay::source_of(const at::Tensor& tensor) const {
  for (const auto& node : source_.graph->block().nodes) {
    if (node->op == Opcode::kPlaceholder || node->op == Opcode::kGetAttr)
      continue;
    for (const auto& value : node->outputs) {
      auto found = objects_.find(value.get());
      if (found != objects_.end() && is_tensor_object(found->second.get()) &&
          unpack_tensor(found->second.get()).is_same(tensor))
        return value.get();
    }
  }
  return nullptr;
}

void JointReplay::describe_hidden_base(size_t output) {
  OutputInfo& info = joint_.outputs[output];
  const at::Tensor& tensor = tensors_[output];
  info.grad_mode = grad_mode_of_view(tensor);
  info.writes_before = writes_before(tensor);
  const bool refuses_history =
      info.grad_mode == false && !tensor.requires_grad();
  info.is_view =
      info.grad_mode.has_value() &&
      (refuses_history || has_relatives(output, tensor, std::nullopt));
}

std::optional<std::vector<ViewStep>> JointReplay::view_chain(
    const at::Tensor& base, const at::Tensor& view) {
  Value *from = tracer_.value_of(base), *to = tracer_.value_of(view);
  if (!from || !to || from == to) return std::nullopt;
  return find_view_chain(from, to);
}

// The base becomes the view by known operations, or every element of the view
// is one of the base's; and what autograd knows of the view is that it is one
// of the base, or of what the base is a view of (or that it is detached).
bool JointReplay::is_remade(const at::Tensor& base, const at::Tensor& view) {
  if (base.is_same(view) || is_read_as_data(base)) return false;
  if (view.requires_grad() && !base.requires_grad()) return false;
  if (viewed_by(base).is_same(view)) return false;  // the other way round
  // A view of a leaf made of the base's data: detach().requires_grad_().
  if (!are_views_of_one(base, view) && viewed_by(view).requires_grad())
    return false;
  // unbind() and the like: autograd refuses to write to one of several views.
  namespace autograd = torch::autograd;
  auto* meta = autograd::impl::get_view_autograd_meta(view);
  auto chain = view_chain(base, view);
  if (meta && meta->has_bw_view()) {
    auto how = meta->get_creation_meta();
    // Of an input there may be others already, of the same call.
    const bool of_input = std::any_of(
        inputs_.begin(), inputs_.end(), [&](const at::Tensor& input) {
          return input.defined() && input.is_same(base);
        });
    const bool as_one_of_several = chain && is_one_of_several(*chain) &&
                                   (!of_input || !view.requires_grad());
    bool as_outside =
        how == autograd::CreationMeta::DEFAULT ||
        how == autograd::CreationMeta::NO_GRAD_MODE ||
        (how == autograd::CreationMeta::MULTI_OUTPUT_NODE && as_one_of_several);
    if (!as_outside) return false;
  }
  if (chain) return true;
  if (base.scalar_type() != view.scalar_type() ||
      base.is_conj() != view.is_conj() || base.is_neg() != view.is_neg())
    return false;
  SymbolicShape a = shape_of(base), b = shape_of(view);
  if (!is_dense(a)) return false;
  if (!a.is_static() || !b.is_static()) {
    // The same elements in another order or shape.
    return product(a.sizes) == product(b.sizes) &&
           a.storage_offset == b.storage_offset && is_dense(b);
  }
  int64_t begin = hint_of(a.storage_offset), size = 1;
  for (const Expr& n : a.sizes) size *= hint_of(n);
  int64_t low = hint_of(b.storage_offset), high = low;
  for (size_t i = 0; i < b.sizes.size(); ++i) {
    if (hint_of(b.sizes[i]) == 0) return false;
    high += (hint_of(b.sizes[i]) - 1) * hint_of(b.strides[i]);
  }
  return low >= begin && high < begin + size;
}

bool JointReplay::is_mutated(int input) const {
  return std::any_of(
      mutations_.begin(), mutations_.end(),
      [&](const Graph::Mutation& row) { return row.input == input; });
}

}  // namespace framejit::graph
