#include "graph/tracing/recorder.h"

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <map>

#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/python_text.h"
#include "graph/ir/graph_text.h"
#include "graph/ir/python_args.h"
#include "graph/ops/meta_inference.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/callees.h"
#include "graph/tracing/float_args.h"
#include "graph/tracing/out_arguments.h"
#include "guards/known_objects.h"
#include "guards/set/storage_memory.h"

namespace framejit::graph {

namespace {

bool is_stand_in(PyObject* object) {
  return is_tensor_object(object) && as_trace(unpack_tensor(object));
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

// While a leaf runs, operations on stand-ins are part of its node, and factory
// functions are traced. Outside, this thread's torch calls are native.
class Recorder::CallScope {
 public:
  explicit CallScope(Recorder& recorder)
      : recorder_(recorder),
        include_(kTracingKeys),
        script_optimization_(script_optimization()) {
    // TorchScript must not learn the sizes of stand-ins.
    if (script_optimization_) set_script_optimization(false);
    if (recorder_.depth_++ == 0) {
      recorder_.operations_ = 0;
      recorder_.operators_.clear();
      recorder_.resizes_out_ = false;
      recorder_.writes_ = false;
    }
  }
  ~CallScope() {
    --recorder_.depth_;
    if (script_optimization_) set_script_optimization(true);
  }

 private:
  Recorder& recorder_;
  c10::impl::IncludeDispatchKeyGuard include_;
  bool script_optimization_;
  PauseHook pause_;  // Python beneath a leaf is torch's own
};

Recorder::Recorder(GuardSet* guards, const TensorTracer::Stack* stack,
                   const TensorTracer::Receivers* receivers)
    : TraceSession(guards),
      result_(std::make_unique<TorchGraph>()),
      inference_mode_(c10::AutogradState::get_tls_state().get_inference_mode()),
      stack_(stack),
      receivers_(receivers) {}

Recorder::~Recorder() = default;

Recorder::Entry* Recorder::find(PyObject* stand_in) {
  auto found = entries_.find(stand_in);
  return found == entries_.end() ? nullptr : &found->second;
}

PyObject* Recorder::stand_in_of(PyObject* real) const {
  auto found = stand_ins_.find(real);
  return found == stand_ins_.end() ? nullptr : found->second;
}

TensorMeta Recorder::meta_of(const at::Tensor& tensor) {
  TensorMeta meta;
  SymbolicShape shape = shape_of(tensor);
  meta.dtype = tensor.scalar_type();
  meta.sizes = std::move(shape.sizes);
  meta.strides = std::move(shape.strides);
  meta.storage_offset = std::move(shape.storage_offset);
  meta.device = tensor.device();
  meta.requires_grad = tensor.requires_grad();
  meta.is_conj = tensor.is_conj();
  meta.is_neg = tensor.is_neg();
  return meta;
}

void Recorder::fill_meta(Value* value, const at::Tensor& tensor) {
  value->kind = Value::Kind::kTensor;
  value->meta = meta_of(tensor);
}

void Recorder::add_input(Ref stand_in, Ref real, const Source* source,
                         std::string name) {
  const at::Tensor& tensor = unpack_tensor(stand_in.get());
  Value* value = graph_at(0).graph->add_input(std::move(name), TensorMeta{});
  fill_meta(value, tensor);
  input_storages_.set(tensor, value);
  stand_ins_[real.get()] = stand_in.get();
  inputs_.push_back(stand_in.get());
  entries_[stand_in.get()] = Entry{value, source, std::move(real)};
  kept_.push_back(std::move(stand_in));
}

// ---- what reaches the Fake key

Status Recorder::before(const c10::OperatorHandle& op) {
  if (depth_ > 0) return ok_status();
  return Break{BreakReason::kUnknownCallee,
               "C code ran " + op.schema().name() +
                   " on a captured tensor behind the recorder",
               span_};
}

void Recorder::note_random(c10::ArrayRef<c10::IValue> results) {
  result_->uses_random = true;
  auto& devices = result_->random_devices;
  for (const c10::IValue& result : results) {
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const c10::Device device = result.toTensor().device();
    if (!device.is_cpu() &&
        std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  }
}

void Recorder::record(const c10::OperatorHandle& op,
                      c10::ArrayRef<c10::IValue> arguments,
                      c10::ArrayRef<c10::IValue> results) {
  ++operations_;
  if (std::find(operators_.begin(), operators_.end(), op) == operators_.end())
    operators_.push_back(op);
  if (op.hasTag(at::Tag::nondeterministic_seeded)) note_random(results);
  auto note = [&](const at::Tensor& tensor) {
    writes_ = true;
    constants_.erase(tensor);
    if (!blocks_.empty() && !block_owns(tensor))
      set_break({BreakReason::kUnknownOperation,
                 "a gradient function or a torch.func transform writes to a "
                 "tensor it did not make",
                 span_});
    if (Value* const* input = input_storages_.find(tensor))
      note_mutated(*input);
  };
  if (!blocks_.empty()) {
    const auto& returns = op.schema().returns();
    for (size_t i = 0; i < returns.size() && i < results.size(); ++i) {
      if (returns[i].alias_info()) continue;
      if (!results[i].isTensor() || !results[i].toTensor().defined()) continue;
      blocks_.back().own.set(results[i].toTensor(), true);
    }
  }
  // These write the running statistics, which their schemas do not say.
  const std::string& name = op.schema().name();
  if ((name == "aten::native_batch_norm" || name == "aten::cudnn_batch_norm" ||
       name == "aten::miopen_batch_norm") &&
      arguments.size() > 5 && arguments[5].isBool() && arguments[5].toBool()) {
    for (size_t i : {3, 4})
      if (arguments[i].isTensor() && arguments[i].toTensor().defined())
        note(arguments[i].toTensor());
  }
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size() && i < arguments.size(); ++i) {
    const auto* alias = schema[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    resizes_out_ |= alias && schema[i].is_out() && may_resize_out(op);
    visit_tensors(arguments[i], note);
  }
  if (op.schema().name() == "aten::as_strided" &&
      reaches_beyond(arguments[0].toTensor(), results[0].toTensor()))
    set_break({BreakReason::kTensorInternals,
               "as_strided beyond the elements of its tensor", span_});
  if (auto why = write_rules_.check(op, arguments, results))
    keep_torch_level(*why, op.schema().name());
}

// ---- calls

namespace {

// The object with concrete numbers in place of symbolic ones, in sequences,
// too.
Result<Ref> without_symbols(PyObject* object, bool* changed) {
  if (is_symbolic_object(object)) {
    *changed = true;
    return concrete_value(object);
  }
  bool is_list = PyList_CheckExact(object);
  if (!is_list && !PyTuple_Check(object)) return Ref::borrow(object);
  if (native_stack_low()) {
    return Break{BreakReason::kTooLarge, "arguments nested too deeply", {}};
  }
  bool inside = false;
  Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  Ref copy = Ref::steal(is_list ? PyList_New(size) : PyTuple_New(size));
  if (!copy) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < size; ++i) {
    FJ_TRY(Ref item,
           without_symbols(PySequence_Fast_GET_ITEM(object, i), &inside));
    if (is_list) {
      PyList_SET_ITEM(copy.get(), i, item.release());
    } else {
      PyTuple_SET_ITEM(copy.get(), i, item.release());
    }
  }
  if (!inside) return Ref::borrow(object);
  *changed = true;
  return copy;
}

// What reads elements may be a part of what the program called, which the name
// of the operator does not tell.
void name_composite(PyObject* callable, Break* brk) {
  if (brk->reason != BreakReason::kDataDependentValue ||
      !brk->detail.starts_with("aten::"))
    return;
  const std::string name = canonical_name(callable);
  const std::string own = name.substr(name.rfind('.') + 1);
  if (!own.empty() && brk->detail != "aten::" + own)
    brk->detail += " within " + name;
}

}  // namespace

Result<Ref> Recorder::call_natively(PyObject* callable,
                                    const std::vector<PyObject*>& args,
                                    PyObject* kwnames, PyObject* named) {
  if (!named) named = callable;
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  Ref result;
  {
    CallScope scope(*this);
    GuardCause cause(guards(), cause_of_call(callable));
    result = Ref::steal(PyObject_Vectorcall(callable, args.data(),
                                            args.size() - keywords, kwnames));
  }
  if (has_break()) {
    PyErr_Clear();
    Break brk = *take_break();
    if (!brk.span.code) brk.span = span_;
    name_composite(named, &brk);
    return brk;
  }
  if (result) return result;
  // Operators without a symbolic kernel refuse symbolic numbers: they get the
  // numbers of this call, with the guards that go with it.
  Break brk = raised_as_break(named, args);
  bool changed = false;
  std::vector<Ref> concrete;
  std::vector<PyObject*> values;
  for (PyObject* arg : args) {
    FJ_TRY(Ref value, without_symbols(arg, &changed));
    values.push_back(value.get());
    concrete.push_back(std::move(value));
  }
  if (!changed) return brk;
  return call_natively(callable, values, kwnames, named);
}

// A stand-in of an input is a leaf, which refuses to be written to where it
// requires grad; the input need not be one.
bool Recorder::is_written_with_history(const std::vector<PyObject*>& args,
                                       const std::string& error) const {
  if (!contains(error, "a leaf Variable that requires grad")) return false;
  auto reaches_history = [&](PyObject* object) {
    if (!is_tensor_object(object)) return false;
    Value* const* input = input_storages_.find(unpack_tensor(object));
    return input &&
           std::any_of(inputs_.begin(), inputs_.end(), [&](PyObject* stand_in) {
             const Entry& entry = entries_.at(stand_in);
             return entry.value == *input &&
                    !unpack_tensor(entry.real.get()).is_leaf();
           });
  };
  return std::any_of(args.begin(), args.end(), reaches_history);
}

Break Recorder::raised_as_break(PyObject* callable,
                                const std::vector<PyObject*>& args) {
  std::string text = take_error_text();
  if (is_written_with_history(args, text))
    return Break{BreakReason::kUnsupportedWrite,
                 "an operation in place on an argument that was computed with "
                 "gradients",
                 span_};
  BreakReason reason = BreakReason::kLeafRaised;
  if (contains(text, "_local_scalar_dense") || contains(text, "tolist") ||
      contains(text, "Tensor.item() cannot be called") ||
      contains(text, "data pointer") || contains(text, "data-dependent")) {
    reason = BreakReason::kDataDependentValue;
    // What torch says is of the stand-in, which has no elements.
    text = canonical_name(callable);
  } else if (contains(text, "torch.nonzero()")) {
    reason = BreakReason::kDataDependentShape;
  } else if (contains(text, " has no rule for what it returns") ||
             contains(text, " has no fake implementation (torch.library") ||
             contains(text, "There was no fake impl registered for ")) {
    reason = BreakReason::kNoMetaKernel;  // ours, not eager's
  }
  return Break{reason, text, span_};
}

Result<Ref> Recorder::run_unrecorded(PyObject* callable,
                                     const std::vector<PyObject*>& args,
                                     PyObject* kwnames) {
  return call_natively(callable, args, kwnames);
}

Span Recorder::caller() const {
  if (!is_in_library(span_) || !stack_ || !*stack_) return {};
  const std::vector<Span> stack = (*stack_)();
  auto own = std::find_if(stack.rbegin(), stack.rend(), [](const Span& span) {
    return !is_in_library(span);
  });
  return own == stack.rend() ? Span() : *own;
}

// Whose methods the program is in. (Of tensors there are stand-ins, which must
// not outlive the capture.)
std::vector<Ref> Recorder::modules() const {
  if (!receivers_ || !*receivers_) return {};
  PyObject* type = library_object("torch.nn", "Module");
  if (!type || !PyType_Check(type)) return {};
  std::vector<Ref> found = (*receivers_)();
  std::erase_if(found, [&](const Ref& object) {
    return !PyObject_TypeCheck(object.get(),
                               reinterpret_cast<PyTypeObject*>(type));
  });
  return found;
}

// A gradient function gets the floats it computes with as it gets sizes. What
// functorch runs gets tensors and sizes only.
bool Recorder::takes_floats() const {
  return std::ranges::all_of(blocks_, [](const OpenBlock& block) {
    return block.kind == BlockKind::kBackward;
  });
}

Result<Arg> Recorder::argument(PyObject* object) {
  FJ_TRY(Arg arg, any_argument(object));
  if (!takes_floats()) pin_floats(&arg, guards());
  return arg;
}

Result<Arg> Recorder::any_argument(PyObject* object) {
  return to_arg(object, [&](PyObject* tensor) -> Result<Value*> {
    if (Entry* entry = find(tensor)) {
      if (unpack_tensor(tensor).is_meta())
        return Break{BreakReason::kTensorSubclass, "a tensor on meta", span_};
      return value_at(tensor, *entry, blocks_.size());
    }
    return Break{BreakReason::kUnknownTensor,
                 "a tensor that no argument or attribute leads to", span_};
  });
}

bool Recorder::block_owns(const at::Tensor& tensor) const {
  FJ_CHECK(!blocks_.empty(), "no block");
  return blocks_.back().own.find(tensor);
}

Result<std::unique_ptr<Node>> Recorder::make_node(
    PyObject* callable, const std::vector<PyObject*>& args, PyObject* kwnames,
    const char* method) {
  auto node = std::make_unique<Node>();
  node->op = method ? Opcode::kCallMethod : Opcode::kCallFunction;
  node->callable = Ref::borrow(callable);
  if (method) node->method = method;
  node->span = span_;
  node->caller = caller();
  node->receivers = modules();
  if (begin_.empty() && stack_ && *stack_) begin_ = (*stack_)();
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  size_t positional = args.size() - keywords;
  for (size_t i = 0; i < args.size(); ++i) {
    FJ_TRY(Arg arg, argument(args[i]));
    if (i < positional) {
      node->args.push_back(std::move(arg));
      continue;
    }
    const char* name =
        PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i - positional));
    if (!name) return Result<std::unique_ptr<Node>>::raised();
    node->kwargs.emplace_back(name, std::move(arg));
  }
  return node;
}

Result<Ref> Recorder::record_effect(PyObject* callable,
                                    const std::vector<PyObject*>& args,
                                    PyObject* kwnames, const char* method) {
  FJ_TRY(std::unique_ptr<Node> node,
         make_node(callable, args, kwnames, method));
  FJ_TRY(Ref result, call_natively(callable, args, kwnames));
  node->must_keep = true;
  Node* placed = result_->graph->append(std::move(node));
  FJ_CHECK_OK(add_outputs(placed, result.get()));
  return result;
}

void Recorder::note_mutated(Value* input) {
  if (!mutated_.contains(input)) mutated_[input] = {span_, line()};
}

void Recorder::note_written(PyObject* stand_in) {
  Entry* entry = find(stand_in);
  if (entry && entry->source) note_mutated(entry->value);
  constants_.erase(unpack_tensor(stand_in));
}

// torch.tensor(3) is made of real memory: its element stays known.
Result<at::Tensor> Recorder::lift(const at::Tensor& real, bool fresh) {
  FJ_TRY(at::Tensor lifted, TraceSession::lift(real, fresh));
  if (!fresh || real.numel() != 1) return lifted;
  BelowTracing below;
  at::Tensor value = real.detach().clone();
  Ref object = wrap_tensor(value);
  if (!object) return Result<at::Tensor>::raised();
  constants_.set(lifted, std::move(object));
  return lifted;
}

Result<Ref> Recorder::constant_of(PyObject* stand_in) {
  const at::Tensor& tensor = unpack_tensor(stand_in);
  const Ref* found = constants_.find(tensor);
  if (!found) return Ref();
  const at::Tensor& value = unpack_tensor(found->get());
  if (value.scalar_type() != tensor.scalar_type() || tensor.numel() != 1 ||
      tensor.is_conj() || tensor.is_neg())
    return Ref();
  PauseHook pause;
  SuspendTracing native;
  return from_api(PyObject_CallMethod(found->get(), "item", nullptr));
}

namespace {

// How a gradient lies in memory depends on who computed it.
bool reads_layout(const Node& node) {
  static constexpr const char* kNames[] = {"stride",
                                           "is_contiguous",
                                           "storage_offset",
                                           "dim_order",
                                           "is_non_overlapping_and_dense",
                                           "untyped_storage"};
  std::string name = node.target_name();
  return std::any_of(
      std::begin(kNames), std::end(kNames), [&](const char* row) {
        std::string_view text = row;
        return name == text || name.ends_with("." + std::string(text));
      });
}

}  // namespace

Result<Ref> Recorder::record_call(PyObject* callable,
                                  const std::vector<PyObject*>& given,
                                  PyObject* kwnames, const char* method,
                                  const std::vector<PyObject*>* run_with,
                                  PyObject* run_instead) {
  // A callback of C code beneath a leaf: the leaf's node covers it.
  if (depth_ > 0) return call_natively(callable, given, kwnames);
  // Only numbers can be symbolic in a graph.
  std::vector<PyObject*> args = given;
  std::vector<Ref> concrete;
  for (PyObject*& arg : args) {
    bool number = sym_int_of(arg) || (is_sym_float(arg) && takes_floats());
    if (!is_symbolic_object(arg) || number) continue;
    FJ_TRY(Ref value, concrete_value(arg));
    concrete.push_back(value);
    arg = value.get();
  }
  FJ_TRY(bool has_out, check_out_argument(*this, callable, args, kwnames));
  // Arguments are copied before the call: it may change lists.
  FJ_TRY(std::unique_ptr<Node> node,
         make_node(callable, args, kwnames, method));
  set_hides_floats(uses_floats(*node));
  if (hands_floats_on(*node)) {
    for (PyObject*& arg : args) {
      if (!is_sym_float(arg)) continue;
      FJ_TRY(Ref number, number_in_place_of(arg));
      arg = number.get();
      concrete.push_back(std::move(number));
    }
  }
  FJ_TRY(Ref result,
         call_natively(run_instead ? run_instead : callable,
                       run_with ? *run_with : args, kwnames, callable));
  if (has_out && (operations_ != 1 || resizes_out_))
    return Break{BreakReason::kOutArgument, "several operations", span_};
  // x.size(0), x.to(its own dtype): nothing happened.
  bool nothing = operations_ == 0 && !has_new_tensor(result.get());
  if (nothing && !blocks_.empty() &&
      blocks_.back().kind == BlockKind::kBackward && reads_layout(*node))
    return Break{BreakReason::kTensorInternals,
                 "a gradient function reads how a gradient lies in memory",
                 span_};
  LateState* late = late_state();
  if (nothing && !always_) {
    if (late) FJ_CHECK_OK(allow_late(late->check_idle_call(*node)));
    return result;
  }
  node->must_keep = writes_ || always_;
  node->operators = operators_;
  Node* placed = result_->graph->append(std::move(node));
  FJ_CHECK_OK(add_outputs(placed, result.get()));
  if (late) FJ_CHECK_OK(allow_late(late->note_call(*placed)));
  return result;
}

Status Recorder::allow_late(const std::string& problem) const {
  if (problem.empty()) return ok_status();
  return Break{BreakReason::kUnguardableInput,
               "a gradient function calls " + problem, span_};
}

bool Recorder::has_new_tensor(PyObject* result) {
  if (is_stand_in(result)) return !find(result);
  if (native_stack_low()) return true;  // nobody knows
  if (PyList_Check(result) || PyTuple_Check(result)) {
    Py_ssize_t size = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < size; ++i)
      if (has_new_tensor(PySequence_Fast_GET_ITEM(result, i))) return true;
  }
  return false;
}

