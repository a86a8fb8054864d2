// A graph of ATen operators as a program of its own: the `framejit.fx` graph
// that an ExportedProgram holds (framejit/export).
//
//   graph(%0 "x" : f32[s0, 4], %1 "s0" : int(s0)) {      x = placeholder
//     %2 = aten.view.default(%0, [s0*4])             s = aten.sym_size.int(x,
//     0) return (%2)                                    m = operator.mul(s, 4)
//   }                                                v = aten.view(x, [m])
//
// Its placeholders are tensors and numbers of the caller's choice and order; a
// symbol is read off one of them, and expressions are computed by nodes. What
// is written is told node by node, so that the caller can describe it.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::graph {

struct ProgramInput {
  std::string name;
  int input = -1;     // of the graph; -1: it does not read it
  int constant = -1;  // one that the graph holds, by its number
};

// Where the number is that a symbol stands for.
struct SymbolPlace {
  enum class Kind : uint8_t { kNowhere, kSize, kStride, kOffset, kValue };
  Kind kind = Kind::kNowhere;
  int placeholder = -1;
  int dim = 0;
};

struct ProgramOutput {
  enum class Kind : uint8_t {
    kOutput,
    kMutation,
    kPlaceholder,
    kNumber,
    kObject
  };
  Kind kind = Kind::kObject;
  int index = -1;  // of the graph's output, mutation; of the placeholder
  Expr number;
  Ref object;
};

struct WrittenNode {
  Ref node;                          // of framejit.fx
  const Node* source = nullptr;      // null: it computes a number
  std::vector<const Value*> values;  // what it is: none, one, or a list
  bool is_list = false;
  Expr number;
};

// What the graph holds that is no input of its: the operands of kGetAttr.
std::vector<Ref> constants_of(const Graph& graph);

// Appends the program to an empty graph of framejit.fx. Throws fx::Raised (the
// error is set) and Break: there is no such program.
std::vector<WrittenNode> write_program(
    const Graph& graph, PyObject* fx_graph,
    const std::vector<ProgramInput>& inputs,
    const std::vector<SymbolPlace>& symbols,
    const std::vector<ProgramOutput>& outputs);

}  // namespace framejit::graph
