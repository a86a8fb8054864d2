#include "codegen/schedule/expand.h"

#include "codegen/scalar/simplify.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

NumberTable::NumberTable(std::vector<Expr>* numbers) : numbers_(numbers) {
  for (size_t i = 0; i < numbers->size(); ++i)
    known_.emplace((*numbers)[i], static_cast<int>(i));
}

int NumberTable::add(const Expr& number) {
  auto [found, is_new] =
      known_.emplace(number, static_cast<int>(numbers_->size()));
  if (is_new) numbers_->push_back(number);
  return found->second;
}

size_t AccessHash::operator()(const Access& access) const {
  size_t hash = static_cast<size_t>(access.buffer) * 31 +
                static_cast<size_t>(access.when);
  auto mix = [&hash](size_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  };
  for (const Index& index : access.indices) {
    mix(index.offset.hash());
    mix(static_cast<size_t>(index.data));
    for (size_t i = 0; i < index.coefficients.size(); ++i)
      if (!index.coefficients[i].is_const(0))
        mix(index.coefficients[i].hash() + i);
  }
  return hash;
}

ScalarId Expander::number(const Expr& value) {
  if (value.is_const()) return body_.integer(DType::kI64, value.constant());
  DType type = value.is_float() ? DType::kF64 : DType::kI64;
  return body_.emit(ScalarOp::kNumber, type, {-1, -1, -1},
                    numbers_->add(value));
}

ScalarId Expander::scaled(ScalarId value, const Expr& factor) {
  if (value == kNoScalar || factor.is_const(0)) return kNoScalar;
  if (factor.is_const(1)) return value;
  return emit_simplified(body_, ScalarOp::kMul, DType::kI64,
                         {value, number(factor), -1});
}

ScalarId Expander::sum(ScalarId a, ScalarId b) {
  if (a == kNoScalar) return b;
  if (b == kNoScalar) return a;
  return emit_simplified(body_, ScalarOp::kAdd, DType::kI64, {a, b, -1});
}

// A loop's number as a value.
ScalarId Expander::index_value(const Index& index) {
  ScalarId out = index.data;
  for (size_t loop = 0; loop < index.coefficients.size(); ++loop) {
    if (index.coefficients[loop].is_const(0)) continue;
    ScalarId number = body_.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1},
                                 static_cast<int64_t>(loop));
    out = sum(out, scaled(number, index.coefficients[loop]));
  }
  if (out != kNoScalar && index.offset.is_const(0)) return out;
  return sum(out, number(index.offset));
}

Index Expander::compose(const Index& index, const std::vector<Index>& map,
                        const std::vector<ScalarId>& values) {
  Index out;
  out.offset = index.offset;
  out.coefficients.resize(loops_);
  out.data = index.data == kNoScalar ? kNoScalar : values[index.data];
  for (size_t loop = 0; loop < index.coefficients.size(); ++loop) {
    const Expr& factor = index.coefficients[loop];
    if (factor.is_const(0)) continue;
    const Index& inner = map[loop];
    const bool is_one = factor.is_const(1);
    if (!inner.offset.is_const(0))
      out.offset = out.offset + (is_one ? inner.offset : factor * inner.offset);
    for (size_t i = 0; i < loops_; ++i) {
      if (inner.coefficients[i].is_const(0)) continue;
      Expr term =
          is_one ? inner.coefficients[i] : factor * inner.coefficients[i];
      out.coefficients[i] =
          out.coefficients[i].is_const(0) ? term : out.coefficients[i] + term;
    }
    out.data = sum(out.data, scaled(inner.data, factor));
  }
  return out;
}

ScalarId Expander::load(const Access& access) {
  auto [found, is_new] =
      known_.emplace(access, static_cast<int>(accesses_.size()));
  if (is_new) accesses_.push_back(access);
  return body_.emit(ScalarOp::kLoad, graph_.buffers[access.buffer].type,
                    {-1, -1, -1}, found->second);
}

