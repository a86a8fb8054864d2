// Names of what runs, for torch.profiler: a graph ("fj::forward model.py:31"),
// and each kernel in it ("fj::kernel mul_gelu_3"). Nothing is recorded, and
// nothing costs more than a look at a flag, while no profiler does.
#pragma once

#include <ATen/record_function.h>

#include <string>
#include <vector>

#include "graph/ir/torch_graph.h"

namespace framejit::backend {

// "model.py:31", where the program came to the graph; empty: nowhere.
std::string place_of(const graph::TorchGraph& graph);

// The scope is the extent. Any thread, with the GIL or without.
class Profiled {
 public:
  explicit Profiled(const std::string& name)
      : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) record_.before(name);
  }

 private:
  at::RecordFunction record_;
};

}  // namespace framejit::backend
