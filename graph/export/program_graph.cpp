#include "graph/export/program_graph.h"

#include <map>
#include <unordered_map>
#include <unordered_set>

#include "graph/fx/objects.h"
#include "graph/ir/python_args.h"

namespace framejit::graph {

namespace {

using fx::checked;
using fx::text_object;

Ref attribute(PyObject* object, const char* name) {
  return checked(PyObject_GetAttrString(object, name));
}

Ref imported(const char* module, const char* name) {
  Ref loaded = checked(PyImport_ImportModule(module));
  return attribute(loaded.get(), name);
}

// How a number is computed in a program, by operator.
struct NumberRow {
  ExprOp op;
  const char* module;
  const char* function;
};
constexpr NumberRow kNumbers[] = {
    {ExprOp::kAdd, "operator", "add"},
    {ExprOp::kMul, "operator", "mul"},
    {ExprOp::kFloorDiv, "operator", "floordiv"},
    {ExprOp::kMod, "operator", "mod"},
    {ExprOp::kNeg, "operator", "neg"},
    {ExprOp::kMin, "torch", "sym_min"},
    {ExprOp::kMax, "torch", "sym_max"},
    {ExprOp::kEq, "operator", "eq"},
    {ExprOp::kNe, "operator", "ne"},
    {ExprOp::kLt, "operator", "lt"},
    {ExprOp::kLe, "operator", "le"},
    {ExprOp::kNot, "torch", "sym_not"},
    {ExprOp::kFromInt, "torch", "sym_float"},
    {ExprOp::kFloatAdd, "operator", "add"},
    {ExprOp::kFloatSub, "operator", "sub"},
    {ExprOp::kFloatMul, "operator", "mul"},
    {ExprOp::kFloatDiv, "operator", "truediv"},
    {ExprOp::kFloatFloorDiv, "operator", "floordiv"},
    {ExprOp::kFloatMod, "operator", "mod"},
    {ExprOp::kFloatNeg, "operator", "neg"},
    {ExprOp::kFloatPow, "operator", "pow"},
};

Break cannot(const std::string& what, const Span& span = {}) {
  return Break{BreakReason::kBackendFailed,
               "an exported program cannot have " + what, span};
}

bool same_numbers(const Arg& arg, const c10::IValue& value) {
  if (value.isNone()) return arg.is<Arg::None>();
  if (value.isBool())
    return arg.is<bool>() && arg.get<bool>() == value.toBool();
  if (value.isInt())
    return arg.is<int64_t>() && arg.get<int64_t>() == value.toInt();
  if (value.isDouble())
    return arg.is<double>() && arg.get<double>() == value.toDouble();
  if (value.isString())
    return arg.is<std::string>() &&
           arg.get<std::string>() == value.toStringRef();
  if (!value.isList() || !arg.is<Arg::List>()) return false;
  const auto& items = arg.get<Arg::List>().items;
  const auto& values = value.toListRef();
  if (items.size() != values.size()) return false;
  for (size_t i = 0; i < items.size(); ++i)
    if (!same_numbers(items[i], values[i])) return false;
  return true;
}

// What need not be written. (A dtype that is an int in the schema stays.)
bool is_default(const Arg& arg, const c10::Argument& argument) {
  return argument.default_value() &&
         same_numbers(arg, *argument.default_value());
}

class Writer {
 public:
  Writer(const Graph& graph, PyObject* fx_graph,
         const std::vector<SymbolPlace>& symbols)
      : graph_(graph), fx_(fx_graph), symbols_(symbols) {
    call_function_ = attribute(fx_, "call_function");
    getitem_ = imported("operator", "getitem");
    ops_ = imported("torch", "ops");
    for (const Graph::Mutation& mutation : graph.mutations)
      written_values_.insert(mutation.value);
  }

  std::vector<WrittenNode> run(const std::vector<ProgramInput>& inputs,
                               const std::vector<ProgramOutput>& outputs) {
    for (const ProgramInput& input : inputs) placeholder(input);
    size_t constant = 0;
    for (const auto& node : graph_.block().nodes) {
      if (node->op == Opcode::kGetAttr) {
        values_[node->outputs.at(0).get()] = constants_.at(constant++);
      } else if (node->op == Opcode::kCallFunction) {
        call(*node);
      } else if (node->op != Opcode::kPlaceholder &&
                 node->op != Opcode::kOutput) {
        throw cannot(node->target_name(), node->span);
      }
    }
    output(outputs);
    return std::move(written_);
  }

