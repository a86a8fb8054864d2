#include "codegen/schedule/build_kernel.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "codegen/scalar/simplify.h"
#include "codegen/schedule/cost.h"
#include "codegen/schedule/expand.h"
#include "codegen/schedule/stages.h"

namespace framejit::codegen {

namespace {

// What is stored anyway is computed again up to this cost.
constexpr int kCheaperThanLoad = 2;

class KernelBuilder {
 public:
  KernelBuilder(const KernelContext& context, const Unit& unit)
      : context_(context),
        graph_(context.graph),
        unit_(unit),
        numbers_(&out_.kernel.numbers) {}

  BuiltKernel run() {
    for (int d : unit_.definitions) members_.emplace(d, Member());
    for (int d : unit_.definitions) place_in_stages(d);
    out_.kernel.loops = unit_.outer;
    int number = 0;
    for (auto& [key, stage] : stages_) {
      stage.number = number++;
      stage.expander = std::make_unique<Expander>(
          graph_, graph_.numbers, unit_.outer.size() + key.extents.size(),
          &numbers_);
    }
    for (auto& [key, stage] : stages_) fill(key, stage);
    // Rows are asked for by later stages: bodies are done only then.
    for (auto& [key, stage] : stages_) finish(key, stage);
    return std::move(out_);
  }

 private:
  struct StageKey {
    int level;
    std::vector<Expr> extents;
    bool operator<(const StageKey& other) const {
      if (level != other.level) return level < other.level;
      if (extents.size() != other.extents.size())
        return extents.size() < other.extents.size();
      for (size_t i = 0; i < extents.size(); ++i) {
        if (extents[i] == other.extents[i]) continue;
        return extents[i].str() < other.extents[i].str();
      }
      return false;
    }
  };
  struct PendingStore {
    BufferId buffer = kNoBuffer;
    std::vector<Index> indices;
    ScalarId value = kNoScalar;
    std::optional<Combiner> combiner;
    int prefix_of = -1;
  };
  struct PendingStage {
    int number = 0;
    std::vector<int> definitions;
    std::vector<int> stored_reductions;
    std::unique_ptr<Expander> expander;
    std::vector<Reduction> reductions;
    std::vector<PendingStore> stores;
    std::vector<std::pair<ScalarId, int>> rows;
  };
  struct Member {
    int level = 0;
    PendingStage* stage = nullptr;
    std::vector<Expr> extents;  // of inner loops
    int row = -1;
    ScalarId value = kNoScalar;
  };

  int member_that_defines(BufferId buffer) const {
    int producer = context_.producer[buffer];
    return members_.count(producer) ? producer : -1;
  }

  void place_in_stages(int number) {
    const Definition& d = graph_.definitions[number];
    Member& member = members_.at(number);
    for (const Access& access : d.accesses) {
      int producer = member_that_defines(access.buffer);
      if (producer < 0) continue;
      bool is_reduction =
          graph_.definitions[producer].kind == DefinitionKind::kReduce;
      member.level =
          std::max(member.level, members_.at(producer).level + is_reduction);
    }
    for (size_t loop = 0; loop < d.loops.size(); ++loop)
      if (context_.dims[number][loop] == kInnerLoop)
        member.extents.push_back(d.loops[loop]);
    std::vector<Expr> extents = member.extents;
    // Elements are put together by loops, if only by one of one turn.
    if (d.kind == DefinitionKind::kReduce && extents.empty()) extents = {1};
    member.stage = &stages_[{member.level, extents}];
    member.stage->definitions.push_back(number);
    if (d.kind != DefinitionKind::kReduce) return;
    if (std::any_of(d.results.begin(), d.results.end(),
                    [&](BufferId result) { return context_.stored[result]; }))
      stages_[{member.level + 1, {}}].stored_reductions.push_back(number);
  }

  // The first loops of a definition in those of a stage.
  std::vector<Index> loops_of(int number, size_t count,
                              size_t stage_loops) const {
    std::vector<Index> map;
    int inner = static_cast<int>(unit_.outer.size());
    for (size_t loop = 0; loop < count; ++loop) {
      const int dim = context_.dims[number][loop];
      if (dim == kSingleLoop) {
        map.emplace_back();
        map.back().coefficients.resize(stage_loops);
      } else {
        map.push_back(
            loop_index(dim == kInnerLoop ? inner++ : dim, stage_loops));
      }
    }
    return map;
  }

