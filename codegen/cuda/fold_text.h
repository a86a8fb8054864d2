// A Fold (codegen/legalise/fold.h) as CUDA C++: a struct of states, and the
// functions none_..., step, join, result0 and result1.
#pragma once

#include <string>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

// The struct's name: "sum_f32".
std::string cuda_fold_name(Combiner combiner, DType type);
std::string print_cuda_fold(Combiner combiner, DType type);

}  // namespace framejit::codegen
