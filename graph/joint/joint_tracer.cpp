#include "graph/joint/joint_tracer.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "graph/ir/torch_level.h"
#include "graph/joint/user_lowerings.h"
#include "graph/ops/alias_analysis.h"
#include "graph/ops/fake_fallback.h"
#include "graph/ops/meta_inference.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {
namespace {

namespace functional = at::functionalization::impl;

[[noreturn]] void unsupported(TraceSession& session, std::string what) {
  session.stop({BreakReason::kNoMetaKernel, std::move(what), {}});
}

// The kind of an argument, without Optional: the schema's integer types hide
// dtypes, layouts and memory formats.
c10::TypeKind kind_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind();
}

Arg integer_arg(int64_t value, const c10::Argument& argument) {
  switch (kind_of(argument)) {
    case c10::TypeKind::ScalarTypeType:
      return Arg(static_cast<c10::ScalarType>(value));
    case c10::TypeKind::LayoutType:
      return Arg(static_cast<c10::Layout>(value));
    case c10::TypeKind::MemoryFormatType:
      return Arg(static_cast<c10::MemoryFormat>(value));
    default:
      return Arg(value);
  }
}

Arg symbolic_arg(const c10::SymInt& value) {
  Expr expr = to_expr(value).value();
  if (expr.is_const()) return Arg(expr.constant());
  return Arg(std::move(expr));
}

template <class List, class Convert>
Arg list_arg(const List& list, Convert convert) {
  Arg::List result;
  for (const auto& item : list) result.items.push_back(convert(item));
  return Arg(std::move(result));
}

// The layout becomes part of what the guards hold.
void specialise_strides(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  SymbolicShape shape = shape_of(tensor);
  for (const std::vector<Expr>* exprs : {&shape.sizes, &shape.strides}) {
    for (const Expr& expr : *exprs) specialise(expr);
  }
}

}  // namespace

JointTracer::JointTracer(GuardSet* guards) : TraceSession(guards) {}

JointTracer::~JointTracer() = default;

// ---- inputs

at::Tensor JointTracer::add_tensor_input(std::string name,
                                         const TensorMeta& meta,
                                         bool requires_grad) {
  SymbolicShape shape{meta.sizes, meta.strides, meta.storage_offset};
  std::vector<int64_t> hints;
  if (guards()) hints = guards()->hints();
  at::Tensor inner =
      make_trace_tensor(*this, meta.dtype, meta.device, shape, hints);
  Value* value = graph_->add_input(std::move(name), meta);
  value->meta.requires_grad = requires_grad;
  values_[as_trace(inner)->value_id()] = value;
  alive_.push_back(inner);
  at::Tensor wrapper = functional::to_functional_tensor(inner);
  forbid_data_access(wrapper);
  if (requires_grad) wrapper.set_requires_grad(true);
  has_gradients_ |= requires_grad;
  inputs_.push_back(wrapper);
  return wrapper;
}

Value* JointTracer::add_symbol_input(std::string name, const Expr& symbol) {
  return graph_->add_symbol_input(std::move(name), symbol);
}

Value* JointTracer::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (functional::isFunctionalTensor(tensor)) functional::sync(tensor);
  TraceTensorImpl* trace = as_trace(tensor);
  if (!trace || trace->session() != id()) return nullptr;
  auto found = values_.find(trace->value_id());
  return found == values_.end() ? nullptr : found->second;
}

// A value that has never been another one may be a constant of the program,
// with a guard; one that changes would make a program for each.
void JointTracer::before_pin(const Expr& real) {
  std::vector<int> used;
  real.collect_symbols(&used);
  if (std::none_of(used.begin(), used.end(), [&](int symbol) {
        return guards()->symbols().at(symbol).changes;
      }))
    return;
  if (auto current = torch::autograd::get_current_node();
      in_backward_ && current)
    broken_derivative_ = number_of(*current);
  const Node* broken = source_of_broken_derivative();
  set_break(torch_level_only(TorchLevel::kFloatValue,
                             place_of_node(broken ? broken : source_),
                             real.str()));
  TORCH_CHECK_NOT_IMPLEMENTED(false, "FrameJIT: the value of ", real.str());
}

namespace {

// torch hides a symbolic float in a number with this value: the symbol is lost.
bool may_hide_float(const at::Tensor& real) {
  if (real.numel() != 1 || !real.is_floating_point() || real.is_meta())
    return false;
  BelowTracing below;
  return std::isnan(real.item().toDouble());
}

}  // namespace

