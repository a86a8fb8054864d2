#include "backend/program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include "backend/fused_kernel.h"
#include "backend/schedule.h"
#include "graph/python_tensor.h"
#include "graph/tensor_check.h"

namespace framejit::backend {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Opcode;
using graph::Value;

class Program::Builder {
 public:
  Builder(Program& program, const Graph& graph)
      : program_(program), graph_(graph) {}

  Status build(const ProgramOptions& options) {
    program_.repair_strides_ = options.repair_strides;
    check_results_ = options.check_results;
    for (const Value* input : graph_.inputs) {
      bool tensor = input->kind != Value::Kind::kInt;
      program_.input_registers_.push_back(tensor ? add_register(input) : -1);
    }
    for (ScheduleUnit& unit : make_schedule(graph_, options.fuse)) {
      if (unit.kernel) {
        FJ_CHECK_OK(add_kernel(std::move(unit)));
      } else {
        FJ_CHECK_OK(add_node(*unit.node));
      }
    }
    for (const Arg& output : graph_.outputs) {
      FJ_TRY(int reg, output_register(output));
      program_.outputs_.push_back(reg);
    }
    for (const auto& mutation : graph_.mutations) {
      FJ_TRY(int reg, output_register(Arg(mutation.value)));
      FJ_CHECK(reg >= 0);
      program_.mutations_.push_back(reg);
    }
    program_.num_registers_ = registers_.size();
    find_last_uses();
    return ok_status();
  }

 private:
  int add_register(const Value* value) {
    int reg = static_cast<int>(registers_.size());
    registers_[value] = reg;
    return reg;
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
    Instruction instruction;
    instruction.op = node.aten;
    FJ_TRY(instruction.args, make_aten_args(schema, node.args, registers_));
    instruction.result_is_list = node.outputs_are_list;
    for (const auto& output : node.outputs) {
      instruction.results.push_back(add_register(output.get()));
      instruction.expected.push_back(check_results_ ? expect(*output)
                                                    : Expected{});
    }
    program_.instructions_.push_back(std::move(instruction));
    return ok_status();
  }

  static Expected expect(const Value& value) {
    Expected expected;
    if (value.kind != Value::Kind::kTensor || value.users.empty()) {
      return expected;
    }
    expected.checked = true;
    expected.dtype = value.meta.dtype;
    bool is_static = true;
    for (size_t i = 0; i < value.meta.sizes.size(); ++i) {
      const Expr &size = value.meta.sizes[i], &stride = value.meta.strides[i];
      is_static &= size.is_const() && (stride.is_const() || size.is_const(1));
      if (!is_static) break;
      expected.sizes.push_back(size.constant());
      expected.strides.push_back(size.is_const(1) ? -1 : stride.constant());
    }
    if (!is_static) {
      expected.symbolic_sizes = value.meta.sizes;
      expected.symbolic_strides = value.meta.strides;
    }
    return expected;
  }

