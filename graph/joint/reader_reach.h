// ReaderReach: in which backwards an autograd node takes part.
//
// A backward is given tangents of some outputs and asked for the gradients of
// some inputs (a pattern, joint.h). An autograd node runs in it where it lies
// on a way from one of those outputs to one of those inputs, and then it reads
// what it has saved. Of the joint trace of the pattern that has all of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::graph {

class ReaderReach {
 public:
  ReaderReach() = default;
  // `joint`: its inputs from num_primals on are tangents, its outputs from
  // num_user_outputs on gradients; no pass has merged its nodes.
  ReaderReach(const Graph& joint, size_t num_primals, size_t num_user_outputs);

  // Does `other` run in every backward in which `reader` does? Nodes by their
  // numbers, as in Node::derivative_of. False also where that is not plain.
  bool accompanies(int64_t other, int64_t reader) const;

 private:
  using Bits = std::vector<uint64_t>;
  // Where gradients meet, the engine's sum counts as the node's that came last:
  // it may have been reached from all `tangents`, and has been from those of
  // `sure_tangents`. Sums lie behind a node, so the gradients are right.
  struct Reach {
    Bits tangents, sure_tangents, gradients;
    bool has_tangents = false;
  };
  std::unordered_map<int64_t, Reach> of_;
};

}  // namespace framejit::graph