void JointTracer::mark_backward(Node* node) const {
  node->is_backward = in_backward_;
  if (!in_backward_) return;
  if (auto current = torch::autograd::get_current_node()) {
    node->derivative_of = number_of(*current);
  }
}

void JointTracer::find_lines_of_derivatives() {
  for (const auto& node : graph_->block().nodes) {
    if (!node->is_backward || node->derivative_of < 0) continue;
    if (const Node* source = source_of(node->derivative_of))
      node->span = source->span;
  }
}

const Node* JointTracer::source_of_broken_derivative() const {
  return broken_derivative_ < 0 ? nullptr : source_of(broken_derivative_);
}

const Node* JointTracer::source_of(int64_t autograd_node) const {
  auto line = std::upper_bound(
      lines_.begin(), lines_.end(), autograd_node,
      [](int64_t number, const auto& row) { return number < row.first; });
  return line == lines_.begin() ? nullptr : std::prev(line)->second;
}

Result<at::Tensor> JointTracer::lift(const at::Tensor& real, bool fresh) {
  if (hides_floats() && may_hide_float(real)) {
    return Break{BreakReason::kNoMetaKernel,
                 "a symbolic float was copied into a tensor",
                 {}};
  }
  for (const auto& [constant, lifted] : constants_) {
    if (constant.is_same(real)) return lifted;
  }
  at::Tensor lifted =
      make_trace_tensor(*this, make_companion(real), real.device());
  auto node = std::make_unique<Node>();
  node->op = Opcode::kGetAttr;
  node->args = {Arg(wrap_tensor(real))};
  node->span = span_;
  mark_backward(node.get());
  name_value(graph_->add_output(graph_->append(std::move(node))), lifted);
  constants_.emplace_back(real, lifted);
  if (!fresh) return lifted;
  // torch.tensor() makes a new tensor at every call: nothing may alias the
  // constant that the graph holds.
  static const auto clone =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  std::vector<c10::IValue> stack = {lifted, c10::IValue()};
  clone.callBoxed(&stack);
  return stack.back().toTensor();
}

// ---- recording

void JointTracer::name_value(Value* value, const at::Tensor& tensor) {
  TraceTensorImpl* trace = as_trace(tensor);
  SymbolicShape shape = trace->shape();
  value->kind = Value::Kind::kTensor;
  value->meta.dtype = tensor.scalar_type();
  value->meta.device = tensor.device();
  value->meta.sizes = std::move(shape.sizes);
  value->meta.strides = std::move(shape.strides);
  value->meta.storage_offset = std::move(shape.storage_offset);
  value->meta.is_conj = tensor.is_conj();
  value->meta.is_neg = tensor.is_neg();
  values_[trace->value_id()] = value;
  alive_.push_back(tensor);
}

// A constant where the guards leave one value.
Arg JointTracer::float_arg(const c10::SymNode& node) {
  auto expr = to_expr(node);
  if (!expr || !expr->is_float()) {
    return Arg(node->guard_float(__FILE__, __LINE__));
  }
  if (auto known = pinned_float(*expr, *guards())) return Arg(*known);
  return Arg(*std::move(expr));
}

double JointTracer::float_token(const Expr& real) {
  // Valid wherever a rate or a factor is, and hardly a number that a program
  // writes: the caller compares.
  double token = 0x1.5a3c96f0b7d21p-2 + 0x1p-50 * float_tokens_.size();
  float_tokens_.emplace_back(token, real);
  return token;
}

// A number in the place of a tensor.
Arg JointTracer::number_arg(const at::Tensor& tensor) {
  if (c10::SymNode node = symbolic_wrapped_number(tensor)) {
    if (auto expr = to_expr(node); expr && node->is_int()) {
      if (expr->is_const()) return Arg(expr->constant());
      return Arg(*std::move(expr));
    }
    return float_arg(node);
  }
  switch (tensor.scalar_type()) {
    case at::kBool:
      return Arg(*tensor.const_data_ptr<bool>());
    case at::kLong:
      return Arg(*tensor.const_data_ptr<int64_t>());
    case at::kDouble:
      return Arg(*tensor.const_data_ptr<double>());
    case at::kComplexDouble:
      return Arg(*tensor.const_data_ptr<c10::complex<double>>());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "a wrapped number of type ",
                                  tensor.scalar_type());
  }
}

