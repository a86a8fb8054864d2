#include "backend/profiled.h"

namespace framejit::backend {

namespace {

constexpr size_t kMostNames = 4;

// "aten.mul.Tensor" -> "mul"
std::string short_name(const graph::Node& node) {
  std::string name = node.target_name();
  if (name.starts_with("aten.")) name = name.substr(5);
  return name.substr(0, name.find('.'));
}

}  // namespace

std::string place_of(const graph::Graph& graph) {
  for (const auto& node : graph.block().nodes) {
    if (!node->span.code) continue;
    std::string place = format_span(node->span);
    place = place.substr(0, place.find(" in "));
    return place.substr(place.find_last_of('/') + 1);
  }
  return "";
}

std::string kernel_name(const std::vector<const graph::Value*>& results) {
  std::string name = "fj::kernel ";
  for (size_t i = 0; i < results.size() && i < kMostNames; ++i)
    name += (i ? "_" : "") + short_name(*results[i]->node);
  if (results.size() > kMostNames)
    name += "_and_" + std::to_string(results.size() - kMostNames) + "_more";
  return name;
}

}  // namespace framejit::backend
