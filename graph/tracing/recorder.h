// Recorder: the torch-level graph of one capture while it grows.
//
// A stand-in is known by its Python object; `Entry` says which graph Value it
// is and, for inputs, which real tensor and Source. Every stand-in is kept
// alive until the capture ends, so that addresses are not used twice. The
// recorder is also the TraceSession: operations that reach the Fake key outside
// call() are not part of any node, so they end the capture.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/ir/torch_graph.h"
#include "graph/ir/torch_level.h"
#include "graph/tensors/trace_tensor.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/late_state.h"
#include "graph/tracing/storage_map.h"
#include "graph/tracing/write_rules.h"

namespace framejit::graph {

class Recorder final : public TraceSession {
 public:
  // stack: asked at the first operation.
  Recorder(GuardSet* guards, const TensorTracer::Stack* stack,
           const TensorTracer::Receivers* receivers);
  ~Recorder() override;

  struct Entry {
    Value* value = nullptr;
    const Source* source = nullptr;  // null: computed
    Ref real;                        // the input tensor
    // After its sizes changed in place (unsqueeze_): the value with the new.
    Value* current = nullptr;
    int block = 0;  // 0: the graph itself
  };
  // Null: unknown tensor.
  Entry* find(PyObject* stand_in);
  // The stand-in made for a real tensor, or null.
  PyObject* stand_in_of(PyObject* real) const;
  void add_input(Ref stand_in, Ref real, const Source* source,
                 std::string name);

  // Runs `callable` on stand-ins and records it as one node. `method`: record
  // as a method call by this name (the descriptor is `callable`, self the first
  // argument). `run_with`: arguments that give a result of the same metadata,
  // where the real ones would have to be looked into; `run_instead`: a callable
  // that does.
  Result<Ref> record_call(PyObject* callable,
                          const std::vector<PyObject*>& given,
                          PyObject* kwnames, const char* method = nullptr,
                          const std::vector<PyObject*>* run_with = nullptr,
                          PyObject* run_instead = nullptr);
  // The joint stage is to leave this graph alone.
  void keep_torch_level(TorchLevel reason, const std::string& operation) {
    result_->torch_level_only =
        torch_level_text(reason, operation + " at " + line());
  }
  // The same for what is no operation but must happen in order (x.data = y): a
  // node in any case.
  Result<Ref> record_effect(PyObject* callable,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames, const char* method);
  // The program changes this tensor by other means than an operation.
  void note_written(PyObject* stand_in);
  // What torch.tensor(3).item() gives; empty: the value is not known.
  Result<Ref> constant_of(PyObject* stand_in);
  // .grad as written in this capture (tensor_writes.h).
  std::unordered_map<PyObject*, Ref> written_grads;
  // The next .grad that is written to this one comes of a backward().
  PyObject* accumulates = nullptr;
  // Runs it with tracing on but makes no node.
  Result<Ref> run_unrecorded(PyObject* callable,
                             const std::vector<PyObject*>& args,
                             PyObject* kwnames);
  // A thread state write: runs it natively (unless told not to), records it.
  Result<Ref> record_state_write(PyObject* callable,
                                 const std::vector<PyObject*>& args,
                                 bool run = true);

  // The same where the node counts though no operation reaches the Fake key.
  // Outputs that are known tensors get new values.
  Result<Ref> record_always(PyObject* callable,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames = nullptr,
                            const char* method = nullptr,
                            const std::vector<PyObject*>* run_with = nullptr,
                            PyObject* run_instead = nullptr);

  // ---- blocks: what a gradient function or the function of a torch.func
  // transform does is recorded apart, as a graph whose inputs are new stand-ins
  // like the tensors given, then the tensors of the outer graph it uses.
  struct Block {
    std::shared_ptr<TorchGraph> graph;
    std::vector<Ref> captured;
    bool switches_grad_mode = false;
  };
  struct BlockInput {
    PyObject* like;
    int64_t without_dim = -1;    // one sample of a batch: this dim is gone
    bool contiguous = false;     // else the strides are those of `like`
    bool requires_grad = false;  // it has no history in any case
  };
  enum class BlockKind : uint8_t {
    kBackward,   // a gradient function
    kBranch,     // runs like the code around it
    kLevel,      // a level of functorch that is not about gradients
    kGradLevel,  // one that is: grad, vjp
  };
  // inside: the thread state the block begins with.
  Result<std::vector<Ref>> begin_block(const std::vector<BlockInput>& inputs,
                                       const AmbientState& inside,
                                       BlockKind kind = BlockKind::kBackward);
  Result<Block> end_block(const std::vector<PyObject*>& outputs);
  bool in_block() const { return !blocks_.empty(); }
  // Within a gradient function? What it depends on of the thread's state.
  LateState* late_state();
  // Of a tensor. Of what a gradient function made, and of its gradient, some
  // depend on how the backward runs.
  Status check_late_attribute(const Entry& entry,
                              const std::string& name) const;
  // Within a torch.func transform?
  bool in_transform() const;
  // What tensor.requires_grad is within one: tensors that were made there know
  // of its own level only. Empty: outside, or a tensor from outside.
  Result<std::optional<bool>> requires_grad_in_transform(PyObject* stand_in);
  // Is the thread state another than the innermost block began with?
  bool block_changed_state() const;
  // Did an operation of the innermost block make the tensor's memory?
  bool block_owns(const at::Tensor& tensor) const;

