#include "backend/schedule.h"

namespace framejit::backend {

std::vector<ScheduleUnit> make_schedule(const graph::Graph& graph, bool fuse) {
  std::vector<ScheduleUnit> units;
  for (const auto& node : graph.block().nodes) {
    ScheduleUnit unit;
    unit.node = node.get();
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace framejit::backend
