// What must hold of a LoopGraph. Sizes are compared as expressions: two
// symbols that are always equal are one symbol by then.
#include <limits>

#include "codegen/loops/loops.h"

namespace framejit::codegen {
namespace {

std::string buffer_text(BufferId id) {
  return std::string("%").append(std::to_string(id));
}

bool takes(OperandTypes types, DType type) {
  if (is_small_float(type)) return false;
  switch (types) {
    case OperandTypes::kNumber:
      return type != DType::kBool;
    case OperandTypes::kFloat:
      return is_float(type);
    case OperandTypes::kBoolOnly:
      return type == DType::kBool;
    default:
      return true;
  }
}

bool is_size(const Expr& e) {
  return !e.is_float() && !e.is_boolean() &&
         (!e.is_const() || e.constant() >= 0);
}

class Verifier {
 public:
  explicit Verifier(const LoopGraph& graph) : graph_(graph) {}

  std::string run() {
    defined_.resize(graph_.buffers.size());
    for (size_t i = 0; i < graph_.buffers.size() && ok(); ++i)
      check_buffer(static_cast<BufferId>(i));
    for (const Definition& definition : graph_.definitions) {
      if (!ok()) break;
      definition_ = &definition;
      check_definition();
      define_results();
    }
    definition_ = nullptr;
    for (size_t i = 0; i < defined_.size() && ok(); ++i)
      if (!is_defined(static_cast<BufferId>(i)))
        fail(buffer_text(i) + " has no definition");
    for (BufferId output : graph_.outputs)
      if (ok() && !is_defined(output)) fail("an output is not defined");
    if (ok()) check_places();
    return error_;
  }

 private:
  bool ok() const { return error_.empty(); }
  void fail(const std::string& message) {
    if (!ok()) return;
    error_ = message;
    if (definition_ && !definition_->results.empty())
      error_ = buffer_text(definition_->results[0]) + ": " + error_;
  }
  bool require(bool condition, const char* message) {
    if (!condition) fail(message);
    return condition;
  }
  // An alias is where its base is. (Both are in range: check_buffer().)
  bool is_defined(BufferId id) const {
    if (id < 0 || id >= static_cast<BufferId>(defined_.size())) return false;
    BufferId base = graph_.buffers[id].alias_of;
    return defined_[base == kNoBuffer ? id : base];
  }

  // ---- buffers

  void check_buffer(BufferId id) {
    const Buffer& buffer = graph_.buffers[id];
    auto complain = [&](const std::string& message) {
      fail(buffer_text(id) + ": " + message);
    };
    if (buffer.sizes.size() != buffer.strides.size())
      return complain("as many strides as sizes");
    for (const Expr& size : buffer.sizes)
      if (!is_size(size)) return complain("not a size: " + size.str());
    for (const Expr& stride : buffer.strides)
      if (stride.is_float() || stride.is_boolean())
        return complain("not a stride: " + stride.str());
    if (buffer.alias_of == kNoBuffer) {
      if (!buffer.offset.is_const(0)) complain("an offset without an alias");
      return;
    }
    if (buffer.alias_of < 0 ||
        buffer.alias_of >= static_cast<BufferId>(graph_.buffers.size()))
      return complain("an alias of nothing");
    const Buffer& base = graph_.buffers[buffer.alias_of];
    if (base.alias_of != kNoBuffer) return complain("an alias of an alias");
    if (base.type != buffer.type) return complain("an alias of another type");
    check_extent(id, buffer, base);
  }

  struct Extent {
    int64_t first = 0, last = 0;
  };
  // Lowest and highest place; nothing when not constant, or there is none.
  static std::optional<Extent> extent(const Buffer& buffer) {
    Extent out;
    if (!buffer.offset.is_const()) return std::nullopt;
    out.first = out.last = buffer.offset.constant();
    for (size_t dim = 0; dim < buffer.sizes.size(); ++dim) {
      if (!buffer.sizes[dim].is_const() || !buffer.strides[dim].is_const())
        return std::nullopt;
      int64_t size = buffer.sizes[dim].constant();
      if (size == 0) return std::nullopt;
      int64_t step = (size - 1) * buffer.strides[dim].constant();
      (step < 0 ? out.first : out.last) += step;
    }
    return out;
  }

