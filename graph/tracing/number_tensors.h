// torch.tensor(), as_tensor() and asarray() of numbers of which some are
// symbols, or NumPy's.
//
// torch copies the value that a symbol has now into the tensor (and only 32
// bits of it). Here each symbol becomes a full([], symbol), and a list of lists
// their stack:
//
//   torch.tensor([[n, 1], [2, m]])
//     stack([full([], n), tensor(1), tensor(2), full([], m)]).reshape([2, 2])
//
// NumPy's numbers have types of their own: torch.tensor(np.int8(2)) is
// torch.tensor(2, dtype=torch.int8).
#pragma once

#include "graph/tracing/recorder.h"

namespace framejit::graph {

// A break at what neither this nor tensor_constructors.cpp can capture.
Break unsupported(const Recorder& recorder, const char* what);
Result<Ref> torch_attribute(const char* name);
// Are there symbols among the numbers (or lists of numbers)?
bool has_symbols(PyObject* data);
// torch.tensor(data, dtype=, device=); null or None: what torch infers.
Result<Ref> tensor_of_symbols(Recorder& recorder, PyObject* data,
                              PyObject* dtype, PyObject* device);
// One of the functions above with such an argument; empty: another call.
Result<Ref> call_with_numbers(Recorder& recorder, PyObject* callable,
                              const std::vector<PyObject*>& args,
                              PyObject* kwnames);

}  // namespace framejit::graph
