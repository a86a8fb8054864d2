// Blocks: the part of a capture that becomes a graph of its own.
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "graph/tensors/python_tensor.h"
#include "graph/tracing/recorder.h"

namespace framejit::graph {

namespace {

SymbolicShape input_shape(const at::Tensor& tensor,
                          const Recorder::BlockInput& input) {
  SymbolicShape shape = shape_of(tensor);
  shape.storage_offset = Expr(0);
  if (input.without_dim >= 0) {
    shape.sizes.erase(shape.sizes.begin() + input.without_dim);
    shape.strides.erase(shape.strides.begin() + input.without_dim);
  }
  if (!input.contiguous) return shape;
  Expr stride(1);
  for (size_t dim = shape.sizes.size(); dim-- > 0;) {
    shape.strides[dim] = stride;
    // A dim of size 0 counts as 1, as in torch.
    if (!shape.sizes[dim].is_const(0)) stride = stride * shape.sizes[dim];
  }
  return shape;
}

}  // namespace

int Recorder::block_id(size_t level) const {
  return level == 0 ? 0 : blocks_[level - 1].id;
}

TorchGraph& Recorder::graph_at(size_t level) {
  return level == blocks_.size() ? *result_ : *blocks_[level].outer;
}

// The value a tensor has in the graph at `level`: a tensor from further out is
// an input of the block.
Result<Value*> Recorder::value_at(PyObject* tensor, const Entry& entry,
                                  size_t level) {
  if (entry.block == block_id(level))
    return entry.current ? entry.current : entry.value;
  if (level == 0)
    return Break{
        BreakReason::kUnknownTensor,
        "a tensor that was made in a gradient function or a torch.func "
        "transform is used outside",
        span_};
  OpenBlock& block = blocks_[level - 1];
  auto known = block.values.find(tensor);
  if (known != block.values.end()) return known->second;
  FJ_TRY(Value * outer, value_at(tensor, entry, level - 1));
  (void)outer;
  Value* input = graph_at(level).graph->add_input(
      "captured_" + std::to_string(block.captured.size()), TensorMeta{});
  fill_meta(input, unpack_tensor(tensor));
  block.values.emplace(tensor, input);
  block.captured.push_back(tensor);
  return input;
}

Result<std::vector<Ref>> Recorder::begin_block(
    const std::vector<BlockInput>& inputs, const AmbientState& inside,
    BlockKind kind) {
  OpenBlock block;
  block.id = ++last_block_;
  block.kind = kind;
  block.ambient = AmbientState::now();
  block.inside = inside;
  if (kind == BlockKind::kBackward) block.late.emplace(inside.autocast.nesting);
  block.outer = std::move(result_);
  result_ = std::make_unique<TorchGraph>();
  blocks_.push_back(std::move(block));
  inside.restore();
  std::vector<Ref> stand_ins;
  std::vector<int64_t> hints = guards()->hints();
  for (const BlockInput& input : inputs) {
    const at::Tensor& tensor = unpack_tensor(input.like);
    if (input.requires_grad &&
        !torch::autograd::isDifferentiableType(tensor.scalar_type()))
      return Break{BreakReason::kTensorSubclass,
                   "a tensor of integers that requires grad",
                   {}};
    at::Tensor made =
        make_trace_tensor(*this, tensor.scalar_type(), tensor.device(),
                          input_shape(tensor, input), hints);
    if (input.requires_grad) made.set_requires_grad(true);
    Ref stand_in = wrap_tensor(made);
    if (!stand_in) return Result<std::vector<Ref>>::raised();
    Value* value = result_->graph->add_input(
        "input_" + std::to_string(stand_ins.size()), TensorMeta{});
    fill_meta(value, made);
    Entry& entry = entries_[stand_in.get()] = Entry{value, nullptr, {}};
    entry.block = block_id(blocks_.size());
    kept_.push_back(stand_in);
    stand_ins.push_back(std::move(stand_in));
  }
  return stand_ins;
}

LateState* Recorder::late_state() {
  for (OpenBlock& block : blocks_)
    if (block.late) return &*block.late;
  return nullptr;
}

Status Recorder::check_late_attribute(const Entry& entry,
                                      const std::string& name) const {
  auto made_it = [&](const OpenBlock& block) {
    return block.late && block.id <= entry.block;
  };
  auto block = std::find_if(blocks_.begin(), blocks_.end(), made_it);
  if (block == blocks_.end()) return ok_status();
  const bool is_history =
      name == "requires_grad" || name == "is_leaf" || name == "grad_fn";
  const bool is_dtype =
      name == "dtype" || name == "itemsize" || name == "nbytes";
  if (!is_history && !(is_dtype && block->late->may_be_cast(entry.value)))
    return ok_status();
  return Break{BreakReason::kUnguardableInput,
               "a gradient function reads " + name +
                   " of a tensor, which depends on how the backward runs: in " +
                   (is_history ? "grad mode" : "an autocast region"),
               span_};
}

bool Recorder::in_transform() const {
  for (const OpenBlock& block : blocks_)
    if (block.kind == BlockKind::kLevel || block.kind == BlockKind::kGradLevel)
      return true;
  return false;
}

Result<std::optional<bool>> Recorder::requires_grad_in_transform(
    PyObject* stand_in) {
  std::optional<bool> answer;
  if (!in_transform()) return answer;
  const OpenBlock& block = blocks_.back();
  Entry* entry = find(stand_in);
  if (!entry || entry->block != block.id) return answer;
  // History at this level is part of the history of the stand-in.
  if (!unpack_tensor(stand_in).requires_grad() ||
      block.kind == BlockKind::kLevel) {
    answer = false;
    return answer;
  }
  bool outer_history =
      block.kind != BlockKind::kGradLevel ||
      std::any_of(block.captured.begin(), block.captured.end(),
                  [](PyObject* captured) {
                    return unpack_tensor(captured).requires_grad();
                  });
  if (outer_history)
    return Break{BreakReason::kTensorInternals,
                 "requires_grad in a torch.func transform of something that "
                 "requires a gradient outside",
                 span_};
  answer = true;
  return answer;
}

bool Recorder::block_changed_state() const {
  FJ_CHECK(!blocks_.empty(), "no block");
  return AmbientState::now() != blocks_.back().inside;
}

Result<Recorder::Block> Recorder::end_block(
    const std::vector<PyObject*>& outputs) {
  FJ_CHECK(!blocks_.empty(), "end_block without a block");
  std::vector<Arg> args;
  for (PyObject* output : outputs) {
    FJ_TRY(Arg arg, argument(output));
    args.push_back(std::move(arg));
  }
  result_->graph->set_outputs(std::move(args));
  drop_idle_state_writes(result_->graph.get());
  add_symbol_inputs();
  Block made;
  result_->writes_state = writes_more_than_grad_mode(*result_->graph);
  for (const auto& node : result_->graph->block().nodes)
    made.switches_grad_mode |=
        node->op == Opcode::kStateEnter &&
        !state_access(node->callable.get()).is_autocast();
  OpenBlock block = std::move(blocks_.back());
  blocks_.pop_back();
  block.ambient.restore();
  made.graph = std::move(result_);
  result_ = std::move(block.outer);
  if (!made.graph->torch_level_only.empty())
    result_->torch_level_only = made.graph->torch_level_only;
  for (PyObject* tensor : block.captured)
    made.captured.push_back(Ref::borrow(tensor));
  return made;
}

}  // namespace framejit::graph