  void check_extent(BufferId id, const Buffer& alias, const Buffer& base) {
    auto inner = extent(alias), outer = extent(base);
    if (!inner || !outer) return;
    if (inner->first < outer->first || inner->last > outer->last)
      fail(buffer_text(id) + ": an alias beyond its memory");
  }

  void define_results() {
    for (BufferId result : definition_->results) {
      if (!ok()) return;
      if (!require(
              result >= 0 && result < static_cast<BufferId>(defined_.size()),
              "a result that is not there"))
        return;
      if (!require(graph_.buffers[result].alias_of == kNoBuffer,
                   "an alias is nobody's result"))
        return;
      if (!require(!defined_[result], "defined twice")) return;
      defined_[result] = true;
    }
  }

  // ---- definitions

  const Buffer& result(size_t i = 0) const {
    return graph_.buffers[definition_->results[i]];
  }

  void check_definition() {
    const Definition& d = *definition_;
    for (BufferId id : d.results)
      if (!require(id >= 0 && id < static_cast<BufferId>(graph_.buffers.size()),
                   "a result that is not there"))
        return;
    switch (d.kind) {
      case DefinitionKind::kInput:
        require(d.results.size() == 1, "an input is one buffer");
        return check_is_plain();
      case DefinitionKind::kExtern:
        for (BufferId operand : d.operands)
          if (!require(is_defined(operand), "an operand that is not defined"))
            return;
        require(d.callee >= 0, "an extern without a callee");
        require(!d.into || d.results.size() == 1,
                "several results that are written to their place");
        require(d.over == -1 || (d.into && d.over >= 0 &&
                                 d.over < static_cast<int>(d.operands.size())),
                "a result over an operand that is not there");
        return check_is_plain();
      case DefinitionKind::kMap:
      case DefinitionKind::kReduce:
      case DefinitionKind::kScan:
      case DefinitionKind::kUpdate:
        break;
    }
    check_loops();
    check_body();
    if (ok()) check_kind();
  }

  void check_is_plain() {
    const Definition& d = *definition_;
    require(d.loops.empty() && d.body.nodes().empty() && !d.combiner &&
                d.base == kNoBuffer,
            "no element is computed here");
  }

  void check_loops() {
    for (const Expr& loop : definition_->loops)
      if (!is_size(loop)) fail("not an extent: " + loop.str());
    int count = static_cast<int>(definition_->loops.size());
    require(definition_->reduced >= 0 && definition_->reduced <= count,
            "reduced loops that are not there");
  }

  bool is_scalar(ScalarId id, ScalarId before) const {
    return id >= 0 && id < before;
  }

  void check_body() {
    const Body& body = definition_->body;
    ScalarId count = static_cast<ScalarId>(body.nodes().size());
    for (ScalarId id = 0; id < count && ok(); ++id) {
      const ScalarNode& node = body.node(id);
      if (std::string wrong = malformed(body, node); !wrong.empty())
        return fail(wrong);
      for (ScalarId in : node.in)
        if (in != kNoScalar && !is_scalar(in, id))
          return fail("an operand behind its user");
      check_leaf(node, id);
    }
    if (!require(is_scalar(definition_->value, count), "no value")) return;
    if (ok()) check_checks();
  }