  void fill(const StageKey& key, PendingStage& stage) {
    current_ = &stage;
    key_ = &key;
    Expander& expander = *stage.expander;
    const size_t loops = unit_.outer.size() + key.extents.size();
    expander.set_resolve(
        [this](const Access& access) { return resolve(access); });
    for (int number : stage.stored_reductions) {
      const Definition& d = graph_.definitions[number];
      std::vector<Index> map =
          loops_of(number, d.loops.size() - d.reduced, loops);
      for (size_t i = 0; i < d.results.size(); ++i) {
        if (!context_.stored[d.results[i]]) continue;
        PendingStore store;
        store.buffer = d.results[i];
        store.indices = map;
        store.value =
            row(d.results[i], members_.at(number).row + static_cast<int>(i));
        stage.stores.push_back(std::move(store));
      }
    }
    for (int number : stage.definitions) define(number, stage, loops);
  }

  void define(int number, PendingStage& stage, size_t loops) {
    const Definition& d = graph_.definitions[number];
    Member& member = members_.at(number);
    Expander& expander = *stage.expander;
    std::vector<Index> map = loops_of(number, d.loops.size(), loops);
    ScalarId value = d.value;
    std::vector<ScalarId*> roots{&value};
    std::vector<Index> target = d.target;
    for (Index& index : target) roots.push_back(&index.data);
    std::vector<ScalarId> checks = checks_of(d.body);
    for (ScalarId& check : checks) roots.push_back(&check);
    if (d.kind == DefinitionKind::kMap) {
      // Through the table of elements, which its readers look up.
      Access itself{d.results[0], map, kNoScalar};
      value = expander.element(d, itself);
    } else {
      expander.expand(d, map, kNoScalar, roots);
    }
    member.value = value;
    PendingStore store;
    store.value = value;
    store.indices = map;
    switch (d.kind) {
      case DefinitionKind::kMap:
        store.buffer = d.results[0];
        if (context_.stored[d.results[0]])
          stage.stores.push_back(std::move(store));
        break;
      case DefinitionKind::kReduce:
        reduce(d, member, stage);
        break;
      case DefinitionKind::kScan:
        store.buffer = d.results[0];
        store.value = kNoScalar;
        store.prefix_of = static_cast<int>(stage.reductions.size());
        reduce(d, member, stage);
        stage.stores.push_back(std::move(store));
        break;
      default: {
        std::vector<ScalarId> values(d.body.nodes().size(), kNoScalar);
        store.buffer = d.results[0];
        store.combiner = d.combiner;
        store.indices.clear();
        for (size_t i = 0; i < target.size(); ++i) {
          // compose() looks data up by its number in the definition.
          Index index = d.target[i];
          if (index.data != kNoScalar) values[index.data] = target[i].data;
          store.indices.push_back(expander.compose(index, map, values));
        }
        stage.stores.push_back(std::move(store));
        break;
      }
    }
  }

  void reduce(const Definition& d, Member& member, PendingStage& stage) {
    member.row = static_cast<int>(out_.kernel.row_types.size());
    stage.reductions.push_back({*d.combiner, member.value, member.row});
    for (BufferId result : d.results)
      out_.kernel.row_types.push_back(graph_.buffers[result].type);
  }

  ScalarId row(BufferId buffer, int row) {
    return current_->expander->body().emit(
        ScalarOp::kRow, graph_.buffers[buffer].type, {-1, -1, -1}, row);
  }

  ScalarId under(ScalarId when, ScalarId value) {
    if (when == kNoScalar) return value;
    Body& body = current_->expander->body();
    DType type = body.type(value);
    return emit_simplified(body, ScalarOp::kSelect, type,
                           {when, value, body.emit_element(type, 0)});
  }

