#include "tests/graph/joint/joint_helpers.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

#include <unordered_map>

#include "graph/tensors/python_tensor.h"

namespace framejit::graph::testing {
namespace {

class Runner {
 public:
  explicit Runner(const std::vector<int64_t>& symbols) : symbols_(symbols) {}

  std::unordered_map<const Value*, at::Tensor> values;

  at::Tensor tensor(const Arg& arg) {
    if (arg.is<Value*>()) return values.at(arg.get<Value*>());
    if (arg.is<Arg::None>()) return {};
    at::Tensor number = c10::scalar_to_tensor(scalar(arg));
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }

  c10::IValue convert(const Arg& arg, const c10::TypePtr& type) {
    if (auto optional = type->cast<c10::OptionalType>()) {
      if (arg.is<Arg::None>()) return {};
      return convert(arg, optional->getElementType());
    }
    if (type->kind() == c10::TypeKind::TensorType) return tensor(arg);
    if (auto list = type->cast<c10::ListType>()) {
      return convert_list(arg, list->getElementType());
    }
    if (arg.is<bool>()) return arg.get<bool>();
    if (arg.is<std::string>()) return arg.get<std::string>();
    if (arg.is<c10::ScalarType>()) return int64_t(arg.get<c10::ScalarType>());
    if (arg.is<c10::Layout>()) return int64_t(arg.get<c10::Layout>());
    if (arg.is<c10::MemoryFormat>()) {
      return int64_t(arg.get<c10::MemoryFormat>());
    }
    if (arg.is<c10::Device>()) return arg.get<c10::Device>();
    if (arg.is<Arg::None>()) return {};
    return c10::IValue(scalar(arg));
  }

  int64_t integer(const Arg& arg) { return scalar(arg).toLong(); }

 private:
  c10::Scalar scalar(const Arg& arg) {
    if (arg.is<bool>()) return arg.get<bool>();
    if (arg.is<int64_t>()) return arg.get<int64_t>();
    if (arg.is<double>()) return arg.get<double>();
    if (arg.is<c10::complex<double>>()) return arg.get<c10::complex<double>>();
    if (arg.is<Expr>()) return arg.get<Expr>().evaluate(symbols_.data());
    if (arg.is<Value*>()) {
      return arg.get<Value*>()->expr.evaluate(symbols_.data());
    }
    throw std::runtime_error("not a number");
  }

  c10::IValue convert_list(const Arg& arg, const c10::TypePtr& element) {
    const auto& items = arg.get<Arg::List>().items;
    if (element->kind() == c10::TypeKind::TensorType) {
      c10::List<at::Tensor> list;
      for (const Arg& item : items) list.push_back(tensor(item));
      return list;
    }
    if (element->kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> list;
      for (const Arg& item : items) {
        if (item.is<Arg::None>()) {
          list.push_back(std::nullopt);
        } else {
          list.push_back(tensor(item));
        }
      }
      return list;
    }
    if (element->kind() == c10::TypeKind::FloatType) {
      std::vector<double> list;
      for (const Arg& item : items) list.push_back(scalar(item).toDouble());
      return list;
    }
    if (element->kind() == c10::TypeKind::BoolType) {
      c10::List<bool> list;
      for (const Arg& item : items) list.push_back(item.get<bool>());
      return list;
    }
    std::vector<int64_t> list;
    for (const Arg& item : items) list.push_back(integer(item));
    return list;
  }

  const std::vector<int64_t>& symbols_;
};

void run_node(const Node& node, Runner& runner) {
  if (node.op == Opcode::kGetAttr) {
    runner.values[node.outputs[0].get()] =
        unpack_tensor(node.args[0].get<Ref>().get());
    return;
  }
  if (!node.aten) return;
  const auto& schema = node.aten->schema();
  std::vector<c10::IValue> stack;
  for (size_t i = 0; i < node.args.size(); ++i) {
    stack.push_back(
        runner.convert(node.args[i], schema.arguments()[i].real_type()));
  }
  node.aten->callBoxed(&stack);
  if (node.outputs_are_list) {
    auto list = stack[0].toTensorVector();
    for (size_t i = 0; i < list.size(); ++i) {
      runner.values[node.outputs[i].get()] = list[i];
    }
    return;
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      runner.values[node.outputs[i].get()] = stack[i].toTensor();
    }
  }
}

}  // namespace

FunctionGraph::FunctionGraph(const std::string& name,
                             const std::vector<at::Tensor>& inputs,
                             size_t num_outputs,
                             const std::vector<std::vector<Expr>>& sizes) {
  auto node = std::make_unique<Node>();
  node->callable = eval(name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    TensorMeta meta;
    meta.dtype = input.scalar_type();
    meta.device = input.device();
    meta.requires_grad = input.requires_grad();
    for (int64_t size : input.sizes()) meta.sizes.emplace_back(size);
    for (int64_t stride : input.strides()) meta.strides.emplace_back(stride);
    if (i < sizes.size() && !sizes[i].empty()) {
      meta.sizes = sizes[i];
      for (size_t d = meta.sizes.size(); d-- > 1;) {
        meta.strides[d - 1] = meta.strides[d] * meta.sizes[d];
      }
    }
    Value* value = graph.graph->add_input("arg" + std::to_string(i), meta);
    graph.input_objects.push_back(static_cast<int>(i));
    node->args.push_back(Arg(value));
  }
  node->outputs_are_list = true;
  Node* added = graph.graph->append(std::move(node));
  std::vector<Arg> outputs;
  for (size_t i = 0; i < num_outputs; ++i) {
    // No metadata: these graphs were not captured, so there is none to compare.
    outputs.push_back(Arg(graph.graph->add_output(added, Value::Kind::kOther)));
  }
  graph.graph->set_outputs(std::move(outputs));
}

JointResult run_graph(const Graph& graph, const std::vector<at::Tensor>& inputs,
                      const std::vector<int64_t>& symbols) {
  at::NoGradGuard no_grad;
  Runner runner(symbols);
  for (size_t i = 0; i < inputs.size(); ++i) {
    runner.values[graph.inputs.at(i)] = inputs[i];
  }
  for (const auto& node : graph.block().nodes) run_node(*node, runner);
  JointResult result;
  for (const Arg& output : graph.outputs) {
    result.outputs.push_back(runner.tensor(output));
  }
  for (const auto& mutation : graph.mutations) {
    result.mutated.push_back(runner.values.at(mutation.value));
  }
  return result;
}

}  // namespace framejit::graph::testing
