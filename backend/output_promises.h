// What a capture says of the outputs of its graph, compared with what somebody
// else's code returned for it.
//
// What comes after a graph was decided by the capture: branches on a type or a
// layout, `is`, which tensors share memory, whether there is a gradient. So
// all of that is compared. Backends may choose how an output lies in memory:
// one that nobody else has the memory of is copied to the promised layout.
// Promises that are kept cost nanoseconds an output.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/promise.h"
#include "frame_hook/py_ref.h"
#include "graph/ir/torch_graph.h"

namespace framejit::backend {

class OutputPromises {
 public:
  explicit OutputPromises(std::shared_ptr<const graph::TorchGraph> graph);

  // result: what the callable returned; inputs: the gathered objects. Fills the
  // outputs; those that are inputs, or numbers, are the program's own. A text:
  // what is not as promised; there are no outputs then. A Python error may be
  // set with it. Throws what torch throws.
  std::optional<std::string> take(const Ref& result, PyObject* const* inputs,
                                  const int64_t* symbols,
                                  PyObject** outputs) const;

 private:
  struct Output {
    Promise promise;
    bool is_alone = false;  // no input, no other output has its memory
    // A tensor of its own, at the beginning of its memory.
    bool is_plain = false;
    std::optional<Expr> number;  // of one that is no tensor
  };
  class Taking;

  bool is_as_promised(size_t i, PyObject* item, const int64_t* symbols) const;
  // Nothing is to be made of the items, whose one reference is the container's.
  bool take_plain(PyObject* const* items, size_t count, const int64_t* symbols,
                  PyObject** outputs) const;

  std::shared_ptr<const graph::TorchGraph> graph_;
  std::vector<Output> outputs_;
  std::vector<int> input_tensors_;  // gathered objects
};

}  // namespace framejit::backend
