// Where the gradients of a tensor come to.
//
// `w.data = other` leaves w the place in a history that it had, while somebody
// holds that (the loss of the step before does): the engine sums what comes
// there to the sizes, and casts it to the type, that w had when the place was
// made. Operators of eager leave it to the engine to undo a broadcast; a
// captured backward has done it, for the sizes that w has now. So such a call
// needs eager's own history.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

namespace framejit::backend {

// Is this place of the tensor's of other sizes, or of another type, than it is?
bool is_place_of_another(const torch::autograd::Edge& place,
                         const at::Tensor& tensor);

// The same of the place that it has, if any.
bool has_place_of_another(const at::Tensor& tensor);

}  // namespace framejit::backend
