#include "codegen/schedule/group.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/order.h"
#include "codegen/schedule/passes.h"

namespace framejit::codegen {

namespace {

// How many units may lie between two that join. It bounds the search for a way
// between them, and how long results wait for their use.
constexpr int kMaxDistance = 512;
// Of the units that read one buffer: so many are tried with the next one.
constexpr size_t kMaxOpen = 4;
// Below this many elements threads are of no use.
constexpr int64_t kSmallWork = 1 << 14;

struct GroupedUnit : Unit {
  bool may_join = false;
  bool is_late = false;  // behind all units that can fail
  int nodes = 0;
  int position = 0;  // behind every unit that it needs
};

class Grouper {
 public:
  Grouper(const LoopGraph& graph, const TargetInfo& target)
      : graph_(graph), target_(target) {}
  Grouping run();

 private:
  // Where the loops of two units meet: of each outer dim of `joined` that is
  // the other's, the dim of `base`.
  struct Match {
    int base, other;  // units
    std::vector<int> dims;
  };

  void collect();
  void make_unit(int definition);
  int dim(const Match& match, int definition, int loop) const;
  bool add_pair(Match* match, int base_dim, int other_dim) const;
  bool add_crossing(Match* match, int reader, const Access& access) const;
  bool stays_in_point(const Match& match, int reader,
                      const Access& access) const;
  void add_shared(Match* match) const;
  bool match_dims(Match* match) const;
  bool pays(const Match& match) const;
  int64_t column_bytes(const Match& match) const;
  bool fits(const GroupedUnit& joined, int unit, int other) const;
  bool reaches(int from, int unit, int without);
  bool lies_between(int a, int b);
  void place_joined(int unit, int low, int high);
  bool join(int a, int b);
  void join_producers(int definition);
  void join_readers(BufferId buffer);

  template <class Visit>
  void for_each_crossing(const Match& match, Visit visit) const {
    for (int from : {match.base, match.other}) {
      for (int d : units_[from].definitions) {
        for (const Access& access : graph_.definitions[d].accesses) {
          int producer = producer_[access.buffer];
          if (producer < 0) continue;
          int unit = unit_of_[producer];
          if (unit != from && (unit == match.base || unit == match.other))
            visit(d, access);
        }
      }
    }
  }

