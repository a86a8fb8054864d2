// Updates in place, and calls that have effects: what must come before what.
#include <algorithm>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/memory_plan.h"
#include "codegen/schedule/order.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

// Of each definition: how many ordered calls (in their order) it waits for. A
// call waits for those before it, so its own number is one more than it waits
// for.
std::vector<int> waits_for(const LoopGraph& graph) {
  std::vector<int> of_buffer(graph.buffers.size());
  std::vector<int> out;
  int calls = 0;
  for (const Definition& d : graph.definitions) {
    int waits = d.ordered ? calls : 0;
    for_each_read(graph, d, [&](BufferId root) {
      waits = std::max(waits, of_buffer[root]);
    });
    if (d.ordered) ++calls;
    out.push_back(waits);
    for (BufferId result : d.results)
      of_buffer[result] = d.ordered ? calls : waits;
  }
  return out;
}

}  // namespace

std::vector<std::pair<int, int>> effect_order(const LoopGraph& graph) {
  std::vector<std::pair<int, int>> out;
  std::vector<int> calls;
  for (size_t i = 0; i < graph.definitions.size(); ++i)
    if (graph.definitions[i].ordered) calls.push_back(static_cast<int>(i));
  for (size_t i = 1; i < calls.size(); ++i)
    out.emplace_back(calls[i - 1], calls[i]);
  if (calls.empty()) return out;
  std::vector<int> waits = waits_for(graph);
  for (size_t i = 0; i < graph.definitions.size(); ++i) {
    if (!has_check(graph.definitions[i].body)) continue;
    if (waits[i] < static_cast<int>(calls.size()) &&
        static_cast<int>(i) < calls[waits[i]])
      out.emplace_back(static_cast<int>(i), calls[waits[i]]);
  }
  return out;
}

void order_effects(LoopGraph* graph) {
  const std::vector<Definition>& definitions = graph->definitions;
  const std::vector<int> waits = waits_for(*graph);
  const std::vector<int> producer = producers_of(*graph);
  std::vector<std::vector<int>> needs(definitions.size());
  std::vector<std::vector<int>> checks;  // by the call that comes behind them
  for (size_t i = 0; i < definitions.size(); ++i) {
    for_each_read(*graph, definitions[i],
                  [&](BufferId root) { needs[i].push_back(producer[root]); });
    if (!has_check(definitions[i].body)) continue;
    if (waits[i] >= static_cast<int>(checks.size()))
      checks.resize(waits[i] + 1);
    checks[waits[i]].push_back(static_cast<int>(i));
  }
  NeedsFirst order(needs);
  order.place_inputs(*graph);
  size_t calls = 0;
  for (size_t i = 0; i < definitions.size(); ++i) {
    if (definitions[i].ordered) {
      if (calls < checks.size())
        for (int check : checks[calls]) order.place(check);
      ++calls;
    }
    order.place(static_cast<int>(i));
  }
  order.apply(graph);
}

std::vector<char> independent_loops(const Definition& update) {
  std::vector<char> out(update.loops.size());
  for (const Index& index : update.target) {
    if (index.data != kNoScalar) continue;
    int found = -1;
    bool is_alone = true;
    for (size_t loop = 0; loop < update.loops.size(); ++loop) {
      const Expr& step = index.coefficients[loop];
      if (step.is_const(0) || update.loops[loop].is_const(1)) continue;
      is_alone &= found < 0 && step.is_const();
      found = static_cast<int>(loop);
    }
    if (found >= 0 && is_alone) out[found] = true;
  }
  return out;
}

bool writes_everything(const LoopGraph& graph, const Definition& d) {
  if (d.combiner) return false;
  const Buffer& result = graph.buffers[d.results[0]];
  std::vector<char> used(d.loops.size());
  for (size_t i = 0; i < d.target.size(); ++i) {
    if (result.sizes[i].is_const(1) && d.target[i].data == kNoScalar) continue;
    int loop = pure_loop(d.target[i]);
    if (loop < 0 || used[loop] || d.loops[loop] != result.sizes[i])
      return false;
    used[loop] = true;
  }
  // A loop that nothing depends on may have no turns.
  for (size_t loop = 0; loop < used.size(); ++loop)
    if (!used[loop] && !d.loops[loop].is_const(1)) return false;
  return true;
}

namespace {

// Loops of one turn add nothing.
bool are_equal(const Definition& d, const std::vector<Index>& a,
               const std::vector<Index>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].offset != b[i].offset || a[i].data != b[i].data) return false;
    for (size_t loop = 0; loop < d.loops.size(); ++loop)
      if (!d.loops[loop].is_const(1) &&
          a[i].coefficients[loop] != b[i].coefficients[loop])
        return false;
  }
  return true;
}

