#include "backend/program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include <unordered_set>

#include "backend/block_cache.h"
#include "backend/cuda_machine.h"
#include "backend/interpreted_loops.h"
#include "backend/layouts.h"
#include "backend/profiled.h"
#include "backend/scheduled_loops.h"
#include "backend/x86_machine.h"
#include "codegen/loops/text.h"
#include "frame_hook/event_log.h"
#include "graph/ops/alias_analysis.h"
#include "graph/ops/node_traits.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::backend {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Value;

class Program::Builder {
 public:
  Builder(Program& program, const Graph& graph)
      : program_(program), original_(graph), graph_(&graph) {}

  Status build(const ProgramOptions& options) {
    program_.repair_strides_ = options.repair_strides;
    program_.name_ = options.profiled_name();
    owner_ = options.owner();
    check_results_ = options.check_results;
    choose_layout(options);
    add_inputs();
    FJ_TRY(bool in_loops, add_loops(options));
    if (!in_loops && is_gainful_) {
      leave_layout(std::string(kStayChannelsFirst) + "a kernel has no code");
      add_inputs();
      FJ_TRY(in_loops, add_loops(options));
    }
    if (!in_loops) FJ_CHECK_OK(add_nodes());
    for (size_t i = 0; i < graph_->outputs.size(); ++i) {
      const bool is_had =
          i < options.has_output.size() && options.has_output[i];
      FJ_TRY(int reg,
             is_had ? Result<int>(-1) : output_register(graph_->outputs[i]));
      program_.outputs_.push_back(reg);
    }
    for (const auto& mutation : graph_->mutations) {
      FJ_TRY(int reg, output_register(Arg(mutation.value)));
      FJ_CHECK(reg >= 0);
      program_.mutations_.push_back(reg);
    }
    program_.num_registers_ = registers_.size();
    if (!in_loops) find_last_uses(options.frees_inputs);
    log_loops();
    return ok_status();
  }

 private:
  int add_register(const Value* value) {
    int reg = static_cast<int>(registers_.size());
    registers_[value] = reg;
    return reg;
  }

  void add_inputs() {
    for (const Value* input : graph_->inputs) {
      bool tensor = input->kind != Value::Kind::kInt;
      program_.input_registers_.push_back(tensor ? add_register(input) : -1);
    }
  }

  // The graph that is run from now on may be one in other layouts: every node
  // that would be a loop is one in those, too.
  void choose_layout(const ProgramOptions& options) {
    wanted_.hints = options.hints;
    wanted_.first_free_output = options.first_free_output;
    wanted_.last_inputs = options.last_inputs;
    if (choose_gainful_layout(options)) return;
    leave_layout(program_.layouts_);
  }

  // False: inputs alone have one of their own.
  bool choose_gainful_layout(const ProgramOptions& options) {
    if (!options.channels_last || options.loops == LoopTarget::kNone ||
        !has_convolution(original_))
      return false;
    LoweringRequest request;
    request.has_output = options.has_output;
    request.hints = options.hints;
    std::string reason;
    auto lowered = lower_to_loops(original_, request, &reason);
    if (!lowered) return false;
    LayoutRequest wanted = wanted_;
    wanted.loops = {lowered->lowered.begin(), lowered->lowered.end()};
    for (;;) {
      LayoutChoice choice = choose_layouts(original_, wanted);
      program_.layouts_ = choice.reason;
      if (!choice.graph) return false;
      auto again = lower_to_loops(*choice.graph, request, &reason);
      if (!again) {
        program_.layouts_ = kStayChannelsFirst + reason;
        return false;
      }
      const std::unordered_set<const Node*> loops(again->lowered.begin(),
                                                  again->lowered.end());
      const size_t known = wanted.loops.size();
      for (size_t i = 0; const auto& node : choice.graph->block().nodes) {
        const Node* origin = choice.origins[i++];
        if (loops.contains(node.get())) continue;
        // (A clone that is a call is one.)
        if (origin) wanted.loops.erase(origin);
      }
      if (wanted.loops.size() < known) continue;
      take_layout(std::move(choice));
      return true;
    }
  }