Status Recorder::add_output(Node* node, PyObject* item) {
  if (!is_tensor_object(item)) {
    bool nested =
        (PyList_Check(item) || PyTuple_Check(item)) && has_new_tensor(item);
    if (nested)
      return Break{BreakReason::kUnknownOperation,
                   "a nested list of tensors as the result", span_};
    result_->graph->add_output(node, Value::Kind::kOther);
    return ok_status();
  }
  const at::Tensor& tensor = unpack_tensor(item);
  TraceTensorImpl* trace = as_trace(tensor);
  if (!trace || trace->session() != id())
    return Break{BreakReason::kUnknownTensor,
                 "an operation returned a tensor that was not captured", span_};
  Value* value = result_->graph->add_output(node);
  fill_meta(value, tensor);
  // In place: the object keeps its first value, unless that has other sizes.
  if (Entry* known = find(item)) {
    // Its history changed.
    if (always_ && !known->source) {
      known->value = value;
      known->current = nullptr;
      known->block = block_id(blocks_.size());
      return ok_status();
    }
    const TensorMeta& now = value->meta;
    const Value* last = known->current ? known->current : known->value;
    if (now.sizes != last->meta.sizes || now.strides != last->meta.strides)
      known->current = value;
    return ok_status();
  }
  Entry& made = entries_[item] = Entry{value, nullptr, {}};
  made.block = block_id(blocks_.size());
  kept_.push_back(Ref::borrow(item));
  return ok_status();
}

