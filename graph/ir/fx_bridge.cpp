#include "graph/ir/fx_bridge.h"

#include <c10/core/SymInt.h>

#include <cctype>
#include <map>
#include <unordered_map>

#include "graph/ir/python_args.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {

namespace {

// A failed C-API call: the error is set.
struct Raised {};

Ref checked(PyObject* object) {
  if (!object) throw Raised{};
  return Ref::steal(object);
}

Ref attribute(PyObject* object, const char* name) {
  return checked(PyObject_GetAttrString(object, name));
}

Ref attribute(const Ref& object, const char* name) {
  return attribute(object.get(), name);
}

Ref imported(const char* module, const char* name) {
  Ref loaded = checked(PyImport_ImportModule(module));
  return attribute(loaded, name);
}

Ref text_object(const std::string& text) {
  return checked(PyUnicode_FromStringAndSize(text.data(), text.size()));
}

std::string text_of(const Ref& object) {
  const char* text = PyUnicode_AsUTF8(object.get());
  if (!text) throw Raised{};
  return text;
}

Break cannot(const std::string& what) {
  return Break{
      BreakReason::kBackendFailed, "torch.fx cannot express " + what, {}};
}

// ---- our graph -> fx

class ToFx {
 public:
  explicit ToFx(const Graph& graph) : graph_(graph) {}

  Result<Ref> run(PyObject* root) {
    fx_ = checked(PyObject_CallNoArgs(imported("torch.fx", "Graph").get()));
    Ref module = Ref::borrow(root);
    if (!module)
      module =
          checked(PyObject_CallNoArgs(imported("torch.nn", "Module").get()));
    for (Value* input : graph_.inputs) placeholder(input);
    for (const auto& node : graph_.block().nodes) {
      if (node->op == Opcode::kPlaceholder || node->op == Opcode::kOutput)
        continue;
      if (node->op == Opcode::kGetAttr) {
        get_attr(*node, module);
      } else {
        call(*node);
      }
    }
    Arg::Tuple outputs{graph_.outputs};
    Ref tuple = convert(Arg(std::move(outputs)));
    checked(PyObject_CallMethod(fx_.get(), "output", "(O)", tuple.get()));
    Ref type = imported("torch.fx", "GraphModule");
    return checked(PyObject_CallFunctionObjArgs(type.get(), module.get(),
                                                fx_.get(), nullptr));
  }

