#include "backend/lowering/builder.h"

#include <algorithm>

#include "guards/result.h"

namespace framejit::backend {

using codegen::Access;
using codegen::Buffer;
using codegen::BufferId;
using codegen::Combiner;
using codegen::Definition;
using codegen::DefinitionKind;
using codegen::DType;
using codegen::Index;
using codegen::kNoBuffer;
using codegen::kNoScalar;
using codegen::ScalarOp;

Index index_of(int count, Expr offset) {
  Index out;
  out.offset = std::move(offset);
  out.coefficients.assign(count, Expr(0));
  return out;
}

Index index_along(int count, int dim, Expr coefficient, Expr offset) {
  Index out = index_of(count, std::move(offset));
  out.coefficients[dim] = std::move(coefficient);
  return out;
}

bool same_size(const Expr& a, const Expr& b) { return a == b; }

Expr product(const std::vector<Expr>& sizes) {
  Expr out = 1;
  for (const Expr& size : sizes) out = out * size;
  return out;
}

bool Conditions::holds_when_seen(const Expr& condition) const {
  std::vector<int> symbols;
  condition.collect_symbols(&symbols);
  int64_t holds = 0;
  return (!symbols.empty() &&
          symbols.back() >= static_cast<int>(hints.size())) ||
         (condition.try_evaluate(hints.data(), &holds) && holds != 0);
}

void LoopBuilder::ensure(const Expr& condition, const char* reason) const {
  if (condition.is_const()) return require(condition.constant() != 0, reason);
  require(conditions_.holds_when_seen(condition), reason);
  auto& all = conditions_.all;
  if (std::find(all.begin(), all.end(), condition) == all.end())
    all.push_back(condition);
}

void LoopBuilder::ensure_equal(const Expr& a, const Expr& b,
                               const char* reason) const {
  if (!same_size(a, b)) ensure(expr_eq(a, b), reason);
}

// ---- Elements

Elements::Elements(LoopBuilder& builder, std::vector<Expr> loops)
    : builder_(builder), definition_(std::make_unique<Definition>()) {
  definition_->loops = std::move(loops);
}

Index Elements::at_loop(int loop, Expr coefficient, Expr offset) {
  return index_along(rank(), loop, std::move(coefficient), std::move(offset));
}

Index Elements::at(Expr constant) {
  return index_of(rank(), std::move(constant));
}

Index Elements::at_data(Term i64) {
  Index out = index_of(rank());
  out.data = i64.id;
  return out;
}

std::vector<Index> Elements::at_loops(int first, int count) {
  std::vector<Index> out;
  for (int i = 0; i < count; ++i) out.push_back(at_loop(first + i));
  return out;
}

Term Elements::load(const TensorView& view, const std::vector<Index>& indices,
                    Term when) {
  require(!view.is_opaque, "elements that are not computed with");
  FJ_CHECK(indices.size() == view.sizes.size());
  Access access;
  access.buffer = view.buffer;
  if (when) access.when = when.id;
  for (const Index& dim : view.map) {
    Index composed = at(dim.offset);
    Term data;
    for (size_t k = 0; k < indices.size(); ++k) {
      const Expr& factor = dim.coefficients[k];
      if (factor.is_const(0)) continue;
      composed.offset = composed.offset + factor * indices[k].offset;
      for (int loop = 0; loop < rank(); ++loop)
        composed.coefficients[loop] = composed.coefficients[loop] +
                                      factor * indices[k].coefficients[loop];
      if (indices[k].data == kNoScalar) continue;
      Term part{&definition_->body, indices[k].data};
      if (!factor.is_const(1)) part = part * number(factor);
      data = data ? data + part : part;
    }
    if (data) composed.data = data.id;
    access.indices.push_back(std::move(composed));
  }
  auto& accesses = definition_->accesses;
  auto found = std::find(accesses.begin(), accesses.end(), access);
  int64_t place = found - accesses.begin();
  if (found == accesses.end()) accesses.push_back(std::move(access));
  return {&definition_->body, definition_->body.emit(ScalarOp::kLoad, view.type,
                                                     {-1, -1, -1}, place)};
}

Term Elements::load_broadcast(const TensorView& view) {
  int missing = rank() - view.rank();
  require(missing >= 0, "an operand of more dims than the result");
  std::vector<Index> indices;
  for (int dim = 0; dim < view.rank(); ++dim) {
    const Expr& extent = loops()[missing + dim];
    const bool repeats =
        view.sizes[dim].is_const(1) && !same_size(view.sizes[dim], extent);
    if (!repeats)
      builder_.ensure_equal(view.sizes[dim], extent,
                            "an operand of other sizes");
    indices.push_back(repeats ? at(0) : at_loop(missing + dim));
  }
  return load(view, indices);
}

Term Elements::number(const Expr& value) {
  if (value.is_const()) return integer(DType::kI64, value.constant());
  if (value.is_float_const()) return constant(DType::kF64, value.real());
  return {&definition_->body,
          definition_->body.emit(
              ScalarOp::kNumber, value.is_float() ? DType::kF64 : DType::kI64,
              {-1, -1, -1}, builder_.graph().add_number(value))};
}

Term Elements::loop(int loop) {
  return {&definition_->body,
          definition_->body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1},
                                 loop)};
}

