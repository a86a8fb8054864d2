#include "backend/torch_executor.h"

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>

#include <algorithm>

#include "backend/input_snapshot.h"
#include "backend/profiled.h"
#include "backend/promise.h"
#include "backend/python_args.h"
#include "backend/rng_state.h"
#include "backend/run_errors.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tensors/without_torch_function.h"
#include "graph/tracing/ambient_state.h"

namespace framejit::backend {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Value;

namespace {

struct Instruction {
  Ref callable;  // function, or the method's name
  bool is_method = false;
  std::vector<PyArg> args;  // positional, then keyword values
  size_t num_positional = 0;
  Ref keyword_names;         // tuple, or empty
  std::vector<int> results;  // registers
  bool results_are_list = false;
  std::vector<int> dying;         // registers used here for the last time
  std::vector<Promise> promises;  // per result
  Suspects suspects;
};

class TorchExecutor final : public Executor {
 public:
  explicit TorchExecutor(std::shared_ptr<const graph::TorchGraph> graph)
      : graph_(std::move(graph)) {}

  Status build();
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override;

 private:
  using Registers = std::vector<Ref>;

  Status add_node(const Node& node);
  Status add_call(const Node& node);
  void find_last_uses();
  // Registers still null hold nothing; false: a Python error is set.
  bool execute(const Instruction& instruction, std::vector<Ref>* registers,
               const int64_t* symbols) const;
  bool replay(std::vector<Ref>* registers, const int64_t* symbols,
              PyObject** outputs) const;
  void save_inputs(const std::vector<Ref>& inputs,
                   InputSnapshot* snapshot) const;

  std::shared_ptr<const graph::TorchGraph> graph_;
  std::string name_;
  RegisterMap registers_;
  struct Input {
    int object;
    int reg;
    bool written;
  };
  std::vector<Input> inputs_;
  std::vector<std::pair<int, Ref>> constants_;
  std::vector<Instruction> instructions_;
  std::vector<PyArg> outputs_;
  int num_registers_ = 0;
};

Status TorchExecutor::build() {
  const Graph& graph = *graph_->graph;
  name_ = "fj::torch_level " + place_of(*graph_);
  FJ_CHECK(graph_->input_objects.size() == graph.inputs.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph_->input_objects[i] < 0) continue;  // a symbol: an expression
    int reg = num_registers_++;
    registers_[graph.inputs[i]] = reg;
    const auto& written = graph_->mutated_inputs;
    inputs_.push_back(
        {graph_->input_objects[i], reg,
         std::count(written.begin(), written.end(), static_cast<int>(i)) > 0});
  }
  for (const auto& node : graph.block().nodes) FJ_CHECK_OK(add_node(*node));
  for (const Arg& output : graph.outputs) {
    FJ_TRY(PyArg arg, make_py_arg(output, registers_));
    outputs_.push_back(std::move(arg));
  }
  find_last_uses();
  return ok_status();
}

Status TorchExecutor::add_node(const Node& node) {
  switch (node.op) {
    case Opcode::kPlaceholder:
    case Opcode::kOutput:
      return ok_status();
    case Opcode::kGetAttr: {
      FJ_CHECK(node.outputs.size() == 1 && node.args.size() == 1 &&
               node.args[0].is<Ref>());
      int reg = num_registers_++;
      registers_[node.outputs[0].get()] = reg;
      constants_.emplace_back(reg, node.args[0].get<Ref>());
      return ok_status();
    }
    case Opcode::kCallModule:
      return Status(Break{BreakReason::kBackendFailed,
                          "call_module node in a torch-level graph",
                          {}});
    case Opcode::kCallFunction:
    case Opcode::kCallMethod:
    case Opcode::kStateEnter:
    case Opcode::kStateExit:
      return add_call(node);
  }
  return ok_status();
}

Status TorchExecutor::add_call(const Node& node) {
  Instruction instruction;
  if (node.op == Opcode::kCallMethod && !node.callable) {
    instruction.is_method = true;
    instruction.callable = Ref::steal(
        PyUnicode_FromStringAndSize(node.method.data(), node.method.size()));
    if (!instruction.callable) return Status::raised();
  } else {
    if (!node.callable) {
      return Status(
          Break{BreakReason::kBackendFailed,
                "node without a Python callable: " + node.target_name(),
                {}});
    }
    instruction.callable = node.callable;
  }
  for (const Arg& arg : node.args) {
    FJ_TRY(PyArg converted, make_py_arg(arg, registers_));
    instruction.args.push_back(std::move(converted));
  }
  instruction.num_positional = instruction.args.size();
  if (!node.kwargs.empty()) {
    instruction.keyword_names =
        Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(node.kwargs.size())));
    if (!instruction.keyword_names) return Status::raised();
    Py_ssize_t index = 0;
    for (const auto& [key, value] : node.kwargs) {
      PyObject* name = PyUnicode_InternFromString(key.c_str());
      if (!name) return Status::raised();
      PyTuple_SET_ITEM(instruction.keyword_names.get(), index++, name);
      FJ_TRY(PyArg converted, make_py_arg(value, registers_));
      instruction.args.push_back(std::move(converted));
    }
  }
  for (const auto& output : node.outputs) {
    int reg = num_registers_++;
    registers_[output.get()] = reg;
    instruction.results.push_back(reg);
    bool known =
        output->kind == Value::Kind::kTensor && !node.operators.empty();
    instruction.promises.push_back(known ? Promise(output->meta) : Promise());
  }
  for (const c10::OperatorHandle& op : node.operators)
    instruction.suspects.add(op);
  instruction.results_are_list =
      node.outputs_are_list || node.outputs.size() > 1;
  instructions_.push_back(std::move(instruction));
  return ok_status();
}

