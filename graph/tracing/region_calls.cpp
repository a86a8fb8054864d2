#include "graph/tracing/region_calls.h"

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/block_runner.h"
#include "graph/tracing/captured_block.h"
#include "graph/tracing/gradient_link.h"
#include "graph/tracing/no_anomaly_mode.h"

namespace framejit::graph {

namespace {

using AutogradNode = torch::autograd::Node;

PyObject* outside(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, "only for captured code");
  return nullptr;
}

// X(name): a function here, by the name it has in Python.
#define FJ_REGION_CALLS(X) \
  X(give_up)               \
  X(begin_gradient)        \
  X(function_gradient)     \
  X(tensor_hook)           \
  X(leaves)                \
  X(gradient)              \
  X(accumulates)           \
  X(handle)                \
  X(same)                  \
  X(argument_count)        \
  X(switch_autograd)       \
  X(mode_entered)          \
  X(mode_left)             \
  X(begin_transform)       \
  X(end_transform)         \
  X(call_transform)        \
  X(call_branch)           \
  X(owns)                  \
  X(outside_transforms)

PyMethodDef kMethods[] = {
#define X(name) {#name, outside, METH_VARARGS, nullptr},
    FJ_REGION_CALLS(X)
#undef X
        {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "framejit._C._regions",
                       "Steps of framejit/_regions.py.",
                       -1,
                       kMethods,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

using Objects = std::vector<PyObject*>;

Objects items_of(PyObject* sequence) {
  Objects items;
  FJ_CHECK(PyTuple_Check(sequence) || PyList_Check(sequence));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
    items.push_back(PySequence_Fast_GET_ITEM(sequence, i));
  return items;
}

Ref tuple_of(const std::vector<Ref>& items) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  FJ_CHECK(tuple, "no memory");
  for (size_t i = 0; i < items.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), i, items[i].new_reference());
  return tuple;
}

Break refuse(const Recorder& recorder, std::string why) {
  return Break{BreakReason::kUnknownOperation, std::move(why), recorder.span()};
}

Result<Ref> give_up(Recorder& recorder, const Objects& args) {
  return refuse(recorder, text_of(args.at(0)));
}

// begin_gradient(results) -> stand-ins of their gradients
Result<Ref> begin_gradient(Recorder& recorder, const Objects& args) {
  if (recorder.in_block())
    return refuse(recorder, "a gradient function inside another one");
  std::vector<Recorder::BlockInput> inputs;
  for (PyObject* like : items_of(args.at(0)))
    inputs.push_back({.like = like, .contiguous = true});
  AmbientState inside = AmbientState::now();
  inside.grad_mode = false;
  inside.autocast.enabled.fill(false);
  FJ_TRY(std::vector<Ref> made, recorder.begin_block(inputs, inside));
  return tuple_of(made);
}

// What is the same for both kinds: the captured graph, and the tensors and
// symbols that a call of the link gets behind its own arguments.
struct Ended {
  GradientCode code;
  std::vector<Ref> extra;
};

Result<Ended> end_gradient(Recorder& recorder, PyObject* gradients,
                           const Objects& saved, bool once) {
  FJ_TRY(Recorder::Block block, recorder.end_block(items_of(gradients)));
  // Only a second differentiation would see it.
  if (block.switches_grad_mode && !once)
    return refuse(recorder, "a gradient function that switches the grad mode");
  if (block.graph->uses_random)
    return refuse(recorder, "random numbers in a gradient function");
  Ended ended;
  ended.code.num_captured = block.captured.size();
  ended.extra = std::move(block.captured);
  for (const Ref& tensor : ended.extra)
    ended.code.saved.push_back(
        std::count(saved.begin(), saved.end(), tensor.get()) > 0);
  for (PyObject* tensor : saved) {
    auto is_it = [&](const Ref& other) { return other.get() == tensor; };
    if (std::any_of(ended.extra.begin(), ended.extra.end(), is_it)) continue;
    ended.extra.push_back(Ref::borrow(tensor));
    ++ended.code.num_watched;
  }
  for (const Expr& symbol : symbol_inputs(*block.graph))
    ended.extra.push_back(sym_number_object(symbol));
  ended.code.graph = std::move(block.graph);
  return ended;
}

// function_gradient(gradients, inputs, results, differentiable, once, saved,
//                   name)
Result<Ref> function_gradient(Recorder& recorder, const Objects& args) {
  bool once = args.at(4) == Py_True;
  FJ_TRY(Ended ended,
         end_gradient(recorder, args.at(0), items_of(args.at(5)), once));
  Objects given = items_of(args.at(1));
  Objects results = items_of(args.at(2));
  for (size_t i = 0; i < ended.code.num_captured; ++i) {
    bool is_result =
        std::count(results.begin(), results.end(), ended.extra[i].get()) > 0;
    // It would keep itself alive.
    if (is_result && !ended.code.saved[i])
      return refuse(recorder,
                    "a backward that uses a result kept on ctx itself, not in "
                    "ctx.save_for_backward");
  }
  ended.code.num_inputs = given.size();
  ended.code.num_results = results.size();
  for (PyObject* flag : items_of(args.at(3)))
    ended.code.differentiable.push_back(flag == Py_True);
  ended.code.once = once;
  ended.code.name = text_of(args.at(6));
  given.insert(given.end(), results.begin(), results.end());
  for (const Ref& extra : ended.extra) given.push_back(extra.get());
  Ref link = make_function_gradient(std::move(ended.code));
  return recorder.record_always(link.get(), given);
}

// tensor_hook(gradients, tensor)
Result<Ref> tensor_hook(Recorder& recorder, const Objects& args) {
  FJ_TRY(Ended ended, end_gradient(recorder, args.at(0), {}, false));
  Objects given{args.at(1)};
  for (const Ref& extra : ended.extra) {
    // The tensor would keep itself alive.
    if (extra.get() == args.at(1))
      return refuse(recorder, "a hook that uses its own tensor");
    given.push_back(extra.get());
  }
  Ref link = make_tensor_hook(std::move(ended.code));
  return recorder.record_always(link.get(), given);
}

// ---- the history of stand-ins

const Source* attribute_of(Recorder& recorder, const Source* tensor,
                           const char* name) {
  Ref key = Ref::steal(PyUnicode_InternFromString(name));
  FJ_CHECK(key, "no memory");
  return recorder.guards()->sources().make(SourceKind::kGetSet, tensor,
                                           key.get());
}

// A leaf that an input stands for must be one in the program, too, and have no
// hooks: those would run in the gradient that is captured.
Status check_leaf(Recorder& recorder, PyObject* stand_in) {
  Recorder::Entry* entry = recorder.find(stand_in);
  FJ_CHECK(entry && entry->source, "an input without a source");
  const at::Tensor& real = unpack_tensor(entry->real.get());
  if (!real.is_leaf())
    return refuse(recorder,
                  "a gradient with inputs that have a history of their own");
  GuardSet& guards = *recorder.guards();
  guards.add(GuardKind::kIs, attribute_of(recorder, entry->source, "is_leaf"),
             Py_True);
  for (const char* name : {"_backward_hooks", "_post_accumulate_grad_hooks"}) {
    Ref hooks = Ref::steal(PyObject_GetAttrString(entry->real.get(), name));
    if (!hooks) return Status::raised();
    const Source* source = attribute_of(recorder, entry->source, name);
    // Hooks that were removed, and pickling, leave a dict without any.
    if (hooks.get() != Py_None && PyDict_Check(hooks.get()) &&
        PyDict_GET_SIZE(hooks.get()) == 0) {
      guards.add(GuardKind::kTypeIs, source,
                 reinterpret_cast<PyObject*>(Py_TYPE(hooks.get())));
      guards.add(GuardKind::kLength, source, nullptr, 0);
      continue;
    }
    if (hooks.get() != Py_None)
      return refuse(
          recorder,
          "a gradient of a tensor with hooks: what a hook does can be "
          "done to .grad, behind the backward");
    guards.add(GuardKind::kIs, source, Py_None);
  }
  if (has_own_grad_dtype(real))
    return refuse(recorder, "a gradient of a tensor with a grad_dtype");
  Ref dtype = Ref::steal(PyObject_GetAttrString(entry->real.get(), "dtype"));
  if (!dtype) return Status::raised();
  guards.add(GuardKind::kIs,
             attribute_of(recorder, entry->source, "grad_dtype"), dtype.get());
  return ok_status();
}

// The leaves that the tensors were computed from with gradient: inputs in the
// order the capture met them, then what it made.
Result<std::vector<PyObject*>> find_leaves(Recorder& recorder,
                                           const Objects& tensors) {
  std::unordered_set<AutogradNode*> seen;
  std::vector<AutogradNode*> open;
  std::vector<at::Tensor> variables;
  auto visit = [&](AutogradNode* node) {
    if (node && seen.insert(node).second) open.push_back(node);
  };
  for (PyObject* object : tensors) {
    if (!is_tensor_object(object))
      return refuse(recorder, "a gradient of something that is no tensor");
    visit(torch::autograd::impl::gradient_edge(unpack_tensor(object))
              .function.get());
  }
  while (!open.empty()) {
    AutogradNode* node = open.back();
    open.pop_back();
    // It would run before what the capture writes is written.
    if (is_python_formula(*node))
      return refuse(recorder,
                    "a gradient of an operator whose formula is Python code");
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      variables.push_back(leaf->variable);
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  std::vector<PyObject*> leaves;
  for (PyObject* input : recorder.inputs()) {
    const at::Tensor& tensor = unpack_tensor(input);
    auto is_it = [&](const at::Tensor& leaf) { return leaf.is_same(tensor); };
    if (std::erase_if(variables, is_it) == 0) continue;
    FJ_CHECK_OK(check_leaf(recorder, input));
    leaves.push_back(input);
  }
  // Those have neither a past nor hooks.
  for (const at::Tensor& tensor : variables) {
    Ref made = wrap_tensor(tensor);  // the capture's own object
    if (!made) return Result<std::vector<PyObject*>>::raised();
    if (!recorder.find(made.get()))
      return refuse(
          recorder,
          "a gradient for a leaf that this part of the function does not "
          "read: used before a break");
    leaves.push_back(made.get());
  }
  return leaves;
}

Result<Ref> leaves(Recorder& recorder, const Objects& args) {
  FJ_TRY(Objects found, find_leaves(recorder, items_of(args.at(0))));
  std::vector<Ref> refs;
  for (PyObject* leaf : found) refs.push_back(Ref::borrow(leaf));
  return tuple_of(refs);
}

// The engine must run on this thread, which is the one that traces.
class SingleThreaded {
 public:
  SingleThreaded()
      : before_(
            c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~SingleThreaded() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(before_);
  }

 private:
  bool before_;
};

// gradient(outputs, inputs, grad_outputs, retain_graph, create_graph,
//          allow_unused) -> what torch.autograd.grad gives
Result<Ref> gradient(Recorder& recorder, const Objects& args) {
  FJ_TRY(Objects reached, find_leaves(recorder, items_of(args.at(0))));
  (void)reached;
  Ref function;
  {
    PauseHook pause;
    Ref module = Ref::steal(PyImport_ImportModule("torch.autograd"));
    if (!module) return Result<Ref>::raised();
    function = Ref::steal(PyObject_GetAttrString(module.get(), "grad"));
    if (!function) return Result<Ref>::raised();
  }
  Ref names = Ref::steal(Py_BuildValue("(ssss)", "grad_outputs", "retain_graph",
                                       "create_graph", "allow_unused"));
  if (!names) return Result<Ref>::raised();
  SingleThreaded single;
  NoAnomalyMode no_anomaly_mode;
  return recorder.record_call(function.get(), args, names.get());
}

// accumulates(leaf): a backward() gives it a .grad next, where it had none.
Result<Ref> accumulates(Recorder& recorder, const Objects& args) {
  recorder.accumulates = args.at(0);
  return Ref::borrow(Py_None);
}

// An object that must not outlive the capture: nothing can rebuild it.
Result<Ref> handle(Recorder&, const Objects&) {
  static char place;
  return from_api(PyCapsule_New(&place, "framejit.handle", nullptr));
}

// argument_count(function): its positional parameters.
Result<Ref> argument_count(Recorder& recorder, const Objects& args) {
  if (!PyFunction_Check(args.at(0)))
    return refuse(recorder, "a forward that is no Python function");
  auto* function = reinterpret_cast<PyFunctionObject*>(args.at(0));
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  return from_api(PyLong_FromLong(code->co_argcount));
}

// same(a, b): do two lists hold the same objects?
Result<Ref> same(Recorder&, const Objects& args) {
  return Ref::borrow(items_of(args.at(0)) == items_of(args.at(1)) ? Py_True
                                                                  : Py_False);
}

// switch_autograd(grad_mode, forward_grad_mode, inference_mode) -> the same
// three before.
Result<Ref> switch_autograd(Recorder& recorder, const Objects& args) {
  AmbientState before = AmbientState::now();
  FJ_TRY(Ref done, recorder.record_state_write(autograd_state_setter(), args));
  (void)done;
  auto flag = [](bool value) { return value ? Py_True : Py_False; };
  return from_api(PyTuple_Pack(3, flag(before.grad_mode),
                               flag(before.forward_grad_mode),
                               flag(before.inference_mode)));
}

// mode_entered(), mode_left(): by an object that leaves it when it goes.
Result<Ref> mode_entered(Recorder& recorder, const Objects&) {
  recorder.note_mode_entered();
  return Ref::borrow(Py_None);
}
Result<Ref> mode_left(Recorder& recorder, const Objects&) {
  recorder.note_mode_left();
  return Ref::borrow(Py_None);
}

// ---- torch.func

// outside_transforms(what)
Result<Ref> outside_transforms(Recorder& recorder, const Objects& args) {
  if (!recorder.in_transform()) return Ref::borrow(Py_None);
  return give_up(recorder, args);
}

// begin_transform(tensors, dims, requires_grad, kind) -> what the function sees
// of them; dims: the batch dim that it does not see, or None.
Result<Ref> begin_transform(Recorder& recorder, const Objects& args) {
  Objects tensors = items_of(args.at(0)), dims = items_of(args.at(1)),
          grads = items_of(args.at(2));
  std::vector<Recorder::BlockInput> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_tensor_object(tensors[i]))
      return refuse(recorder, "a transform of something that is no tensor");
    Recorder::BlockInput input{.like = tensors[i],
                               .requires_grad = grads.at(i) == Py_True};
    if (dims.at(i) != Py_None) {
      input.without_dim = PyLong_AsLongLong(dims[i]);
      int64_t rank = unpack_tensor(tensors[i]).dim();
      FJ_CHECK(input.without_dim >= 0 && input.without_dim < rank,
               "a batch dim out of range");
    }
    at::ScalarType dtype = unpack_tensor(tensors[i]).scalar_type();
    if (input.requires_grad && !torch::autograd::isDifferentiableType(dtype))
      return refuse(recorder, "a gradient of integers");
    inputs.push_back(input);
  }
  using Kind = Recorder::BlockKind;
  PyObject* name = args.at(3);
  auto is = [&](const char* row) {
    return PyUnicode_CompareWithASCIIString(name, row) == 0;
  };
  AmbientState inside = AmbientState::now();
  if (inside.inference_mode)
    return refuse(recorder, "a transform in inference mode");
  if (is("grad")) inside.grad_mode = true;
  Kind kind = is("grad")   ? Kind::kGradLevel
              : is("cond") ? Kind::kBranch
                           : Kind::kLevel;
  FJ_TRY(std::vector<Ref> made, recorder.begin_block(inputs, inside, kind));
  return tuple_of(made);
}