Arg JointTracer::tensor_arg(const at::Tensor& tensor) {
  if (!tensor.defined()) return Arg();
  if (TraceTensorImpl* trace = as_trace(tensor)) {
    auto found = values_.find(trace->value_id());
    FJ_CHECK(found != values_.end(), "a trace tensor without a value");
    return Arg(found->second);
  }
  return number_arg(tensor);
}

Arg JointTracer::to_arg(const c10::IValue& value,
                        const c10::Argument& argument) {
  if (value.isNone()) return Arg();
  if (value.isTensor()) return tensor_arg(value.toTensor());
  if (value.isInt()) return integer_arg(value.toInt(), argument);
  if (value.isSymInt()) return symbolic_arg(value.toSymInt());
  if (value.isBool()) return Arg(value.toBool());
  if (value.isSymBool()) {
    return Arg(value.toSymBool().guard_bool(__FILE__, __LINE__));
  }
  if (value.isDouble()) {
    for (const auto& [token, real] : float_tokens_) {
      if (token == value.toDouble()) return Arg(real);
    }
    return Arg(value.toDouble());
  }
  if (value.isSymFloat()) {
    return float_arg(value.toSymFloat().toSymNodeImpl());
  }
  if (value.isComplexDouble()) return Arg(value.toComplexDouble());
  if (value.isString()) return Arg(value.toStringRef());
  if (value.isDevice()) return Arg(value.toDevice());
  if (value.isTensorList()) {
    return list_arg(value.toTensorVector(),
                    [&](const at::Tensor& t) { return tensor_arg(t); });
  }
  if (value.isOptionalTensorList()) {
    Arg::List result;
    for (std::optional<at::Tensor> item : value.toOptionalTensorList()) {
      result.items.push_back(item ? tensor_arg(*item) : Arg());
    }
    return Arg(std::move(result));
  }
  if (value.isIntList()) {
    return list_arg(value.toIntVector(), [](int64_t i) { return Arg(i); });
  }
  if (value.isSymIntList()) {
    return list_arg(value.toSymIntVector(), symbolic_arg);
  }
  if (value.isDoubleList()) {
    return list_arg(value.toDoubleVector(), [](double d) { return Arg(d); });
  }
  if (value.isBoolList()) {
    Arg::List result;
    for (bool bit : value.toBoolList()) result.items.push_back(Arg(bit));
    return Arg(std::move(result));
  }
  if (is_list_of_numbers(value)) {
    Arg::List result;
    for (const c10::IValue& item : value.toListRef()) {
      result.items.push_back(to_arg(item, argument));
    }
    return Arg(std::move(result));
  }
  unsupported(*this,
              "argument " + argument.name() + " of type " + value.tagKind());
}

void JointTracer::add_results(Node* node, const c10::IValue& result) {
  if (result.isTensorList()) {
    for (const at::Tensor& tensor : result.toTensorVector()) {
      add_results(node, c10::IValue(tensor));
    }
    return;
  }
  Value* value = graph_->add_output(node, Value::Kind::kOther);
  if (result.isTensor() && result.toTensor().defined()) {
    name_value(value, result.toTensor());
  }
}

namespace {

// Formulas of gradients also work in place, which keeps the layout. Below
// functionalization both forms are one: where its result is laid out otherwise
// than its first argument (masked_fill), what eager returns is not known.
bool forgets_layout(const c10::OperatorHandle& op,
                    c10::ArrayRef<c10::IValue> arguments,
                    c10::ArrayRef<c10::IValue> results) {
  if (op.schema().returns().size() != 1 ||
      op.schema().returns()[0].alias_info() ||  // t() of another layout
      !results[0].isTensor() || arguments.empty() || !arguments[0].isTensor() ||
      !as_trace(arguments[0].toTensor()) || !as_trace(results[0].toTensor()))
    return false;
  SymbolicShape given = shape_of(arguments[0].toTensor());
  SymbolicShape made = shape_of(results[0].toTensor());
  if (given.sizes != made.sizes || !is_dense(given)) return false;
  bool same = true;
  for (size_t i = 0; i < given.sizes.size(); ++i)
    same &= given.sizes[i].is_const(1) || given.strides[i] == made.strides[i];
  if (same) return false;
  c10::OperatorName in_place = op.operator_name();
  in_place.name += "_";
  return c10::Dispatcher::singleton().findSchema(in_place).has_value();
}

}  // namespace