  void take_layout(LayoutChoice choice) {
    laid_out_ = std::move(choice);
    graph_ = laid_out_.graph.get();
    program_.last_outputs_ = laid_out_.last_outputs;
    is_gainful_ = true;
  }

  // Everything as in eager, but for inputs that are not.
  void leave_layout(const std::string& why) {
    is_gainful_ = false;
    program_.layouts_ = why;
    program_.last_outputs_.clear();
    LayoutRequest wanted = wanted_;
    wanted.only_inputs = true;
    LayoutChoice choice = choose_layouts(original_, wanted);
    graph_ = choice.graph ? choice.graph.get() : &original_;
    laid_out_ = std::move(choice);
    registers_.clear();
    program_.input_registers_.clear();
  }

  Status add_nodes() {
    for (const auto& node : graph_->block().nodes) FJ_CHECK_OK(add_node(*node));
    return ok_status();
  }

  // False: not asked for, the graph does not lower, or has no code.
  Result<bool> add_loops(const ProgramOptions& options) {
    if (options.loops == LoopTarget::kNone) return false;
    LoweringRequest request;
    request.has_output = options.has_output;
    request.hints = options.hints;
    // Nodes that get no code become calls; then others may.
    for (;;) {
      RefusedNodes refused;
      FJ_TRY(bool made, try_loops(options, request, &refused));
      if (made) return true;
      if (is_gainful_) return false;
      const size_t known = request.calls.size();
      for (auto& [node, why] : refused) request.calls.emplace(node, why);
      if (request.calls.size() == known) return false;
    }
  }

  Result<bool> try_loops(const ProgramOptions& options,
                         const LoweringRequest& request,
                         RefusedNodes* refused) {
    std::string reason;
    auto lowered = lower_to_loops(*graph_, request, &reason);
    if (!lowered) {
      program_.not_lowered_ = {"the whole graph: " + reason};
      return false;
    }
    auto register_of = [&](const Value* value) {
      auto found = registers_.find(value);
      return found == registers_.end() ? add_register(value) : found->second;
    };
    const RegisterIndex without = registers_;
    for (const auto& node : graph_->block().nodes)
      if (node->op == Opcode::kGetAttr) FJ_CHECK_OK(add_constant(*node));
    for (const auto& callee : lowered->callees) {
      for (const Value* operand : callee.operands) register_of(operand);
      FJ_CHECK_OK(add_call(*callee.node));
    }
    const bool interprets =
        options.loops == LoopTarget::kInterpreter && lowered->device.is_cpu();
    if (interprets && std::ranges::any_of(lowered->callees, [](auto& callee) {
          return graph::may_keep_arguments(*callee.node);
        })) {
      reason = "a call may hold on to memory of the interpreter";
    } else if (interprets) {
      program_.loops_ =
          std::make_unique<InterpretedLoops>(*lowered, register_of);
    } else if (auto machine = machine_for(lowered->device, options, &reason)) {
      ScheduledLoops::Request wanted;
      wanted.machine = std::move(machine);
      wanted.hints = options.hints;
      wanted.name = options.profiled_name();
      wanted.freed = freed_inputs(*lowered, options);
      for (const auto& callee : lowered->callees)
        wanted.keeps_operands.push_back(
            graph::may_keep_arguments(*callee.node));
      for (size_t i = 0; i < lowered->callees.size(); ++i) {
        const auto& results = lowered->callees[i].node->outputs;
        const bool is_there =
            results.size() == 1 && results[0]->meta.device == lowered->device;
        wanted.out_calls.push_back(is_there ? program_.instructions_[i].out_call
                                            : nullptr);
      }
      program_.loops_ = ScheduledLoops::make(
          *lowered, register_of, std::move(wanted), refused, &reason);
    }
    if (!program_.loops_) {
      registers_ = without;
      program_.constants_.clear();
      program_.instructions_.clear();
      program_.is_brief_ = true;
      program_.not_lowered_ = {"the whole graph: " + reason};
      return false;
    }
    program_.num_lowered_ = lowered->lowered.size();
    if (enabled(Channel::k_loops)) loop_text_ = codegen::print(lowered->loops);
    program_.not_lowered_ = describe_calls(*lowered);
    program_.conditions_ = std::move(lowered->conditions);
    program_.is_brief_ = program_.loops_->is_brief();
    return true;
  }

