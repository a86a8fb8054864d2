// What compiled graphs run on: the option FRAMEJIT_ISA, or the best this CPU
// has.
#pragma once

#include "backend/loop_runner.h"

namespace framejit::backend {

// Asked whenever a graph is compiled. kNone: ATen calls and nothing else.
LoopTarget loop_target();

}  // namespace framejit::backend