void JointTracer::record(const c10::OperatorHandle& op,
                         c10::ArrayRef<c10::IValue> arguments,
                         c10::ArrayRef<c10::IValue> results) {
  const c10::FunctionSchema& schema = op.schema();
  if (in_backward_ && forgets_layout(op, arguments, results)) {
    auto current = torch::autograd::get_current_node();
    set_break(torch_level_only(
        TorchLevel::kKeepsLayout,
        place_of_node(current ? source_of(number_of(*current)) : nullptr),
        schema.name()));
  }
  if (schema.is_mutable()) {
    unsupported(*this, schema.name() + " mutates and is not functionalized");
  }
  auto node = std::make_unique<Node>();
  node->op = Opcode::kCallFunction;
  node->aten = op;
  node->span = span_;
  if (source_) {
    node->caller = source_->caller;
    node->receivers = source_->receivers;
  }
  mark_backward(node.get());
  for (size_t i = 0; i < arguments.size(); ++i) {
    node->args.push_back(to_arg(arguments[i], schema.arguments()[i]));
  }
  node->outputs_are_list = results.size() == 1 && results[0].isTensorList();
  Node* added = graph_->append(std::move(node));
  if (!c10::GradMode::is_enabled()) without_grad_.insert(added);
  for (const c10::IValue& result : results) add_results(added, result);
}

// ---- bernoulli_ fills memory in its order, bernoulli.p makes a contiguous
// tensor: other numbers unless the dimensions are put in the order of memory

bool JointTracer::rewrite_bernoulli(const c10::OperatorHandle& op,
                                    std::vector<c10::IValue>* stack) {
  const std::string& overload = op.schema().overload_name();
  if (calls_bernoulli_ || (overload != "p" && overload != "Tensor")) {
    return false;
  }
  size_t base = stack->size() - op.schema().arguments().size();
  at::Tensor self = (*stack)[base].toTensor();
  SymbolicShape shape = shape_of(self);
  if (decide_contiguous(shape.sizes, shape.strides)) return false;
  if (!is_dense(shape)) {  // or not so at all sizes
    specialise_strides(self);
    if (!self.is_non_overlapping_and_dense())
      unsupported(*this, "bernoulli_ on a tensor with gaps");
  }
  std::vector<int64_t> order(self.dim()), back(self.dim());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return hint_of(shape.strides[a]) > hint_of(shape.strides[b]);
  });
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  static const auto permute =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::permute", "");
  auto permuted = [&](const c10::IValue& value,
                      const std::vector<int64_t>& dims) {
    std::vector<c10::IValue> call = {value, dims};
    permute.callBoxed(&call);
    return call.back();
  };
  std::vector<c10::IValue> call(stack->begin() + base, stack->end());
  stack->resize(base);
  call[0] = permuted(call[0], order);
  if (overload == "Tensor") {
    // The probabilities are broadcast to the tensor.
    static const auto expand =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::expand", "");
    std::vector<c10::IValue> wide = {call[1], self.sym_sizes(), false};
    expand.callBoxed(&wide);
    call[1] = permuted(wide.back(), order);
  }
  op.callBoxed(&call);
  stack->push_back(permuted(call.back(), back));
  return true;
}

// ---- operators of the program that it says in others