void collect_registers(const PyArg& arg, std::vector<int>* out) {
  if (arg.kind == PyArg::Kind::kRegister) out->push_back(arg.reg);
  for (const PyArg& item : arg.items) collect_registers(item, out);
}

// A register dies after the last instruction that reads it, so that memory is
// freed as early as in eager.
void TorchExecutor::find_last_uses() {
  std::vector<bool> seen(num_registers_, false);
  std::vector<int> used;
  for (const PyArg& output : outputs_) collect_registers(output, &used);
  for (int reg : used) seen[reg] = true;
  for (auto it = instructions_.rbegin(); it != instructions_.rend(); ++it) {
    used = it->results;  // a result nobody reads dies at once
    for (const PyArg& arg : it->args) collect_registers(arg, &used);
    for (int reg : used) {
      if (seen[reg]) continue;
      seen[reg] = true;
      it->dying.push_back(reg);
    }
  }
}

// Spreads a (nested) tuple or list over the result registers in order.
bool unpack_results(PyObject* object, const std::vector<int>& results,
                    size_t* next, std::vector<Ref>* registers) {
  if (PyTuple_Check(object) || PyList_Check(object)) {
    Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!unpack_results(PySequence_Fast_GET_ITEM(object, i), results, next,
                          registers)) {
        return false;
      }
    }
    return true;
  }
  if (*next >= results.size()) return false;
  (*registers)[results[(*next)++]] = Ref::borrow(object);
  return true;
}

void check_results(const Instruction& instruction,
                   const std::vector<Ref>& registers, const int64_t* symbols) {
  for (size_t i = 0; i < instruction.promises.size(); ++i) {
    const Promise& promise = instruction.promises[i];
    if (!promise.is_made()) continue;
    PyObject* result = registers[instruction.results[i]].get();
    at::Tensor nothing;
    const at::Tensor& tensor = result && graph::is_tensor_object(result)
                                   ? graph::unpack_tensor(result)
                                   : nothing;
    if (promise.kept_by(tensor, symbols) != Promise::Kept::kYes)
      instruction.suspects.fail(promise.difference(tensor, symbols));
  }
}