Status Recorder::add_outputs(Node* node, PyObject* result) {
  if (PyList_Check(result) || PyTuple_Check(result)) {
    node->outputs_are_list = true;
    Py_ssize_t size = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < size; ++i)
      FJ_CHECK_OK(add_output(node, PySequence_Fast_GET_ITEM(result, i)));
    return ok_status();
  }
  if (is_tensor_object(result)) return add_output(node, result);
  return ok_status();
}

Result<Ref> Recorder::record_state_write(PyObject* callable,
                                         const std::vector<PyObject*>& args,
                                         bool run) {
  auto node = std::make_unique<Node>();
  node->op = Opcode::kStateEnter;
  node->callable = Ref::borrow(callable);
  node->must_keep = true;
  node->span = span_;
  for (PyObject* object : args) {
    FJ_TRY(Arg arg, argument(object));
    node->args.push_back(std::move(arg));
  }
  PauseHook pause;
  Ref result = run ? Ref::steal(PyObject_Vectorcall(callable, args.data(),
                                                    args.size(), nullptr))
                   : Ref::borrow(Py_None);
  if (!result) return raised_as_break(callable, args);
  result_->graph->append(std::move(node));
  return result;
}

Result<Ref> Recorder::record_always(PyObject* callable,
                                    const std::vector<PyObject*>& args,
                                    PyObject* kwnames, const char* method,
                                    const std::vector<PyObject*>* run_with,
                                    PyObject* run_instead) {
  always_ = true;
  Result<Ref> result =
      record_call(callable, args, kwnames, method, run_with, run_instead);
  always_ = false;
  return result;
}

