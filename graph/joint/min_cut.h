// Minimum cut of a directed graph (Dinic's algorithm), for partition.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framejit::graph {

class MinCut {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  explicit MinCut(int num_vertices) : edges_of_(num_vertices) {}
  int add_vertex();
  void add_edge(int from, int to, int64_t capacity);
  // The value of the cut; kInfinite or more: nothing finite separates them.
  int64_t solve(int source, int sink);
  // After solve(): reachable from the source in the residual graph.
  const std::vector<bool>& source_side() const { return source_side_; }

 private:
  struct Edge {
    int to;
    int64_t capacity;  // left
  };
  bool find_levels(int source, int sink);
  int64_t push(int source, int sink);

  std::vector<Edge> edges_;  // edge i and its reverse i ^ 1
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
  std::vector<bool> source_side_;
};

}  // namespace framejit::graph