  const LoopGraph& graph_;
  const TargetInfo& target_;
  std::vector<std::vector<int>> inputs_;  // definition -> those it needs
  std::vector<int> producer_;             // of each buffer
  std::vector<std::vector<Reader>> readers_;
  std::vector<char> kept_;
  PlacedWrites writes_;
  std::vector<std::vector<int>> dims_;
  std::vector<GroupedUnit> units_;
  std::vector<int> unit_of_;
  std::vector<int> unit_at_;  // by position; -1: joined another
  std::vector<int> visited_;  // per unit: the last search that met it
  int visit_ = 0;
};

void Grouper::collect() {
  const size_t count = graph_.definitions.size();
  producer_ = producers_of(graph_);
  readers_ = readers_of(graph_);
  kept_ = kept_in_memory(graph_);
  writes_ = placed_writes(graph_);
  inputs_.resize(count);
  for (size_t d = 0; d < count; ++d) {
    const Definition& definition = graph_.definitions[d];
    for_each_read(graph_, definition, [&](BufferId root) {
      inputs_[d].push_back(producer_[root]);
    });
    // What was there is read before it is overwritten.
    auto needs_readers = [&](BufferId buffer) {
      for (const Reader& reader : readers_[graph_.root(buffer)])
        if (reader.definition < static_cast<int>(d))
          inputs_[d].push_back(reader.definition);
    };
    if (writes_.place[d] != kNoBuffer) needs_readers(writes_.place[d]);
    if (definition.base != kNoBuffer) needs_readers(definition.base);
  }
  for (auto [before, after] : effect_order(graph_))
    inputs_[after].push_back(before);
  for (auto& inputs : inputs_) {
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  }
  for (size_t d = 0; d < count; ++d) make_unit(static_cast<int>(d));
  visited_.resize(units_.size());
}

void Grouper::make_unit(int definition) {
  const Definition& d = graph_.definitions[definition];
  GroupedUnit unit;
  unit.definitions = {definition};
  unit.position = definition;
  unit.is_kernel =
      d.kind != DefinitionKind::kInput && d.kind != DefinitionKind::kExtern;
  unit.is_late = writes_.is_late[definition];
  unit.may_join =
      d.kind == DefinitionKind::kMap || d.kind == DefinitionKind::kReduce;
  unit.is_staged = d.kind == DefinitionKind::kReduce;
  unit.nodes = target_.size(d.body);
  std::vector<int> dims(d.loops.size());
  // The other loops of an update keep their order.
  if (d.kind == DefinitionKind::kUpdate) {
    std::vector<char> independent = independent_loops(d);
    for (size_t loop = 0; loop < dims.size(); ++loop)
      if (!independent[loop]) dims[loop] = kInnerLoop;
  }
  size_t inner = d.kind == DefinitionKind::kReduce ? d.reduced
                 : d.kind == DefinitionKind::kScan ? 1
                                                   : 0;
  int outer = 0;
  for (size_t loop = 0; loop < dims.size(); ++loop) {
    bool is_scan = d.kind == DefinitionKind::kScan && loop + 1 == dims.size();
    if (d.loops[loop].is_const(1) && !is_scan) {
      dims[loop] = kSingleLoop;
    } else if (dims[loop] == kInnerLoop || loop + inner >= dims.size()) {
      dims[loop] = kInnerLoop;
    } else {
      dims[loop] = outer++;
      unit.outer.push_back(d.loops[loop]);
    }
  }
  dims_.push_back(std::move(dims));
  unit_of_.push_back(static_cast<int>(units_.size()));
  unit_at_.push_back(static_cast<int>(units_.size()));
  units_.push_back(std::move(unit));
}

// ---- do the loops of two units meet?

// The dim of `match.base` that a loop is; an inner loop: none of them.
int Grouper::dim(const Match& match, int definition, int loop) const {
  int dim = dims_[definition][loop];
  if (dim < 0 || unit_of_[definition] == match.base) return dim;
  return match.dims[dim] >= 0 ? match.dims[dim] : kInnerLoop;
}

bool Grouper::add_pair(Match* match, int base_dim, int other_dim) const {
  if (units_[match->base].outer[base_dim] !=
      units_[match->other].outer[other_dim])
    return true;  // nothing is said by it
  if (match->dims[other_dim] == base_dim) return true;
  if (match->dims[other_dim] >= 0 ||
      std::count(match->dims.begin(), match->dims.end(), base_dim))
    return false;
  match->dims[other_dim] = base_dim;
  return true;
}

bool Grouper::add_crossing(Match* match, int reader,
                           const Access& access) const {
  const int producer = producer_[access.buffer];
  const bool reader_is_base = unit_of_[reader] == match->base;
  for (size_t i = 0; i < access.indices.size(); ++i) {
    int written = dims_[producer][i];
    int loop = pure_loop(access.indices[i]);
    if (written < 0 || loop < 0) continue;
    int read = dims_[reader][loop];
    if (read < 0) continue;
    if (!add_pair(match, reader_is_base ? read : written,
                  reader_is_base ? written : read))
      return false;
  }
  return true;
}

// Is an element read by the point of the outer dims that computes it?
bool Grouper::stays_in_point(const Match& match, int reader,
                             const Access& access) const {
  const int producer = producer_[access.buffer];
  size_t met = 0;
  for (size_t i = 0; i < access.indices.size(); ++i) {
    int written = dim(match, producer, static_cast<int>(i));
    if (written < 0) continue;
    int loop = pure_loop(access.indices[i]);
    if (loop < 0 || dim(match, reader, loop) != written) return false;
    ++met;
  }
  return met == units_[match.base].outer.size();
}

// Loops at which both read one buffer at one place.
void Grouper::add_shared(Match* match) const {
  std::unordered_map<BufferId, std::pair<int, const Access*>> first;
  for (int d : units_[match->base].definitions)
    for (const Access& access : graph_.definitions[d].accesses)
      first.emplace(access.buffer, std::pair(d, &access));
  for (int d : units_[match->other].definitions) {
    for (const Access& access : graph_.definitions[d].accesses) {
      auto found = first.find(access.buffer);
      if (found == first.end()) continue;
      auto [base, base_access] = found->second;
      for (size_t i = 0; i < access.indices.size(); ++i) {
        int mine = pure_loop(base_access->indices[i]);
        int theirs = pure_loop(access.indices[i]);
        if (mine < 0 || theirs < 0) continue;
        int base_dim = dims_[base][mine], other_dim = dims_[d][theirs];
        if (base_dim >= 0 && other_dim >= 0)
          add_pair(match, base_dim, other_dim);
      }
    }
  }
}

bool Grouper::match_dims(Match* match) const {
  const GroupedUnit& base = units_[match->base];
  const GroupedUnit& other = units_[match->other];
  match->dims.assign(other.outer.size(), -1);
  bool agrees = true, crosses = false;
  for_each_crossing(*match, [&](int reader, const Access& access) {
    crosses = true;
    agrees = agrees && add_crossing(match, reader, access);
  });
  if (!agrees) return false;
  if (!crosses) add_shared(match);
  size_t met = match->dims.size() -
               std::count(match->dims.begin(), match->dims.end(), -1);
  if (met != base.outer.size()) return false;
  // Only what is flat may have dims that become inner loops.
  if (met != other.outer.size() && (other.is_staged || !base.is_staged))
    return false;
  for_each_crossing(*match, [&](int reader, const Access& access) {
    agrees = agrees && stays_in_point(*match, reader, access);
  });
  return agrees;
}

// ---- is it worth it?

// Bytes of the columns that one vector of outer points walks along, once for
// each access; 0: they walk along rows.
int64_t Grouper::column_bytes(const Match& match) const {
  int64_t bytes = 0;
  for (int unit : {match.base, match.other}) {
    for (int number : units_[unit].definitions) {
      const Definition& d = graph_.definitions[number];
      std::vector<char> is_inner;
      int64_t inner = 1;
      for (size_t loop = 0; loop < d.loops.size(); ++loop) {
        is_inner.push_back(dim(match, number, static_cast<int>(loop)) ==
                               kInnerLoop &&
                           dims_[number][loop] != kSingleLoop);
        if (is_inner.back())
          inner *= std::max<int64_t>(target_.hint(d.loops[loop]), 1);
      }
      for (const Access& access : d.accesses)
        if (walks_columns(graph_, access, is_inner))
          bytes += inner * target_.vector_bytes;
    }
  }
  return bytes;
}

bool Grouper::pays(const Match& match) const {
  const GroupedUnit& base = units_[match.base];
  const GroupedUnit& other = units_[match.other];
  if (!base.is_staged) return true;
  int64_t work = 0;
  bool has_inner = false;
  for (int d : other.definitions) {
    work = std::max(work, target_.hint(graph_.definitions[d].loops));
    for (size_t loop = 0; loop < dims_[d].size(); ++loop)
      has_inner |= dims_[d][loop] != kSingleLoop &&
                   dim(match, d, static_cast<int>(loop)) == kInnerLoop;
  }
  const int64_t columns = has_inner ? column_bytes(match) : 0;
  // Enough points for the threads, or not much to do.
  int64_t points = target_.hint(base.outer);
  if (columns > 0) points /= target_.vector_bytes / 4;
  const bool is_long =
      target_.long_row > 0 &&
      work / std::max<int64_t>(target_.hint(base.outer), 1) > target_.long_row;
  if (target_.threads > 1 && work > kSmallWork && !other.is_staged &&
      points < (target_.fewest_points > 0 && !is_long ? target_.fewest_points
                                                      : 2 * target_.threads))
    return false;
  if (columns == 0) return true;
  bool reads_reduction = !other.is_staged;
  for_each_crossing(match, [&](int, const Access& access) {
    reads_reduction |= graph_.definitions[producer_[access.buffer]].kind ==
                       DefinitionKind::kReduce;
  });
  return !reads_reduction || columns <= target_.l2_bytes;
}

// Not too many nodes and arguments: buffers read from outside, and results
// that others need.
bool Grouper::fits(const GroupedUnit& joined, int unit, int other) const {
  if (joined.nodes > target_.max_nodes) return false;
  auto is_inside = [&](int definition) {
    return definition >= 0 &&
           (unit_of_[definition] == unit || unit_of_[definition] == other);
  };
  std::unordered_set<BufferId> arguments;
  for (int d : joined.definitions) {
    for (const Access& access : graph_.definitions[d].accesses) {
      BufferId root = graph_.root(access.buffer);
      if (!is_inside(producer_[root])) {
        arguments.insert(root);
      } else if (access.buffer != root) {
        return false;  // other points may have written what an alias sees
      }
    }
    for (BufferId result : graph_.definitions[d].results) {
      bool is_stored = kept_[result];
      for (const Reader& reader : readers_[result])
        is_stored |= !is_inside(reader.definition);
      if (is_stored) arguments.insert(result);
    }
  }
  return static_cast<int>(arguments.size()) <= target_.max_arguments;
}

// ---- does something lie between them?

// Does `from` need `unit` (through units other than `without`)? No unit needs
// one at a later position.
bool Grouper::reaches(int from, int unit, int without) {
  std::vector<int> stack{from};
  if (visited_[from] == visit_) return false;
  visited_[from] = visit_;
  while (!stack.empty()) {
    int current = stack.back();
    stack.pop_back();
    if (current == unit) return true;
    for (int definition : units_[current].definitions) {
      for (int input : inputs_[definition]) {
        int next = unit_of_[input];
        if (next == without || visited_[next] == visit_ ||
            units_[next].position < units_[unit].position)
          continue;
        visited_[next] = visit_;
        stack.push_back(next);
      }
    }
  }
  return false;
}

bool Grouper::lies_between(int a, int b) {
  int first = units_[a].position < units_[b].position ? a : b;
  int second = first == a ? b : a;
  // The first does not need the second: it comes before it.
  ++visit_;
  for (int definition : units_[second].definitions) {
    for (int input : inputs_[definition]) {
      int next = unit_of_[input];
      if (next == first || next == second ||
          units_[next].position < units_[first].position)
        continue;
      if (reaches(next, first, second)) return true;
    }
  }
  return false;
}

// Between the positions of the two that joined: what the unit needs comes
// before it, the others behind.
void Grouper::place_joined(int unit, int low, int high) {
  ++visit_;
  std::vector<int> stack{unit};
  visited_[unit] = visit_;
  while (!stack.empty()) {
    int current = stack.back();
    stack.pop_back();
    for (int definition : units_[current].definitions) {
      for (int input : inputs_[definition]) {
        int next = unit_of_[input];
        if (visited_[next] == visit_ || units_[next].position < low) continue;
        visited_[next] = visit_;
        stack.push_back(next);
      }
    }
  }
  std::vector<int> needed, others;
  for (int i = low; i <= high; ++i) {
    int at = unit_at_[i];
    if (at < 0 || at == unit || units_[at].definitions.empty()) continue;
    (visited_[at] == visit_ ? needed : others).push_back(at);
  }
  int position = low;
  auto put = [&](int at) {
    units_[at].position = position;
    unit_at_[position++] = at;
  };
  for (int at : needed) put(at);
  put(unit);
  for (int at : others) put(at);
  while (position <= high) unit_at_[position++] = -1;
}

// ---- joining

bool Grouper::join(int a, int b) {
  if (a == b || !units_[a].may_join || !units_[b].may_join) return false;
  if (units_[a].is_late != units_[b].is_late) return false;
  auto [low, high] = std::minmax({units_[a].position, units_[b].position});
  if (high - low > kMaxDistance) return false;
  if (units_[a].nodes + units_[b].nodes > target_.max_nodes) return false;
  Match match{a, b, {}};
  if (!units_[a].is_staged && units_[b].is_staged)
    std::swap(match.base, match.other);
  if (!match_dims(&match) || !pays(match)) return false;
  GroupedUnit joined = units_[match.base];
  const GroupedUnit& other = units_[match.other];
  joined.definitions.insert(joined.definitions.end(), other.definitions.begin(),
                            other.definitions.end());
  std::sort(joined.definitions.begin(), joined.definitions.end());
  joined.nodes += other.nodes;
  if (!fits(joined, a, b) || lies_between(a, b)) return false;
  for (int d : other.definitions) {
    for (size_t loop = 0; loop < dims_[d].size(); ++loop)
      dims_[d][loop] = dim(match, d, static_cast<int>(loop));
  }
  for (int d : other.definitions) unit_of_[d] = match.base;
  units_[match.other].definitions.clear();
  units_[match.base] = std::move(joined);
  place_joined(match.base, low, high);
  return true;
}

// Those first from which most is read.
void Grouper::join_producers(int definition) {
  const Definition& d = graph_.definitions[definition];
  std::vector<std::pair<int64_t, int>> producers;
  for (const Access& access : d.accesses) {
    int producer = producer_[access.buffer];
    if (producer < 0) continue;
    int64_t bytes = elements_read(graph_, access, d.loops, target_) *
                    dtype_size(graph_.buffers[access.buffer].type);
    producers.emplace_back(-bytes, producer);
  }
  std::sort(producers.begin(), producers.end());
  for (auto [bytes, producer] : producers)
    join(unit_of_[producer], unit_of_[definition]);
}

void Grouper::join_readers(BufferId buffer) {
  std::vector<int> open;  // the last units that did not join another
  for (const Reader& reader : readers_[buffer]) {
    const int unit = unit_of_[reader.definition];
    if (std::count(open.begin(), open.end(), unit)) continue;
    bool is_joined = false;
    for (size_t i = open.size(); i-- > 0 && !is_joined;) {
      is_joined = join(open[i], unit);
      if (is_joined) open[i] = unit_of_[reader.definition];
    }
    if (is_joined) continue;
    if (open.size() == kMaxOpen) open.erase(open.begin());
    open.push_back(unit);
  }
}

Grouping Grouper::run() {
  collect();
  for (size_t d = 0; d < graph_.definitions.size(); ++d)
    if (units_[unit_of_[d]].may_join) join_producers(static_cast<int>(d));
  for (size_t i = 0; i < graph_.buffers.size(); ++i)
    join_readers(static_cast<BufferId>(i));
  Grouping out;
  for (int at : unit_at_)
    if (at >= 0 && !units_[at].definitions.empty())
      out.units.push_back(std::move(units_[at]));
  out.dims = std::move(dims_);
  return out;
}

}  // namespace

Grouping group(const LoopGraph& graph, const TargetInfo& target) {
  return Grouper(graph, target).run();
}

}  // namespace framejit::codegen
