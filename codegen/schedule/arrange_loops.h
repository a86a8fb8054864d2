// Puts the loops of a kernel in the order in which memory lies.
//
// Outer loops are sorted so that stores, then loads, have small steps inside;
// so are the inner loops of a stage, where the order of elements is of no
// matter. Loops that step through everything as one would become one. Then the
// vectorised loop is chosen by how its accesses lie, and what does not depend
// on inner loops is hoisted out of them.
#pragma once

#include "codegen/kernels/kernel.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

// in_order: inner loops keep theirs, for later points may store where earlier
// ones have.
void arrange_loops(Kernel* kernel, bool in_order, const TargetInfo& target);

}  // namespace framejit::codegen
