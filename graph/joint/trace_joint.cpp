// trace_joint: replays a torch-level graph into an ATen joint graph.
//
//   y = torch.cos(x)      ->  %1 = aten.cos(%x)             (recorded below
//   (returns y)               %2 = aten.sin(%x)    backward  autograd)
//                             %3 = aten.neg(%2)    backward
//                             %4 = aten.mul.Tensor(%tangent, %3)
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/progress.h"
#include "frame_hook/python_text.h"
#include "graph/ir/graph_text.h"
#include "graph/ir/python_args.h"
#include "graph/joint/joint_replay.h"
#include "graph/joint/output_histories.h"
#include "graph/ops/op_facts.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/float_args.h"
#include "graph/tracing/gradient_link.h"
#include "graph/tracing/no_anomaly_mode.h"
#include "graph/tracing/substitutes.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {
namespace {

namespace functional = at::functionalization::impl;

// Everything about this thread that the replay may change.
class ReplayState {
 public:
  explicit ReplayState(const TorchGraph& graph)
      : guard_(at::ThreadLocalState()),
        reapply_views_(true),
        casts_(graph.writes_state || saved_.any_autocast()) {
    auto& state = c10::AutogradState::get_tls_state();
    state.set_grad_mode(graph.grad_enabled_at_entry);
    // The engine must run on this thread, whose dispatch keys are set up.
    state.set_multithreading_enabled(false);
  }
  ~ReplayState() {
    saved_.restore();
    // A weight is cast once in a region, as in eager; what was cast here are
    // stand-ins.
    if (casts_) at::autocast::clear_cache();
  }

 private:
  PauseHook hook_;
  at::ThreadLocalStateGuard guard_;
  // The operations are the same, and functional wrappers need their keys.
  c10::InferenceMode normal_{false};
  functional::FunctionalizationReapplyViewsGuard reapply_views_;
  AmbientState saved_ = AmbientState::now();
  bool casts_;
};

// Expressions become SymInts and SymFloats, so that they stay symbolic in the
// replay.
Arg with_symbols(const Arg& arg) {
  if (arg.is<Expr>()) return Arg(sym_number_object(arg.get<Expr>()));
  if (arg.is<Arg::List>()) {
    Arg::List list;
    for (const Arg& item : arg.get<Arg::List>().items) {
      list.items.push_back(with_symbols(item));
    }
    return Arg(std::move(list));
  }
  if (arg.is<Arg::Tuple>()) {
    Arg::Tuple tuple;
    for (const Arg& item : arg.get<Arg::Tuple>().items) {
      tuple.items.push_back(with_symbols(item));
    }
    return Arg(std::move(tuple));
  }
  if (arg.is<Arg::Dict>()) {
    Arg::Dict dict;
    for (const auto& [key, item] : arg.get<Arg::Dict>().items) {
      dict.items.emplace_back(with_symbols(key), with_symbols(item));
    }
    return Arg(std::move(dict));
  }
  if (arg.is<std::shared_ptr<Arg::Slice>>()) {
    const auto& slice = arg.get<std::shared_ptr<Arg::Slice>>();
    auto copy = std::make_shared<Arg::Slice>();
    copy->start = with_symbols(slice->start);
    copy->stop = with_symbols(slice->stop);
    copy->step = with_symbols(slice->step);
    return Arg(std::move(copy));
  }
  return arg;
}

// Eager's kernels for lists count a write to each tensor, beneath autograd;
// functionalization calls none of them.
void count_writes_to_list(const Node& node,
                          const std::vector<PyObject*>& args) {
  const std::string name = text_attribute(node.callable.get(), "__name__");
  std::string_view form(name);
  form = form.substr(0, form.find('.'));  // of an overload
  if (!form.starts_with("_foreach_") || !form.ends_with('_')) return;
  size_t self = 0;
  for (size_t i = 0; node.args.empty() && i < node.kwargs.size(); ++i)
    if (node.kwargs[i].first == "self") self = i;
  if (self >= args.size()) return;
  PyObject* list = args[self];
  if (!PyList_Check(list) && !PyTuple_Check(list)) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list, i);
    if (is_tensor_object(item))
      unpack_tensor(item).unsafeGetTensorImpl()->bump_version();
  }
}