 private:
  void placeholder(const ProgramInput& input) {
    Ref node = checked(
        PyObject_CallMethod(fx_, "placeholder", "(s)", input.name.c_str()));
    placeholders_.push_back(node);
    if (input.constant >= 0) constants_[input.constant] = node;
    if (input.input >= 0) values_[graph_.inputs.at(input.input)] = node;
  }

  Ref call_function(PyObject* target, const Ref& args, PyObject* kwargs) {
    return checked(PyObject_CallFunctionObjArgs(call_function_.get(), target,
                                                args.get(), kwargs, nullptr));
  }

  // ---- numbers

  Ref note_number(Ref node, const Expr& expr) {
    written_.push_back({node, nullptr, {}, false, expr});
    return node;
  }

  Ref symbol(const Expr& expr) {
    const int index = expr.symbol_index();
    if (auto known = numbers_.find(expr.str()); known != numbers_.end())
      return known->second;
    SymbolPlace place;
    if (static_cast<size_t>(index) < symbols_.size()) place = symbols_[index];
    using Kind = SymbolPlace::Kind;
    if (place.kind == Kind::kNowhere)
      throw cannot("the number " + expr.str() + ", which is of no input");
    PyObject* from = placeholders_.at(place.placeholder).get();
    Ref node;
    if (place.kind == Kind::kValue) {
      node = Ref::borrow(from);
    } else if (place.kind == Kind::kOffset) {
      node = call_function(overload("aten.sym_storage_offset.default").get(),
                           checked(PyTuple_Pack(1, from)), nullptr);
    } else {
      Ref dim = checked(PyLong_FromLong(place.dim));
      node = call_function(
          overload(place.kind == Kind::kSize ? "aten.sym_size.int"
                                             : "aten.sym_stride.int")
              .get(),
          checked(PyTuple_Pack(2, from, dim.get())), nullptr);
    }
    if (place.kind != Kind::kValue) note_number(node, expr);
    return numbers_[expr.str()] = node;
  }

  // (What only wants another node is computed once.)
  Ref number(const Expr& expr) {
    if (expr.is_const()) return checked(PyLong_FromLongLong(expr.constant()));
    if (expr.is_float_const()) return checked(PyFloat_FromDouble(expr.real()));
    if (expr.is_leaf()) return symbol(expr);
    if (auto known = numbers_.find(expr.str()); known != numbers_.end())
      return known->second;
    const NumberRow* row = nullptr;
    for (const NumberRow& candidate : kNumbers)
      if (candidate.op == expr.op()) row = &candidate;
    if (!row) throw cannot("the number " + expr.str());
    Ref function = imported(row->module, row->function);
    const auto& operands = expr.operands();
    Ref result = number(operands[0]);
    Expr so_far = operands[0];
    if (operands.size() == 1) {
      result = note_number(
          call_function(function.get(), checked(PyTuple_Pack(1, result.get())),
                        nullptr),
          expr);
    }
    for (size_t i = 1; i < operands.size(); ++i) {
      Ref next = number(operands[i]);
      so_far = i + 1 == operands.size()
                   ? expr
                   : Expr::make(expr.op(), {so_far, operands[i]});
      result = note_number(
          call_function(function.get(),
                        checked(PyTuple_Pack(2, result.get(), next.get())),
                        nullptr),
          so_far);
    }
    return numbers_[expr.str()] = result;
  }

  // ---- operators

  Ref convert(const Arg& arg) {
    Ref result = to_python(
        arg,
        [&](Value* value) -> PyObject* {
          if (value->kind == Value::Kind::kInt) {
            kept_.push_back(number(value->expr));
            return kept_.back().get();
          }
          auto found = values_.find(value);
          FJ_CHECK(found != values_.end(), "a value without a node");
          return found->second.get();
        },
        ExprToPython([&](const Expr& expr) { return number(expr); }));
    if (!result) throw fx::Raised{};
    return result;
  }

  // torch.ops.aten.mul.Tensor for "aten.mul.Tensor".
  Ref overload(const std::string& name) {
    Ref& known = overloads_[name];
    if (known) return known;
    Ref object = ops_;
    size_t start = 0;
    while (start <= name.size()) {
      size_t dot = name.find('.', start);
      if (dot == std::string::npos) dot = name.size();
      object = attribute(object.get(), name.substr(start, dot - start).c_str());
      start = dot + 1;
    }
    return known = object;
  }

