#include "codegen/schedule/passes.h"

#include <algorithm>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/order.h"

namespace framejit::codegen {

std::vector<std::vector<Reader>> readers_of(const LoopGraph& graph) {
  std::vector<std::vector<Reader>> readers(graph.buffers.size());
  for (size_t d = 0; d < graph.definitions.size(); ++d) {
    const Definition& definition = graph.definitions[d];
    const int number = static_cast<int>(d);
    for (size_t a = 0; a < definition.accesses.size(); ++a) {
      readers[graph.root(definition.accesses[a].buffer)].push_back(
          {number, static_cast<int>(a)});
    }
    for (BufferId operand : definition.operands)
      readers[graph.root(operand)].push_back({number, -1});
    if (definition.base != kNoBuffer)
      readers[graph.root(definition.base)].push_back({number, -1});
  }
  return readers;
}

std::vector<char> kept_in_memory(const LoopGraph& graph) {
  std::vector<char> kept(graph.buffers.size());
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    BufferId base = graph.buffers[i].alias_of;
    if (base != kNoBuffer) kept[base] = kept[i] = true;
  }
  for (BufferId output : graph.outputs) kept[output] = true;
  for (const Definition& d : graph.definitions) {
    for (BufferId operand : d.operands) kept[operand] = true;
    if (d.base != kNoBuffer) kept[d.base] = true;
    if (d.kind == DefinitionKind::kMap || d.kind == DefinitionKind::kReduce)
      continue;
    for (BufferId result : d.results) kept[result] = true;
  }
  return kept;
}

namespace {

bool must_stay(const Definition& d) {
  return d.kind == DefinitionKind::kInput || d.ordered || d.kept ||
         has_check(d.body);
}

}  // namespace

void remove_dead(LoopGraph* graph) {
  std::vector<char> needed(graph->buffers.size());
  for (BufferId output : graph->outputs) needed[graph->root(output)] = true;
  std::vector<Definition>& definitions = graph->definitions;
  std::vector<char> stays(definitions.size());
  for (size_t i = definitions.size(); i-- > 0;) {
    const Definition& d = definitions[i];
    stays[i] = must_stay(d) ||
               std::any_of(d.results.begin(), d.results.end(),
                           [&](BufferId result) { return needed[result]; });
    if (stays[i])
      for_each_read(*graph, d, [&](BufferId read) { needed[read] = true; });
  }
  size_t kept = 0;
  for (size_t i = 0; i < definitions.size(); ++i) {
    if (!stays[i]) continue;
    if (kept != i) definitions[kept] = std::move(definitions[i]);
    ++kept;
  }
  definitions.resize(kept);
}

}  // namespace framejit::codegen