  // A Check counts because a value needs it: others are not in the text.
  void check_checks() {
    const Definition& d = *definition_;
    std::vector<bool> needed(d.body.nodes().size());
    needed[d.value] = true;
    auto need = [&](const std::vector<Index>& indices) {
      for (const Index& index : indices)
        if (is_scalar(index.data, static_cast<ScalarId>(needed.size())))
          needed[index.data] = true;
    };
    need(d.target);
    for (size_t id = needed.size(); id-- > 0;) {
      const ScalarNode& node = d.body.node(static_cast<ScalarId>(id));
      if (!needed[id]) {
        if (node.op == ScalarOp::kCheck) fail("a check that no value needs");
        continue;
      }
      for (ScalarId in : node.in)
        if (in != kNoScalar) needed[in] = true;
      if (node.op != ScalarOp::kLoad) continue;
      const Access& access = d.accesses[node.payload];
      need(access.indices);
      if (access.when != kNoScalar) needed[access.when] = true;
    }
  }

  void check_leaf(const ScalarNode& node, ScalarId id) {
    auto within = [&](size_t size) {
      return node.payload >= 0 && node.payload < static_cast<int64_t>(size);
    };
    switch (node.op) {
      case ScalarOp::kIndex:
        require(within(definition_->loops.size()), "a loop that is not there");
        break;
      case ScalarOp::kNumber:
        if (require(within(graph_.numbers.size()),
                    "a number that is not there"))
          require(graph_.numbers[node.payload].is_float() ==
                      (node.type == DType::kF64),
                  "a number of the other type");
        break;
      case ScalarOp::kLoad:
        if (require(within(definition_->accesses.size()),
                    "an access that is not there"))
          check_access(definition_->accesses[node.payload], node.type, id);
        break;
      case ScalarOp::kRow:
        fail("row values are of kernels");
        break;
      default:
        break;
    }
  }

  void check_access(const Access& access, DType type, ScalarId before) {
    if (!require(is_defined(access.buffer), "a load of what is not defined"))
      return;
    const Buffer& buffer = graph_.buffers[access.buffer];
    require(buffer.type == type, "a load of another type");
    if (access.when != kNoScalar &&
        require(is_scalar(access.when, before), "a condition behind its load"))
      require(definition_->body.type(access.when) == DType::kBool,
              "a condition that is not b8");
    check_indices(access.indices, buffer, before, access.when != kNoScalar);
  }

  void check_indices(const std::vector<Index>& indices, const Buffer& buffer,
                     ScalarId before, bool is_conditional) {
    if (!require(indices.size() == buffer.sizes.size(), "one index a dim"))
      return;
    for (size_t dim = 0; dim < indices.size(); ++dim) {
      const Index& index = indices[dim];
      if (!require(index.coefficients.size() == definition_->loops.size(),
                   "one coefficient a loop"))
        return;
      bool is_affine = !index.offset.is_float() && !index.offset.is_boolean();
      for (const Expr& e : index.coefficients)
        is_affine &= !e.is_float() && !e.is_boolean();
      if (!require(is_affine, "an index is an integer")) return;
      if (index.data != kNoScalar) {
        if (!require(is_scalar(index.data, before), "data behind its use"))
          return;
        require(definition_->body.type(index.data) == DType::kI64,
                "an index is i64");
      } else if (!is_conditional) {
        check_bounds(index, buffer.sizes[dim]);
      }
    }
  }

  // Where everything is constant.
  void check_bounds(const Index& index, const Expr& size) {
    if (!index.offset.is_const() || !size.is_const()) return;
    int64_t first = index.offset.constant(), last = first;
    for (size_t loop = 0; loop < definition_->loops.size(); ++loop) {
      const Expr& extent = definition_->loops[loop];
      const Expr& step = index.coefficients[loop];
      if (extent.is_const(0)) return;  // never done
      if (step.is_const(0)) continue;
      if (!extent.is_const() || !step.is_const()) return;
      int64_t way = (extent.constant() - 1) * step.constant();
      (way < 0 ? first : last) += way;
    }
    // With an unknown extent that the index does not have, it may never be
    // done; but then nobody needs to write it so.
    require(first >= 0 && last < size.constant(), "an index out of range");
  }