Term Elements::value_of(const Index& index) {
  Term out = number(index.offset);
  for (int i = 0; i < rank(); ++i) {
    if (index.coefficients[i].is_const(0)) continue;
    Term part = loop(i);
    if (!index.coefficients[i].is_const(1))
      part = part * number(index.coefficients[i]);
    out = index.offset.is_const(0) && i == 0 ? part : out + part;
  }
  if (index.data != kNoScalar) out = out + Term{&definition_->body, index.data};
  return out;
}

Term Elements::constant(DType type, double value) {
  return {&definition_->body, definition_->body.constant(type, value)};
}

Term Elements::integer(DType type, int64_t value) {
  return {&definition_->body, definition_->body.integer(type, value)};
}

// ---- definitions

namespace {

bool is_whole(const TensorView& view, const Buffer& buffer) {
  if (view.sizes != buffer.sizes) return false;
  for (int dim = 0; dim < view.rank(); ++dim)
    if (!(view.map[dim] == index_along(view.rank(), dim))) return false;
  return true;
}

}  // namespace

BufferId LoopBuilder::add_buffer(DType type, std::vector<Expr> sizes,
                                 const std::vector<Expr>* strides) {
  Buffer buffer;
  buffer.type = type;
  buffer.strides = strides && strides->size() == sizes.size()
                       ? *strides
                       : codegen::contiguous_strides(sizes);
  buffer.sizes = std::move(sizes);
  return graph_.add_buffer(std::move(buffer));
}

TensorView LoopBuilder::whole(BufferId id) {
  const Buffer& buffer = graph_.buffers[id];
  TensorView out;
  out.buffer = id;
  out.type = buffer.type;
  out.sizes = buffer.sizes;
  for (int dim = 0; dim < out.rank(); ++dim)
    out.map.push_back(index_along(out.rank(), dim));
  return out;
}

TensorView LoopBuilder::map(Elements elements, Term value, DType type,
                            const std::vector<Expr>* strides) {
  Definition& definition = *elements.definition_;
  definition.kind = DefinitionKind::kMap;
  definition.value = cast(type, value).id;
  BufferId id = add_buffer(type, definition.loops, strides);
  definition.results = {id};
  graph_.definitions.push_back(std::move(definition));
  return whole(id);
}

std::vector<TensorView> LoopBuilder::reduce(Elements elements, int reduced,
                                            Combiner combiner, Term value) {
  Definition& definition = *elements.definition_;
  definition.kind = DefinitionKind::kReduce;
  definition.combiner = combiner;
  definition.value = value.id;
  const DType type = value.type();
  std::vector<Expr> sizes(definition.loops.begin(),
                          definition.loops.end() - reduced);
  if (reduced == 0) {
    // Of one element.
    definition.loops.push_back(Expr(1));
    for (Access& access : definition.accesses)
      for (Index& index : access.indices) index.coefficients.push_back(Expr(0));
    reduced = 1;
  }
  definition.reduced = reduced;
  const codegen::CombinerRow& row = combiner_row(combiner);
  std::vector<TensorView> out;
  for (int i = 0; i < row.results; ++i) {
    BufferId id =
        add_buffer(i == 1 && row.place ? DType::kI64 : type, sizes, nullptr);
    definition.results.push_back(id);
    out.push_back(whole(id));
  }
  graph_.definitions.push_back(std::move(definition));
  return out;
}

TensorView LoopBuilder::scan(Elements elements, Combiner combiner, Term value,
                             const std::vector<Expr>* strides) {
  Definition& definition = *elements.definition_;
  definition.kind = DefinitionKind::kScan;
  definition.combiner = combiner;
  definition.value = value.id;
  BufferId id = add_buffer(value.type(), definition.loops, strides);
  definition.results = {id};
  graph_.definitions.push_back(std::move(definition));
  return whole(id);
}

