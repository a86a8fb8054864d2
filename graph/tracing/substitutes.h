// Calls that ATen cannot run on stand-ins: its composite code unrolls over a
// size (torch.lstm), takes a size for a number (torch.gru_cell, upsampling) or
// looks into memory (torch.ctc_loss). Such a call is one node; its results are
// found by a function of framejit/_substitutes.py.
#pragma once

#include <vector>

#include "guards/result.h"

namespace framejit::graph {

struct Substitute {
  PyObject* function = nullptr;  // borrowed; null: the callable itself
  // It computes what the call does: the joint graph is made of it. Otherwise
  // only sizes, strides and history are right.
  bool exact = false;
  bool composite = false;  // takes all arguments of the call, by name or not
  bool of_reads = false;   // ATen reads values in the call, whatever the sizes
};

// What to run on the stand-ins in the place of `callable`.
Substitute find_substitute(PyObject* callable,
                           const std::vector<PyObject*>& args,
                           PyObject* kwnames);

}  // namespace framejit::graph