 private:
  // A parameter name from a source text: "self.layers[0].weight".
  std::string identifier(const std::string& name) {
    std::string out;
    for (char c : name) {
      bool word = std::isalnum(static_cast<unsigned char>(c));
      if (word)
        out += c;
      else if (!out.empty() && out.back() != '_')
        out += '_';
    }
    while (!out.empty() && out.back() == '_') out.pop_back();
    if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0])))
      out = "arg_" + out;
    Ref keyword = imported("keyword", "iskeyword");
    Ref answer = checked(PyObject_CallFunctionObjArgs(
        keyword.get(), text_object(out).get(), nullptr));
    if (answer.get() == Py_True || out == "self") out += "_";
    int count = names_[out]++;
    return count ? out + "_" + std::to_string(count) : out;
  }

  void placeholder(Value* input) {
    Ref node = checked(PyObject_CallMethod(fx_.get(), "placeholder", "(s)",
                                           identifier(input->name).c_str()));
    values_[input] = node;
    if (input->kind == Value::Kind::kInt &&
        (input->expr.is_symbol() || input->expr.is_float_symbol()))
      symbols_[input->expr.symbol_index()] = node;
  }

  Ref call_function(PyObject* target, const Ref& args, const Ref& kwargs) {
    Ref method = attribute(fx_, "call_function");
    return checked(PyObject_CallFunctionObjArgs(
        method.get(), target, args.get(), kwargs.get(), nullptr));
  }

  // sizes that depend on symbols are computed by nodes.
  Ref expression(const Expr& expr) {
    if (expr.is_const()) return checked(PyLong_FromLongLong(expr.constant()));
    if (expr.is_float_const()) return checked(PyFloat_FromDouble(expr.real()));
    if (expr.is_symbol() || expr.is_float_symbol()) {
      auto found = symbols_.find(expr.symbol_index());
      if (found == symbols_.end()) throw cannot("a symbol without an input");
      return found->second;
    }
    auto known = expressions_.find(expr.str());
    if (known != expressions_.end()) return known->second;
    struct Row {
      ExprOp op;
      const char* module;
      const char* function;
    };
    static constexpr Row kRows[] = {
        {ExprOp::kAdd, "operator", "add"},
        {ExprOp::kMul, "operator", "mul"},
        {ExprOp::kFloorDiv, "operator", "floordiv"},
        {ExprOp::kMod, "operator", "mod"},
        {ExprOp::kNeg, "operator", "neg"},
        {ExprOp::kMin, "builtins", "min"},
        {ExprOp::kMax, "builtins", "max"},
        {ExprOp::kEq, "operator", "eq"},
        {ExprOp::kNe, "operator", "ne"},
        {ExprOp::kLt, "operator", "lt"},
        {ExprOp::kLe, "operator", "le"},
        {ExprOp::kNot, "operator", "not_"},
        {ExprOp::kFromInt, "builtins", "float"},
        {ExprOp::kFloatAdd, "operator", "add"},
        {ExprOp::kFloatSub, "operator", "sub"},
        {ExprOp::kFloatMul, "operator", "mul"},
        {ExprOp::kFloatDiv, "operator", "truediv"},
        {ExprOp::kFloatFloorDiv, "operator", "floordiv"},
        {ExprOp::kFloatMod, "operator", "mod"},
        {ExprOp::kFloatNeg, "operator", "neg"},
        {ExprOp::kFloatAbs, "operator", "abs"},
        {ExprOp::kFloatPow, "operator", "pow"},
    };
    const Row* row = nullptr;
    for (const Row& candidate : kRows)
      if (candidate.op == expr.op()) row = &candidate;
    if (!row) throw cannot("the expression " + expr.str());
    Ref function = imported(row->module, row->function);
    Ref kwargs = checked(PyDict_New());
    const auto& operands = expr.operands();
    Ref result = expression(operands[0]);
    if (operands.size() == 1) {
      Ref args = checked(PyTuple_Pack(1, result.get()));
      result = call_function(function.get(), args, kwargs);
    }
    for (size_t i = 1; i < operands.size(); ++i) {
      Ref next = expression(operands[i]);
      Ref args = checked(PyTuple_Pack(2, result.get(), next.get()));
      result = call_function(function.get(), args, kwargs);
    }
    expressions_[expr.str()] = result;
    return result;
  }

  Ref convert(const Arg& arg) {
    Ref result = to_python(
        arg,
        [&](Value* value) -> PyObject* {
          auto found = values_.find(value);
          FJ_CHECK(found != values_.end(), "a value without an fx node");
          return found->second.get();
        },
        ExprToPython([&](const Expr& expr) { return expression(expr); }));
    if (!result) throw Raised{};
    return result;
  }

  // torch.ops.aten.mul.Tensor for an ATen operator.
  static Ref overload_object(const Node& node) {
    std::string name = node.target_name();
    Ref object = imported("torch", "ops");
    size_t start = 0;
    while (start <= name.size()) {
      size_t dot = name.find('.', start);
      if (dot == std::string::npos) dot = name.size();
      object = attribute(object, name.substr(start, dot - start).c_str());
      start = dot + 1;
    }
    return object;
  }

  void call(const Node& node) {
    Ref args = convert(Arg(Arg::Tuple{node.args}));
    Ref kwargs = checked(PyDict_New());
    for (const auto& [name, arg] : node.kwargs) {
      Ref value = convert(arg);
      if (PyDict_SetItemString(kwargs.get(), name.c_str(), value.get()) < 0)
        throw Raised{};
    }
    Ref made;
    if (node.op == Opcode::kCallMethod) {
      Ref method = attribute(fx_, "call_method");
      made = checked(PyObject_CallFunctionObjArgs(
          method.get(), text_object(node.method).get(), args.get(),
          kwargs.get(), nullptr));
    } else if (node.aten) {
      made = call_aten(node, args);
    } else {
      if (!node.callable) throw cannot(node.target_name());
      if (node.op == Opcode::kStateEnter) keep_calls_of(node.callable.get());
      made = call_function(node.callable.get(), args, kwargs);
    }
    bind(node, made);
  }

  // fx must not drop a call whose result nobody reads.
  void keep_calls_of(PyObject* callable) {
    Ref mark = imported("torch.fx.node", "has_side_effect");
    checked(PyObject_CallOneArg(mark.get(), callable));
  }

  // torch.ops overloads take keyword-only arguments by name.
  Ref call_aten(const Node& node, const Ref& args) {
    const auto& schema = node.aten->schema().arguments();
    Ref kwargs = checked(PyDict_New());
    size_t positional = 0;
    while (positional < schema.size() && !schema[positional].kwarg_only())
      ++positional;
    for (size_t i = positional; i < schema.size(); ++i) {
      PyObject* value = PyTuple_GET_ITEM(args.get(), i);
      if (value == Py_None) continue;
      if (PyDict_SetItemString(kwargs.get(), schema[i].name().c_str(), value) <
          0)
        throw Raised{};
    }
    Ref front = checked(PyTuple_GetSlice(args.get(), 0, positional));
    return call_function(overload_object(node).get(), front, kwargs);
  }

  void bind(const Node& node, const Ref& made) {
    bool several = node.outputs_are_list || node.outputs.size() > 1;
    if (!several) {
      if (!node.outputs.empty()) values_[node.outputs[0].get()] = made;
      return;
    }
    Ref getitem = imported("operator", "getitem");
    Ref kwargs = checked(PyDict_New());
    for (const auto& value : node.outputs) {
      if (value->users.empty()) continue;
      Ref index = checked(PyLong_FromLong(value->index));
      Ref args = checked(PyTuple_Pack(2, made.get(), index.get()));
      values_[value.get()] = call_function(getitem.get(), args, kwargs);
    }
  }

  void get_attr(const Node& node, const Ref& module) {
    std::string name = "_constant" + std::to_string(num_constants_++);
    if (PyObject_SetAttrString(module.get(), name.c_str(),
                               node.args[0].get<Ref>().get()) < 0)
      throw Raised{};
    values_[node.outputs[0].get()] = checked(
        PyObject_CallMethod(fx_.get(), "get_attr", "(s)", name.c_str()));
  }

  const Graph& graph_;
  Ref fx_;
  std::unordered_map<const Value*, Ref> values_;
  std::map<int, Ref> symbols_;
  std::map<std::string, Ref> expressions_;
  std::map<std::string, int> names_;
  int num_constants_ = 0;
};