// Called as it is, so that the arguments are the operator's.
bool calls_in_place_operator(const Node& node) {
  if (node.operators.size() != 1) return false;
  const OpFacts& facts = facts_of(node.operators[0]);
  std::string_view name = facts.op.schema().name();
  name.remove_prefix(name.find("::") + 2);
  return facts.form == OpFacts::Form::kInPlace &&
         node.target_name().ends_with("." + std::string(name));
}

// A fused step of an optimizer, which writes to less than its schema says:
// functionalization would have all gradients written to.
bool is_fused_step(const Node& node) {
  return calls_in_place_operator(node) && facts_of(node.operators[0])
                                              .op.schema()
                                              .name()
                                              .starts_with("aten::_fused_");
}

// Which list of those that an operator writes to is empty, by name: torch takes
// a list without tensors for one that is not in functional form, and then
// refuses to write to the others (fused optimizers, whose state has lists for
// options that are off).
std::string empty_written_list(const Node& node) {
  if (!calls_in_place_operator(node)) return "";
  const OpFacts& facts = facts_of(node.operators[0]);
  const c10::FunctionSchema& schema = facts.op.schema();
  for (int i : facts.written_arguments) {
    const Arg* arg =
        static_cast<size_t>(i) < node.args.size() ? &node.args[i] : nullptr;
    const std::string& argument = schema.arguments()[i].name();
    for (const auto& [key, value] : node.kwargs)
      if (key == argument) arg = &value;
    if (arg && arg->is<Arg::List>() && arg->get<Arg::List>().items.empty())
      return argument;
  }
  return "";
}

// No two tensors among the arguments share memory, so that what is written to
// one is not read from, or written over by, another.
bool are_apart(const std::vector<PyObject*>& args) {
  std::unordered_set<const void*> storages;
  bool apart = true;
  auto add = [&](PyObject* object) {
    if (!is_tensor_object(object)) return;
    const at::Tensor& tensor = unpack_tensor(object);
    // Of one in functional form, views of which share it.
    apart &= storages
                 .insert(tensor.unsafeGetTensorImpl()
                             ->unsafe_storage()
                             .unsafeGetStorageImpl())
                 .second;
  };
  for (PyObject* arg : args) {
    if (!PyList_Check(arg) && !PyTuple_Check(arg)) {
      add(arg);
      continue;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(arg); ++i)
      add(PySequence_Fast_GET_ITEM(arg, i));
  }
  return apart;
}

// The operator's form that returns what it would have written, and a copy of
// each into its place (framejit/_substitutes.py). Null: there is no such form.
Ref through_results(const Node& node) {
  const c10::OperatorName& name = node.operators[0].operator_name();
  PauseHook pause;
  Ref module = Ref::steal(PyImport_ImportModule("framejit._substitutes"));
  Ref made =
      Ref::steal(module ? PyObject_CallMethod(module.get(), "through_results",
                                              "ss", name.name.c_str(),
                                              name.overload_name.c_str())
                        : nullptr);
  if (!made) PyErr_Clear();
  return made.get() == Py_None ? Ref() : std::move(made);
}

// The program's own functional bernoulli, not the one of bernoulli_.
bool calls_bernoulli(const Node& node) {
  if (!node.method.empty()) return node.method == "bernoulli";
  Ref name =
      Ref::steal(PyObject_GetAttrString(node.callable.get(), "__name__"));
  if (!name) PyErr_Clear();
  return name && PyUnicode_Check(name.get()) &&
         PyUnicode_CompareWithASCIIString(name.get(), "bernoulli") == 0;
}

bool differ(const std::vector<Expr>& a, const std::vector<Expr>& b,
            const std::vector<Expr>& sizes) {
  if (a.size() != b.size()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    // The stride of one element says nothing.
    if (&a != &sizes && sizes[i].is_const(1)) continue;
    if (a[i] == b[i]) continue;
    if (hint_of(a[i]) != hint_of(b[i])) return true;
    decide(expr_eq(a[i], b[i]));  // not by chance
  }
  return false;
}