  // Null: *reason says why nothing runs loops there.
  static std::shared_ptr<const LoopMachine> machine_for(
      c10::Device device, const ProgramOptions& options, std::string* reason) {
    if (device.is_cuda()) return cuda_machine(device, reason);
    return std::make_shared<X86Machine>(
        options.loops == LoopTarget::kAvx512 ? codegen::cpu_isas().front()
                                             : codegen::X86Isa::kAvx2,
        codegen::Arithmetic{options.precise_math ? codegen::Functions::kLibm
                                                 : codegen::Functions::kVector,
                            options.emulate_precision_casts},
        /*wants_listings=*/enabled(Channel::k_kernels));
  }

  void log_loops() const {
    if (enabled(Channel::k_loops)) log_nodes();
    if (!program_.loops_) return;
    if (enabled(Channel::k_schedule)) {
      const std::string text = program_.loops_->schedule_text();
      if (!text.empty())
        log_event(Channel::k_schedule, "schedule of " + owner_ + "\n" + text);
    }
    if (!enabled(Channel::k_kernels)) return;
    for (const std::string& text : program_.loops_->listings()) {
      const size_t line = std::min(text.size(), text.find('\n'));
      log_event(Channel::k_kernels,
                text.substr(0, line) + " of " + owner_ + text.substr(line));
    }
  }

  void log_nodes() const {
    const auto& lines = program_.not_lowered_;
    if (program_.num_lowered_ == 0 && lines.empty()) return;
    std::string text =
        "loops of " + owner_ + ": " + std::to_string(program_.num_lowered_) +
        " nodes; calls of ATen:" + (lines.empty() ? " none" : "");
    for (const std::string& line : lines) text += "\n  " + line;
    if (!program_.layouts_.empty()) text += "\n  " + program_.layouts_;
    if (!loop_text_.empty()) text += "\n" + loop_text_;
    log_event(Channel::k_loops, std::move(text));
  }

  // Which of the inputs of the loops nobody reads behind them.
  std::vector<bool> freed_inputs(const LoweredGraph& lowered,
                                 const ProgramOptions& options) const {
    std::unordered_set<const Value*> kept;
    for (const Arg& output : graph_->outputs)
      graph::for_each_value(output, [&](Value* value) { kept.insert(value); });
    for (const auto& mutation : graph_->mutations) kept.insert(mutation.value);
    std::vector<bool> freed;
    for (const Value* input : lowered.inputs)
      freed.push_back(options.frees_inputs && !kept.contains(input));
    return freed;
  }

  Status add_node(const Node& node) {
    switch (node.op) {
      case Opcode::kPlaceholder:
      case Opcode::kOutput:
        return ok_status();
      case Opcode::kGetAttr:
        return add_constant(node);
      case Opcode::kCallFunction:
        if (node.aten) return add_call(node);
        break;
      default:
        break;
    }
    return Break{BreakReason::kBackendFailed,
                 "not an ATen call: " + node.target_name(), node.span};
  }

  Status add_constant(const Node& node) {
    FJ_CHECK(node.outputs.size() == 1 && node.args.size() == 1 &&
             node.args[0].is<Ref>());
    PyObject* object = node.args[0].get<Ref>().get();
    if (!graph::is_tensor_object(object)) {
      return Break{BreakReason::kBackendFailed,
                   "a graph constant that is not a tensor", node.span};
    }
    program_.constants_.emplace_back(add_register(node.outputs[0].get()),
                                     graph::unpack_tensor(object));
    return ok_status();
  }