// end_transform(outputs, repeatable) -> (block, *what it takes behind its
// inputs)
Result<Ref> end_transform(Recorder& recorder, const Objects& args) {
  if (recorder.block_changed_state())
    return refuse(recorder, "a transformed function that switches a mode");
  FJ_TRY(Recorder::Block block, recorder.end_block(items_of(args.at(0))));
  if (block.graph->uses_random && args.at(1) == Py_True)
    return refuse(recorder, "random numbers in a function that runs twice");
  std::vector<Ref> parts;
  std::vector<Expr> symbols = symbol_inputs(*block.graph);
  parts.push_back(make_captured_block(std::move(block.graph)));
  for (Ref& tensor : block.captured) parts.push_back(std::move(tensor));
  for (const Expr& symbol : symbols)
    parts.push_back(sym_int_object(to_sym_int(symbol)));
  return tuple_of(parts);
}

// owns(outputs): did the block make the memory of all of them?
Result<Ref> owns(Recorder& recorder, const Objects& args) {
  bool all = true;
  for (PyObject* output : items_of(args.at(0)))
    all &= recorder.block_owns(unpack_tensor(output));
  return Ref::borrow(all ? Py_True : Py_False);
}

// call_transform(make, options, args): make(*options)(*args) as one node. What
// `make` gives runs with the graph, on real tensors.
Result<Ref> call_transform(Recorder& recorder, const Objects& args) {
  Ref transform;
  {
    PauseHook pause;
    transform = Ref::steal(PyObject_CallObject(args.at(0), args.at(1)));
    if (!transform) return Result<Ref>::raised();
  }
  return recorder.record_always(transform.get(), items_of(args.at(2)));
}