// ---- the end

void Recorder::drop_unused_inputs() {
  Graph& graph = *result_->graph;
  std::vector<Value*> inputs = graph.inputs;
  for (Value* value : inputs)
    if (value->users.empty()) graph.erase(value->node);
}

void Recorder::add_symbol_inputs() {
  Graph& graph = *result_->graph;
  std::map<int, Expr> symbols;
  auto collect = [&](const Expr& expr) { expr.collect_symbols(&symbols); };
  for (auto& node : graph.block().nodes) {
    for (const Arg& arg : node->args) for_each_expr(arg, collect);
    for (const auto& [name, arg] : node->kwargs) for_each_expr(arg, collect);
    for (const auto& value : node->outputs) {
      if (value->kind == Value::Kind::kTensor) for_each_expr(*value, collect);
    }
  }
  for (const auto& [index, symbol] : symbols) {
    graph.add_symbol_input(symbol.str(), symbol);
    result_->input_objects.push_back(-1);
  }
}

// Writing to an input changes every other input that shares its memory; the
// functional graph cannot say that. Inputs that are only read may share theirs.
// What shares is guarded as soon as there is a write.
Status Recorder::guard_storage() {
  if (mutated_.empty()) return ok_status();
  std::vector<const Source*> sources;
  std::vector<int> groups;
  std::vector<int> members;  // of each group
  std::unordered_map<const void*, int> seen;
  std::vector<const void*> storages;
  for (PyObject* stand_in : inputs_) {
    const Entry& entry = entries_.at(stand_in);
    const at::Tensor& real = unpack_tensor(entry.real.get());
    const void* storage =
        real.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    auto [place, fresh] = seen.emplace(storage, static_cast<int>(seen.size()));
    if (fresh) members.push_back(0);
    ++members[place->second];
    storages.push_back(storage);
    sources.push_back(entry.source);
    groups.push_back(place->second);
  }
  // Different storages over the same bytes are not told apart by who writes:
  // the guard has no word for it.
  const bool apart = storages_lie_apart(std::move(storages));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    auto written = mutated_.find(entries_.at(inputs_[i]).value);
    const bool shares = members[groups[i]] > 1;
    if (written == mutated_.end() || (apart && !shares)) continue;
    return Break{
        BreakReason::kAliasedMutation,
        shares ? "an input is written to and shares memory with another one"
               : "an input is written to, and inputs share memory that is no "
                 "tensor's own",
        written->second.span};
  }
  if (sources.size() > 1)
    guards()->add_storage_relation(std::move(sources), std::move(groups));
  return ok_status();
}