  Status add_kernel(ScheduleUnit unit) {
    Instruction instruction;
    for (const Value* operand : unit.operands) {
      auto found = registers_.find(operand);
      if (found == registers_.end()) {
        return Break{
            BreakReason::kBackendFailed, "a kernel before its operand", {}};
      }
      instruction.operands.push_back(found->second);
    }
    for (const Value* result : unit.results) {
      instruction.results.push_back(add_register(result));
    }
    instruction.kernel = std::move(unit.kernel);
    program_.instructions_.push_back(std::move(instruction));
    return ok_status();
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

  // Marks where each register is read for the last time; a plain argument then
  // hands its reference over.
  void find_last_uses() {
    std::vector<bool> seen(program_.num_registers_, false);
    for (int reg : program_.outputs_) {
      if (reg >= 0) seen[reg] = true;
    }
    for (int reg : program_.mutations_) seen[reg] = true;
    auto& instructions = program_.instructions_;
    for (auto it = instructions.rbegin(); it != instructions.rend(); ++it) {
      std::vector<int> reads = it->operands;
      for (const AtenArg& arg : it->args) collect_registers(arg, &reads);
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
      if (reg >= 0 && !seen[reg]) reg = -1;
    }
  }

  bool check_results_ = true;
  Program& program_;
  const Graph& graph_;
  RegisterIndex registers_;
};

Program::~Program() = default;

Result<std::shared_ptr<const Program>> Program::build(
    const Graph& graph, const ProgramOptions& options) {
  std::shared_ptr<Program> program(new Program);
  FJ_CHECK_OK(Builder(*program, graph).build(options));
  return std::shared_ptr<const Program>(std::move(program));
}

void Program::call(const Instruction& instruction, c10::IValue* registers,
                   const int64_t* symbols) const {
  torch::jit::Stack stack;
  stack.reserve(std::max<size_t>(instruction.args.size(), 4));
  for (const AtenArg& arg : instruction.args) {
    stack.push_back(build_aten_arg(arg, registers, symbols));
  }
  instruction.op->callBoxed(stack);
  size_t count = instruction.results.size();
  if (!instruction.result_is_list) {
    TORCH_INTERNAL_ASSERT(stack.size() >= count, "too few results");
    for (size_t i = 0; i < count; ++i) {
      check_result(instruction, i, &stack[i], symbols);
      registers[instruction.results[i]] = std::move(stack[i]);
    }
    return;
  }
  const auto& items = stack.at(0).toListRef();
  TORCH_INTERNAL_ASSERT(items.size() == count, "another number of results");
  for (size_t i = 0; i < count; ++i) {
    c10::IValue item = items[i];
    check_result(instruction, i, &item, symbols);
    registers[instruction.results[i]] = std::move(item);
  }
}

void Program::check_result(const Instruction& instruction, size_t index,
                           c10::IValue* result, const int64_t* symbols) const {
  const Expected& expected = instruction.expected[index];
  if (!expected.checked) return;
  auto fail = [&](const char* what) {
    throw UnexpectedResult(instruction.op->schema().name() + ": " + what +
                           " differs from what its meta function says");
  };
  if (!result->isTensor() || !result->toTensor().defined()) fail("a result");
  const at::Tensor& tensor = result->toTensor();
  if (tensor.scalar_type() != expected.dtype) fail("a dtype");
  c10::SmallVector<int64_t, 8> sizes, strides;
  at::IntArrayRef wanted_sizes = expected.sizes;
  at::IntArrayRef wanted_strides = expected.strides;
  if (!expected.symbolic_sizes.empty()) {
    for (const Expr& e : expected.symbolic_sizes) {
      sizes.push_back(e.evaluate(symbols));
    }
    for (const Expr& e : expected.symbolic_strides) {
      strides.push_back(e.evaluate(symbols));
    }
    wanted_sizes = sizes;
    wanted_strides = strides;
  }
  if (tensor.layout() != c10::kStrided) fail("a layout");
  if (tensor.sizes() != wanted_sizes) fail("a size");
  bool same = true;
  for (size_t i = 0; i < wanted_sizes.size(); ++i) {
    same &= wanted_sizes[i] == 1 || tensor.stride(i) == wanted_strides[i];
  }
  if (same || tensor.numel() == 0) return;
  if (!repair_strides_) fail("a stride");
  if (wanted_strides.data() != strides.data())
    strides.assign(wanted_strides.begin(), wanted_strides.end());
  for (size_t i = 0; i < strides.size(); ++i) {
    if (wanted_sizes[i] == 1) strides[i] = 1;
    if (strides[i] < 1) fail("a stride");  // overlapping: nothing to copy into
  }
  at::Tensor copy =
      at::empty_strided(tensor.sizes(), strides, tensor.options());
  *result = copy.copy_(tensor);
}

void Program::run(const at::Tensor* const* inputs, const int64_t* symbols,
                  at::Tensor* outputs, at::Tensor* mutations) const {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  // The casts are instructions; others would also stay in the cache of casts,
  // without a history.
  c10::impl::ExcludeDispatchKeyGuard below_autocast(
      c10::autocast_dispatch_keyset);
  c10::SmallVector<c10::IValue, 32> registers(num_registers_);
  for (size_t i = 0; i < input_registers_.size(); ++i) {
    if (input_registers_[i] >= 0) registers[input_registers_[i]] = *inputs[i];
  }
  for (const auto& [reg, constant] : constants_) registers[reg] = constant;
  c10::SmallVector<const at::Tensor*, 8> operands;
  c10::SmallVector<at::Tensor, 4> results;
  for (const Instruction& instruction : instructions_) {
    if (!instruction.kernel) {
      call(instruction, registers.data(), symbols);
    } else {
      operands.clear();
      for (int reg : instruction.operands) {
        operands.push_back(&registers[reg].toTensor());
      }
      results.resize(instruction.results.size());
      instruction.kernel->run(operands.data(), symbols, results.data());
      for (size_t i = 0; i < results.size(); ++i) {
        registers[instruction.results[i]] = std::move(results[i]);
      }
    }
    for (int reg : instruction.dying) registers[reg] = c10::IValue();
  }
  for (size_t i = 0; i < mutations_.size(); ++i) {
    mutations[i] = registers[mutations_[i]].toTensor();
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    // A None result (a gradient that does not exist) is an undefined tensor.
    if (outputs_[i] >= 0 && registers[outputs_[i]].isTensor()) {
      outputs[i] = registers[outputs_[i]].toTensor();
    }
  }
}

std::vector<std::string> Program::kernel_texts() const {
  std::vector<std::string> texts;
  for (const Instruction& instruction : instructions_) {
    if (instruction.kernel) texts.push_back(instruction.kernel->text());
  }
  return texts;
}

}  // namespace framejit::backend