  Status add_call(const Node& node) {
    const auto& schema = node.aten->schema();
    // Writing in place could reach an input before the commit.
    if (schema.is_mutable()) {
      return Break{BreakReason::kUnsupportedWrite,
                   "in-place operator below autograd: " + node.target_name(),
                   node.span};
    }
    if (!node.kwargs.empty()) {
      return Break{BreakReason::kBackendFailed,
                   "keyword arguments below autograd", node.span};
    }
    program_.is_brief_ = false;
    Instruction instruction;
    instruction.op = node.aten;
    instruction.suspects.add(*node.aten);
    // In a backward nobody writes to it.
    instruction.may_return_argument = graph::is_custom(node) &&
                                      graph::aliased_arguments(node).empty() &&
                                      !program_.repair_strides_;
    FJ_TRY(instruction.args, make_aten_args(schema, node.args, registers_));
    for (const auto& output : node.outputs) {
      instruction.results.push_back(add_register(output.get()));
      instruction.promises.push_back(promise(*output));
      instruction.used.push_back(!output->users.empty());
    }
    if (node.outputs.size() == 1 && instruction.promises[0].is_made())
      instruction.out_call =
          find_out_call(*node.aten, instruction.args, node.outputs[0]->meta);
    program_.instructions_.push_back(std::move(instruction));
    return ok_status();
  }

  // A result that no operation uses may have decided a branch. The program's
  // own backward has none.
  Promise promise(const Value& value) const {
    bool known = value.kind == Value::Kind::kTensor &&
                 !(value.users.empty() && program_.repair_strides_);
    return check_results_ && known ? Promise(value.meta) : Promise();
  }

  // -1: None, or an int that the caller evaluates itself.
  Result<int> output_register(const Arg& output) {
    if (output.is<Value*>()) {
      auto found = registers_.find(output.get<Value*>());
      if (found != registers_.end()) return found->second;
      if (output.get<Value*>()->kind == Value::Kind::kInt) return -1;
    } else if (output.is<Arg::None>() || output.is<Expr>() ||
               output.is<int64_t>()) {
      return -1;
    }
    return Break{BreakReason::kBackendFailed, "unexpected graph output", {}};
  }

  // Marks where each register is read for the last time; a plain argument
  // then hands its reference over.
  void find_last_uses(bool frees_inputs) {
    std::vector<bool> seen(program_.num_registers_, false);
    std::vector<bool> read(program_.num_registers_, false);
    for (int reg : program_.input_registers_) {
      if (reg >= 0) seen[reg] = !frees_inputs;
    }
    for (int reg : program_.outputs_) {
      if (reg >= 0) read[reg] = true;
    }
    for (int reg : program_.mutations_) read[reg] = true;
    for (int reg : program_.outputs_) {
      if (reg >= 0) seen[reg] = true;
    }
    for (int reg : program_.mutations_) seen[reg] = true;
    auto& instructions = program_.instructions_;
    for (auto it = instructions.rbegin(); it != instructions.rend(); ++it) {
      std::vector<int> reads;
      for (const AtenArg& arg : it->args) collect_registers(arg, &reads);
      for (int reg : reads) read[reg] = true;
      for (AtenArg& arg : it->args) {
        if (arg.kind == AtenArg::Kind::kRegister && !seen[arg.reg] &&
            std::count(reads.begin(), reads.end(), arg.reg) == 1) {
          arg.kind = AtenArg::Kind::kMoveRegister;
        }
      }
      reads.insert(reads.end(), it->results.begin(), it->results.end());
      for (int reg : reads) {
        if (seen[reg]) continue;
        seen[reg] = true;
        it->dying.push_back(reg);
      }
    }
    // An input nobody reads is not loaded at all.
    for (int& reg : program_.input_registers_) {
      if (reg >= 0 && !read[reg]) reg = -1;
    }
  }