namespace {

// A view made before its base got a history in place: autograd gives it one
// only when somebody looks at it, and until then it passes for a leaf.
bool is_stale_view(PyObject* object) {
  const at::Tensor& tensor = unpack_tensor(object);
  return tensor.is_view() && tensor.requires_grad() && tensor.is_leaf() &&
         !tensor._base().is_leaf();
}

}  // namespace

Result<std::unique_ptr<TorchGraph>> Recorder::finish(
    const std::vector<PyObject*>& outputs) {
  FJ_CHECK(blocks_.empty(), "a capture ends inside a block");
  if (modes_kept_ > 0)
    return Break{BreakReason::kThreadState,
                 "inference mode that was entered without a with statement and "
                 "is still on",
                 span_};
  Graph& graph = *result_->graph;
  std::vector<Arg> args;
  for (PyObject* output : outputs) {
    FJ_TRY(Arg arg, argument(output));
    args.push_back(std::move(arg));
    bool inference =
        is_tensor_object(output) && unpack_tensor(output).is_inference();
    if (!is_tensor_object(output)) continue;
    auto keep = [&](TorchLevel reason) {
      result_->torch_level_only =
          torch_level_text(reason, place_of_value(*args.back().get<Value*>()));
    };
    if (inference != inference_mode_) keep(TorchLevel::kOtherInferenceMode);
    if (is_stale_view(output)) keep(TorchLevel::kViewWithoutHistory);
  }
  graph.set_outputs(std::move(args));
  FJ_CHECK_OK(guard_storage());
  drop_idle_state_writes(&graph);
  result_->writes_state = writes_more_than_grad_mode(graph);
  drop_unused_inputs();
  std::unordered_map<Value*, const Source*> sources;
  for (PyObject* stand_in : inputs_) {
    const Entry& entry = entries_.at(stand_in);
    sources[entry.value] = entry.source;
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    Value* input = graph.inputs[i];
    result_->input_objects.push_back(guards()->gather(sources.at(input)));
    auto written = mutated_.find(input);
    if (written == mutated_.end()) continue;
    result_->mutated_inputs.push_back(i);
    result_->written_at[i] = written->second.line;
  }
  promise_outputs(outputs);
  add_symbol_inputs();
  result_->symbol_hints = guards()->hints();
  result_->stack = std::move(begin_);
  return std::move(result_);
}

