// Lowering: from a functional ATen graph to loops.
//
// Each operator has a row (*.def): a C++ function that says its elements over
// the LoopBuilder (builder.h). Views become index maps, or aliases of memory.
// A node without a row, and a case that its row does not take exactly, is an
// extern definition with the node as its callee: nothing is refused but what no
// buffer holds (values that are no tensors).
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/loops/loops.h"
#include "graph/ir/ir.h"

namespace framejit::backend {

struct LoweredGraph {
  codegen::LoopGraph loops;
  // Where the loops are. Tensors elsewhere (numbers on the CPU, random number
  // states) are read and made by calls alone.
  c10::Device device = c10::kCPU;
  // The values that the input definitions are, in order: graph inputs that are
  // tensors, and constants.
  std::vector<const graph::Value*> inputs;
  struct Callee {
    const graph::Node* node;
    std::vector<const graph::Value*> operands;  // as the definition has them
    std::string reason;                         // why it is no loop
  };
  std::vector<Callee> callees;
  // What loops.outputs are, in order. A graph output that is an input or a
  // constant is none of them.
  std::vector<const graph::Value*> outputs;
  // How they lie: as these values do (the input that one is to replace).
  std::vector<const graph::Value*> layouts;
  // The node whose lowering made each buffer; null: none did.
  std::vector<const graph::Node*> node_of;
  // What rows took for granted of symbols of the call, each true or false. A
  // run for which one is false must not be made: eager refuses it, or does
  // something else.
  std::vector<Expr> conditions;
  // Nodes that became loops (views that are index maps, too).
  std::vector<const graph::Node*> lowered;
};

struct LoweringRequest {
  // Of the outputs that the program sees, by number: nobody takes it, the
  // caller has it. Empty: it sees all.
  std::vector<bool> has_output;
  // Values of the symbols that were seen; none for those that are missing.
  std::vector<int64_t> hints;
  // Nodes that become calls although they have a row, and why.
  std::unordered_map<const graph::Node*, std::string> calls;
};

// Nothing: *reason says why not.
std::optional<LoweredGraph> lower_to_loops(const graph::Graph& graph,
                                           const LoweringRequest& request,
                                           std::string* reason);

// Nothing: no scalar program computes such elements. In a buffer they lie as
// raw parts, a last dim of f32, f64 (complex) or bytes, which only externs
// read.
std::optional<codegen::DType> element_type(c10::ScalarType type);

}  // namespace framejit::backend