void JointTracer::rewrite_custom(PyObject* function,
                                 const c10::OperatorHandle& op,
                                 std::vector<c10::IValue>* stack) {
  const size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(
      stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->resize(stack->size() - count);
  std::vector<at::Tensor> results;
  std::string error;
  const Node* last_before = graph_->block().nodes.empty()
                                ? nullptr
                                : graph_->block().nodes.back().get();
  if (!call_user_lowering(function, op, arguments, &results, &error))
    unsupported(*this, "the lowering registered for " + op.schema().name() +
                           " " + error);
  std::unordered_set<const Node*> made;
  for (auto it = graph_->block().nodes.rbegin();
       it != graph_->block().nodes.rend() && it->get() != last_before; ++it)
    made.insert(it->get());
  std::unordered_set<const Value*> taken;
  static const auto clone =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  for (at::Tensor& result : results) {
    Value* value = value_of(result);
    if (!value)
      unsupported(*this, "the lowering registered for " + op.schema().name() +
                             " returns a tensor that it did not compute");
    // The operator's results are memory of their own.
    const bool owns = made.contains(value->node) &&
                      aliased_arguments(*value->node).empty() &&
                      taken.insert(value).second;
    if (!owns) {
      std::vector<c10::IValue> call = {result, c10::IValue()};
      clone.callBoxed(&call);
      result = call.back().toTensor();
    }
    stack->push_back(std::move(result));
  }
}

// ---- batch norm hides from its schema that it writes the running statistics

namespace {

// The formula of the gradient looks at the values of what comes in, and refuses
// some (of complex results; of tensors without values it does not).
bool reads_values_in_formula(const std::string& name) {
  return name == "aten::linalg_eig" || name == "aten::_linalg_eigh" ||
         name == "aten::_linalg_svd";
}

}  // namespace

bool JointTracer::rewrite(const c10::OperatorHandle& op,
                          std::vector<c10::IValue>* stack) {
  const std::string& name = op.schema().name();
  if (PyObject* function = user_lowering(op)) {
    rewrite_custom(function, op, stack);
    return true;
  }
  if (name == "aten::bernoulli") return rewrite_bernoulli(op, stack);
  if (name == "aten::_efficientzerotensor") {
    // Zeros without memory (forward-mode gradients of constants), for which
    // there are no kernels.
    static const auto zeros =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros", "");
    if (!op.schema().overload_name().empty()) return false;
    zeros.callBoxed(stack);
    return true;
  }
  const size_t base = stack->size() - op.schema().arguments().size();
  if (has_gradients_ && !in_backward_ && reads_values_in_formula(name))
    check_formula(name, (*stack)[base]);
  if (name == "aten::cudnn_batch_norm") {
    rewrite_cudnn_batch_norm(stack);
    return true;
  }
  if (name == "aten::cudnn_batch_norm_backward") {
    // (input, gradient, weight, running_mean, running_var, mean, invstd, eps,
    // what cuDNN keeps)
    static const auto backward = c10::Dispatcher::singleton().findSchemaOrThrow(
        "aten::native_batch_norm_backward", "");
    std::vector<c10::IValue> call(stack->end() - 9, stack->end());
    stack->resize(base);
    std::vector<c10::IValue> plain = {
        call[1], call[0],
        call[2], call[3],
        call[4], call[5],
        call[6], true,
        call[7], c10::List<bool>({true, true, true})};
    backward.callBoxed(&plain);
    for (c10::IValue& result : plain) stack->push_back(std::move(result));
    return true;
  }
  const bool is_miopen = name == "aten::miopen_batch_norm";
  if (name != "aten::native_batch_norm" && !is_miopen) return false;
  bool training = (*stack)[base + 5].toBool();
  const c10::IValue& mean = (*stack)[base + 3];
  bool statistics = mean.isTensor() && mean.toTensor().defined();
  if (!training || !statistics) return false;
  if (is_miopen) unsupported(*this, name + " in training");
  rewrite_batch_norm(stack);
  return true;
}

void JointTracer::check_formula(const std::string& name,
                                const c10::IValue& matrix) {
  if (name == "aten::linalg_eig" || matrix.toTensor().is_complex())
    unsupported(*this, "the gradient of " + name + " reads values");
}

// As the operator of all devices, whose kernels are loops. What cuDNN keeps for
// its backward nobody reads.
void JointTracer::rewrite_cudnn_batch_norm(std::vector<c10::IValue>* stack) {
  const at::Tensor input = (*stack)[stack->size() - 8].toTensor();
  static const auto plain = c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::native_batch_norm", "");
  plain.callBoxed(stack);
  stack->emplace_back(at::empty({0}, input.options().dtype(at::kByte)));
}

void JointTracer::rewrite_batch_norm(std::vector<c10::IValue>* stack) {
  std::vector<c10::IValue> arguments(stack->end() - 8, stack->end());
  stack->resize(stack->size() - 8);
  static const auto functional_form =
      c10::Dispatcher::singleton().findSchemaOrThrow(
          "aten::_native_batch_norm_legit_functional", "");
  std::vector<c10::IValue> results = arguments;
  functional_form.callBoxed(&results);
  replace_input(arguments[3].toTensor(), results[3].toTensor());
  replace_input(arguments[4].toTensor(), results[4].toTensor());
  for (size_t i = 0; i < 3; ++i) stack->push_back(std::move(results[i]));
}

void JointTracer::replace_input(const at::Tensor& old_value,
                                const at::Tensor& new_value) {
  int id = as_trace(old_value)->value_id();
  for (const at::Tensor& wrapper : inputs_) {
    if (as_trace(wrapper)->value_id() != id) continue;
    functional::replace_(wrapper, new_value);
    functional::commit_update(wrapper);
    functional::sync(wrapper);
    return;
  }
  unsupported(*this, "batch norm with running statistics that are no input");
}

}  // namespace framejit::graph