  // ---- outputs

  void check_places() {
    std::vector<bool> is_free(graph_.buffers.size());
    for (const Definition& d : graph_.definitions)
      if (d.kind == DefinitionKind::kInput) is_free[d.results[0]] = true;
    require(graph_.places.size() <= graph_.outputs.size(),
            "a place for an output that is not there");
    for (size_t i = 0; i < graph_.places.size() && ok(); ++i) {
      const BufferId place = graph_.places[i];
      if (place == kNoBuffer) continue;
      if (!require(is_defined(place) && is_free[place],
                   "an output in the place of what is no input, or of another"))
        return;
      is_free[place] = false;
      const Buffer& from = graph_.buffers[graph_.outputs[i]];
      const Buffer& to = graph_.buffers[place];
      require(from.type == to.type && from.sizes == to.sizes &&
                  from.strides == to.strides,
              "an output that does not lie like its place");
    }
  }

  // ---- kinds

  void check_kind() {
    const Definition& d = *definition_;
    if (d.kind != DefinitionKind::kReduce)
      require(d.reduced == 0, "only a reduce reduces");
    if (d.kind != DefinitionKind::kUpdate)
      require(d.base == kNoBuffer && d.target.empty(),
              "only an update has a base");
    require(d.operands.empty() && d.callee == -1 && !d.ordered && !d.kept &&
                !d.sure && !d.into && d.over == -1,
            "only an extern calls");
    const DType value = d.body.type(d.value);
    if (d.kind == DefinitionKind::kMap) {
      require(!d.combiner, "a map does not combine");
      if (!require(d.results.size() == 1, "a map is one buffer")) return;
      require(result().type == value, "the value is of another type");
      require(result().sizes == d.loops, "a result that is not its loops");
      return;
    }
    if (d.kind == DefinitionKind::kUpdate) return check_update(value);
    if (!require(d.combiner.has_value(), "no combiner")) return;
    const CombinerRow& row = combiner_row(*d.combiner);
    if (!require(takes(row.types, value), "type not combined")) return;
    if (!require(static_cast<int>(d.results.size()) == row.results,
                 "not as many results as the combiner has"))
      return;
    std::vector<Expr> domain(d.loops.begin(), d.loops.end() - d.reduced);
    for (int i = 0; i < row.results; ++i) {
      DType type = i == 1 && row.place ? DType::kI64 : value;
      require(result(i).type == type, "the value is of another type");
      require(result(i).sizes == domain, "a result that is not its loops");
    }
    if (d.kind == DefinitionKind::kReduce) {
      require(d.reduced > 0, "nothing is reduced");
    } else {
      require(!d.loops.empty(), "nothing to scan");
      require(row.operation.has_value(), "not a combiner of prefixes");
    }
  }

  void check_update(DType value) {
    const Definition& d = *definition_;
    if (!require(d.results.size() == 1, "an update is one buffer")) return;
    require(result().type == value, "the value is of another type");
    if (d.base != kNoBuffer) {
      if (!require(is_defined(d.base), "a base that is not defined")) return;
      require(graph_.buffers[d.base].type == result().type &&
                  graph_.buffers[d.base].sizes == result().sizes,
              "a base unlike the result");
    }
    if (d.combiner) {
      require(d.base != kNoBuffer, "nothing to combine with");
      require(combiner_row(*d.combiner).operation &&
                  takes(combiner_row(*d.combiner).types, value),
              "type not combined");
    }
    check_indices(d.target, result(),
                  static_cast<ScalarId>(d.body.nodes().size()), false);
  }

  const LoopGraph& graph_;
  const Definition* definition_ = nullptr;
  std::vector<bool> defined_;
  std::string error_;
};

}  // namespace

std::string verify(const LoopGraph& graph) { return Verifier(graph).run(); }

}  // namespace framejit::codegen
