// FreedNodes: what eager's engine would have freed of the history of one call.
//
// Eager frees node by node what a backward has run that does not keep its
// graph, and a node that was freed cannot run again. An AotNode stands for
// many of eager's nodes, and once a gradient of it was differentiated, the
// nodes of a replay stand for them, too: gradients that come there, and those
// that come to the call's own outputs, free the same nodes in eager.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace framejit::backend {

class FreedNodes {
 public:
  // nodes: by order of creation in the call, as in joint.h. In the backward
  // that runs on this thread.
  void add(const std::vector<int64_t>& nodes);
  // Was one of them freed by a backward before this one?
  bool any(const std::vector<int64_t>& nodes) const;
  bool all(const std::vector<int64_t>& nodes) const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, int> tasks_;  // the engine's number of the first
};

// The nodes of one call as eager has them.
struct EagerNodes {
  std::shared_ptr<FreedNodes> freed;             // null: nobody asks
  const std::vector<int64_t>* saving = nullptr;  // those that saved something
  int64_t total = 0;
};

// Counts the autograd nodes that are made on this thread.
class NodeCount {
 public:
  NodeCount();
  void stop();
  uint64_t first() const { return first_; }
  int64_t total() const { return static_cast<int64_t>(end_ - first_); }

 private:
  uint64_t first_, end_;
};

// The nodes of a replay behind these places, as far as the call goes, free and
// are freed with eager's. Nothing where the replay made other nodes than the
// trace. leave: not these themselves. made: while the captured calls ran.
void free_together(const std::vector<torch::autograd::Edge>& places,
                   const std::vector<torch::autograd::Edge>& leave,
                   const NodeCount& made, const EagerNodes& nodes);

}  // namespace framejit::backend
