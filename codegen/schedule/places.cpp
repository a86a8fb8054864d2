// Outputs that are made in the memory of the input whose content they become.
//
// Nothing may have changed when a run fails. So what can fail comes first, with
// all that it needs; an output that is among that is made elsewhere, and so is
// one whose input is read by something that needs the output.
//
//   %1 = update %0 ... ; return %1 into %0        written over the input
//   %1 = map f(%0[i]) ; return %1 into %0         likewise, by the kernel
//   %1 = extern sure into over 0 (%0, ...) ;      likewise, by the call
//     return %1 into %0
//   %2 = extern (%1) ; return %2, %1 into %0      the call can fail: elsewhere
#include <algorithm>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/expand.h"
#include "codegen/schedule/order.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

bool can_fail(const Definition& d) {
  return (d.kind == DefinitionKind::kExtern && !d.sure) || has_check(d.body);
}

// The definitions that write an output, last one first: updates in place, each
// over what the next one made, down to one over the input, or to one that needs
// nothing to be there. Empty: the output is not written so.
std::vector<int> writers_of(const LoopGraph& graph,
                            const std::vector<int>& producer, size_t output) {
  std::vector<int> out;
  const BufferId place = graph.place_of(output);
  BufferId at = graph.root(graph.outputs[output]);
  for (;;) {
    const int number = producer[at];
    if (number < 0) return {};
    const Definition& d = graph.definitions[number];
    const bool is_call = d.kind == DefinitionKind::kExtern;
    if (is_call ? !can_write_over(graph.buffers, d, place)
                : d.kind != DefinitionKind::kMap &&
                      d.kind != DefinitionKind::kUpdate)
      return {};
    out.push_back(number);
    if (is_call) return out;
    if (d.kind == DefinitionKind::kMap || d.base == kNoBuffer ||
        writes_everything(graph, d))
      return out;
    if (!can_update_in_place(graph, d)) return {};
    at = graph.root(d.base);
    if (at == place) return out;
  }
}

// What a definition comes behind: what it reads is made, and who reads what it
// overwrites has done so.
std::vector<std::vector<int>> needs_of(const LoopGraph& graph,
                                       const std::vector<int>& producer) {
  const auto readers = readers_of(graph);
  std::vector<std::vector<int>> out(graph.definitions.size());
  for (size_t d = 0; d < out.size(); ++d) {
    const Definition& definition = graph.definitions[d];
    for_each_read(graph, definition,
                  [&](BufferId root) { out[d].push_back(producer[root]); });
    if (definition.base != kNoBuffer) {
      for (const Reader& reader : readers[graph.root(definition.base)])
        if (reader.definition < static_cast<int>(d))
          out[d].push_back(reader.definition);
    }
    std::sort(out[d].begin(), out[d].end());
    out[d].erase(std::unique(out[d].begin(), out[d].end()), out[d].end());
  }
  return out;
}

std::vector<char> late(const LoopGraph& graph,
                       const std::vector<std::vector<int>>& needs) {
  std::vector<char> out(graph.definitions.size(), true);
  for (size_t d = out.size(); d-- > 0;) {
    const Definition& definition = graph.definitions[d];
    if (definition.kind == DefinitionKind::kInput || can_fail(definition))
      out[d] = false;
    if (!out[d])
      for (int need : needs[d]) out[need] = false;
  }
  return out;
}

// The same without Checks: what they are asked holds.
Definition unchecked(const Definition& d) {
  Definition out = d;
  out.body = Body();
  std::vector<ScalarId> now;
  for (const ScalarNode& node : d.body.nodes()) {
    if (node.op == ScalarOp::kCheck) {
      now.push_back(now[node.in[0]]);
      continue;
    }
    std::array<ScalarId, 3> in = node.in;
    for (ScalarId& operand : in)
      if (operand != kNoScalar) operand = now[operand];
    now.push_back(out.body.emit(node.op, node.type, in, node.payload));
  }
  auto renumber = [&](ScalarId* id) {
    if (*id != kNoScalar) *id = now[*id];
  };
  renumber(&out.value);
  for (Index& index : out.target) renumber(&index.data);
  for (Access& access : out.accesses) {
    renumber(&access.when);
    for (Index& index : access.indices) renumber(&index.data);
  }
  return out;
}

