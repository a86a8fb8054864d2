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
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/python_text.h"
#include "graph/ir/python_args.h"
#include "graph/joint/joint.h"
#include "graph/joint/joint_tracer.h"
#include "graph/joint/no_anomaly_mode.h"
#include "graph/joint/saving_nodes.h"
#include "graph/ops/op_facts.h"
#include "graph/ops/shape_rules.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/float_args.h"
#include "graph/tracing/gradient_link.h"
#include "graph/tracing/substitutes.h"

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

Break torch_level_only(const std::string& why) {
  return Break{BreakReason::kBackendFailed, why, {}};
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

class Replay {
 public:
  Replay(const TorchGraph& source, GuardSet* guards,
         const BackwardPattern* pattern)
      : source_(source), guards_(guards), pattern_(pattern), tracer_(guards) {}

  Result<JointGraph> run() {
    TracingScope scope(tracer_, /*functionalize=*/true);
    if (!scope.ok()) {
      return Break{
          BreakReason::kThreadState, "another thread is capturing", {}};
    }
    ReplayState ambient(source_);
    add_inputs();
    for (const auto& node : source_.graph->block().nodes) {
      FJ_CHECK_OK(run_node(*node));
      look_for_signals();
      if (interrupted()) return Break{BreakReason::kInterrupted, "", {}};
    }
    FJ_CHECK_OK(find_mutations());
    FJ_CHECK_OK(find_outputs());
    FJ_CHECK_OK(check_late_reads());
    FJ_CHECK_OK(differentiate());
    finish();
    return std::move(joint_);
  }

  // After a C++ exception: what a callee stored aside says more.
  Break failure(const char* text) {
    if (auto brk = tracer_.take_break()) return *std::move(brk);
    return {BackendFailed(), text, {}};
  }

 private:
  static BreakReason BackendFailed() { return BreakReason::kBackendFailed; }

  void add_inputs() {
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

  Ref to_object(const Arg& arg) {
    return to_python(
        with_symbols(arg),
        [&](Value* value) -> PyObject* {
          auto found = objects_.find(value);
          FJ_CHECK(found != objects_.end(), "a value used before its node");
          return found->second.get();
        },
        nullptr);
  }

  Status python_failure() {
    std::string text = take_error_text();
    return failure(text.c_str());
  }

  Status run_node(const Node& node) {
    tracer_.set_span(node.span);
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
        return Break{BackendFailed(), "a node kind the joint graph lacks",
                     node.span};
    }
  }

  Status run_get_attr(const Node& node) {
    objects_[node.outputs.at(0).get()] = node.args.at(0).get<Ref>();
    return ok_status();
  }

  Status run_call(const Node& node) {
    std::vector<Ref> kept;
    std::vector<PyObject*> args;
    for (const Arg& arg : node.args) kept.push_back(to_object(arg));
    for (const auto& [name, arg] : node.kwargs) kept.push_back(to_object(arg));
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
      return Break{BackendFailed(), "a node without a callable", node.span};
    }
    note_freed(node, args);
    FJ_CHECK_OK(check_attribute_access(node));
    FJ_CHECK_OK(check_written_lists(node));
    tracer_.set_calls_bernoulli(calls_bernoulli(node));
    tracer_.set_hides_floats(uses_floats(node));
    Substitute substitute =
        find_substitute(node.callable.get(), args, names.get());
    Ref result = Ref::steal(PyObject_Vectorcall(
        substitute.function ? substitute.function : node.callable.get(),
        args.data(), node.args.size(), names.get()));
    if (!result) return call_failure(node);
    // Foreign code may have swallowed the exception that carried it.
    if (tracer_.has_break()) return failure("");
    count_writes_to_list(node, args);
    for (size_t at : unsaved_arguments(node.callable.get())) {
      const at::Tensor& tensor = unpack_tensor(args.at(at));
      late_.emplace_back(tensor, tensor._version());
    }
    return bind_results(node, std::move(result));
  }

  // Eager's kernels for lists count a write to each tensor, beneath autograd;
  // functionalization calls none of them.
  static void count_writes_to_list(const Node& node,
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

  // torch takes a list without tensors for one that is not in functional form,
  // and then refuses to write to the others (fused optimizers, whose state has
  // lists for options that are off).
  Status check_written_lists(const Node& node) {
    if (node.operators.size() != 1) return ok_status();
    const OpFacts& facts = facts_of(node.operators[0]);
    const c10::FunctionSchema& schema = facts.op.schema();
    std::string_view name = schema.name();
    name.remove_prefix(name.find("::") + 2);
    // Called as it is, so that the arguments are the operator's.
    if (facts.form != OpFacts::Form::kInPlace ||
        !node.target_name().ends_with("." + std::string(name))) {
      return ok_status();
    }
    for (int i : facts.written_arguments) {
      const Arg* arg =
          static_cast<size_t>(i) < node.args.size() ? &node.args[i] : nullptr;
      const std::string& argument = schema.arguments()[i].name();
      for (const auto& [key, value] : node.kwargs)
        if (key == argument) arg = &value;
      if (arg && arg->is<Arg::List>() && arg->get<Arg::List>().items.empty())
        return Break{BackendFailed(),
                     schema.name() + " writes to lists, of which " + argument +
                         " is empty: torch has no functional form for it",
                     node.span};
    }
    return ok_status();
  }

  // What torch.autograd.grad in the graph frees.
  void note_freed(const Node& node, const std::vector<PyObject*>& args) {
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
    bool retains = false;
    for (size_t i = 0; i < node.kwargs.size(); ++i) {
      const std::string& name = node.kwargs[i].first;
      if (name == "retain_graph" || name == "create_graph")
        retains |= args[node.args.size() + i] == Py_True;
    }
    if (retains) return;
    for (torch::autograd::Node* freed :
         saving_nodes(tensors_in(args[0]), tensors_in(args[1])))
      freed_.insert(freed);
  }

  static std::vector<at::Tensor> tensors_in(PyObject* object) {
    std::vector<at::Tensor> tensors;
    if (is_tensor_object(object)) tensors.push_back(unpack_tensor(object));
    for (Py_ssize_t i = 0;
         PyTuple_Check(object) && i < PyTuple_GET_SIZE(object); ++i)
      if (is_tensor_object(PyTuple_GET_ITEM(object, i)))
        tensors.push_back(unpack_tensor(PyTuple_GET_ITEM(object, i)));
    return tensors;
  }

  // Does every way from it to an input lead through what is freed?
  bool is_spent(const at::Tensor& tensor) const {
    if (freed_.empty()) return false;
    std::unordered_set<const torch::autograd::Node*> seen, goals;
    for (const at::Tensor& input : inputs_)
      if (input.defined() && input.requires_grad())
        goals.insert(
            torch::autograd::impl::gradient_edge(input).function.get());
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
  Status check_late_reads() {
    for (const auto& [late, version] : late_) {
      auto shares = [&, tensor = late](const at::Tensor& other) {
        return other.defined() && storage_of(other) == storage_of(tensor);
      };
      if (late._version() != version ||
          std::any_of(inputs_.begin(), inputs_.end(), shares) ||
          std::any_of(tensors_.begin(), tensors_.end(), shares))
        return torch_level_only(
            "a gradient function reads a tensor that may be written to before "
            "the backward runs");
    }
    return ok_status();
  }

  // The formula of an operator that is written in Python, as by
  // torch.library.register_autograd, may read anything.
  Status check_history(const at::Tensor& tensor) {
    std::vector<c10::intrusive_ptr<torch::autograd::Node>> open;
    auto visit = [&](const c10::intrusive_ptr<torch::autograd::Node>& node) {
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
        return torch_level_only("the gradient of an operator is Python code");
      for (const auto& edge : node->next_edges()) visit(edge.function);
    }
    return ok_status();
  }

  // Autograd's own state cannot be put off until after the graph.
  Status check_attribute_access(const Node& node) {
    if (node.method == "requires_grad_" || node.method == "retain_grad") {
      return Break{BackendFailed(), "calls " + node.method, node.span};
    }
    std::string target = node.target_name();
    bool set = target.ends_with("setattr"), get = target.ends_with("getattr");
    if ((!set && !get) || node.args.size() < 2 ||
        !node.args[1].is<std::string>()) {
      return ok_status();
    }
    const std::string& name = node.args[1].get<std::string>();
    if (set && (name == "data" || name == "requires_grad")) {
      return Break{BackendFailed(), "assigns " + name + " of a tensor",
                   node.span};
    }
    reads_data_ = reads_data_ || (get && name == "data");
    return ok_status();
  }

  Status call_failure(const Node& node) {
    std::string text = node.target_name() + ": " + take_error_text();
    Break brk = failure(text.c_str());
    if (!brk.span.code) brk.span = node.span;
    return brk;
  }

  Status bind_results(const Node& node, Ref result) {
    if (!node.outputs_are_list) {
      if (node.outputs.empty()) return ok_status();
      return bind(node.outputs[0].get(), std::move(result));
    }
    Ref items = Ref::steal(PySequence_Tuple(result.get()));
    if (!items) return python_failure();
    if (PyTuple_GET_SIZE(items.get()) !=
        static_cast<Py_ssize_t>(node.outputs.size())) {
      return Break{BackendFailed(), "a list of another length than at capture",
                   node.span};
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      FJ_CHECK_OK(bind(node.outputs[i].get(),
                       Ref::borrow(PyTuple_GET_ITEM(items.get(), i))));
    }
    return ok_status();
  }

  Status bind(Value* value, Ref object) {
    if (is_tensor_object(object.get())) {
      const at::Tensor& tensor = unpack_tensor(object.get());
      forbid_data_access(tensor);
      FJ_CHECK_OK(check_meta(tensor, *value));
      FJ_CHECK_OK(check_plain(object.get()));
      FJ_CHECK_OK(check_history(tensor));
    }
    objects_[value] = std::move(object);
    return ok_status();
  }

  bool differ(const std::vector<Expr>& a, const std::vector<Expr>& b,
              const std::vector<Expr>& sizes) const {
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
  Status check_plain(PyObject* object) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == THPVariableClass)
      return ok_status();
    return Break{BackendFailed(),
                 std::string("the graph makes a ") + Py_TYPE(object)->tp_name,
                 {}};
  }

  // A backward fills its .grad, which nobody sees of one that stays inside: a
  // tensor made with requires_grad, or a view of a parameter taken without grad
  // mode (it says that it requires grad, too).
  bool is_made_leaf(const at::Tensor& tensor) const {
    return tensor.requires_grad() && !tensor.grad_fn() &&
           std::none_of(inputs_.begin(), inputs_.end(),
                        [&](const at::Tensor& input) {
                          return input.defined() && input.is_same(tensor);
                        });
  }

  // Functionalization gives the result of an in-place operation the layout of
  // the functional one; what the capture saw is what eager does.
  Status check_meta(const at::Tensor& tensor, const Value& value) {
    if (value.kind != Value::Kind::kTensor) return ok_status();
    const TensorMeta& meta = value.meta;
    SymbolicShape shape = shape_of(tensor);
    const char* what = nullptr;
    if (tensor.scalar_type() != meta.dtype) what = "dtype";
    if (differ(shape.sizes, meta.sizes, shape.sizes)) what = "size";
    if (!what && differ(shape.strides, meta.strides, shape.sizes)) {
      what = "stride";
    }
    if (tensor.requires_grad() != meta.requires_grad) what = "requires_grad";
    if (!what) return ok_status();
    return Break{BackendFailed(),
                 std::string("below autograd a result has another ") + what +
                     " than at capture",
                 {}};
  }

  // The program's own functional bernoulli, not the one of bernoulli_.
  static bool calls_bernoulli(const Node& node) {
    if (!node.method.empty()) return node.method == "bernoulli";
    Ref name =
        Ref::steal(PyObject_GetAttrString(node.callable.get(), "__name__"));
    if (!name) PyErr_Clear();
    return name && PyUnicode_Check(name.get()) &&
           PyUnicode_CompareWithASCIIString(name.get(), "bernoulli") == 0;
  }

  // ---- what the graph did to its inputs

  bool inputs_share_storage() const {
    for (const auto& relation : guards_->storage_groups()) {
      auto groups = relation.groups;
      std::sort(groups.begin(), groups.end());
      if (std::adjacent_find(groups.begin(), groups.end()) != groups.end()) {
        return true;
      }
    }
    return false;
  }

  // Above functionalization, autograd counts as in eager.
  static uint32_t writes_to(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : tensor._version();
  }

  Status find_mutations() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const at::Tensor& input = inputs_[i];
      if (!input.defined()) continue;
      if (input.requires_grad() !=
          source_.graph->inputs[i]->meta.requires_grad) {
        return Break{BreakReason::kAliasedMutation,
                     "requires_grad of an input is changed",
                     {}};
      }
      Value* now = tracer_.value_of(input);
      auto* wrapper = functional::unsafeGetFunctionalWrapper(input);
      if (wrapper->has_metadata_mutation() || wrapper->was_storage_changed()) {
        return Break{BreakReason::kAliasedMutation,
                     "an input gets other sizes or another storage",
                     {}};
      }
      if (now == initial_[i]) {
        if (uint32_t writes = writes_to(input))
          joint_.touched.emplace_back(static_cast<int>(i), writes);
        continue;
      }
      // The commit would be seen in the version of the input.
      if (reads_data_) {
        return Break{BreakReason::kAliasedMutation,
                     "an input may be written to through .data",
                     {}};
      }
      if (!now) {
        return Break{BackendFailed(), "an input lost its value", {}};
      }
      bool differs = input.requires_grad() !=
                         source_.graph->inputs[i]->meta.requires_grad ||
                     input.grad_fn();
      if (differs) {
        return Break{BreakReason::kAliasedMutation,
                     "an input that is written to takes part in the gradient",
                     {}};
      }
      const TensorMeta& meta = source_.graph->inputs[i]->meta;
      if (decide_repeats(meta.sizes, meta.strides)) {
        return Break{BreakReason::kAliasedMutation,
                     "an input whose elements share memory is written to",
                     {}};
      }
      // No history: the check above.
      mutations_.push_back({static_cast<int>(i), now, false, writes_to(input)});
    }
    if (!mutations_.empty() && guards_ && inputs_share_storage()) {
      return Break{BreakReason::kAliasedMutation, "", {}};
    }
    return ok_status();
  }

  // ---- outputs

  Status find_outputs() {
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
    for (size_t i = 0; i < tensors_.size(); ++i) {
      bool computed = joint_.outputs[i].alias == OutputInfo::Alias::kNone;
      if (!computed || !tensors_[i].defined()) continue;
      if (refuses_writes(tensors_[i]))
        return torch_level_only("an output is a view that refuses writes");
      const TraceTensorImpl* inner = as_trace(tensors_[i]);
      if (inner->is_neg() != tensors_[i].is_neg() ||
          inner->is_conj() != tensors_[i].is_conj())
        return torch_level_only("an output is written to as its negative");
      // A part that was written to is a tensor of its own in functional form.
      if (i >= source_.promised.size()) continue;
      const Expr& seen = source_.promised[i].meta.storage_offset;
      const Expr made = inner->shape().storage_offset;
      if (hint_of(seen) != hint_of(made))
        return torch_level_only(
            "an output lies elsewhere in its storage than eager's");
      if (seen != made) decide(expr_eq(seen, made));  // not by chance
    }
    return ok_status();
  }

  // One of several views (unbind), or one made without grad mode: autograd
  // refuses to write to it, which it would not if the output were computed.
  static bool refuses_writes(const at::Tensor& output) {
    namespace autograd = torch::autograd;
    auto* meta = autograd::impl::get_view_autograd_meta(output);
    if (!meta || !meta->has_bw_view()) return false;
    auto how = meta->get_creation_meta();
    if (how == autograd::CreationMeta::DEFAULT) return false;
    return how != autograd::CreationMeta::NO_GRAD_MODE ||
           (c10::GradMode::is_enabled() &&
            meta->get_backward_view().base_.requires_grad());
  }

  // Of outputs that share memory, the first that holds all elements of the
  // others is computed, the others are made of it.
  void choose_base(size_t first) {
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

  std::optional<std::vector<ViewStep>> view_chain(const at::Tensor& base,
                                                  const at::Tensor& view) {
    Value *from = tracer_.value_of(base), *to = tracer_.value_of(view);
    if (!from || !to || from == to) return std::nullopt;
    return find_view_chain(from, to);
  }

  static bool is_one_of_several(const std::vector<ViewStep>& steps) {
    return std::any_of(steps.begin(), steps.end(),
                       [](const ViewStep& step) { return step.result >= 0; });
  }

  // The base becomes the view by known operations, or every element of the view
  // is one of the base's; and what autograd knows of the view is that it is one
  // (or that it is detached).
  bool is_remade(const at::Tensor& base, const at::Tensor& view) {
    if (base.is_same(view) || reads_data_) return false;
    if (view.requires_grad() && !base.requires_grad()) return false;
    // unbind() and the like: autograd refuses to write to one of several views.
    namespace autograd = torch::autograd;
    auto* meta = autograd::impl::get_view_autograd_meta(view);
    auto chain = view_chain(base, view);
    if (meta && meta->has_bw_view()) {
      auto how = meta->get_creation_meta();
      // Made outside each by itself, parts would have a node each.
      bool as_one_of_several = chain && is_one_of_several(*chain) &&
                               c10::GradMode::is_enabled() &&
                               !view.requires_grad();
      bool as_outside = how == autograd::CreationMeta::DEFAULT ||
                        (how == autograd::CreationMeta::NO_GRAD_MODE &&
                         !c10::GradMode::is_enabled()) ||
                        (how == autograd::CreationMeta::MULTI_OUTPUT_NODE &&
                         as_one_of_several);
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

  bool is_mutated(int input) const {
    return std::any_of(
        mutations_.begin(), mutations_.end(),
        [&](const Graph::Mutation& row) { return row.input == input; });
  }

  void describe_view(size_t output) {
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
    const at::Tensor& base =
        of_input ? inputs_[info.base] : tensors_[info.base];
    const at::Tensor& view = tensors_[output];
    if (!is_remade(base, view)) return;
    auto views = view_chain(base, view);
    if (of_input && is_mutated(info.base) && !views) return;
    SymbolicShape shape = shape_of(view);
    info.remade = true;
    if (views) info.views = *std::move(views);
    info.detached = base.requires_grad() && !view.requires_grad() &&
                    c10::GradMode::is_enabled();
    info.offset = shape.storage_offset - shape_of(base).storage_offset;
    info.sizes = std::move(shape.sizes);
    info.strides = std::move(shape.strides);
    output_args_[output] = Arg(int64_t{0});
  }

  Status add_output(Value* value) {
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
        return Break{BackendFailed(), "an output that is no tensor", {}};
      }
      joint_.outputs.push_back(info);
      tensors_.emplace_back();
      output_args_.push_back(arg);
      return ok_status();
    }
    const at::Tensor& tensor = unpack_tensor(object);
    Value* output = tracer_.value_of(tensor);
    if (!output) {
      return Break{BackendFailed(), "an output that is not in the graph", {}};
    }
    info.requires_grad = tensor.requires_grad();
    info.writes = writes_to(tensor);
    find_alias(tensor, &info);
    bool external = output->node->op != Opcode::kCallFunction;
    if (external && info.alias == OutputInfo::Alias::kNone) {
      return Break{
          BackendFailed(), "an output that is an input or constant", {}};
    }
    if (is_made_leaf(tensor)) {
      return Break{
          BackendFailed(), "an output is a leaf that requires grad", {}};
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

  void find_alias(const at::Tensor& tensor, OutputInfo* info) {
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

  // ---- the backward

  Status differentiate() {
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
      // A gradient can only be copied to a dense one.
      if (!is_dense(tangent)) {
        tangent.strides = contiguous_strides(tangent.sizes);
      }
      tangents.push_back(tracer_.add_tensor_input(
          "tangent_" + std::to_string(joint_.tangent_of.size()), tangent,
          false));
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
      return Break{
          BackendFailed(), "an output is a leaf that requires grad", {}};
    }
    joint_.has_backward = true;
    for (torch::autograd::Node* node : saving_nodes(outputs, primals))
      joint_.saving_nodes.push_back(tracer_.number_of(*node));
    tracer_.start_backward();
    tracer_.set_span({});
    std::vector<at::Tensor> gradients;
    {
      // A backward runs outside of autocast, as torch's manual asks for.
      c10::impl::ExcludeDispatchKeyGuard no_autocast(
          c10::autocast_dispatch_keyset);
      // The engine takes the GIL itself where it needs it.
      ReleaseGil released;
      gradients = torch::autograd::grad(outputs, primals, tangents,
                                        /*retain_graph=*/false,
                                        /*create_graph=*/false,
                                        /*allow_unused=*/true);
    }
    if (tracer_.has_break()) return failure("");
    bool connected = false;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      Value* value = tracer_.value_of(gradients[i]);
      if (!value) {
        return Break{
            BackendFailed(), "a gradient that is not in the graph", {}};
      }
      gradients_[primal_index[i]] = Arg(value);
      connected = true;
      if (has_two_ways(primal_index[i]))
        return torch_level_only(
            "gradients come to an input through the graph and through a view "
            "of another layout");
    }
    if (!connected && !pattern_) {
      return Break{BackendFailed(),
                   "an output requires grad, but no gradient reaches an input",
                   {}};
    }
    return ok_status();
  }

  // Their sum has the layout of the one that comes first.
  bool has_two_ways(size_t input) const {
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

  void finish() {
    std::vector<Arg> outputs = output_args_;
    for (Arg& gradient : gradients_) outputs.push_back(std::move(gradient));
    joint_.graph = tracer_.take_graph();
    joint_.graph->set_outputs(std::move(outputs));
    joint_.graph->mutations = mutations_;
    if (!guards_) return;
    joint_.symbol_hints = guards_->hints();
    for (const Guard& guard : guards_->guards()) {
      if (guard.kind == GuardKind::kShapeExpr)
        joint_.facts.push_back(guard.expr);
    }
  }

  const TorchGraph& source_;
  GuardSet* guards_;
  const BackwardPattern* pattern_;  // null: everything
  JointTracer tracer_;
  JointGraph joint_;
  std::unordered_map<const Value*, Ref> objects_;
  std::unordered_map<const Value*, Value*> symbols_;
  std::vector<at::Tensor> inputs_;  // wrappers; undefined for symbols
  bool reads_data_ = false;         // x.data: writes without a version
  // What gradient functions read unsaved, and the version it had.
  std::vector<std::pair<at::Tensor, uint32_t>> late_;
  std::unordered_set<const torch::autograd::Node*> freed_;
  std::unordered_set<const torch::autograd::Node*> known_nodes_;
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> kept_nodes_;
  std::vector<Value*> initial_;  // the values the inputs came with
  std::vector<Graph::Mutation> mutations_;
  std::vector<at::Tensor> tensors_;  // per user output; undefined: no tensor
  std::vector<Arg> output_args_;
  std::vector<Arg> gradients_;
};

}  // namespace

Result<JointGraph> trace_joint(const TorchGraph& torch_graph, GuardSet* guards,
                               const BackwardPattern* pattern) {
  FJ_CHECK(PyGILState_Check(), "trace_joint needs the GIL");
  if (!torch_graph.torch_level_only.empty())
    return torch_level_only(torch_graph.torch_level_only);
  ErrorGuard keep_error;
  NoAnomalyMode no_anomaly_mode;
  Replay replay(torch_graph, guards, pattern);
  try {
    return replay.run();
  } catch (const c10::Error& error) {
    return replay.failure(error.what_without_backtrace());
  } catch (const std::exception& error) {
    // python_error and pybind11's among them: its text is in the thread state.
    if (PyErr_Occurred()) PyErr_Clear();
    return replay.failure(error.what());
  }
}

}  // namespace framejit::graph
