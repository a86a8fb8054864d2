#include "backend/callable_executor.h"

#include <c10/core/AutogradState.h>

#include <algorithm>
#include <map>

#include "backend/input_snapshot.h"
#include "backend/output_promises.h"
#include "backend/rng_state.h"
#include "backend/run_errors.h"
#include "backend/torch_executor.h"
#include "frame_hook/python_text.h"
#include "graph/ir/fx_bridge.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tensors/without_torch_function.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/tensor_classes.h"

namespace framejit::backend {

namespace {

constexpr size_t kMaxVariants = 64;

// What is known of the versions of many tensors without reading them each call.
//
// A call must notice a write that nobody announced, to know whether it may be
// run again after a failure. For the parameters of a large model reading all
// versions costs more than the rest of the call. They are the same tensors each
// time: their versions as last seen are as good as those before the call, as
// long as they have not changed since; if they have, nobody knows who did it,
// and the failure is reported instead. (So it is where another tensor has come
// to the address of a tensor's Python object: weak references tell.)
class SettledTensors {
 public:
  // Fills `unsettled` with the objects to watch in this call.
  void look(PyObject* const* objects, const std::vector<int>& indices,
            c10::SmallVectorImpl<int>* unsettled) {
    if (settled_.empty()) {
      settled_.resize(indices.size());
      rows_.resize(indices.size());
    }
    const bool again = ++calls_ % kCallsTrusted == 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      PyObject* object = objects[indices[i]];
      if (object == settled_[i] && !again) continue;
      if (!see(i, object)) unsettled->push_back(indices[i]);
    }
  }
  // False: some settled tensor has another version than the one remembered.
  bool unchanged(PyObject* const* objects,
                 const std::vector<int>& indices) const {
    for (size_t i = 0; i < settled_.size(); ++i) {
      if (!settled_[i]) continue;
      const at::Tensor& tensor = graph::unpack_tensor(objects[indices[i]]);
      if (tensor.unsafeGetTensorImpl() != rows_[i].last ||
          version(tensor) != rows_[i].version)
        return false;
    }
    return true;
  }
  void forget() {
    settled_.clear();
    rows_.clear();
  }

 private:
  static constexpr uint32_t kCallsTrusted = 32;
  static constexpr uint8_t kMaxChanges = 4;
  struct Row {
    const c10::TensorImpl* last = nullptr;
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> alive;
    uint32_t version = 0;
    uint8_t changes = 0;
  };
  // (Inference tensors have none.)
  static uint32_t version(const at::Tensor& tensor) {
    const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
    return counter.enabled() ? counter.current_version() : 0;
  }
  // True: it was settled before this call. The same tensor twice in turn is one
  // that stays, usually.
  bool see(size_t i, PyObject* object) {
    const at::Tensor& tensor = graph::unpack_tensor(object);
    const auto* impl = tensor.unsafeGetTensorImpl();
    Row& row = rows_[i];
    if (impl == row.last && row.changes < kMaxChanges) {
      const bool settled = row.alive.has_value();
      row.version = version(tensor);
      if (!settled) row.alive.emplace(tensor.getIntrusivePtr());
      settled_[i] = object;
      return settled;
    }
    if (settled_[i]) ++row.changes;
    settled_[i] = nullptr;
    row.alive.reset();
    row.last = impl;
    return false;
  }

  // Null: not settled. On their own, as these are all that most calls read.
  std::vector<PyObject*> settled_;
  std::vector<Row> rows_;
  uint32_t calls_ = 0;
};

// As the program gave it.
std::string name_of(const BackendRequest& request) {
  PyObject* callable = request.callable.get();
  std::string name = text_attribute(callable, "__name__");
  return name.empty() ? Py_TYPE(callable)->tp_name : name;
}

class CallableExecutor final : public Executor {
 public:
  explicit CallableExecutor(const BackendRequest& request)
      : graph_(request.graph),
        promises_(request.graph),
        backend_(request.callable),
        name_(name_of(request)) {
    const std::vector<int>& objects = graph_->input_objects;
    for (size_t i = 0; i < objects.size(); ++i)
      as_gathered_ = as_gathered_ && objects[i] == static_cast<int>(i);
  }