// ---- fx -> our graph

class FromFx {
 public:
  Result<std::unique_ptr<Graph>> run(PyObject* graph_module) {
    module_ = graph_module;
    graph_ = std::make_unique<Graph>();
    Ref fx = attribute(graph_module, "graph");
    Ref list = checked(PySequence_List(attribute(fx, "nodes").get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
      FJ_CHECK_OK(node(PyList_GET_ITEM(list.get(), i)));
    return std::move(graph_);
  }

 private:
  Status node(PyObject* fx_node) {
    std::string op = text_of(attribute(fx_node, "op"));
    Ref target = attribute(fx_node, "target");
    if (op == "placeholder") {
      Value* value = graph_->add_input(text_of(target), TensorMeta{});
      describe(value, fx_node);
      values_[fx_node] = value;
      return ok_status();
    }
    auto made = std::make_unique<Node>();
    FJ_CHECK_OK(arguments(*made, fx_node));
    if (op == "output") {
      FJ_CHECK(made->args.size() == 1, "an fx output has one argument");
      std::vector<Arg> outputs{made->args[0]};
      if (made->args[0].is<Arg::Tuple>())
        outputs = made->args[0].get<Arg::Tuple>().items;
      if (made->args[0].is<Arg::List>())
        outputs = made->args[0].get<Arg::List>().items;
      graph_->set_outputs(std::move(outputs));
      return ok_status();
    }
    if (op == "call_method") {
      made->op = Opcode::kCallMethod;
      made->method = text_of(target);
    } else if (op == "call_function") {
      made->callable = target;
    } else if (op == "call_module") {
      made->op = Opcode::kCallModule;
      made->method = text_of(target);
      made->callable = checked(
          PyObject_CallMethod(module_, "get_submodule", "(O)", target.get()));
    } else {
      made->op = Opcode::kGetAttr;
      made->args = {Arg(followed(text_of(target)))};
    }
    Node* placed = graph_->append(std::move(made));
    Value* value = graph_->add_output(placed);
    describe(value, fx_node);
    values_[fx_node] = value;
    return ok_status();
  }

  Status arguments(Node& node, PyObject* fx_node) {
    auto tensor = [](PyObject*) -> Result<Value*> {
      return cannot("a tensor constant as an argument");
    };
    auto other = [&](PyObject* object) -> Value* {
      auto found = values_.find(object);
      return found == values_.end() ? nullptr : found->second;
    };
    Ref args = attribute(fx_node, "args");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i) {
      FJ_TRY(Arg arg, to_arg(PyTuple_GET_ITEM(args.get(), i), tensor, other));
      node.args.push_back(std::move(arg));
    }
    Ref kwargs = attribute(fx_node, "kwargs");
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(kwargs.get(), &position, &key, &item)) {
      FJ_TRY(Arg arg, to_arg(item, tensor, other));
      node.kwargs.emplace_back(text_of(Ref::borrow(key)), std::move(arg));
    }
    return ok_status();
  }

