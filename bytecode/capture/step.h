// One step after the graph. Steps run in order, in C++; each defines the value
// with its own index in the list (steps without a value define None).
#pragma once

#include <vector>

#include "guards/expr/expr.h"
#include "guards/result.h"

namespace framejit::bytecode {

struct Step {
  enum class Kind : uint8_t {
    kOutput,    // graph output `index`
    kGathered,  // gathered object `index`
    kConst,     // `object`
    kSymbolic,  // Python number of `expr` over the entry's symbols
    kFunction,  // the function called
    kTuple,
    kList,
    kSet,
    kDict,  // of operands (dict: key, value, ...)
    kCall,  // `object` (a C callable) on operands: object.__new__,
            // dict.__setitem__, list.append, types.CellType, setattr ...
  };
  Kind kind = Kind::kConst;
  int index = 0;
  Ref object;
  Expr expr;
  std::vector<int> operands;  // indices of earlier steps
  Span span;                  // for errors
};

}  // namespace framejit::bytecode
