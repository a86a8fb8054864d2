#include "graph/tracing/write_rules.h"

#include <unordered_set>
#include <vector>

#include "graph/ops/meta_inference.h"
#include "graph/tensors/memory_places.h"

namespace framejit::graph {

namespace {

// One tensor among the arguments of an operation.
struct Operand {
  at::Tensor tensor;
  size_t argument;
  size_t position;  // in a list
  bool written;
};

std::vector<Operand> operands_of(const c10::FunctionSchema& schema,
                                 c10::ArrayRef<c10::IValue> arguments) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    size_t position = 0;
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (as_trace(tensor))
        operands.push_back({tensor, i, position, alias && alias->isWrite()});
      ++position;
    });
  }
  return operands;
}

bool writes(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() && argument.alias_info()->isWrite()) return true;
  }
  return false;
}

// Each element of the results depends on its own place in the arguments alone,
// so that a tensor may be read and written in one go.
bool is_elementwise(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return op.hasTag(at::Tag::pointwise) || name == "aten::copy_" ||
         name.starts_with("aten::_foreach_") ||
         name.starts_with("aten::_fused_");
}

// The form of an operator on lists that takes those it writes to.
bool is_out(const c10::OperatorHandle& op) {
  return op.schema().name().starts_with("aten::_foreach_") &&
         op.schema().overload_name().ends_with("out");
}

bool is_elementwise_pair(const c10::OperatorHandle& op, const Operand& a,
                         const Operand& b) {
  return is_elementwise(op) && a.position == b.position &&
         !(a.written && b.written);
}

}  // namespace

const c10::Storage* companion_memory(const at::Tensor& tensor) {
  TraceTensorImpl* trace = as_trace(tensor);
  return trace ? &trace->meta().unsafeGetTensorImpl()->unsafe_storage()
               : nullptr;
}

const void* companion_storage(const at::Tensor& tensor) {
  const c10::Storage* storage = companion_memory(tensor);
  return storage ? storage->unsafeGetStorageImpl() : nullptr;
}

bool reaches_beyond(const at::Tensor& base, const at::Tensor& view) {
  Expr extent = decide_extent(shape_of(view));
  if (decide(expr_le(extent, decide_extent(shape_of(base))))) return false;
  TraceTensorImpl* trace = as_trace(base);
  if (!trace || !extent.is_const() ||
      !TraceSession::active()->guards()->symbols().empty())
    return true;
  const auto* storage =
      static_cast<const c10::StorageImpl*>(companion_storage(base));
  return extent.constant() * static_cast<int64_t>(base.element_size()) >
         static_cast<int64_t>(storage->nbytes());
}

std::optional<TorchLevel> WriteRules::check(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
    c10::ArrayRef<c10::IValue> results) {
  note_views(op, arguments, results);
  const c10::FunctionSchema& schema = op.schema();
  if (!writes(schema)) return std::nullopt;
  // t_() and the like write no elements.
  if (op.hasTag(at::Tag::inplace_view)) return check_reshaped(arguments);
  std::optional<TorchLevel> why = check_operands(op, arguments);
  bool random = op.hasTag(at::Tag::nondeterministic_seeded);
  for (size_t i = 0; i < arguments.size() && !why; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    // Made of one write for each, which counts in their versions.
    if (arguments[i].isTensorList() && (!is_elementwise(op) || is_out(op)))
      why = TorchLevel::kWritesToList;
    visit_tensors(arguments[i], [&](const at::Tensor& written) {
      if (!why) why = check_view(written);
      // Kernels go through memory in an order of their own.
      if (!why && random && !is_dense(shape_of(written)))
        why = TorchLevel::kRandomIntoGaps;
    });
  }
  return why;
}

void WriteRules::note_views(const c10::OperatorHandle& op,
                            c10::ArrayRef<c10::IValue> arguments,
                            c10::ArrayRef<c10::IValue> results) {
  const std::string& name = op.schema().name();
  std::unordered_set<int> given;
  for (const c10::IValue& argument : arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      if (TraceTensorImpl* trace = as_trace(tensor))
        given.insert(trace->value_id());
    });
  }
  auto note = [&](const at::Tensor& result) {
    TraceTensorImpl* view = as_trace(result);
    // What an operation writes to and returns is no new view.
    if (!view || given.contains(view->value_id())) return;
    const void* storage = companion_storage(result);
    for (const c10::IValue& argument : arguments) {
      visit_tensors(argument, [&](const at::Tensor& tensor) {
        TraceTensorImpl* base = as_trace(tensor);
        if (!base || companion_storage(tensor) != storage) return;
        View& made = views_[view->value_id()];
        made.base = base->value_id();
        bases_.insert(made.base);
        // The base is made of sums over what was repeated, which are inexact
        // also where nothing was.
        made.not_undone = name == "aten::expand" || name == "aten::unfold";
        made.repeats = name == "aten::as_strided";
        if (made.repeats) made.shape = view->shape();
      });
    }
  };
  for (const c10::IValue& result : results) visit_tensors(result, note);
}

// A tensor with views, or one that is a view, gets another shape in place:
// autograd would make the views anew from the shape they do not know of. And so
// would what is written through a detached copy of it (.data).
std::optional<TorchLevel> WriteRules::check_reshaped(
    c10::ArrayRef<c10::IValue> arguments) const {
  TraceTensorImpl* self = as_trace(arguments[0].toTensor());
  if (!self) return std::nullopt;
  const c10::Storage* memory = companion_memory(arguments[0].toTensor());
  bool shared = views_.contains(self->value_id()) ||
                bases_.contains(self->value_id()) ||
                (memory && memory->use_count() > 1);
  if (!shared) return std::nullopt;
  return TorchLevel::kReshapedInPlace;
}

std::optional<TorchLevel> WriteRules::check_view(
    const at::Tensor& written) const {
  int id = as_trace(written) ? as_trace(written)->value_id() : -1;
  for (auto found = views_.find(id); found != views_.end();
       found = views_.find(found->second.base)) {
    const View& view = found->second;
    bool repeats =
        view.repeats && decide_repeats(view.shape.sizes, view.shape.strides);
    if (view.not_undone || repeats) return TorchLevel::kWritesThroughRepeats;
  }
  return std::nullopt;
}

std::optional<TorchLevel> WriteRules::check_operands(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  std::unordered_map<const void*, std::vector<Operand>> groups;
  for (Operand& operand : operands_of(op.schema(), arguments))
    groups[companion_storage(operand.tensor)].push_back(std::move(operand));
  for (const auto& [storage, group] : groups) {
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t j = i + 1; j < group.size(); ++j) {
        const Operand &a = group[i], &b = group[j];
        if (!a.written && !b.written) continue;
        // Places are counted in elements.
        const bool comparable = a.tensor.itemsize() == b.tensor.itemsize();
        Overlap overlap =
            comparable ? decide_overlap(shape_of(a.tensor), shape_of(b.tensor))
                       : Overlap::kSome;
        bool exact =
            overlap == Overlap::kNone ||
            (overlap == Overlap::kSame && is_elementwise_pair(op, a, b));
        if (!exact) return TorchLevel::kReadsWhatItWrites;
      }
    }
  }
  return std::nullopt;
}

}  // namespace framejit::graph