  // The compiled callable for these inputs; empty with an error set.
  Ref compile(const std::vector<Ref>& inputs);
  // The callable made from these example inputs is the one for their sizes.
  void remember(const std::vector<Ref>& inputs, Ref callable);
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override;

 private:
  using Key = std::vector<int64_t>;  // values of the symbolic inputs
  // What run() does where it needs no arguments of its own, writes to no input
  // and draws no random numbers.
  RunStatus run_plain(PyObject* const* inputs, const int64_t* symbols,
                      PyObject** outputs);
  // Borrowed from the variants.
  PyObject* callable_for(const Key& symbols, c10::ArrayRef<PyObject*> inputs);
  // The arguments of the callable, where they are not just the gathered
  // objects. False: no memory for a number.
  struct Arguments {
    c10::SmallVector<PyObject*, 16> stack;
    std::vector<Ref> numbers;
    Key key;
  };
  bool collect(PyObject* const* inputs, const int64_t* symbols,
               Arguments* out) const;
  // The results as promised. False: an error is set.
  bool take(const Ref& result, PyObject* const* inputs, const int64_t* symbols,
            PyObject** outputs);
  // What the backend makes of the graph is not believed any more: it runs as
  // it was captured.
  RunStatus run_as_captured(PyObject* const* inputs, const int64_t* symbols,
                            PyObject** outputs);
  void watch(PyObject* const* inputs, InputSnapshot* snapshot);
  // After a failed call. True: the inputs are as before it.
  bool undo(PyObject* const* inputs, InputSnapshot* snapshot);

  std::shared_ptr<const graph::TorchGraph> graph_;
  const OutputPromises promises_;
  Ref backend_;
  std::string name_;  // the backend's, for messages
  bool broke_promise_ = false;
  std::unique_ptr<Executor> as_captured_;
  bool as_gathered_ = true;  // graph input i is gathered object i
  // Inputs are of classes with a __torch_function__, which guards check. What
  // those do is in the graph.
  bool has_subclasses_ = false;
  // Gathered objects that are tensors, which the guards see to.
  std::vector<int> read_tensors_, written_tensors_;
  SettledTensors settled_;  // of read_tensors_, where they are many
  std::map<Key, Ref> variants_;
  Ref plain_;  // the only variant, for run_plain()
};

Ref CallableExecutor::compile(const std::vector<Ref>& inputs) {
  const graph::StateScope state(graph_->writes_state);
  auto module = graph::to_fx(*graph_->graph);
  if (module.broke()) {
    PyErr_SetString(PyExc_RuntimeError, format_break(module.brk()).c_str());
  }
  if (!module.ok()) return Ref();
  Ref examples = Ref::steal(PyList_New(static_cast<Py_ssize_t>(inputs.size())));
  if (!examples) return Ref();
  for (const Ref& input : inputs) {
    has_subclasses_ |= graph::is_tensor_object(input.get()) &&
                       graph::is_of_subclass(input.get());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    PyList_SET_ITEM(examples.get(), static_cast<Py_ssize_t>(i),
                    inputs[i].new_reference());
  }
  Ref args = Ref::steal(PyTuple_Pack(2, module.value().get(), examples.get()));
  if (!args) return Ref();
  Ref result = Ref::steal(PyObject_Call(backend_.get(), args.get(), nullptr));
  if (result && !PyCallable_Check(result.get())) {
    PyErr_SetString(PyExc_TypeError, "the backend did not return a callable");
    return Ref();
  }
  return result;
}

PyObject* CallableExecutor::callable_for(const Key& symbols,
                                         c10::ArrayRef<PyObject*> inputs) {
  // Without symbols there is but one.
  if (symbols.empty() && !variants_.empty())
    return variants_.begin()->second.get();
  auto found = variants_.find(symbols);
  if (found != variants_.end()) return found->second.get();
  // A program with ever new sizes must not fill the memory.
  if (variants_.size() >= kMaxVariants) variants_.clear();
  std::vector<Ref> examples;
  for (PyObject* input : inputs) examples.push_back(Ref::borrow(input));
  Ref callable = compile(examples);
  if (!callable) return nullptr;
  return (variants_[symbols] = std::move(callable)).get();
}

void CallableExecutor::remember(const std::vector<Ref>& inputs, Ref callable) {
  const auto& written = graph_->mutated_inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    int object = graph_->input_objects[i];
    if (object < 0 || !graph::is_tensor_object(inputs[i].get())) continue;
    bool writes = std::find(written.begin(), written.end(),
                            static_cast<int>(i)) != written.end();
    (writes ? written_tensors_ : read_tensors_).push_back(object);
  }
  Key key;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph_->input_objects[i] >= 0) continue;
    int64_t value = PyLong_AsLongLong(inputs[i].get());
    if (value == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return;  // the first run compiles again
    }
    key.push_back(value);
  }
  if (as_gathered_ && key.empty() && written_tensors_.empty() &&
      !graph_->uses_random && !graph_->writes_state)
    plain_ = callable;
  variants_[key] = std::move(callable);
}