// What the update reads of its base, it reads where it writes.
bool reads_in_place(const LoopGraph& graph, const Definition& d) {
  bool reads = false;
  for (const Access& access : d.accesses) {
    if (graph.root(access.buffer) != graph.root(d.base)) continue;
    if (access.buffer != d.base || !are_equal(d, access.indices, d.target))
      return false;
    reads = true;
  }
  if (!reads) return true;
  for (const Index& index : d.target)
    if (index.data != kNoScalar) return false;
  std::vector<char> independent = independent_loops(d);
  for (size_t loop = 0; loop < d.loops.size(); ++loop)
    if (!independent[loop] && !d.loops[loop].is_const(1)) return false;
  return true;
}

}  // namespace

bool covers(const LoopGraph& graph, BufferId id) {
  const Buffer& buffer = graph.buffers[id];
  if (buffer.alias_of == kNoBuffer) return true;
  const Buffer& root = graph.buffers[buffer.alias_of];
  if (!buffer.offset.is_const(0) || buffer.type != root.type) return false;
  // The same dims in another order.
  std::vector<std::pair<Expr, Expr>> dims;
  for (size_t i = 0; i < root.sizes.size(); ++i)
    dims.emplace_back(root.sizes[i], root.strides[i]);
  for (size_t i = 0; i < buffer.sizes.size(); ++i) {
    auto found = std::find(dims.begin(), dims.end(),
                           std::pair(buffer.sizes[i], buffer.strides[i]));
    if (found == dims.end()) break;
    dims.erase(found);
  }
  if (dims.empty() && buffer.sizes.size() == root.sizes.size()) return true;
  return buffer.strides == contiguous_strides(buffer.sizes) &&
         root.strides == contiguous_strides(root.sizes) &&
         bytes_of(buffer) == bytes_of(root);
}

bool can_update_in_place(const LoopGraph& graph, const Definition& update) {
  return covers(graph, update.base) &&
         graph.buffers[update.base].strides ==
             graph.buffers[update.results[0]].strides &&
         reads_in_place(graph, update);
}

void copy_bases(LoopGraph* graph) {
  const auto readers = readers_of(*graph);
  const std::vector<BufferId> place = placed_writes(*graph).place;
  std::vector<char> is_callers(graph->buffers.size());
  for (BufferId output : graph->outputs) is_callers[graph->root(output)] = true;
  for (const Definition& d : graph->definitions)
    if (d.kind == DefinitionKind::kInput) is_callers[d.results[0]] = true;
  std::vector<Definition> out;
  for (size_t i = 0; i < graph->definitions.size(); ++i) {
    Definition& d = graph->definitions[i];
    if (d.kind != DefinitionKind::kUpdate || d.base == kNoBuffer) {
      out.push_back(std::move(d));
      continue;
    }
    if (writes_everything(*graph, d)) {
      d.base = kNoBuffer;
      out.push_back(std::move(d));
      continue;
    }
    const BufferId root = graph->root(d.base);
    bool in_place = (!is_callers[root] || root == place[i]) &&
                    can_update_in_place(*graph, d);
    for (const Reader& reader : readers[root])
      in_place &= reader.definition <= static_cast<int>(i);
    if (!in_place) {
      Buffer copy;
      copy.type = graph->buffers[d.base].type;
      copy.sizes = graph->buffers[d.base].sizes;
      copy.strides = graph->buffers[d.results[0]].strides;
      Definition map;
      map.results = {graph->add_buffer(std::move(copy))};
      map.loops = graph->buffers[d.base].sizes;
      Access access{d.base, {}, kNoScalar};
      for (size_t loop = 0; loop < map.loops.size(); ++loop)
        access.indices.push_back(
            loop_index(static_cast<int>(loop), map.loops.size()));
      map.accesses = {std::move(access)};
      map.value = map.body.emit(ScalarOp::kLoad, graph->buffers[d.base].type);
      d.base = map.results[0];
      out.push_back(std::move(map));
    }
    out.push_back(std::move(d));
  }
  graph->definitions = std::move(out);
  // With copies, less has to come before what can fail.
  const std::vector<char> is_late = placed_writes(*graph).is_late;
  out.clear();
  for (bool late : {false, true})
    for (size_t i = 0; i < is_late.size(); ++i)
      if (is_late[i] == late) out.push_back(std::move(graph->definitions[i]));
  graph->definitions = std::move(out);
}

}  // namespace framejit::codegen