  bool check_results_ = true;
  std::string owner_;      // in records
  std::string loop_text_;  // the loop IR, if it is logged
  Program& program_;
  const Graph& original_;
  LayoutRequest wanted_;  // but for the loops
  LayoutChoice laid_out_;
  bool is_gainful_ = false;  // and not of inputs alone
  const Graph* graph_;       // the original one, or in other layouts
  RegisterIndex registers_;
};

Program::~Program() = default;

Result<std::shared_ptr<const Program>> Program::build(
    const Graph& graph, const ProgramOptions& options) {
  std::shared_ptr<Program> program(new Program);
  FJ_CHECK_OK(Builder(*program, graph).build(options));
  return std::shared_ptr<const Program>(std::move(program));
}

bool Program::takes(const int64_t* symbols) const {
  return std::all_of(
      conditions_.begin(), conditions_.end(), [symbols](const Expr& condition) {
        int64_t holds = 0;
        return condition.try_evaluate(symbols, &holds) && holds != 0;
      });
}

namespace {

void collect_storages(const torch::jit::Stack& stack,
                      c10::SmallVector<at::Storage, 4>* storages) {
  auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() && tensor.storage().nbytes())
      storages->push_back(tensor.storage());
  };
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    }
  }
}

}  // namespace

void Program::call(const Instruction& instruction, c10::IValue* registers,
                   const int64_t* symbols) const {
  torch::jit::Stack stack;
  stack.reserve(std::max<size_t>(instruction.args.size(), 4));
  for (const AtenArg& arg : instruction.args) {
    stack.push_back(build_aten_arg(arg, registers, symbols));
  }
  c10::SmallVector<at::Storage, 4> given;
  if (instruction.may_return_argument) collect_storages(stack, &given);
  instruction.op->callBoxed(stack);
  if (instruction.may_return_argument) {
    c10::SmallVector<at::Storage, 4> returned;
    collect_storages(stack, &returned);
    for (const at::Storage& storage : returned)
      for (const at::Storage& other : given)
        TORCH_CHECK(!storage.is_alias_of(other),
                    "framejit: ", instruction.op->schema().name(),
                    " returns an argument, which its schema does not say");
  }
  size_t next = 0;
  auto take = [&](c10::IValue result) {
    if (next < instruction.results.size()) {
      check_result(instruction, next, &result, symbols);
      registers[instruction.results[next]] = std::move(result);
    }
    ++next;
  };
  for (c10::IValue& result : stack) {
    if (!result.isTensorList()) {
      take(std::move(result));
      continue;
    }
    for (const c10::IValue& item : result.toListRef()) take(item);
  }
  // The length of a list is no part of the schema.
  if (next != instruction.results.size())
    instruction.suspects.fail(std::to_string(next) + " results, not the " +
                              std::to_string(instruction.results.size()) +
                              " of the trace");
}

void Program::call_into(const Instruction& instruction, c10::IValue* registers,
                        const int64_t* symbols, at::Tensor* out) const {
  const void* memory = out->storage().data();
  instruction.out_call->call(
      *out, CallArguments(instruction.args, registers, symbols));
  // An operator that thinks otherwise of the result changes the tensor.
  const Promise& promise = instruction.promises[0];
  if (out->storage().data() != memory ||
      promise.kept_by(*out, symbols) != Promise::Kept::kYes)
    instruction.suspects.fail(promise.difference(*out, symbols));
}

