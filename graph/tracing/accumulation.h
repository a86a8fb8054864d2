// What a captured backward() does to a .grad that was None.
//
// The guards of the entry saw None. Until the graph has run, another thread may
// have put a gradient there: in eager the two are added, each under the mutex
// of the leaf's AccumulateGrad. So the steps behind the graph do not store the
// gradient; they give it to a function that looks again, under that mutex.
#pragma once

#include "guards/result.h"

namespace framejit::graph {

// accumulate(leaf, gradient), a builtin function.
Result<Ref> gradient_accumulator();

}  // namespace framejit::graph