TensorView LoopBuilder::update(Elements elements, const TensorView& base,
                               const std::vector<Index>& target, Term value,
                               std::optional<Combiner> combiner,
                               const std::vector<Expr>* strides_of_nothing) {
  Definition& definition = *elements.definition_;
  definition.kind = DefinitionKind::kUpdate;
  definition.combiner = combiner;
  definition.value = cast(base.type, value).id;
  definition.target = target;
  if (base.buffer != kNoBuffer) definition.base = buffer_of(base);
  const std::vector<Expr>* strides =
      definition.base == kNoBuffer ? strides_of_nothing
                                   : &graph_.buffers[definition.base].strides;
  // Broadcast memory has no place for each element.
  if (strides &&
      std::any_of(strides->begin(), strides->end(), [](const Expr& s) {
        return !s.is_const() || s.constant() <= 0;
      }))
    strides = nullptr;
  if (definition.base != kNoBuffer &&
      graph_.root(definition.base) != definition.base)
    strides = nullptr;
  std::vector<Expr> copied = strides ? *strides : std::vector<Expr>();
  BufferId id = add_buffer(base.type, base.sizes, strides ? &copied : nullptr);
  definition.results = {id};
  graph_.definitions.push_back(std::move(definition));
  return whole(id);
}

static bool same_memory(const LoopBuilder::Memory& a,
                        const LoopBuilder::Memory& b) {
  return a.root == b.root && a.offset == b.offset && a.strides == b.strides;
}

std::optional<TensorView> LoopBuilder::put_back(const TensorView& base,
                                                const TensorView& seen,
                                                const TensorView& part) {
  if (base.is_opaque || part.type != base.type ||
      !is_whole(base, graph_.buffers[base.buffer]) ||
      !is_whole(part, graph_.buffers[part.buffer]))
    return std::nullopt;
  const auto& definitions = graph_.definitions;
  auto made = std::find_if(
      definitions.rbegin(), definitions.rend(), [&](const Definition& d) {
        return std::count(d.results.begin(), d.results.end(), part.buffer);
      });
  if (made == definitions.rend()) return std::nullopt;
  if (made->kind == DefinitionKind::kMap) {
    // A copy of what is there already.
    const codegen::ScalarNode& value = made->body.node(made->value);
    if (value.op != ScalarOp::kLoad) return std::nullopt;
    const Access& access = made->accesses[value.payload];
    TensorView from{access.buffer, part.type, made->loops, access.indices};
    bool is_plain = access.when == kNoScalar &&
                    graph_.buffers[from.buffer].type == part.type;
    for (const Index& index : access.indices)
      is_plain &= index.data == kNoScalar;
    if (!is_plain || !same_memory(memory_of(from), memory_of(seen)) ||
        from.sizes != seen.sizes)
      return std::nullopt;
    // A value of its own all the same: nothing of base is changed.
    Elements nothing(*this, {Expr(0)});
    Term zero = nothing.constant(base.type, 0);
    const std::vector<Index> first(base.sizes.size(), nothing.at(0));
    return update(std::move(nothing), base, first, zero);
  }
  if (made->kind != DefinitionKind::kUpdate || made->base == kNoBuffer)
    return std::nullopt;
  const Definition old = *made;
  Definition update = old;
  const TensorView inner = whole(update.base);
  if (same_memory(memory_of(inner), memory_of(seen)) &&
      inner.sizes == seen.sizes) {
    update.base = base.buffer;
  } else if (auto before = put_back(base, seen, inner)) {
    update.base = before->buffer;
  } else {
    return std::nullopt;
  }
  std::vector<Index> target;
  for (const Index& dim : seen.map) {
    Index composed =
        index_of(static_cast<int>(update.loops.size()), dim.offset);
    for (size_t k = 0; k < dim.coefficients.size(); ++k) {
      const Expr& factor = dim.coefficients[k];
      const Index& index = update.target[k];
      if (factor.is_const(0)) continue;
      composed.offset = composed.offset + factor * index.offset;
      for (size_t loop = 0; loop < update.loops.size(); ++loop)
        composed.coefficients[loop] =
            composed.coefficients[loop] + factor * index.coefficients[loop];
      if (index.data == kNoScalar) continue;
      if (!factor.is_const(1) || composed.data != kNoScalar)
        return std::nullopt;
      composed.data = index.data;
    }
    target.push_back(std::move(composed));
  }
  for (Access& access : update.accesses) {
    if (access.buffer != old.base || access.indices != old.target) continue;
    access.buffer = update.base;
    access.indices = target;
  }
  update.target = std::move(target);
  const std::vector<Expr> strides = graph_.buffers[base.buffer].strides;
  const bool has_places = std::all_of(
      strides.begin(), strides.end(),
      [](const Expr& s) { return s.is_const() && s.constant() > 0; });
  BufferId id =
      add_buffer(base.type, base.sizes, has_places ? &strides : nullptr);
  update.results = {id};
  graph_.definitions.push_back(std::move(update));
  return whole(id);
}