  ScalarId resolve(const Access& access) {
    Expander& expander = *current_->expander;
    const int producer = member_that_defines(access.buffer);
    if (producer < 0) return expander.load(access);
    const Definition& d = graph_.definitions[producer];
    Member& member = members_.at(producer);
    if (d.kind == DefinitionKind::kReduce) {
      int second = access.buffer != d.results[0];
      return under(access.when, row(access.buffer, member.row + second));
    }
    if (member.stage == current_) return expander.element(d, access);
    if (member.extents.empty()) {
      // One element a point, of an earlier stage.
      if (member.row < 0) {
        member.row = static_cast<int>(out_.kernel.row_types.size());
        out_.kernel.row_types.push_back(graph_.buffers[access.buffer].type);
        member.stage->rows.emplace_back(member.value, member.row);
      }
      return under(access.when, row(access.buffer, member.row));
    }
    if (context_.stored[access.buffer] &&
        body_cost(d.body) > kCheaperThanLoad &&
        is_own_element(producer, access))
      return expander.load(access);
    return expander.element(d, access);
  }

  // Is it the element that an earlier stage stored at this very point?
  bool is_own_element(int producer, const Access& access) const {
    const Member& member = members_.at(producer);
    if (member.stage->number >= current_->number ||
        member.extents.size() != key_->extents.size())
      return false;
    for (size_t i = 0; i < member.extents.size(); ++i)
      if (member.extents[i] != key_->extents[i]) return false;
    const auto& dims = context_.dims[producer];
    int inner = static_cast<int>(unit_.outer.size());
    for (size_t i = 0; i < access.indices.size(); ++i) {
      if (dims[i] == kSingleLoop) continue;
      int expected = dims[i] == kInnerLoop ? inner++ : dims[i];
      if (pure_loop(access.indices[i]) != expected) return false;
    }
    return true;
  }

  int argument(BufferId buffer) {
    BufferId root = graph_.root(buffer);
    auto [found, is_new] =
        arguments_.emplace(root, static_cast<int>(out_.arguments.size()));
    if (is_new) {
      out_.arguments.push_back(root);
      out_.kernel.arguments.push_back({graph_.buffers[root].type, false});
    }
    return found->second;
  }

  Place place(BufferId id, const std::vector<Index>& indices, ScalarId when,
              size_t loops) {
    const Buffer& buffer = graph_.buffers[id];
    Place out;
    out.argument = argument(id);
    out.offset = buffer.offset;
    out.strides.resize(loops);
    out.when = when;
    for (size_t i = 0; i < indices.size(); ++i) {
      const Index& index = indices[i];
      const Expr& stride = buffer.strides[i];
      if (!index.offset.is_const(0))
        out.offset = out.offset + index.offset * stride;
      for (size_t loop = 0; loop < loops; ++loop)
        if (!index.coefficients[loop].is_const(0))
          out.strides[loop] =
              out.strides[loop] + index.coefficients[loop] * stride;
      if (index.data != kNoScalar) out.data.emplace_back(index.data, stride);
    }
    return out;
  }

  void finish(const StageKey& key, PendingStage& pending) {
    const size_t loops = unit_.outer.size() + key.extents.size();
    Stage stage;
    stage.loops = key.extents;
    stage.body = std::move(pending.expander->body());
    for (const Access& access : pending.expander->accesses())
      stage.loads.push_back(
          place(access.buffer, access.indices, access.when, loops));
    stage.reductions = std::move(pending.reductions);
    stage.rows = std::move(pending.rows);
    for (PendingStore& pending_store : pending.stores) {
      Store store;
      store.place =
          place(pending_store.buffer, pending_store.indices, kNoScalar, loops);
      store.value = pending_store.value;
      store.combiner = pending_store.combiner;
      store.prefix_of = pending_store.prefix_of;
      out_.kernel.arguments[store.place.argument].is_written = true;
      stage.stores.push_back(std::move(store));
    }
    remove_dead_nodes(&stage);
    if (stage.body.nodes().empty() && stage.stores.empty()) return;
    out_.kernel.stages.push_back(std::move(stage));
  }

  const KernelContext& context_;
  const LoopGraph& graph_;
  const Unit& unit_;
  BuiltKernel out_;
  NumberTable numbers_;
  std::map<int, Member> members_;
  std::map<StageKey, PendingStage> stages_;
  std::unordered_map<BufferId, int> arguments_;
  PendingStage* current_ = nullptr;
  const StageKey* key_ = nullptr;
};

}  // namespace

BuiltKernel build_kernel(const KernelContext& context, const Unit& unit) {
  return KernelBuilder(context, unit).run();
}

}  // namespace framejit::codegen
