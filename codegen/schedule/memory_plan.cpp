#include "codegen/schedule/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "guards/result.h"

namespace framejit::codegen {

Expr bytes_of(const Buffer& buffer) {
  const Expr item = static_cast<int64_t>(dtype_size(buffer.type));
  if (buffer.strides == contiguous_strides(buffer.sizes)) {
    Expr count = 1;
    for (const Expr& size : buffer.sizes) count = count * size;
    return count * item;
  }
  Expr last = 1;
  for (size_t i = 0; i < buffer.sizes.size(); ++i) {
    if (buffer.sizes[i].is_const(0)) return 0;
    last = last + (buffer.sizes[i] - Expr(1)) * buffer.strides[i];
  }
  return Expr::make(ExprOp::kMax, {last * item, Expr(0)});
}

namespace {

// Offsets in one region of memory, whose sizes are multiples of one unit.
class Region {
 public:
  int64_t allocate(int64_t size) {
    // The smallest hole that is large enough.
    auto best = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < size) continue;
      if (best == holes_.end() || hole->second < best->second) best = hole;
    }
    if (best == holes_.end()) {
      // Perhaps one at the end can grow.
      int64_t at = end_;
      if (!holes_.empty()) {
        auto last = std::prev(holes_.end());
        if (last->first + last->second == end_) {
          at = last->first;
          holes_.erase(last);
        }
      }
      end_ = at + size;
      return at;
    }
    int64_t at = best->first, left = best->second - size;
    holes_.erase(best);
    if (left > 0) holes_.emplace(at + size, left);
    return at;
  }
  void free(int64_t at, int64_t size) {
    if (size == 0) return;
    auto hole = holes_.emplace(at, size).first;
    auto next = std::next(hole);
    if (next != holes_.end() && at + size == next->first) {
      hole->second += next->second;
      holes_.erase(next);
    }
    if (hole == holes_.begin()) return;
    auto before = std::prev(hole);
    if (before->first + before->second == at) {
      before->second += hole->second;
      holes_.erase(hole);
    }
  }
  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> holes_;  // where, how large
  int64_t end_ = 0;
};

Expr aligned(const Expr& bytes) {
  if (bytes.is_const())
    return (bytes.constant() + kAlignment - 1) / kAlignment * kAlignment;
  return floor_div(bytes + Expr(kAlignment - 1), Expr(kAlignment)) *
         Expr(kAlignment);
}

// c * rest, rest being 1 or what has symbols.
std::pair<int64_t, Expr> split_factor(const Expr& e) {
  if (e.is_const()) return {e.constant(), 1};
  if (e.op() != ExprOp::kMul) return {1, e};
  int64_t factor = 1;
  Expr rest = 1;
  for (const Expr& operand : e.operands()) {
    if (operand.is_const()) {
      factor = operand.constant();
    } else {
      rest = rest * operand;
    }
  }
  if (factor < 1) return {1, e};
  return {factor, rest};
}

class Planner {
 public:
  explicit Planner(Schedule* schedule) : schedule_(*schedule) {}