void Program::check_result(const Instruction& instruction, size_t index,
                           c10::IValue* result, const int64_t* symbols) const {
  const Promise& promise = instruction.promises[index];
  if (!promise.is_made()) return;
  at::Tensor nothing;
  const at::Tensor& tensor = result->isTensor() ? result->toTensor() : nothing;
  switch (promise.kept_by(tensor, symbols)) {
    case Promise::Kept::kYes:
      return;
    case Promise::Kept::kExceptStrides:
      if (repair_strides_) break;
      [[fallthrough]];
    case Promise::Kept::kNo:
      if (!tensor.defined() && !instruction.used[index]) return;
      instruction.suspects.fail(promise.difference(tensor, symbols));
  }
  instruction.suspects.note();
  auto strides = promise.strides(symbols);
  for (size_t i = 0; i < strides.size(); ++i) {
    if (tensor.size(static_cast<int64_t>(i)) == 1) strides[i] = 1;
    if (strides[i] < 1)  // overlapping: nothing to copy into
      instruction.suspects.fail(promise.difference(tensor, symbols));
  }
  at::Tensor copy =
      at::empty_strided(tensor.sizes(), strides, tensor.options());
  *result = copy.copy_(tensor);
}

void Program::load(const at::Tensor* const* inputs,
                   Registers* registers) const {
  registers->resize(num_registers_);
  for (size_t i = 0; i < input_registers_.size(); ++i) {
    if (input_registers_[i] >= 0)
      (*registers)[input_registers_[i]] = *inputs[i];
  }
  for (const auto& [reg, constant] : constants_) (*registers)[reg] = constant;
}

// A constant in the memory of an input would be written to with it.
void Program::check_constants(const c10::IValue* registers) const {
  for (const auto& [reg, constant] : constants_) {
    for (int input : input_registers_) {
      if (input < 0 || !registers[input].isTensor()) continue;
      TORCH_CHECK(!registers[input].toTensor().is_alias_of(constant.toTensor()),
                  "framejit: a constant shares memory with an input");
    }
  }
}

void Program::execute(const int64_t* symbols, Registers* registers_,
                      bool* wrote) const {
  Registers& registers = *registers_;
  const Profiled graph(name_);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  // The casts are instructions; others would also stay in the cache of casts,
  // without a history.
  c10::impl::ExcludeDispatchKeyGuard below_autocast(
      c10::autocast_dispatch_keyset);
  const CachedCalls cached;
  if (loops_) {
    if (!constants_.empty() && loops_->writes_inputs())
      check_constants(registers.data());
    auto call_callee = [&](int callee, at::Tensor* out) {
      const Instruction& instruction = instructions_[callee];
      if (out) {
        call_into(instruction, registers.data(), symbols, out);
      } else {
        call(instruction, registers.data(), symbols);
      }
    };
    loops_->run(symbols, registers.data(), call_callee, wrote);
    return;
  }
  for (const Instruction& instruction : instructions_) {
    call(instruction, registers.data(), symbols);
    for (int reg : instruction.dying) registers[reg] = c10::IValue();
  }
}

void Program::store(Registers* registers, at::Tensor* outputs,
                    at::Tensor* mutations) const {
  for (size_t i = 0; i < mutations_.size(); ++i) {
    mutations[i] = (*registers)[mutations_[i]].toTensor();
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    // A None result (a gradient that does not exist) is an undefined tensor.
    if (outputs_[i] >= 0 && (*registers)[outputs_[i]].isTensor()) {
      outputs[i] = (*registers)[outputs_[i]].toTensor();
    }
  }
}

void Program::run(const at::Tensor* const* inputs, const int64_t* symbols,
                  at::Tensor* outputs, at::Tensor* mutations) const {
  Registers registers;
  bool wrote = false;
  load(inputs, &registers);
  execute(symbols, &registers, &wrote);
  store(&registers, outputs, mutations);
}

ProgramReport Program::report() const {
  return {loops_ ? loops_->texts() : std::vector<std::string>(), num_lowered_,
          not_lowered_};
}

void ProgramReport::add(const ProgramReport& other) {
  kernels.insert(kernels.end(), other.kernels.begin(), other.kernels.end());
  num_lowered += other.num_lowered;
  not_lowered.insert(not_lowered.end(), other.not_lowered.begin(),
                     other.not_lowered.end());
  if (other.reason_of_calls) reason_of_calls = other.reason_of_calls;
}

}  // namespace framejit::backend
