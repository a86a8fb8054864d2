// framejit._C._fx: the C++ part of `framejit.fx` as a Python module.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit::graph {

// Empty with a Python error set on failure.
Ref fx_module();

}  // namespace framejit::graph