// A Parameter is more than its data: it does not come out of an ATen graph.
Status check_plain(PyObject* object, const Node* maker) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == THPVariableClass)
    return ok_status();
  return torch_level_only(TorchLevel::kMakesSubclass, place_of_node(maker),
                          Py_TYPE(object)->tp_name);
}

// Functionalization gives the result of an in-place operation the layout of
// the functional one; what the capture saw is what eager does.
Status check_meta(const at::Tensor& tensor, const Value& value) {
  if (value.kind != Value::Kind::kTensor) return ok_status();
  const TensorMeta& meta = value.meta;
  SymbolicShape shape = shape_of(tensor);
  const char* what = nullptr;
  if (tensor.device() != meta.device) what = "device";
  if (tensor.scalar_type() != meta.dtype) what = "dtype";
  if (differ(shape.sizes, meta.sizes, shape.sizes)) what = "size";
  if (!what && differ(shape.strides, meta.strides, shape.sizes)) {
    what = "stride";
  }
  if (tensor.requires_grad() != meta.requires_grad) what = "requires_grad";
  if (!what) return ok_status();
  return torch_level_only(TorchLevel::kOtherResult, place_of_node(value.node),
                          what);
}

Break unexpected(const char* what, const Node& node) {
  return torch_level_only(TorchLevel::kUnexpected, place_of_node(&node), what);
}

}  // namespace

std::string JointReplay::place_of_input(size_t input) const {
  return place_of_written(*source_.graph, static_cast<int>(input),
                          source_.written_at);
}

std::string JointReplay::place_of_output(size_t output) const {
  const std::vector<Arg>& outputs = source_.graph->outputs;
  if (output >= outputs.size() || !outputs[output].is<Value*>()) return "";
  return place_of_value(*outputs[output].get<Value*>());
}

// Of the outputs that are views, whichever it is.
std::string JointReplay::places_of_views() const {
  std::string places;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].defined() || !tensors_[i].is_view()) continue;
    const std::string place = place_of_output(i);
    if (place.empty() || places.find(place) != std::string::npos) continue;
    places += (places.empty() ? "" : " or ") + place;
  }
  return places;
}

Result<JointGraph> JointReplay::run() {
  TracingScope scope(tracer_, /*functionalize=*/true);
  if (!scope.ok()) {
    return Break{BreakReason::kThreadState, "another thread is capturing", {}};
  }
  ReplayState ambient(source_);
  add_inputs();
  FJ_CHECK_OK(run_nodes());
  joint_.num_autograd_nodes = tracer_.next_number();
  FJ_CHECK_OK(find_mutations());
  FJ_CHECK_OK(find_outputs());
  FJ_CHECK_OK(items_.check(tensors_));
  FJ_CHECK_OK(check_late_reads());
  if (!pattern_ && !find_histories(inputs_, tensors_, tracer_, &joint_.outputs))
    return torch_level_only(TorchLevel::kOtherHistory, places_of_views());
  FJ_CHECK_OK(differentiate());
  finish();
  return std::move(joint_);
}

Result<std::unique_ptr<Graph>> JointReplay::run_functional() {
  TracingScope scope(tracer_, /*functionalize=*/true);
  if (!scope.ok()) {
    return Break{BreakReason::kThreadState, "another thread is capturing", {}};
  }
  ReplayState ambient(source_);
  add_inputs();
  FJ_CHECK_OK(run_nodes());
  FJ_CHECK_OK(find_final_inputs());
  std::vector<Arg> outputs;
  FJ_CHECK_OK(find_final_outputs(&outputs));
  detach_parts(tracer_.graph(), &outputs);
  std::unique_ptr<Graph> graph = tracer_.take_graph();
  graph->set_outputs(std::move(outputs));
  graph->mutations = std::move(mutations_);
  return graph;
}