TensorView LoopBuilder::input(DType type, std::vector<Expr> sizes,
                              std::vector<Expr> strides, std::string name) {
  Definition definition;
  definition.kind = DefinitionKind::kInput;
  BufferId id = add_buffer(type, std::move(sizes), &strides);
  graph_.buffers[id].name = std::move(name);
  definition.results = {id};
  graph_.definitions.push_back(std::move(definition));
  return whole(id);
}

TensorView LoopBuilder::copy(const TensorView& view, DType type,
                             const std::vector<Expr>* strides) {
  Elements elements(*this, view.sizes);
  Term value = elements.load(view, elements.at_loops(0, view.rank()));
  return map(std::move(elements), value, type, strides);
}

// ---- memory

LoopBuilder::Memory LoopBuilder::memory_of(const TensorView& view) const {
  const Buffer& buffer = graph_.buffers[view.buffer];
  Memory out{graph_.root(view.buffer), buffer.offset,
             std::vector<Expr>(view.sizes.size(), Expr(0))};
  for (size_t dim = 0; dim < view.map.size(); ++dim) {
    out.offset = out.offset + view.map[dim].offset * buffer.strides[dim];
    for (size_t k = 0; k < out.strides.size(); ++k)
      out.strides[k] =
          out.strides[k] + view.map[dim].coefficients[k] * buffer.strides[dim];
  }
  return out;
}

TensorView LoopBuilder::alias(const TensorView& of, std::vector<Expr> sizes,
                              std::vector<Expr> strides, Expr offset) {
  Buffer buffer;
  buffer.type = of.type;
  buffer.sizes = std::move(sizes);
  buffer.strides = std::move(strides);
  buffer.alias_of = graph_.root(of.buffer);
  buffer.offset = std::move(offset);
  TensorView out = whole(graph_.add_buffer(std::move(buffer)));
  out.is_opaque = of.is_opaque;
  return out;
}

namespace {

bool same_strides(const std::vector<Expr>& sizes, const std::vector<Expr>& a,
                  const std::vector<Expr>& b) {
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    if (!sizes[dim].is_const(1) && a[dim] != b[dim]) return false;
  return true;
}

}  // namespace

BufferId LoopBuilder::buffer_of(const TensorView& view,
                                const std::vector<Expr>* strides) {
  const Buffer buffer = graph_.buffers[view.buffer];
  if (is_whole(view, buffer) &&
      (!strides || same_strides(view.sizes, buffer.strides, *strides)))
    return view.buffer;
  Memory memory = memory_of(view);
  if (!strides || same_strides(view.sizes, memory.strides, *strides))
    return alias(view, view.sizes, strides ? *strides : memory.strides,
                 memory.offset)
        .buffer;
  require(!view.is_opaque, "elements that are not copied");
  return copy(view, view.type, strides).buffer;
}

// ---- views

TensorView LoopBuilder::reindex(const TensorView& view, std::vector<Expr> sizes,
                                const std::vector<Index>& indices) {
  FJ_CHECK(indices.size() == view.sizes.size());
  TensorView out;
  out.buffer = view.buffer;
  out.type = view.type;
  out.is_opaque = view.is_opaque;
  out.sizes = std::move(sizes);
  for (const Index& dim : view.map) {
    Index composed = index_of(out.rank(), dim.offset);
    for (size_t k = 0; k < indices.size(); ++k) {
      const Expr& factor = dim.coefficients[k];
      if (factor.is_const(0)) continue;
      composed.offset = composed.offset + factor * indices[k].offset;
      for (int i = 0; i < out.rank(); ++i)
        composed.coefficients[i] =
            composed.coefficients[i] + factor * indices[k].coefficients[i];
    }
    out.map.push_back(std::move(composed));
  }
  return out;
}

}  // namespace framejit::backend