void Recorder::promise_outputs(const std::vector<PyObject*>& outputs) {
  const std::vector<Value*>& inputs = result_->graph->inputs;
  auto number_of = [&](const Value* input) {
    auto found = std::find(inputs.begin(), inputs.end(), input);
    return found == inputs.end() ? -1
                                 : static_cast<int>(found - inputs.begin());
  };
  std::unordered_map<PyObject*, int> seen;
  std::unordered_map<const void*, int> groups;
  for (size_t i = 0; i < outputs.size(); ++i) {
    PromisedOutput promised;
    const int number = static_cast<int>(i);
    if (is_tensor_object(outputs[i])) {
      const at::Tensor& tensor = unpack_tensor(outputs[i]);
      promised.is_tensor = true;
      promised.meta = meta_of(tensor);
      promised.is_parameter =
          reinterpret_cast<PyObject*>(Py_TYPE(outputs[i])) == ParameterClass;
      promised.is_leaf = tensor.is_leaf();
      promised.is_inference = tensor.is_inference();
      const Entry& entry = entries_.at(outputs[i]);
      if (entry.source) promised.input = number_of(entry.value);
      if (int first = seen.emplace(outputs[i], number).first->second;
          first != number)
        promised.same_as = first;
      if (Value* const* input = input_storages_.find(tensor))
        promised.memory_of = number_of(*input);
      promised.group =
          groups.emplace(companion_storage(tensor), number).first->second;
    }
    result_->promised.push_back(std::move(promised));
  }
}

}  // namespace framejit::graph