Status JointReplay::run_nodes() {
  const size_t total = source_.graph->block().nodes.size();
  size_t done = 0;
  for (const auto& node : source_.graph->block().nodes) {
    note_progress(CompilePhase::kJointGraph, done++, total);
    FJ_CHECK_OK(run_node(*node));
    look_for_signals();
    if (interrupted()) return Break{BreakReason::kInterrupted, "", {}};
  }
  return ok_status();
}

// After a C++ exception: what a callee stored aside says more.
Break JointReplay::failure(const char* text) {
  if (auto brk = tracer_.take_break()) {
    return *std::move(brk);
  }
  return torch_level_only(TorchLevel::kRaised, place_of_node(tracer_.source()),
                          text);
}

void JointReplay::add_inputs() {
  for (Value* input : source_.graph->inputs) {
    Ref object;
    if (input->kind == Value::Kind::kInt) {
      Value* symbol = tracer_.add_symbol_input(input->name, input->expr);
      symbols_[input] = symbol;
      object = sym_number_object(input->expr);
      inputs_.emplace_back();
    } else {
      at::Tensor tensor = tracer_.add_tensor_input(input->name, input->meta,
                                                   input->meta.requires_grad);
      initial_.push_back(tracer_.value_of(tensor));
      inputs_.push_back(tensor);
      object = wrap_tensor(tensor);
    }
    if (input->kind == Value::Kind::kInt) initial_.push_back(nullptr);
    objects_[input] = std::move(object);
  }
  joint_.num_primals = source_.graph->inputs.size();
}

Ref JointReplay::to_object(const Arg& arg) {
  return to_python(
      with_symbols(arg),
      [&](Value* value) -> PyObject* {
        auto found = objects_.find(value);
        FJ_CHECK(found != objects_.end(), "a value used before its node");
        return found->second.get();
      },
      nullptr);
}

Ref JointReplay::float_token(const Arg& arg) {
  if (!arg.is<Expr>() || !arg.get<Expr>().is_float() ||
      pinned_float(arg.get<Expr>(), *guards_)) {
    return {};
  }
  return Ref::steal(PyFloat_FromDouble(tracer_.float_token(arg.get<Expr>())));
}

Status JointReplay::python_failure() {
  std::string text = take_error_text();
  return failure(text.c_str());
}

Status JointReplay::run_node(const Node& node) {
  tracer_.set_source(&node);
  switch (node.op) {
    case Opcode::kPlaceholder:
    case Opcode::kOutput:
      return ok_status();
    case Opcode::kGetAttr:
      return run_get_attr(node);
    case Opcode::kCallFunction:
    case Opcode::kCallMethod:
      return run_call(node);
    case Opcode::kStateEnter:
    case Opcode::kStateExit:
      if (state_access(node.callable.get()).kind ==
          StateAccess::Kind::kAutogradState) {
        c10::AutogradState::get_tls_state().set_grad_mode(
            node.args.at(0).get<bool>());
        return ok_status();
      }
      return run_call(node);
    default:
      return unexpected("a kind of node that it lacks", node);
  }
}

Status JointReplay::run_get_attr(const Node& node) {
  objects_[node.outputs.at(0).get()] = node.args.at(0).get<Ref>();
  return ok_status();
}