  Ref followed(const std::string& path) {
    Ref object = Ref::borrow(module_);
    size_t start = 0;
    while (start <= path.size()) {
      size_t dot = path.find('.', start);
      if (dot == std::string::npos) dot = path.size();
      object = attribute(object, path.substr(start, dot - start).c_str());
      start = dot + 1;
    }
    return object;
  }

  // meta["val"] or meta["example_value"], when it is a tensor of fixed size.
  void describe(Value* value, PyObject* fx_node) {
    value->kind = Value::Kind::kOther;
    Ref meta = attribute(fx_node, "meta");
    for (const char* key : {"val", "example_value"}) {
      PyObject* example = PyDict_GetItemString(meta.get(), key);
      if (!example || !is_tensor_object(example)) continue;
      const at::Tensor& tensor = unpack_tensor(example);
      if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) continue;
      value->kind = Value::Kind::kTensor;
      value->meta.dtype = tensor.scalar_type();
      value->meta.device = tensor.device();
      value->meta.requires_grad = tensor.requires_grad();
      for (int64_t size : tensor.sizes()) value->meta.sizes.emplace_back(size);
      for (int64_t stride : tensor.strides())
        value->meta.strides.emplace_back(stride);
      return;
    }
  }

  PyObject* module_ = nullptr;
  std::unique_ptr<Graph> graph_;
  std::unordered_map<PyObject*, Value*> values_;
};

template <class T, class F>
Result<T> caught(const F& f) {
  try {
    return f();
  } catch (const Raised&) {
    return Result<T>::raised();
  } catch (Break& brk) {
    return Result<T>(std::move(brk));
  } catch (const std::exception& error) {
    return Result<T>(cannot(error.what()));
  }
}

}  // namespace

Result<Ref> to_fx(const Graph& graph, PyObject* root) {
  return caught<Ref>([&] { return ToFx(graph).run(root); });
}

Result<std::unique_ptr<Graph>> from_fx(PyObject* graph_module) {
  return caught<std::unique_ptr<Graph>>(
      [&] { return FromFx().run(graph_module); });
}

}  // namespace framejit::graph