  void run() {
    schedule_.allocation_of.assign(schedule_.buffers.size(), -1);
    find_uses();
    for (size_t i = 0; i < schedule_.inputs.size(); ++i)
      allocate(schedule_.inputs[i], MemoryKind::kInput, static_cast<int>(i));
    for (size_t i = 0; i < schedule_.outputs.size(); ++i)
      if (schedule_.places[i] != kNoBuffer) take_place(i);
    for (size_t i = 0; i < schedule_.outputs.size(); ++i) {
      BufferId root = root_of(schedule_.outputs[i]);
      if (allocation_of(root) < 0)
        allocate(root, MemoryKind::kOutput, static_cast<int>(i));
    }
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      Step& step = schedule_.steps[s];
      for (BufferId result : step.results) {
        if (step.base != kNoBuffer) {
          share(root_of(step.base), result);
          merge_shared(step, root_of(step.base), result);
        } else if (allocation_of(result) >= 0 &&
                   schedule_.allocations[allocation_of(result)].kind ==
                       MemoryKind::kInput) {
          // take_place() has seen to it.
          if (step.kernel < 0) continue;
          merge_shared(step, place_of_.at(result), result);
        } else if (step.kernel >= 0) {
          reuse_argument(static_cast<int>(s), result);
        }
        if (allocation_of(result) < 0) allocate(result, MemoryKind::kArena, -1);
      }
    }
    set_lifetimes();
    place_in_arena();
    drop_unused();
  }

 private:
  BufferId root_of(BufferId buffer) const {
    BufferId base = schedule_.buffers[buffer].alias_of;
    return base == kNoBuffer ? buffer : base;
  }
  int& allocation_of(BufferId root) { return schedule_.allocation_of[root]; }

  void allocate(BufferId root, MemoryKind kind, int number) {
    if (allocation_of(root) >= 0) return;  // an input that is there twice
    allocation_of(root) = static_cast<int>(schedule_.allocations.size());
    Allocation allocation;
    allocation.kind = kind;
    allocation.number = number;
    allocation.bytes = bytes_of(schedule_.buffers[root]);
    schedule_.allocations.push_back(std::move(allocation));
    members_.push_back({root});
  }

  void find_uses() {
    last_use_.assign(schedule_.buffers.size(), -1);
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      for (BufferId buffer : step.arguments)
        last_use_[root_of(buffer)] = static_cast<int>(s);
      for (BufferId buffer : step.results)
        last_use_[root_of(buffer)] = static_cast<int>(s);
      if (step.base != kNoBuffer)
        last_use_[root_of(step.base)] = static_cast<int>(s);
    }
  }

  // The result takes the place of what is in `old`, wherever that lies.
  void share(BufferId old, BufferId result) {
    int from = allocation_of(old), to = allocation_of(result);
    if (from == to) return;
    if (to < 0) {
      allocation_of(result) = from;
      members_[from].push_back(result);
      return;
    }
    // The result is the caller's in the end: then it is so from the start.
    for (BufferId member : members_[from]) allocation_of(member) = to;
    members_[to].insert(members_[to].end(), members_[from].begin(),
                        members_[from].end());
    members_[from].clear();
  }

  // The output, and all that is updated to become it, is made in the memory of
  // its place: if nobody reads that behind the first step to write there, and
  // that one only where it writes.
  void take_place(size_t output) {
    const BufferId place = schedule_.places[output];
    std::vector<BufferId> written{root_of(schedule_.outputs[output])};
    const Step* first = nullptr;
    for (size_t s = schedule_.steps.size(); s-- > 0;) {
      const Step& step = schedule_.steps[s];
      if (!std::count(step.results.begin(), step.results.end(), written.back()))
        continue;
      first = &step;
      if (step.base == kNoBuffer || root_of(step.base) == place) break;
      written.push_back(root_of(step.base));
    }
    bool fits = first && (first->kernel >= 0 ||
                          can_write_over(schedule_.buffers,
                                         schedule_.calls[first->call], place));
    for (size_t s = 0; fits && s < schedule_.steps.size(); ++s)
      if (&schedule_.steps[s] > first) fits = !reads(schedule_.steps[s], place);
    if (fits && first->kernel >= 0 && first->base == kNoBuffer) {
      const auto& arguments = first->arguments;
      auto at = [&](BufferId buffer) {
        return static_cast<int>(
            std::find(arguments.begin(), arguments.end(), buffer) -
            arguments.begin());
      };
      const int from = at(place);
      if (from < static_cast<int>(arguments.size()))
        fits = is_read_where_stored(schedule_.kernels[first->kernel], from,
                                    at(written.back()));
    }
    if (!fits) {
      // An update over the input was let do so by choose_places().
      FJ_CHECK(!first || first->base == kNoBuffer);
      schedule_.places[output] = kNoBuffer;
      return;
    }
    for (BufferId buffer : written) {
      allocation_of(buffer) = allocation_of(place);
      members_[allocation_of(place)].push_back(buffer);
      place_of_[buffer] = place;
    }
  }

  bool reads(const Step& step, BufferId root) const {
    return std::any_of(
               step.arguments.begin(), step.arguments.end(),
               [&](BufferId buffer) { return root_of(buffer) == root; }) ||
           (step.base != kNoBuffer && root_of(step.base) == root);
  }

  void merge_shared(Step& step, BufferId a, BufferId b) {
    auto& arguments = step.arguments;
    auto first = std::find(arguments.begin(), arguments.end(), a);
    auto second = std::find(arguments.begin(), arguments.end(), b);
    if (first == arguments.end() || second == arguments.end()) return;
    merge_arguments(step, static_cast<int>(first - arguments.begin()),
                    static_cast<int>(second - arguments.begin()));
  }

  // `from` becomes `into`, and goes.
  void merge_arguments(Step& step, int from, int into) {
    Kernel& kernel = schedule_.kernels[step.kernel];
    auto now = [&](int argument) {
      if (argument == from) argument = into;
      return argument > from ? argument - 1 : argument;
    };
    for (Stage& stage : kernel.stages) {
      for (Place& place : stage.loads) place.argument = now(place.argument);
      for (Store& store : stage.stores)
        store.place.argument = now(store.place.argument);
    }
    kernel.arguments[into].is_written |= kernel.arguments[from].is_written;
    kernel.arguments.erase(kernel.arguments.begin() + from);
    step.arguments.erase(step.arguments.begin() + from);
  }

  // An argument that nothing reads behind this step, and every element of which
  // is read where, and no later than, the result's is stored.
  void reuse_argument(int number, BufferId result) {
    Step& step = schedule_.steps[number];
    Kernel& kernel = schedule_.kernels[step.kernel];
    int into = static_cast<int>(
        std::find(step.arguments.begin(), step.arguments.end(), result) -
        step.arguments.begin());
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      BufferId old = step.arguments[i];
      const int from = static_cast<int>(i);
      int allocation = allocation_of(old);
      if (from == into || kernel.arguments[i].is_written ||
          kernel.arguments[i].type != kernel.arguments[into].type ||
          allocation < 0 ||
          schedule_.allocations[allocation].kind != MemoryKind::kArena ||
          last_use_[old] > number ||
          schedule_.allocations[allocation].bytes !=
              bytes_of(schedule_.buffers[result]) ||
          !is_read_where_stored(kernel, from, into))
        continue;
      share(old, result);
      merge_arguments(step, from, into);
      return;
    }
  }

  static bool is_read_where_stored(const Kernel& kernel, int read, int stored) {
    const Store* store = nullptr;
    size_t store_stage = 0;  // the first
    for (size_t s = 0; s < kernel.stages.size(); ++s) {
      for (const Store& candidate : kernel.stages[s].stores) {
        if (candidate.place.argument != stored) continue;
        if (candidate.combiner || !candidate.place.data.empty() ||
            candidate.place.when != kNoScalar)
          return false;
        if (!store) {
          store = &candidate;
          store_stage = s;
        } else if (store_stage == s || candidate.place != store->place ||
                   kernel.stages[s].loops != kernel.stages[store_stage].loops) {
          return false;
        }
      }
    }
    if (!store) return false;
    for (size_t s = 0; s < kernel.stages.size(); ++s) {
      const Stage& stage = kernel.stages[s];
      for (const Place& place : stage.loads) {
        if (place.argument != read) continue;
        if (s > store_stage || !place.data.empty() ||
            stage.loops != kernel.stages[store_stage].loops ||
            place.offset != store->place.offset ||
            place.strides != store->place.strides)
          return false;
      }
    }
    return true;
  }

  void set_lifetimes() {
    const int end = static_cast<int>(schedule_.steps.size());
    std::vector<char> seen(schedule_.allocations.size());
    for (int s = 0; s < end; ++s) {
      auto use = [&](BufferId buffer) {
        int number = allocation_of(root_of(buffer));
        Allocation& allocation = schedule_.allocations[number];
        if (!seen[number]) allocation.first = s;
        seen[number] = true;
        allocation.last = s;
      };
      for (BufferId buffer : schedule_.steps[s].arguments) use(buffer);
      for (BufferId buffer : schedule_.steps[s].results) use(buffer);
    }
    for (Allocation& allocation : schedule_.allocations) {
      if (allocation.kind == MemoryKind::kInput) allocation.first = 0;
      if (allocation.kind == MemoryKind::kOutput) allocation.last = end;
    }
    for (BufferId output : schedule_.outputs)
      schedule_.allocations[allocation_of(root_of(output))].last = end;
  }

  // Sizes that are multiples of one expression share a region. So offsets are
  // right whatever the symbols are.
  void place_in_arena() {
    struct Class {
      Region region;
      int64_t divisor = 0;
      Expr unit;
    };
    struct Part {
      int of = -1;
      int64_t units = 0, at = 0;
    };
    std::vector<Class> classes;
    std::unordered_map<std::string, int> known;
    std::vector<Part> parts(schedule_.allocations.size());
    std::vector<int64_t> factors(parts.size());
    std::vector<std::vector<int>> begins(schedule_.steps.size()),
        ends(schedule_.steps.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const Allocation& allocation = schedule_.allocations[i];
      if (allocation.kind != MemoryKind::kArena || members_[i].empty())
        continue;
      auto [factor, rest] =
          split_factor(allocation.bytes.is_const() ? aligned(allocation.bytes)
                                                   : allocation.bytes);
      auto [found, is_new] =
          known.emplace(rest.str(), static_cast<int>(classes.size()));
      if (is_new) {
        classes.emplace_back();
        classes.back().unit = rest;
      }
      Class& of = classes[found->second];
      of.divisor = std::gcd(of.divisor, factor);
      parts[i].of = found->second;
      factors[i] = factor;
      begins[allocation.first].push_back(static_cast<int>(i));
      ends[allocation.last].push_back(static_cast<int>(i));
    }
    for (size_t s = 0; s < begins.size(); ++s) {
      for (int i : begins[s]) {
        Class& of = classes[parts[i].of];
        parts[i].units = of.divisor ? factors[i] / of.divisor : 0;
        parts[i].at = of.region.allocate(parts[i].units);
      }
      for (int i : ends[s])
        classes[parts[i].of].region.free(parts[i].at, parts[i].units);
    }
    Expr start = 0;
    std::vector<Expr> starts;
    for (Class& of : classes) {
      of.unit = aligned(of.unit * Expr(of.divisor));
      starts.push_back(start);
      start = start + of.unit * Expr(of.region.end());
    }
    schedule_.arena_bytes = start;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].of < 0) continue;
      schedule_.allocations[i].offset =
          starts[parts[i].of] + classes[parts[i].of].unit * Expr(parts[i].at);
    }
  }

  // Allocations that have given their buffers to others.
  void drop_unused() {
    std::vector<int> now(members_.size(), -1);
    std::vector<Allocation> kept;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].empty()) continue;
      now[i] = static_cast<int>(kept.size());
      kept.push_back(std::move(schedule_.allocations[i]));
    }
    schedule_.allocations = std::move(kept);
    for (int& allocation : schedule_.allocation_of)
      if (allocation >= 0) allocation = now[allocation];
  }

  Schedule& schedule_;
  std::vector<std::vector<BufferId>> members_;       // of each allocation
  std::vector<int> last_use_;                        // of each buffer
  std::unordered_map<BufferId, BufferId> place_of_;  // of placed buffers
};

}  // namespace

void plan_memory(Schedule* schedule) { Planner(schedule).run(); }

}  // namespace framejit::codegen