bool CallableExecutor::take(const Ref& result, PyObject* const* inputs,
                            const int64_t* symbols, PyObject** outputs) {
  std::optional<std::string> difference;
  try {
    difference = promises_.take(result, inputs, symbols, outputs);
  } catch (...) {
    if (!PyErr_Occurred())
      torch::translate_exception_to_python(std::current_exception());
    return false;
  }
  if (!difference) return true;
  broke_promise_ = true;
  if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_RuntimeError, ("what the backend " + name_ +
                                         " made of the graph " + *difference +
                                         "; the graph runs as it was captured "
                                         "from now on")
                                            .c_str());
  }
  return false;
}

RunStatus CallableExecutor::run_as_captured(PyObject* const* inputs,
                                            const int64_t* symbols,
                                            PyObject** outputs) {
  if (!as_captured_) {
    auto executor = make_torch_executor(graph_);
    if (!executor.ok()) {
      PyErr_SetString(PyExc_RuntimeError,
                      "framejit: a captured graph cannot be replayed");
      return RunStatus::kFailedBeforeCommit;
    }
    as_captured_ = executor.take();
  }
  return as_captured_->run(inputs, symbols, outputs);
}

bool CallableExecutor::collect(PyObject* const* inputs, const int64_t* symbols,
                               Arguments* out) const {
  const graph::Graph& graph = *graph_->graph;
  const size_t count = graph.inputs.size();
  out->stack.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    int object = graph_->input_objects[i];
    if (object >= 0) {
      out->stack.push_back(inputs[object]);
      continue;
    }
    out->key.push_back(graph.inputs[i]->expr.evaluate(symbols));
    out->numbers.push_back(Ref::steal(PyLong_FromLongLong(out->key.back())));
    if (!out->numbers.back()) return false;
    out->stack.push_back(out->numbers.back().get());
  }
  return true;
}

void CallableExecutor::watch(PyObject* const* inputs, InputSnapshot* snapshot) {
  constexpr size_t kMany = 16;
  if (read_tensors_.size() <= kMany) return snapshot->watch(read_tensors_);
  c10::SmallVector<int, 16> unsettled;
  settled_.look(inputs, read_tensors_, &unsettled);
  snapshot->watch(unsettled);
}

bool CallableExecutor::undo(PyObject* const* inputs, InputSnapshot* snapshot) {
  const bool unchanged = settled_.unchanged(inputs, read_tensors_);
  settled_.forget();
  return unchanged && snapshot->restore();
}

