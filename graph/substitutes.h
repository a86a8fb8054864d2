// Calls that ATen cannot run on stand-ins: its composite code unrolls over a
// size (torch.lstm) or looks into memory (torch.ctc_loss). Such a call is one
// node; its results are found by a function of framejit/_substitutes.py.
#pragma once

#include <vector>

#include "guards/result.h"

namespace framejit::graph {

// What to run on the stand-ins in the place of `callable`; borrowed. Null: the
// callable itself.
PyObject* find_substitute(PyObject* callable,
                          const std::vector<PyObject*>& args,
                          PyObject* kwnames);

}  // namespace framejit::graph
