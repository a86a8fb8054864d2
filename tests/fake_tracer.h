// A TensorTracer over the toy tensors of fake_tensor.h, for tests of guards and
// the interpreter on any CPython without torch.
//
//   framejit::fake::install();                 // once per process
//   run Python: import fake; x = fake.tensor([2, 3], requires_grad=True)
//   FakeTracer tracer;
//   auto outcome = bytecode::capture(request, tracer);
//   auto* graph = static_cast<FakeGraph*>(outcome.value().graph.get());
//   std::vector<Ref> outputs;
//   graph->run(objects, symbols, &outputs);    // gathered inputs and symbols
//                                              // (evaluate() fills both)
// graph->str() prints one line a node: "%2 = mul(%0, 2.0)". Python side:
// fake.add/mul/cos/mean/sum/matmul/reshape/where/... as functions and methods,
// operators, x.shape/size()/ndim/grad/requires_grad, x.item() (a break),
// bool(x) (a break), fake.is_grad_enabled / set_grad_enabled / no_grad (thread
// state), fake.is_compiling (constant true), fake.checkpoint and fake.region
// (sub-blocks), fake.mystery (unknown callee), fake.Parameter,
// fake.SubclassedTensor (unsupported). A dynamic dim gives fake.SymInt values.
// Classes with __fake_function__, and modes, override operations.
#pragma once

#include "fake_tensor.h"
#include "frame_hook/dispatch.h"

namespace framejit::fake {

// Module `fake` in sys.modules and the tensor layout. Safe to call again.
void install();

struct NodeArgument {
  enum class Kind { kNode, kObject, kExpr, kTuple, kList } kind;
  int node = -1;
  Ref object;
  Expr expr;
  std::vector<NodeArgument> items;
};

struct FakeNode {
  int input = -1;  // gather index of an input node
  Ref callable;
  std::string name;
  std::vector<NodeArgument> args;
  Span span;
};

class FakeGraph : public ForeignGraph {
 public:
  size_t num_operations() const override;
  std::string str() const override;
  // Runs on real tensors; false: a Python error is set. Inputs are written only
  // after every node ran.
  bool run(PyObject* const* objects, const int64_t* symbols,
           std::vector<Ref>* outputs) const;

  std::vector<FakeNode> nodes;
  std::vector<NodeArgument> outputs;
  std::vector<int> mutated;  // input nodes written in place
};

// An Executor over a FakeGraph (kept alive by the caller).
std::unique_ptr<Executor> make_executor(const FakeGraph& graph);

class FakeTracer : public TensorTracer {
 public:
  FakeTracer();
  ~FakeTracer() override;

  std::string refusal() override;
  Status begin(GuardSet* guards) override;
  Result<std::unique_ptr<ForeignGraph>> finish(
      const std::vector<PyObject*>& outputs) override;
  void abandon() override;
  std::vector<std::pair<Ref, std::vector<Ref>>> state_now() override;
  ObjectClass classify(PyObject* object) override;
  Result<Ref> stand_in(PyObject* tensor, const Source* source,
                       DynamicDims dynamic) override;
  PyObject* real_of(PyObject* stand_in) override;
  const Source* source_of(PyObject* stand_in) override;
  CalleeClass classify_callee(PyObject* callable) override;
  Result<Ref> call(PyObject* callable, const std::vector<PyObject*>& args,
                   PyObject* kwnames) override;
  Result<Ref> get_attribute(PyObject* stand_in, PyObject* name) override;
  Result<Ref> get_by_descriptor(PyObject* stand_in,
                                PyObject* descriptor) override {
    return get_attribute(stand_in, PyDescr_NAME(descriptor));
  }
  Result<Ref> set_attribute(PyObject* stand_in, PyObject* name,
                            PyObject* value) override;
  Result<bool> is_instance(PyObject* stand_in, PyObject* type) override;
  Result<Ref> operate(PyObject* function,
                      const std::vector<PyObject*>& operands) override;
  bool is_overloaded(PyObject* object) override { return overrides(object); }
  Result<std::optional<FunctionOverride>> find_override(
      PyObject* callable, const std::vector<PyObject*>& args,
      PyObject* kwnames) override;
  Result<Ref> make_symbolic(const Expr& expr) override;
  std::optional<Expr> expr_of(PyObject* symbolic) override;
  PyObject* symbolic_type(PyObject* symbolic) override;
  Result<Ref> concretise(PyObject* symbolic) override;
  std::optional<Break> pending_break() override;
  void set_location(const Span& span) override { location_ = span; }

  // Hands a result to C code; a break becomes pending and an error is set.
  PyObject* to_c(Result<Ref> result);
  bool running() const { return graph_ != nullptr; }

 private:
  struct Sized {  // a tensor argument or a number, for shape rules
    std::vector<Expr> sizes;
  };
  Break broke(BreakReason reason, std::string detail) const;
  void end();
  Ref make_sym(const Expr& expr, PyTypeObject* stands_for);
  int64_t hint(const Expr& expr) const;
  bool same_size(const Expr& a, const Expr& b);  // guards what it answers
  Result<NodeArgument> argument(PyObject* object);
  Result<Ref> record(const Operation& operation, PyObject* callable,
                     const std::vector<PyObject*>& bound);
  Result<std::vector<Expr>> shape_of(const Operation& operation,
                                     const std::vector<PyObject*>& bound);
  Result<std::vector<Expr>> size_list(PyObject* object);
  Result<Ref> sym_operate(const std::string& name, PyObject* function,
                          const std::vector<PyObject*>& operands);
  Result<Ref> record_state(PyObject* callable,
                           const std::vector<PyObject*>& args);

  GuardSet* guards_ = nullptr;
  std::unique_ptr<FakeGraph> graph_;
  std::vector<std::pair<PyObject*, const Source*>> inputs_;  // real tensors
  std::vector<Ref> stand_ins_of_inputs_;
  uint64_t capture_ = 0;
  bool grad_at_start_ = true;
  std::optional<Break> pending_;
  Span location_;
};

}  // namespace framejit::fake
