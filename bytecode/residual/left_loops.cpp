#include "bytecode/residual/left_loops.h"

#include <algorithm>

#include "bytecode/code/code_extra.h"
#include "bytecode/residual/loops.h"
#include "bytecode/residual/residual_cache.h"

namespace framejit::bytecode {
namespace {

size_t generation = 1;
bool any_left = false;  // in this generation

const ResidualCache* known_cache(PyObject* code) {
  if (const DerivedCode* derived = derivation_of(code))
    return derived->origin.get();
  TableRegistry* extra = code_extra(code);
  auto* known = extra ? extra->find<GeneratedCodes>() : nullptr;
  return known ? known->cache.get() : nullptr;
}

// Where an instruction of the user's code lies in this code; -1.
int offset_in(PyObject* code, const Instruction& instruction) {
  const DerivedCode* derived = derivation_of(code);
  if (!derived) return 2 * instruction.at;
  const auto& units = derived->original_unit;
  // The last: EXTENDED_ARGs of its own come before.
  auto found = std::find(units.rbegin(), units.rend(), instruction.at);
  return found == units.rend() ? -1 : 2 * int(units.rend() - found - 1);
}

}  // namespace

int loop_around(PyObject* code, int offset, const std::vector<int>& headers) {
  Place place = find_place(code, offset);
  if (!place.cache || place.cache->why_not || place.index < 0) return -1;
  std::vector<int> indexes;
  for (int header : headers) {
    Place at = find_place(code, header);
    if (!at.why_not) indexes.push_back(at.index);
  }
  int found = outermost_loop(*place.cache, place.index, indexes);
  return found < 0 ? -1
                   : offset_in(code, place.cache->body.instructions[found]);
}

void leave_loop(PyObject* code, int header, size_t budget) {
  Place place = find_place(code, header);
  if (place.why_not) return;
  LeftLoop& loop = place.cache->left_loops[place.index];
  if (loop.generation != generation) loop.budget = 0;
  loop = {std::max(loop.budget, budget), generation};
  any_left = true;
}

std::vector<int> left_loops(PyObject* code, size_t budget) {
  std::vector<int> headers;
  const ResidualCache* cache = any_left ? known_cache(code) : nullptr;
  if (!cache) return headers;
  for (const auto& [index, loop] : cache->left_loops) {
    if (loop.generation != generation || loop.budget < budget) continue;
    int offset = offset_in(code, cache->body.instructions[index]);
    if (offset >= 0) headers.push_back(offset);
  }
  return headers;
}

bool has_work_behind_loop(PyObject* code, int header) {
  Place place = find_place(code, header);
  if (place.why_not) return false;
  std::vector<bool> region = loop_region(*place.cache, place.index);
  for (size_t i = 0; i < region.size(); ++i) {
    if (!region[i]) continue;
    for (Successor next : successors(place.cache->body, int(i))) {
      int way_out = next.instruction;
      if (!region[way_out] && has_work_behind(*place.cache, way_out))
        return true;
    }
  }
  return false;
}

void forget_left_loops() {
  ++generation;
  any_left = false;
}

}  // namespace framejit::bytecode
