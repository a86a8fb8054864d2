#include "graph/joint/min_cut.h"

#include <algorithm>
#include <cstddef>
#include <deque>

namespace framejit::graph {

int MinCut::add_vertex() {
  edges_of_.emplace_back();
  return static_cast<int>(edges_of_.size()) - 1;
}

void MinCut::add_edge(int from, int to, int64_t capacity) {
  edges_of_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::find_levels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::deque<int> queue{source};
  while (!queue.empty()) {
    int at = queue.front();
    queue.pop_front();
    for (int index : edges_of_[at]) {
      const Edge& edge = edges_[index];
      if (edge.capacity <= 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[at] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[sink] >= 0;
}

// One augmenting path along rising levels; iterative, because graphs are as
// deep as programs are long. 0: none left at these levels.
int64_t MinCut::push(int source, int sink) {
  std::vector<int> path;  // edge indices
  int at = source;
  while (at != sink) {
    std::size_t& next = next_[at];
    const std::vector<int>& list = edges_of_[at];
    while (next < list.size()) {
      const Edge& edge = edges_[list[next]];
      if (edge.capacity > 0 && level_[edge.to] == level_[at] + 1) break;
      ++next;
    }
    if (next < list.size()) {
      path.push_back(list[next]);
      at = edges_[list[next]].to;
      continue;
    }
    if (path.empty()) return 0;
    level_[at] = -1;  // a dead end
    at = edges_[path.back() ^ 1].to;
    path.pop_back();
  }
  int64_t flow = kInfinite;
  for (int index : path) flow = std::min(flow, edges_[index].capacity);
  for (int index : path) {
    edges_[index].capacity -= flow;
    edges_[index ^ 1].capacity += flow;
  }
  return flow;
}

int64_t MinCut::solve(int source, int sink) {
  int64_t total = 0;
  while (total < kInfinite && find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (int64_t flow = push(source, sink)) {
      total += flow;
      if (total >= kInfinite) break;
    }
  }
  find_levels(source, sink);
  source_side_.resize(edges_of_.size());
  for (size_t i = 0; i < level_.size(); ++i) source_side_[i] = level_[i] >= 0;
  return total;
}

}  // namespace framejit::graph
