// JointReplay: one run of trace_joint, which replays the torch-level graph node
// by node (trace_joint.cpp), says what each output is to its caller and what
// was written to (replay_outputs.cpp), and runs the backward
// (replay_gradients.cpp).
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frame_hook/py_ref.h"
#include "graph/ir/torch_level.h"
#include "graph/joint/items_by_tensor.h"
#include "graph/joint/joint.h"
#include "graph/joint/joint_tracer.h"
#include "graph/joint/saving_nodes.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::graph {

class JointReplay {
 public:
  // bases: as of trace_joint.
  JointReplay(const TorchGraph& source, GuardSet* guards,
              const BackwardPattern* pattern, std::vector<const Value*>* bases)
      : source_(source),
        guards_(guards),
        pattern_(pattern),
        bases_(bases),
        tracer_(guards) {}

  Result<JointGraph> run();
  Result<std::unique_ptr<Graph>> run_functional();
  // After a C++ exception: what a callee stored aside says more.
  Break failure(const char* text);

 private:
  // ---- the nodes
  Status run_nodes();
  void add_inputs();
  Ref to_object(const Arg& arg);
  Ref float_token(const Arg& arg);  // null: not a symbolic float
  Status python_failure();
  Status run_node(const Node& node);
  Status run_get_attr(const Node& node);
  Status run_call(const Node& node);
  bool is_wrapper(const Arg& arg) const;  // a tensor, and no constant
  // The first x.data of this memory; null: there is none.
  const Node* data_read_of(const at::Tensor& tensor) const;
  bool is_read_as_data(const at::Tensor& tensor) const {
    return data_read_of(tensor) != nullptr;
  }
  Status check_attribute_access(const Node& node);
  Status call_failure(const Node& node);
  Status bind_results(const Node& node, Ref result);
  Status bind(Value* value, Ref object);
  void finish();
  // For messages: what it is, and the line.
  std::string place_of_input(size_t input) const;
  std::string place_of_output(size_t output) const;
  std::string places_of_views() const;
  std::string places_of_tangents() const;

  // ---- what the graph did to its inputs, and what its outputs are
  bool shares_storage(int input) const;
  Status find_mutations();
  Status find_outputs();
  Status add_output(Value* value);
  void find_alias(const at::Tensor& tensor, OutputInfo* info);
  bool is_made_leaf(const at::Tensor& tensor) const;
  void choose_base(size_t first);
  void describe_view(size_t output);
  std::optional<std::vector<ViewStep>> view_chain(const at::Tensor& base,
                                                  const at::Tensor& view);
  bool is_remade(const at::Tensor& base, const at::Tensor& view);
  bool has_relatives(size_t output, const at::Tensor& base,
                     const std::optional<std::vector<ViewStep>>& views);
  void describe_hidden_base(size_t output);
  std::vector<const Value*> hidden_bases() const;
  const Value* source_of(const at::Tensor& tensor) const;
  bool is_mutated(int input) const;

  // ---- functional form alone (replay_functional.cpp)
  Status find_final_inputs();
  Status find_final_outputs(std::vector<Arg>* outputs);
  void detach_parts(Graph& graph, std::vector<Arg>* outputs);

  // ---- what autograd does
  void note_freed(const Node& node, const std::vector<PyObject*>& args);
  bool is_spent(const at::Tensor& tensor) const;
  Status check_late_reads();
  Status check_history(const at::Tensor& tensor);
  void note_saved(const std::vector<SavingNode>& nodes);
  Status differentiate();
  bool has_two_ways(size_t input) const;

  const TorchGraph& source_;
  GuardSet* guards_;
  const BackwardPattern* pattern_;  // null: everything
  std::vector<const Value*>* bases_;
  JointTracer tracer_;
  JointGraph joint_;
  std::unordered_map<const Value*, Ref> objects_;
  std::unordered_map<const Value*, Value*> symbols_;
  std::vector<at::Tensor> inputs_;  // wrappers; undefined for symbols
  // Of which x.data was read: what writes to that need not count. By which
  // node.
  std::vector<std::pair<c10::Storage, const Node*>> read_as_data_;
  ItemsByTensor items_;
  // What gradient functions read unsaved, and the version it had.
  struct LateRead {
    at::Tensor tensor;
    uint32_t version;
    const Node* reader;
  };
  std::vector<LateRead> late_;
  std::unordered_set<const torch::autograd::Node*> freed_;
  std::unordered_set<const torch::autograd::Node*> known_nodes_;
  std::vector<NodePtr<torch::autograd::Node>> kept_nodes_;
  std::vector<Value*> initial_;  // the values the inputs came with
  std::vector<Graph::Mutation> mutations_;
  std::vector<at::Tensor> tensors_;  // per user output; undefined: no tensor
  std::vector<Arg> output_args_;
  std::vector<Arg> gradients_;
};

// Of a Python int, or of a symbolic one; nothing: it is neither.
std::optional<Expr> expr_of_object(PyObject* object);

inline const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace framejit::graph