// A map that does nothing but what the definition checks.
Definition checks_alone(LoopGraph* graph, const Definition& d) {
  std::vector<ScalarId> checks = checks_of(d.body);
  // Loops that the Checks depend on.
  std::vector<char> needed(d.body.nodes().size()), used(d.loops.size());
  for (ScalarId check : checks) needed[check] = true;
  auto uses = [&](const Index& index) {
    if (index.data != kNoScalar) needed[index.data] = true;
    for (size_t loop = 0; loop < used.size(); ++loop)
      if (!index.coefficients[loop].is_const(0)) used[loop] = true;
  };
  for (size_t id = needed.size(); id-- > 0;) {
    if (!needed[id]) continue;
    const ScalarNode& node = d.body.nodes()[id];
    for (ScalarId in : node.in)
      if (in != kNoScalar) needed[in] = true;
    if (node.op == ScalarOp::kIndex) used[node.payload] = true;
    if (node.op != ScalarOp::kLoad) continue;
    const Access& access = d.accesses[node.payload];
    if (access.when != kNoScalar) needed[access.when] = true;
    for (const Index& index : access.indices) uses(index);
  }
  Definition out;
  const size_t loops = std::count(used.begin(), used.end(), true);
  std::vector<Index> map(d.loops.size());
  for (size_t loop = 0; loop < map.size(); ++loop) {
    if (!used[loop]) {
      map[loop].coefficients.assign(loops, Expr(0));
      continue;
    }
    map[loop] = loop_index(static_cast<int>(out.loops.size()), loops);
    out.loops.push_back(d.loops[loop]);
  }
  NumberTable numbers(&graph->numbers);
  const std::vector<Expr> from = graph->numbers;
  Expander expander(*graph, from, loops, &numbers);
  expander.set_resolve(
      [&](const Access& access) { return expander.load(access); });
  std::vector<ScalarId*> roots;
  for (ScalarId& check : checks) roots.push_back(&check);
  expander.expand(d, map, kNoScalar, roots);
  out.body = std::move(expander.body());
  out.accesses = std::move(expander.accesses());
  out.value = checks.back();
  Buffer buffer;
  buffer.type = DType::kBool;
  buffer.sizes = out.loops;
  buffer.strides = contiguous_strides(out.loops);
  out.results = {graph->add_buffer(std::move(buffer))};
  return out;
}

// Updates that write an output check before anything is written, all at once.
void take_checks_out(LoopGraph* graph) {
  const std::vector<int> producer = producers_of(*graph);
  std::vector<char> writes(graph->definitions.size());
  for (size_t i = 0; i < graph->places.size(); ++i)
    if (graph->places[i] != kNoBuffer)
      for (int writer : writers_of(*graph, producer, i)) writes[writer] = true;
  std::vector<Definition> out;
  for (size_t i = 0; i < graph->definitions.size(); ++i) {
    Definition& d = graph->definitions[i];
    if (writes[i] && d.kind == DefinitionKind::kUpdate && has_check(d.body)) {
      out.push_back(checks_alone(graph, d));
      out.push_back(unchecked(d));
    } else {
      out.push_back(std::move(d));
    }
  }
  graph->definitions = std::move(out);
}

class Placer {
 public:
  explicit Placer(LoopGraph* graph) : graph_(*graph) {}

