// The graph of a fake capture: as text, and run on real tensors.
#include <algorithm>

#include "fake_tracer.h"
#include "guards/set/number_expr.h"
#include "guards/set/object_text.h"

namespace framejit::fake {
namespace {

std::string argument_text(const NodeArgument& argument) {
  switch (argument.kind) {
    case NodeArgument::Kind::kNode:
      return "%" + std::to_string(argument.node);
    case NodeArgument::Kind::kObject:
      return object_text(argument.object.get());
    case NodeArgument::Kind::kExpr:
      return argument.expr.str();
    default:
      break;
  }
  std::string text;
  for (const NodeArgument& item : argument.items)
    text += (text.empty() ? "" : ", ") + argument_text(item);
  return argument.kind == NodeArgument::Kind::kList ? "[" + text + "]"
                                                    : "(" + text + ")";
}

}  // namespace

size_t FakeGraph::num_operations() const {
  return static_cast<size_t>(
      std::count_if(nodes.begin(), nodes.end(),
                    [](const FakeNode& node) { return node.input < 0; }));
}

std::string FakeGraph::str() const {
  std::string text;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const FakeNode& node = nodes[i];
    text += "%" + std::to_string(i) + " = ";
    if (node.input >= 0) {
      text += "input " + std::to_string(node.input) + "\n";
      continue;
    }
    std::string args;
    for (const NodeArgument& argument : node.args)
      args += (args.empty() ? "" : ", ") + argument_text(argument);
    text += node.name + "(" + args + ")\n";
  }
  std::string results;
  for (const NodeArgument& output : outputs)
    results += (results.empty() ? "" : ", ") + argument_text(output);
  return text + "return " + results + "\n";
}

namespace {

Ref argument_value(const NodeArgument& argument, const std::vector<Ref>& values,
                   const int64_t* symbols) {
  switch (argument.kind) {
    case NodeArgument::Kind::kNode:
      return values[argument.node];
    case NodeArgument::Kind::kObject:
      return argument.object;
    case NodeArgument::Kind::kExpr:
      return Ref::steal(number_object(argument.expr, symbols));
    default:
      break;
  }
  Ref tuple = Ref::steal(PyTuple_New(argument.items.size()));
  for (size_t i = 0; tuple && i < argument.items.size(); ++i) {
    Ref item = argument_value(argument.items[i], values, symbols);
    if (!item) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), i, item.release());
  }
  if (argument.kind == NodeArgument::Kind::kTuple) return tuple;
  return Ref::steal(PySequence_List(tuple.get()));
}

Ref call_method(PyObject* tensor, const char* name, PyObject* argument) {
  return Ref::steal(argument ? PyObject_CallMethod(tensor, name, "O", argument)
                             : PyObject_CallMethod(tensor, name, nullptr));
}

}  // namespace

bool FakeGraph::run(PyObject* const* objects, const int64_t* symbols,
                    std::vector<Ref>* results) const {
  bool grad_before = g_grad_enabled;
  struct Restore {
    bool value;
    ~Restore() { g_grad_enabled = value; }
  } restore{grad_before};
  std::vector<Ref> values;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const FakeNode& node = nodes[i];
    if (node.input >= 0) {
      bool written = std::find(mutated.begin(), mutated.end(),
                               static_cast<int>(i)) != mutated.end();
      values.push_back(written
                           ? call_method(objects[node.input], "clone", nullptr)
                           : Ref::borrow(objects[node.input]));
    } else {
      std::vector<Ref> args;
      std::vector<PyObject*> raw;
      for (const NodeArgument& argument : node.args) {
        args.push_back(argument_value(argument, values, symbols));
        if (!args.back()) return false;
        raw.push_back(args.back().get());
      }
      values.push_back(Ref::steal(PyObject_Vectorcall(
          node.callable.get(), raw.data(), raw.size(), nullptr)));
    }
    if (!values.back()) return false;
  }
  // Commit.
  g_grad_enabled = grad_before;
  for (int input : mutated) {
    PyObject* target = objects[nodes[input].input];
    if (!call_method(target, "copy_", values[input].get())) return false;
    values[input] = Ref::borrow(target);
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    // An in-place node's value is its (now committed) target.
    if (nodes[i].name.ends_with("_") && !nodes[i].args.empty() &&
        nodes[i].args[0].kind == NodeArgument::Kind::kNode)
      values[i] = values[nodes[i].args[0].node];
  }
  for (const NodeArgument& output : outputs) {
    results->push_back(argument_value(output, values, symbols));
    if (!results->back()) return false;
  }
  return true;
}

namespace {

class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(const FakeGraph& graph) : graph_(graph) {}
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override {
    std::vector<Ref> results;
    if (!graph_.run(inputs, symbols, &results))
      return RunStatus::kFailedBeforeCommit;
    for (size_t i = 0; i < results.size(); ++i)
      outputs[i] = results[i].release();
    return RunStatus::kOk;
  }

 private:
  const FakeGraph& graph_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(const FakeGraph& graph) {
  return std::make_unique<FakeExecutor>(graph);
}

}  // namespace framejit::fake