Status JointReplay::run_call(const Node& node) {
  std::vector<Ref> kept;
  std::vector<PyObject*> args;
  const bool hands_on = hands_floats_on(node);
  tracer_.clear_float_tokens();
  std::vector<double> tokens;
  auto add = [&](const Arg& arg) {
    Ref token = hands_on ? float_token(arg) : Ref();
    if (token) tokens.push_back(PyFloat_AS_DOUBLE(token.get()));
    kept.push_back(token ? std::move(token) : to_object(arg));
  };
  for (const Arg& arg : node.args) add(arg);
  for (const auto& [name, arg] : node.kwargs) add(arg);
  auto is_token = [&](const Ref& object) {
    return object && PyFloat_CheckExact(object.get()) &&
           std::count(tokens.begin(), tokens.end(),
                      PyFloat_AS_DOUBLE(object.get())) > 0;
  };
  if (static_cast<size_t>(std::count_if(kept.begin(), kept.end(), is_token)) !=
      tokens.size()) {
    return unexpected("a number that stands for a symbolic one", node);
  }
  for (const Ref& object : kept) {
    if (!object) return python_failure();
    args.push_back(object.get());
  }
  Ref names;
  if (!node.kwargs.empty()) {
    names = Ref::steal(PyTuple_New(node.kwargs.size()));
    if (!names) return python_failure();
    for (size_t i = 0; i < node.kwargs.size(); ++i) {
      PyObject* name = PyUnicode_FromString(node.kwargs[i].first.c_str());
      if (!name) return python_failure();
      PyTuple_SET_ITEM(names.get(), i, name);
    }
  }
  if (!node.callable) {
    return unexpected("a node without a callable", node);
  }
  note_freed(node, args);
  FJ_CHECK_OK(check_attribute_access(node));
  Ref in_parts;
  std::string list = empty_written_list(node);
  if (!list.empty() || is_fused_step(node)) {
    // Without autograd, which has no formula for the other form either.
    if (!at::GradMode::is_enabled() && are_apart(args))
      in_parts = through_results(node);
    if (!in_parts && !list.empty()) {
      return torch_level_only(TorchLevel::kEmptyList, place_of_node(&node),
                              list);
    }
  }
  tracer_.set_calls_bernoulli(calls_bernoulli(node));
  tracer_.set_hides_floats(uses_floats(node));
  Substitute substitute =
      find_substitute(node.callable.get(), args, names.get());
  PyObject* callee = in_parts              ? in_parts.get()
                     : substitute.function ? substitute.function
                                           : node.callable.get();
  Ref result;
  GuardCause cause(guards_, cause_of_call(node.callable.get()));
  if (!items_.run(node, args, &result)) {
    result = Ref::steal(PyObject_Vectorcall(callee, args.data(),
                                            node.args.size(), names.get()));
  }
  if (!result) return call_failure(node);
  // Foreign code may have swallowed the exception that carried it.
  if (tracer_.has_break()) return failure("");
  count_writes_to_list(node, args);
  for (size_t at : unsaved_arguments(node.callable.get())) {
    const at::Tensor& tensor = unpack_tensor(args.at(at));
    late_.push_back({tensor, tensor._version(), &node});
  }
  return bind_results(node, std::move(result));
}

bool JointReplay::is_wrapper(const Arg& arg) const {
  if (!arg.is<Value*>()) return false;
  auto found = objects_.find(arg.get<Value*>());
  return found != objects_.end() &&
         at::functionalization::impl::isFunctionalTensor(
             unpack_tensor(found->second.get()));
}

// Autograd's own state cannot be put off until after the graph, but for whether
// a tensor that the graph makes, or is given, requires grad (find_mutations()).
Status JointReplay::check_attribute_access(const Node& node) {
  if (node.method == "retain_grad" ||
      (node.method == "requires_grad_" && !is_wrapper(node.args.at(0)))) {
    return torch_level_only(TorchLevel::kCallsHistory, place_of_node(&node),
                            node.method);
  }
  std::string target = node.target_name();
  bool set = target.ends_with("setattr"), get = target.ends_with("getattr");
  if ((!set && !get) || node.args.size() < 2 ||
      !node.args[1].is<std::string>()) {
    return ok_status();
  }
  const std::string& name = node.args[1].get<std::string>();
  if (set && (name == "data" ||
              (name == "requires_grad" && !is_wrapper(node.args.at(0))))) {
    return torch_level_only(TorchLevel::kAssigns, place_of_node(&node), name);
  }
  auto read = node.args[0].is<Value*>()
                  ? objects_.find(node.args[0].get<Value*>())
                  : objects_.end();
  if (get && name == "data" && read != objects_.end() &&
      is_tensor_object(read->second.get()))
    read_as_data_.emplace_back(unpack_tensor(read->second.get()).storage(),
                               &node);
  return ok_status();
}

const Node* JointReplay::data_read_of(const at::Tensor& tensor) const {
  const auto* memory = items_.memory_in_eager(storage_of(tensor));
  for (const auto& [storage, node] : read_as_data_)
    if (items_.memory_in_eager(storage.unsafeGetStorageImpl()) == memory)
      return node;
  return nullptr;
}

