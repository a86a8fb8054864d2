#include "backend/profiled.h"

namespace framejit::backend {

std::string place_of(const graph::TorchGraph& graph) {
  if (!graph.place.empty()) return graph.place;
  for (const auto& node : graph.graph->block().nodes)
    if (node->span.code) return brief_place(node->span);
  return "";
}

}  // namespace framejit::backend