  // Input stand-ins in order.
  const std::vector<PyObject*>& inputs() const { return inputs_; }

  // Ends the recording: outputs, unused inputs dropped, guards on storage.
  Result<std::unique_ptr<TorchGraph>> finish(
      const std::vector<PyObject*>& outputs);

  void set_span(const Span& span) { span_ = span; }
  const Span& span() const { return span_; }

  // ---- TraceSession
  Result<at::Tensor> lift(const at::Tensor& real, bool fresh) override;
  Status before(const c10::OperatorHandle& op) override;
  void note_random(c10::ArrayRef<c10::IValue> results);
  // A mode that an object keeps on while it lives was entered, or was left.
  void note_mode_entered() { ++modes_kept_; }
  void note_mode_left() { --modes_kept_; }
  void record(const c10::OperatorHandle& op,
              c10::ArrayRef<c10::IValue> arguments,
              c10::ArrayRef<c10::IValue> results) override;

 private:
  class CallScope;
  // named: what the program called, where another function runs in its place.
  Result<Ref> call_natively(PyObject* callable,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames, PyObject* named = nullptr);
  bool takes_floats() const;
  // The program's line, where what runs is a library's; else empty.
  Span caller() const;
  std::vector<Ref> modules() const;
  std::string line() const { return line_in_program(span_, caller()); }
  Result<Arg> argument(PyObject* object);
  Result<Arg> any_argument(PyObject* object);
  Result<Value*> value_at(PyObject* tensor, const Entry& entry, size_t level);
  int block_id(size_t level) const;
  TorchGraph& graph_at(size_t level);
  // problem: of a call in a gradient function; "" for none.
  Status allow_late(const std::string& problem) const;
  // Whether the result holds a stand-in not seen before.
  bool has_new_tensor(PyObject* result);
  Result<std::unique_ptr<Node>> make_node(PyObject* callable,
                                          const std::vector<PyObject*>& args,
                                          PyObject* kwnames,
                                          const char* method);
  Status add_outputs(Node* node, PyObject* result);
  Status add_output(Node* node, PyObject* item);
  static TensorMeta meta_of(const at::Tensor& tensor);
  static void fill_meta(Value* value, const at::Tensor& tensor);
  Break raised_as_break(PyObject* callable, const std::vector<PyObject*>& args);
  bool is_written_with_history(const std::vector<PyObject*>& args,
                               const std::string& error) const;

  void drop_unused_inputs();
  void promise_outputs(const std::vector<PyObject*>& outputs);
  void add_symbol_inputs();
  void note_mutated(Value* input);
  Status guard_storage();

  struct OpenBlock {
    int id;
    BlockKind kind;
    std::unique_ptr<TorchGraph> outer;
    AmbientState ambient;                          // before the block
    AmbientState inside;                           // when it began
    std::unordered_map<PyObject*, Value*> values;  // of captured tensors
    std::vector<PyObject*> captured;
    // What operations of the block made: the only memory it may write to.
    StorageMap<bool> own;
    std::optional<LateState> late;  // kBackward
  };

  std::unique_ptr<TorchGraph> result_;  // of the innermost block
  bool inference_mode_;                 // when the capture began
  int modes_kept_ = 0;  // entered by objects which nobody knows how long live
  std::vector<OpenBlock> blocks_;
  int last_block_ = 0;
  std::unordered_map<PyObject*, Entry> entries_;
  std::unordered_map<PyObject*, PyObject*> stand_ins_;  // real -> stand-in
  std::vector<Ref> kept_;
  std::vector<PyObject*> inputs_;      // stand-ins of inputs, in order
  StorageMap<Value*> input_storages_;  // to see mutations
  // Where the first write was, and the same in words.
  struct Written {
    Span span;
    std::string line;
  };
  std::unordered_map<Value*, Written> mutated_;
  StorageMap<Ref> constants_;  // the one element of each, until written to
  WriteRules write_rules_;
  Span span_;
  const TensorTracer::Stack* stack_;
  const TensorTracer::Receivers* receivers_;
  std::vector<Span> begin_;  // what it said at the first operation
  int depth_ = 0;            // inside record_call
  int operations_ = 0;       // ATen operations of the running call
  std::vector<c10::OperatorHandle> operators_;  // which ones, each once
  // One of them may do so on its way, and leave other strides.
  bool resizes_out_ = false;
  bool writes_ = false;  // one of them wrote to an argument
  bool always_ = false;  // record_always
};

}  // namespace framejit::graph
