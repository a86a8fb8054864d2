// x[t] with tensors of no dims as indices.
//
// Eager reads their numbers and gives a view of x there; a graph cannot say
// where that is. What it can say is x.index(t), a copy, which is the same as
// long as nobody writes to x or to the copy afterwards, and nobody outside sees
// that the result is no view. Whether this holds is known when the replay is
// over; otherwise there is no joint graph, as for any number that is read.
// (x[t] = y needs no view: it is x.index_put_(t, y).)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "frame_hook/py_ref.h"
#include "graph/ir/ir.h"
#include "guards/result.h"

namespace framejit::graph {

class ItemsByTensor {
 public:
  // Does the call if it is such a one: the result is in *result. False: it is
  // not. c10 errors are thrown.
  bool run(const Node& node, const std::vector<PyObject*>& args, Ref* result);
  // Is every copy as good as the view? A Break says why one is not.
  Status check(const std::vector<at::Tensor>& outputs) const;
  // Of a copy that of what it is a view of in eager; any other is itself.
  const c10::StorageImpl* memory_in_eager(const c10::StorageImpl* memory) const;

 private:
  struct Copy {
    at::Tensor of, copy;
    size_t generation_of, generation;  // of their memory
    const Node* node;
  };
  std::vector<Copy> copies_;
};

}  // namespace framejit::graph
