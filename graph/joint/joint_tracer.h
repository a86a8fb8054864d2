// JointTracer: the TraceSession of a joint trace.
//
// Whatever reaches the Fake key becomes an ATen node of the joint graph. By
// then functionalization has removed mutation and aliasing, and autograd is
// above: the nodes of the backward are those recorded while the engine runs.
#pragma once

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {

struct OpFacts;

class JointTracer final : public TraceSession {
 public:
  explicit JointTracer(GuardSet* guards);
  ~JointTracer() override;

  // A placeholder like a torch-level input; the tensor is the functional
  // wrapper to compute with.
  at::Tensor add_tensor_input(std::string name, const TensorMeta& meta,
                              bool requires_grad);
  Value* add_symbol_input(std::string name, const Expr& symbol);
  // The value a (functional) tensor holds now; null: not of this trace.
  Value* value_of(const at::Tensor& tensor);
  // Nodes recorded from now on belong to the backward.
  void start_backward() {
    in_backward_ = true;
    set_hides_floats(makes_floats());
  }
  // The order of creation of an autograd node of this trace.
  int64_t number_of(const torch::autograd::Node& node) const {
    return static_cast<int64_t>(node.sequence_nr() - first_autograd_node_);
  }
  // The number that the next one gets.
  int64_t next_number() const {
    return static_cast<int64_t>(at::sequence_number::peek() -
                                first_autograd_node_);
  }
  // bernoulli.p stands for bernoulli_ unless the program calls bernoulli.
  void set_calls_bernoulli(bool calls) { calls_bernoulli_ = calls; }
  // A number for a symbolic float in the next call, of an operator that hands
  // it on (float_args.h): where it arrives, the float is meant.
  double float_token(const Expr& real);
  void clear_float_tokens() { float_tokens_.clear(); }
  // The node of the captured graph that runs from now on; null: none.
  void set_source(const Node* node) {
    source_ = node;
    span_ = node ? node->span : Span();
    if (!in_backward_)
      lines_.emplace_back(at::sequence_number::peek() - first_autograd_node_,
                          node);
    if (guards()) guards()->set_span(span_);
  }
  const Node* source() const { return source_; }
  // Nodes of the backward are from the line whose derivative they are. (Not
  // known while they are recorded: the engine runs without the GIL.)
  void find_lines_of_derivatives();
  // Null where no derivative was why the trace came to an end.
  const Node* source_of_broken_derivative() const;
  std::unique_ptr<Graph> take_graph() { return std::move(graph_); }
  Graph& graph() { return *graph_; }
  // Was it recorded where grad mode was off?
  bool is_without_grad(const Node* node) const {
    return without_grad_.contains(node);
  }

  // ---- TraceSession
  void record(const c10::OperatorHandle& op,
              c10::ArrayRef<c10::IValue> arguments,
              c10::ArrayRef<c10::IValue> results) override;
  bool rewrite(const c10::OperatorHandle& op,
               std::vector<c10::IValue>* stack) override;
  Result<at::Tensor> lift(const at::Tensor& real, bool fresh) override;
  // A value that changes is an argument of each call: the torch level knows it.
  void before_pin(const Expr& real) override;

 private:
  Arg to_arg(const c10::IValue& value, const c10::Argument& argument);
  Arg tensor_arg(const at::Tensor& tensor);
  Arg float_arg(const c10::SymNode& node);
  Arg number_arg(const at::Tensor& tensor);
  void add_results(Node* node, const c10::IValue& result);
  void name_value(Value* value, const at::Tensor& tensor);
  bool rewrite_bernoulli(const c10::OperatorHandle& op,
                         std::vector<c10::IValue>* stack);
  void rewrite_batch_norm(std::vector<c10::IValue>* stack);
  void rewrite_cudnn_batch_norm(std::vector<c10::IValue>* stack);
  void check_formula(const std::string& name, const c10::IValue& matrix);
  void rewrite_custom(PyObject* function, const c10::OperatorHandle& op,
                      std::vector<c10::IValue>* stack);
  void replace_input(const at::Tensor& old_value, const at::Tensor& new_value);
  void mark_backward(Node* node) const;
  const Node* source_of(int64_t autograd_node) const;  // null: unknown

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::unordered_map<int, Value*> values_;  // by value id
  // What was traced. Formulas of gradients hold on to the sizes of a tensor
  // (fft_r2c_backward), which of a wrapper are those of what it wraps at the
  // time.
  std::vector<at::Tensor> alive_;
  std::vector<at::Tensor> inputs_;  // functional wrappers
  // Lifted tensors by identity; they are kept alive.
  std::vector<std::pair<at::Tensor, at::Tensor>> constants_;
  const Node* source_ = nullptr;
  Span span_;  // of the source
  // Lines of the forward, by the first autograd node that each may have made.
  std::vector<std::pair<int64_t, const Node*>> lines_;
  bool in_backward_ = false;
  bool has_gradients_ = false;  // an input requires grad
  int64_t broken_derivative_ = -1;
  const uint64_t first_autograd_node_ = at::sequence_number::peek();
  bool calls_bernoulli_ = false;
  std::vector<std::pair<double, Expr>> float_tokens_;
  std::unordered_set<const Node*> without_grad_;
};

}  // namespace framejit::graph