  void call(const Node& node) {
    if (!node.aten) throw cannot(node.target_name(), node.span);
    const auto& schema = node.aten->schema().arguments();
    size_t positional = 0;
    while (positional < schema.size() && !schema[positional].kwarg_only())
      ++positional;
    size_t given = positional;
    while (given > 0 && is_default(node.args[given - 1], schema[given - 1]))
      --given;
    Ref args = checked(PyTuple_New(static_cast<Py_ssize_t>(given)));
    for (size_t i = 0; i < given; ++i)
      PyTuple_SET_ITEM(args.get(), i, convert(node.args[i]).release());
    Ref kwargs = checked(PyDict_New());
    for (size_t i = positional; i < schema.size(); ++i) {
      if (is_default(node.args[i], schema[i])) continue;
      Ref value = convert(node.args[i]);
      checked(PyDict_SetItemString(kwargs.get(), schema[i].name().c_str(),
                                   value.get()));
    }
    // Named as torch.export does: by the operator, not by its overload.
    std::string name = node.aten->schema().name();
    name.erase(0, name.find("::") + 2);
    bind(node, checked(PyObject_CallMethod(
                   fx_, "create_node", "(sOOOs)", "call_function",
                   overload(node.target_name()).get(), args.get(), kwargs.get(),
                   name.c_str())));
  }

  void bind(const Node& node, const Ref& made) {
    WrittenNode written{made, &node, {}, false, {}};
    for (const auto& value : node.outputs)
      written.values.push_back(value.get());
    written.is_list = node.outputs_are_list || node.outputs.size() > 1;
    const bool several = written.is_list;
    written_.push_back(std::move(written));
    if (!several) {
      if (!node.outputs.empty()) values_[node.outputs[0].get()] = made;
      return;
    }
    for (const auto& value : node.outputs) {
      if (value->users.empty() && !written_values_.contains(value.get()))
        continue;
      Ref index = checked(PyLong_FromLong(value->index));
      Ref item = call_function(
          getitem_.get(), checked(PyTuple_Pack(2, made.get(), index.get())),
          nullptr);
      written_.push_back({item, &node, {value.get()}, false, {}});
      values_[value.get()] = item;
    }
  }

  void output(const std::vector<ProgramOutput>& outputs) {
    Ref tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
    using Kind = ProgramOutput::Kind;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ProgramOutput& output = outputs[i];
      Ref item;
      switch (output.kind) {
        case Kind::kOutput:
          item = convert(graph_.outputs.at(output.index));
          break;
        case Kind::kMutation:
          item = convert(Arg(graph_.mutations.at(output.index).value));
          break;
        case Kind::kPlaceholder:
          item = placeholders_.at(output.index);
          break;
        case Kind::kNumber:
          item = number(output.number);
          break;
        case Kind::kObject:
          item = output.object;
          break;
      }
      PyTuple_SET_ITEM(tuple.get(), i, item.release());
    }
    checked(PyObject_CallMethod(fx_, "output", "(O)", tuple.get()));
  }

  const Graph& graph_;
  PyObject* fx_;
  const std::vector<SymbolPlace>& symbols_;
  Ref call_function_, getitem_, ops_;
  std::vector<Ref> placeholders_;
  std::map<size_t, Ref> constants_;
  std::unordered_map<const Value*, Ref> values_;
  std::map<std::string, Ref> numbers_;
  std::map<std::string, Ref> overloads_;
  std::vector<Ref> kept_;
  std::unordered_set<const Value*> written_values_;
  std::vector<WrittenNode> written_;
};

}  // namespace

std::vector<Ref> constants_of(const Graph& graph) {
  std::vector<Ref> constants;
  for (const auto& node : graph.block().nodes)
    if (node->op == Opcode::kGetAttr)
      constants.push_back(node->args.at(0).get<Ref>());
  return constants;
}

std::vector<WrittenNode> write_program(
    const Graph& graph, PyObject* fx_graph,
    const std::vector<ProgramInput>& inputs,
    const std::vector<SymbolPlace>& symbols,
    const std::vector<ProgramOutput>& outputs) {
  return Writer(graph, fx_graph, symbols).run(inputs, outputs);
}

}  // namespace framejit::graph