  void run() {
    producer_ = producers_of(graph_);
    needs_ = needs_of(graph_, producer_);
    late_ = late(graph_, needs_);
    readers_ = readers_of(graph_);
    followers_.resize(needs_.size());
    for (size_t d = 0; d < needs_.size(); ++d)
      for (int need : needs_[d])
        followers_[need].push_back(static_cast<int>(d));
    visited_.assign(needs_.size(), 0);
    for (size_t i = 0; i < graph_.places.size(); ++i)
      if (graph_.places[i] != kNoBuffer && !accept(i))
        graph_.places[i] = kNoBuffer;
    sort();
  }

 private:
  bool accept(size_t output) {
    const BufferId place = graph_.places[output];
    const BufferId root = graph_.root(graph_.outputs[output]);
    if (!covers(graph_, graph_.outputs[output])) return false;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const BufferId other = graph_.root(graph_.outputs[i]);
      if (other == place || (other == root && i != output)) return false;
    }
    const std::vector<int> writers = writers_of(graph_, producer_, output);
    if (writers.empty()) return false;
    for (int writer : writers)
      if (!late_[writer]) return false;
    const size_t before = edges_.size();
    bool fits = true;
    // Nobody reads what has been overwritten.
    for (const Reader& reader : readers_[place])
      fits = fits && comes_before(reader.definition, writers.back());
    for (int writer : writers) {
      const BufferId base = graph_.definitions[writer].base;
      if (base == kNoBuffer || writer == writers.back()) continue;
      for (BufferId other : graph_.outputs)
        fits = fits && graph_.root(other) != graph_.root(base);
      for (const Reader& reader : readers_[graph_.root(base)])
        fits = fits && comes_before(reader.definition, writer);
    }
    if (fits) return true;
    while (edges_.size() > before) {
      followers_[edges_.back().first].pop_back();
      needs_[edges_.back().second].pop_back();
      edges_.pop_back();
    }
    return false;
  }

  bool comes_before(int reader, int writer) {
    if (reader == writer) return true;
    if (reaches(writer, reader)) return false;
    edges_.emplace_back(reader, writer);
    followers_[reader].push_back(writer);
    needs_[writer].push_back(reader);
    return true;
  }

  // Does `to` come behind `from`?
  bool reaches(int from, int to) {
    ++visit_;
    std::vector<int> stack{from};
    while (!stack.empty()) {
      const int at = stack.back();
      stack.pop_back();
      if (at == to) return true;
      if (visited_[at] == visit_) continue;
      visited_[at] = visit_;
      for (int next : followers_[at]) stack.push_back(next);
    }
    return false;
  }

  void sort() {
    NeedsFirst order(needs_);
    order.place_inputs(graph_);
    for (bool is_late : {false, true})
      for (size_t d = 0; d < needs_.size(); ++d)
        if (late_[d] == is_late) order.place(static_cast<int>(d));
    order.apply(&graph_);
  }

  LoopGraph& graph_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> needs_, followers_;  // of each definition
  std::vector<char> late_;
  std::vector<std::vector<Reader>> readers_;
  std::vector<std::pair<int, int>> edges_;  // before, behind
  std::vector<int> visited_;
  int visit_ = 0;
};

bool has_places(const LoopGraph& graph) {
  return std::any_of(graph.places.begin(), graph.places.end(),
                     [](BufferId place) { return place != kNoBuffer; });
}

}  // namespace

void choose_places(LoopGraph* graph) {
  if (!has_places(*graph)) return;
  take_checks_out(graph);
  Placer(graph).run();
}

PlacedWrites placed_writes(const LoopGraph& graph) {
  PlacedWrites out;
  out.place.assign(graph.definitions.size(), kNoBuffer);
  out.is_late.assign(graph.definitions.size(), false);
  if (!has_places(graph)) return out;
  const std::vector<int> producer = producers_of(graph);
  for (size_t i = 0; i < graph.places.size(); ++i)
    if (graph.places[i] != kNoBuffer)
      for (int writer : writers_of(graph, producer, i))
        out.place[writer] = graph.places[i];
  out.is_late = late(graph, needs_of(graph, producer));
  return out;
}

}  // namespace framejit::codegen