// call_branch(make, options, args): the same where make(*options) looks at data
// to choose between two blocks, options[0] and options[1], which give results
// of the same metadata. args: the condition, options[2] inputs, then what the
// first block takes besides (options[3] values), then the second.
Result<Ref> call_branch(Recorder& recorder, const Objects& args) {
  Objects options = items_of(args.at(1)), values = items_of(args.at(2));
  size_t taken =
      PyLong_AsSize_t(options.at(2)) + PyLong_AsSize_t(options.at(3));
  FJ_CHECK(taken < values.size(), "arguments of a branch");
  Objects of_first(values.begin() + 1, values.begin() + 1 + taken);
  Ref branch;
  {
    PauseHook pause;
    branch = Ref::steal(PyObject_CallObject(args.at(0), args.at(1)));
    if (!branch) return Result<Ref>::raised();
  }
  recorder.keep_torch_level(TorchLevel::kCond, "torch.cond");
  return recorder.record_always(branch.get(), values, nullptr, nullptr,
                                &of_first, options.at(0));
}

using Handler = Result<Ref> (*)(Recorder&, const Objects&);
constexpr Handler kHandlers[] = {
#define X(name) name,
    FJ_REGION_CALLS(X)
#undef X
};

// -1: none of them.
int index_of(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return -1;
  PyMethodDef* method = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  if (method < kMethods || method >= kMethods + std::size(kHandlers)) return -1;
  return static_cast<int>(method - kMethods);
}

}  // namespace

Ref region_module() {
  Ref module = Ref::steal(PyModule_Create(&kModule));
  // The one that runs outside of captures, too.
  PyObject* setter = autograd_state_setter();
  if (!module ||
      PyModule_AddObjectRef(module.get(), "set_autograd_state", setter) < 0)
    return Ref();
  return module;
}

bool is_region_call(PyObject* callable) { return index_of(callable) >= 0; }

Result<Ref> call_region(Recorder& recorder, PyObject* callable,
                        const std::vector<PyObject*>& args) {
  int index = index_of(callable);
  FJ_CHECK(index >= 0, "not a region call");
  return kHandlers[index](recorder, args);
}

}  // namespace framejit::graph
