// Numbers for the values of a trace: equal numbers, equal contents.
//
//   %3 = aten.cos(%x)           1
//   %4 = aten.alias(%3)         1
//   %5 = aten.cos(%x)           1
//   %6 = aten.rand_like(%x)     2    (another one each time)
//
// So a value that one trace of a graph saved is found in another trace of it,
// whichever of several equal operations a pass leaves in either. In the
// forward, which is the same in both, a number is the id of the first value
// that equals it. What the engine computes without a tangent (a mask) is found
// by its text: the operation and the numbers of its arguments. What the program
// gets to see equals nothing else: it may be written to, and what another
// operation made of the same is not.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "graph/ir/ir.h"

namespace framejit::graph {

struct NumberedTexts {
  std::unordered_map<std::string, int> numbers;
  int end = 0;  // above all numbers
};

class ValueNumbers {
 public:
  // Inputs behind the primals are tangents, outputs behind the user's
  // gradients. first: the texts of the trace whose
  // numbers are wanted.
  ValueNumbers(const Graph& graph, size_t num_primals, size_t num_user_outputs,
               const NumberedTexts* first = nullptr);
  // Of a value of the graph; it may have been erased since.
  int of(const Value* value) const { return numbers_.at(value->id); }
  // The nodes that were recorded before the backward, in order, with the ids
  // they define. The same for every trace of one graph.
  size_t forward_fingerprint() const { return fingerprint_; }
  std::shared_ptr<const NumberedTexts> texts() const { return texts_; }

 private:
  void number(const Node& node);
  int own_number(int id);

  const NumberedTexts* first_;
  std::unordered_set<const Value*> escaping_;
  std::shared_ptr<NumberedTexts> texts_;
  std::unordered_map<int, int> numbers_;  // by id
  size_t fingerprint_ = 0;
};

}  // namespace framejit::graph
