#include "backend/profiled.h"

namespace framejit::backend {

std::string place_of(const graph::Graph& graph) {
  for (const auto& node : graph.block().nodes) {
    if (!node->span.code) continue;
    std::string place = format_span(node->span);
    place = place.substr(0, place.find(" in "));
    return place.substr(place.find_last_of('/') + 1);
  }
  return "";
}

}  // namespace framejit::backend