bool TorchExecutor::execute(const Instruction& instruction,
                            std::vector<Ref>* registers,
                            const int64_t* symbols) const {
  static_assert(sizeof(Ref) == sizeof(PyObject*));
  auto* raw = reinterpret_cast<PyObject* const*>(registers->data());
  size_t count = instruction.args.size();
  c10::SmallVector<PyObject*, 16> stack(count + 1, nullptr);
  bool built = true;
  for (size_t i = 0; i < count && built; ++i) {
    stack[i + 1] = build_py_arg(instruction.args[i], raw, symbols);
    built = stack[i + 1] != nullptr;
  }
  Ref result;
  if (built) {
    PyObject* names = instruction.keyword_names.get();
    size_t flags = instruction.num_positional | PY_VECTORCALL_ARGUMENTS_OFFSET;
    result = Ref::steal(
        instruction.is_method
            ? PyObject_VectorcallMethod(instruction.callable.get(),
                                        stack.data() + 1, flags, names)
            : PyObject_Vectorcall(instruction.callable.get(), stack.data() + 1,
                                  flags, names));
  }
  for (size_t i = 1; i <= count; ++i) Py_XDECREF(stack[i]);
  if (!result) return false;
  if (instruction.results_are_list) {
    size_t next = 0;
    if (!unpack_results(result.get(), instruction.results, &next, registers) ||
        next != instruction.results.size()) {
      instruction.suspects.fail("another number of values");
    }
  } else if (!instruction.results.empty()) {
    (*registers)[instruction.results[0]] = std::move(result);
  }
  check_results(instruction, *registers, symbols);
  for (int reg : instruction.dying) (*registers)[reg].reset();
  return true;
}

bool TorchExecutor::replay(std::vector<Ref>* registers, const int64_t* symbols,
                           PyObject** outputs) const {
  for (const Instruction& instruction : instructions_) {
    if (!execute(instruction, registers, symbols)) return false;
  }
  auto* raw = reinterpret_cast<PyObject* const*>(registers->data());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs[i] = build_py_arg(outputs_[i], raw, symbols);
    if (outputs[i]) continue;
    while (i > 0) Py_CLEAR(outputs[--i]);
    return false;
  }
  return true;
}

void TorchExecutor::save_inputs(const std::vector<Ref>& inputs,
                                InputSnapshot* snapshot) const {
  c10::SmallVector<int, 16> read;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    PyObject* object = inputs[i].get();
    if (!graph::is_tensor_object(object)) continue;
    if (inputs_[i].written)
      snapshot->add_written(graph::unpack_tensor(object));
    else
      read.push_back(static_cast<int>(i));
  }
  snapshot->watch(read);
}

RunStatus TorchExecutor::run(PyObject* const* inputs, const int64_t* symbols,
                             PyObject** outputs) {
  const Profiled profiled(name_);
  // Alive until the end: a callee may drop the caller's last reference.
  std::vector<Ref> registers(num_registers_);
  std::vector<Ref> keep;
  for (const Input& input : inputs_) {
    registers[input.reg] = Ref::borrow(inputs[input.object]);
    keep.push_back(registers[input.reg]);
  }
  for (const auto& [reg, constant] : constants_) registers[reg] = constant;

  // The graph is what classes of tensors made of the program's calls: they are
  // not asked again.
  const graph::WithoutTorchFunction unasked;
  const graph::StateScope state(graph_->writes_state);
  InputSnapshot snapshot(reinterpret_cast<PyObject* const*>(keep.data()));
  RngState rng;
  bool prepared = false;
  try {
    save_inputs(keep, &snapshot);
    if (graph_->uses_random) rng.save(graph_->random_devices);
    prepared = true;
    RunStatus failed = RunStatus::kFailedBeforeCommit;
    bool replayed = false;
    try {
      replayed = replay(&registers, symbols, outputs);
    } catch (const UnexpectedResult& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      failed = RunStatus::kMistaken;
    }
    // State still changed at the end is set again by the residual code.
    state.restore(replayed && graph_->interrupts_autocast);
    if (replayed) return RunStatus::kOk;
    ErrorGuard error;
    rng.restore();
    return snapshot.restore() ? failed : RunStatus::kFailedInCommit;
  } catch (...) {
    state.restore();
    set_run_error();
    // Failing while preparing changed nothing; failing while undoing did.
    return prepared ? RunStatus::kFailedInCommit
                    : RunStatus::kFailedBeforeCommit;
  }
}

}  // namespace

Result<std::unique_ptr<Executor>> make_torch_executor(
    std::shared_ptr<const graph::TorchGraph> graph) {
  auto executor = std::make_unique<TorchExecutor>(std::move(graph));
  FJ_CHECK_OK(executor->build());
  return std::unique_ptr<Executor>(std::move(executor));
}

Executor* TorchLevel::get() {
  if (!executor_) {
    auto made = make_torch_executor(graph_);
    if (!made.ok() && PyErr_Occurred()) PyErr_Clear();
    if (made.ok() && !executor_) executor_ = made.take();
  }
  return executor_.get();
}

}  // namespace framejit::backend