Status JointReplay::call_failure(const Node& node) {
  return failure(take_error_text().c_str());
}

Status JointReplay::bind_results(const Node& node, Ref result) {
  if (!node.outputs_are_list) {
    if (node.outputs.empty()) return ok_status();
    return bind(node.outputs[0].get(), std::move(result));
  }
  Ref items = Ref::steal(PySequence_Tuple(result.get()));
  if (!items) return python_failure();
  if (PyTuple_GET_SIZE(items.get()) !=
      static_cast<Py_ssize_t>(node.outputs.size())) {
    return unexpected("a list of another length", node);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    FJ_CHECK_OK(bind(node.outputs[i].get(),
                     Ref::borrow(PyTuple_GET_ITEM(items.get(), i))));
  }
  return ok_status();
}

Status JointReplay::bind(Value* value, Ref object) {
  if (is_tensor_object(object.get())) {
    const at::Tensor& tensor = unpack_tensor(object.get());
    forbid_data_access(tensor);
    FJ_CHECK_OK(check_meta(tensor, *value));
    FJ_CHECK_OK(check_plain(object.get(), value->node));
    FJ_CHECK_OK(check_history(tensor));
  }
  objects_[value] = std::move(object);
  return ok_status();
}

void JointReplay::finish() {
  std::vector<Arg> outputs = output_args_;
  for (Arg& gradient : gradients_) outputs.push_back(std::move(gradient));
  joint_.graph = tracer_.take_graph();
  joint_.graph->set_outputs(std::move(outputs));
  joint_.graph->mutations = mutations_;
  joint_.written_at = source_.written_at;
  if (!guards_) return;
  joint_.symbol_hints = guards_->hints();
  for (const Guard& guard : guards_->guards()) {
    if (guard.kind == GuardKind::kShapeExpr) joint_.facts.push_back(guard.expr);
  }
}

namespace {

// "/build/aten/src/ATen/X.cpp:2115: text": who reads it has no such file.
std::string without_place(std::string text) {
  const size_t line = text.starts_with('/') ? text.find(".cpp:") : text.npos;
  const size_t begin =
      line == text.npos ? line : text.find_first_not_of("0123456789", line + 5);
  if (begin != text.npos && text.compare(begin, 2, ": ") == 0)
    text.erase(0, begin + 2);
  return text;
}

}  // namespace

namespace {

// What `run` gives of a replay, or the break that says why there is none.
template <class T, class F>
Result<T> replayed(const TorchGraph& torch_graph, GuardSet* guards,
                   const BackwardPattern* pattern,
                   std::vector<const Value*>* bases, const F& run) {
  FJ_CHECK(PyGILState_Check(), "a replay needs the GIL");
  if (!torch_graph.torch_level_only.empty())
    return Break{BreakReason::kBackendFailed, torch_graph.torch_level_only, {}};
  ErrorGuard keep_error;
  NoAnomalyMode no_anomaly_mode;
  JointReplay replay(torch_graph, guards, pattern, bases);
  try {
    return run(replay);
  } catch (const c10::Error& error) {
    return replay.failure(
        without_place(error.what_without_backtrace()).c_str());
  } catch (const std::exception& error) {
    // python_error and pybind11's among them: its text is in the thread state.
    if (PyErr_Occurred()) PyErr_Clear();
    return replay.failure(error.what());
  }
}

}  // namespace

Result<JointGraph> trace_joint(const TorchGraph& torch_graph, GuardSet* guards,
                               const BackwardPattern* pattern,
                               std::vector<const Value*>* bases) {
  return replayed<JointGraph>(torch_graph, guards, pattern, bases,
                              [](JointReplay& replay) { return replay.run(); });
}

Result<std::unique_ptr<Graph>> trace_functional(const TorchGraph& torch_graph,
                                                GuardSet* guards) {
  return replayed<std::unique_ptr<Graph>>(
      torch_graph, guards, nullptr, nullptr,
      [](JointReplay& replay) { return replay.run_functional(); });
}

}  // namespace framejit::graph