ScalarId Expander::element(const Definition& map, const Access& access) {
  if (auto known = elements_.find(access); known != elements_.end())
    return known->second;
  // Its Checks come with it: they guard its loads.
  ScalarId value = map.value;
  std::vector<ScalarId> checks = checks_of(map.body);
  std::vector<ScalarId*> roots = {&value};
  for (ScalarId& check : checks) roots.push_back(&check);
  expand(map, access.indices, access.when, roots);
  if (access.when != kNoScalar) {
    DType type = body_.type(value);
    ScalarId zero = body_.emit_element(type, 0);
    value = emit_simplified(body_, ScalarOp::kSelect, type,
                            {access.when, value, zero});
  }
  elements_.emplace(access, value);
  return value;
}

ScalarId Expander::expand(const Definition& definition,
                          const std::vector<Index>& map, ScalarId when,
                          ScalarId root) {
  expand(definition, map, when, std::vector<ScalarId*>{&root});
  return root;
}

void Expander::expand(const Definition& definition,
                      const std::vector<Index>& map, ScalarId when,
                      std::vector<ScalarId*> roots) {
  const Body& body = definition.body;
  const size_t count = body.nodes().size();
  std::vector<char> needed(count);
  for (ScalarId* root : roots)
    if (*root != kNoScalar) needed[*root] = true;
  for (size_t id = count; id-- > 0;) {
    if (!needed[id]) continue;
    const ScalarNode& node = body.nodes()[id];
    for (ScalarId in : node.in)
      if (in != kNoScalar) needed[in] = true;
    if (node.op != ScalarOp::kLoad) continue;
    const Access& access = definition.accesses[node.payload];
    if (access.when != kNoScalar) needed[access.when] = true;
    for (const Index& index : access.indices)
      if (index.data != kNoScalar) needed[index.data] = true;
  }
  std::vector<ScalarId> values(count, kNoScalar);
  auto both = [&](ScalarId a, ScalarId b) {
    if (a == kNoScalar) return b;
    if (b == kNoScalar) return a;
    return emit_simplified(body_, ScalarOp::kAnd, DType::kBool, {a, b, -1});
  };
  for (size_t id = 0; id < count; ++id) {
    if (!needed[id]) continue;
    const ScalarNode& node = body.nodes()[id];
    switch (node.op) {
      case ScalarOp::kIndex:
        values[id] = index_value(map[node.payload]);
        break;
      case ScalarOp::kNumber:
        values[id] = number(from_[node.payload]);
        if (body_.type(values[id]) != node.type)
          values[id] = body_.emit(ScalarOp::kNumber, node.type, {-1, -1, -1},
                                  numbers_->add(from_[node.payload]));
        break;
      case ScalarOp::kLoad: {
        const Access& access = definition.accesses[node.payload];
        Access composed;
        composed.buffer = access.buffer;
        for (const Index& index : access.indices)
          composed.indices.push_back(compose(index, map, values));
        composed.when = both(
            when, access.when == kNoScalar ? kNoScalar : values[access.when]);
        values[id] = resolve_(composed);
        break;
      }
      case ScalarOp::kCheck: {
        ScalarId condition = values[node.in[0]];
        if (when != kNoScalar) {
          // Nothing is asked of an element that is not there.
          ScalarId away = emit_simplified(body_, ScalarOp::kNot, DType::kBool,
                                          {when, -1, -1});
          ScalarId holds = emit_simplified(body_, ScalarOp::kOr, DType::kBool,
                                           {away, condition, -1});
          emit_simplified(body_, ScalarOp::kCheck, DType::kBool,
                          {holds, -1, -1});
          values[id] = both(when, condition);
          break;
        }
        values[id] = emit_simplified(body_, ScalarOp::kCheck, DType::kBool,
                                     {condition, -1, -1});
        break;
      }
      default: {
        std::array<ScalarId, 3> in = node.in;
        for (ScalarId& operand : in)
          if (operand != kNoScalar) operand = values[operand];
        values[id] =
            emit_simplified(body_, node.op, node.type, in, node.payload);
        break;
      }
    }
  }
  for (ScalarId* root : roots)
    if (*root != kNoScalar) *root = values[*root];
}

}  // namespace framejit::codegen
