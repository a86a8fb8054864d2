// How the interpreter puts elements together, one after the other.
#pragma once

#include <array>
#include <vector>

#include "codegen/loops/loops.h"
#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

// Of a combiner with one result that has prefixes.
class Accumulator {
 public:
  Accumulator(Combiner combiner, DType type);  // of no elements
  Accumulator(Combiner combiner, DType type, Element first);
  void add(Element element);
  Element value() const;

 private:
  Combiner combiner_;
  DType type_;
  Element bits_;            // unless it is a float
  long double number_ = 0;  // if it is
};

// Of all elements of a reduction: the results of any combiner.
std::array<Element, 2> combine(Combiner combiner, DType type,
                               const std::vector<Element>& elements);

}  // namespace framejit::codegen
