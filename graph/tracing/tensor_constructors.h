// Tensor constructors that are no operators of the dispatcher, as the calls
// that mean the same:
//
//   torch.Tensor(2, 3), x.new(2, 3)     torch.empty([2, 3], dtype=, device=)
//   torch.FloatTensor([1, 2])           torch.tensor([1, 2], dtype=, device=)
//   x.new_tensor([1, 2])                torch.tensor([1, 2], dtype=, device=)
#pragma once

#include "graph/tracing/recorder.h"

namespace framejit::graph {

// torch.Tensor or one of torch.FloatTensor, torch.cuda.LongTensor ...
bool is_tensor_type(PyObject* callable);
Result<Ref> call_tensor_type(Recorder& recorder, PyObject* type,
                             const std::vector<PyObject*>& args,
                             PyObject* kwnames);
// x.new(...)
Result<Ref> call_new(Recorder& recorder, const std::vector<PyObject*>& args,
                     PyObject* kwnames);
// x.new_tensor(...)
Result<Ref> call_new_tensor(Recorder& recorder,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames);
// one_hot(x, n): it looks for indices that do not fit, as scatter_ does too:
//   torch.zeros([*x.shape, n]).scatter_(-1, x.unsqueeze(-1), 1)
// An empty Ref: n is not given, so that the size depends on the data.
Result<Ref> call_one_hot(Recorder& recorder, const std::vector<PyObject*>& args,
                         PyObject* kwnames);
// isinstance(stand_in, torch.FloatTensor)
Result<bool> is_instance_of_type(PyObject* stand_in, PyObject* type);

}  // namespace framejit::graph