RunStatus CallableExecutor::run_plain(PyObject* const* inputs,
                                      const int64_t* symbols,
                                      PyObject** outputs) {
  c10::AutogradState& place = c10::AutogradState::get_tls_state();
  const c10::AutogradState ambient = place;
  InputSnapshot snapshot(inputs);
  watch(inputs, &snapshot);
  Ref callable = plain_;
  std::optional<graph::WithoutTorchFunction> unasked;
  if (has_subclasses_) unasked.emplace();
  Ref result = Ref::steal(PyObject_Vectorcall(
      callable.get(), inputs, graph_->graph->inputs.size(), nullptr));
  place = ambient;
  if (result && take(result, inputs, symbols, outputs)) return RunStatus::kOk;
  ErrorGuard error;
  return undo(inputs, &snapshot) ? RunStatus::kFailedBeforeCommit
                                 : RunStatus::kFailedInCommit;
}

RunStatus CallableExecutor::run(PyObject* const* inputs, const int64_t* symbols,
                                PyObject** outputs) {
  if (broke_promise_) return run_as_captured(inputs, symbols, outputs);
  if (plain_) return run_plain(inputs, symbols, outputs);
  const graph::StateScope state(graph_->writes_state);
  InputSnapshot snapshot(inputs);
  RngState rng;
  bool called = false;
  try {
    // The caller owns the objects; the numbers are owned here.
    Arguments collected;
    c10::ArrayRef<PyObject*> args(inputs, graph_->graph->inputs.size());
    if (!as_gathered_) {
      if (!collect(inputs, symbols, &collected))
        return RunStatus::kFailedBeforeCommit;
      args = collected.stack;
    }
    watch(inputs, &snapshot);
    for (int object : written_tensors_)
      snapshot.add_written(graph::unpack_tensor(inputs[object]));
    Ref callable = Ref::borrow(callable_for(collected.key, args));
    if (!callable) return RunStatus::kFailedBeforeCommit;
    if (graph_->uses_random) rng.save(graph_->random_devices);
    called = true;
    std::optional<graph::WithoutTorchFunction> unasked;
    if (has_subclasses_) unasked.emplace();
    Ref result = Ref::steal(
        PyObject_Vectorcall(callable.get(), args.data(), args.size(), nullptr));
    state.restore(result && graph_->interrupts_autocast);
    if (result && take(result, inputs, symbols, outputs)) return RunStatus::kOk;
    ErrorGuard error;
    rng.restore();
    return undo(inputs, &snapshot) ? RunStatus::kFailedBeforeCommit
                                   : RunStatus::kFailedInCommit;
  } catch (...) {
    state.restore();
    set_run_error();
    return called ? RunStatus::kFailedInCommit : RunStatus::kFailedBeforeCommit;
  }
}

}  // namespace

Result<std::unique_ptr<Executor>> make_callable_executor(
    const BackendRequest& request) {
  auto executor = std::make_unique<CallableExecutor>(request);
  FJ_CHECK(request.example_inputs.size() ==
           request.graph->input_objects.size());
  // Compiled now, so that a backend that fails is known before the first run.
  std::vector<Ref> examples;
  for (size_t i = 0; i < request.example_inputs.size(); ++i) {
    Ref example = Ref::borrow(request.example_inputs[i]);
    // Symbols may come as null: their values are the hints.
    if (request.graph->input_objects[i] < 0) {
      const Expr& expr = request.graph->graph->inputs[i]->expr;
      example = Ref::steal(PyLong_FromLongLong(
          expr.evaluate(request.graph->symbol_hints.data())));
    }
    if (!example) {
      PyErr_Clear();
      return Break{BreakReason::kBackendFailed, "no example input", {}};
    }
    examples.push_back(std::move(example));
  }
  Ref callable = executor->compile(examples);
  if (!callable) {
    return Break{BreakReason::kBackendFailed, take_error_text(), {}};
  }
  executor->remember(examples, std::move(callable));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace framejit::backend
