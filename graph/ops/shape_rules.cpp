#include "graph/ops/shape_rules.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

int64_t mismatches = 0;

// The strides of a contiguous tensor, without a decision about empty ones.
std::vector<Expr> plain_strides(const std::vector<Expr>& sizes) {
  std::vector<Expr> strides(sizes.size(), Expr(1));
  for (size_t i = sizes.size(); i-- > 1;) {
    bool empty = sizes[i].is_const() && sizes[i].constant() < 1;
    strides[i - 1] = empty ? strides[i] : strides[i] * sizes[i];
  }
  return strides;
}

template <class Expected>
bool matches(const std::vector<Expr>& exprs, const Expected& expected) {
  if (exprs.size() != expected.size()) return false;
  for (size_t i = 0; i < exprs.size(); ++i) {
    if (hint_of(exprs[i]) != expected[i]) return false;
  }
  return true;
}

bool agrees(const SymbolicShape& shape, const at::Tensor& meta) {
  return matches(shape.sizes, meta.sizes()) &&
         matches(shape.strides, meta.strides()) &&
         hint_of(shape.storage_offset) == meta.storage_offset();
}

SymbolicShape static_shape(const at::Tensor& meta) {
  SymbolicShape shape;
  for (int64_t size : meta.sizes()) shape.sizes.emplace_back(size);
  for (int64_t stride : meta.strides()) shape.strides.emplace_back(stride);
  shape.storage_offset = Expr(meta.storage_offset());
  return shape;
}

void specialise_all(const std::vector<Expr>& exprs) {
  for (const Expr& expr : exprs) {
    std::vector<int> symbols;
    expr.collect_symbols(&symbols);
    for (int symbol : symbols) specialise(Expr::symbol(symbol));
  }
}

// Where results may lie in the memory of an argument, their offsets follow from
// that of the argument; no other result has anything to do with it.
void specialise_value(const c10::IValue& value, bool with_offset) {
  if (value.isSymInt()) {
    if (auto expr = to_expr(value.toSymInt())) specialise_all({*expr});
  } else if (value.isSymIntList()) {
    for (const c10::SymInt& item : value.toSymIntVector()) {
      if (auto expr = to_expr(item)) specialise_all({*expr});
    }
  } else {
    visit_tensors(value, [&](const at::Tensor& tensor) {
      if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
      SymbolicShape shape = shape_of(tensor);
      specialise_all(shape.sizes);
      specialise_all(shape.strides);
      if (with_offset) specialise_all({shape.storage_offset});
    });
  }
}

void specialise_arguments(const OpFacts& facts,
                          c10::ArrayRef<c10::IValue> arguments) {
  // What a package's operator asks for in Python is not seen.
  const bool all = facts.is_custom || facts.op.schema().is_mutable();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool shared = std::ranges::count(facts.aliased_arguments, i) > 0;
    specialise_value(arguments[i], all || shared);
  }
}

// The layout of a result follows from comparisons between the strides of each
// input, and from which of its sizes are 1.
void keep_order_of_strides(const ShapeCall& call,
                           const std::vector<Expr>& sizes) {
  for (const c10::IValue& argument : call.arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      SymbolicShape input = shape_of(tensor);
      size_t rank = input.strides.size();
      for (size_t i = 0; i < rank; ++i) {
        decide(expr_eq(input.sizes[i], 1));
        for (size_t j = i + 1; j < rank; ++j) {
          const Expr &a = input.strides[i], &b = input.strides[j];
          // TensorIterator looks at the next input for a broadcast dim.
          if (a.is_const(0) || b.is_const(0)) continue;
          if (decide(expr_lt(b, a)) || !decide(expr_eq(a, b))) continue;
          // Equal strides: TensorIterator goes on to compare the sizes of the
          // result. The later dim is the inner one unless it is longer.
          decide(expr_lt(input.sizes[i], input.sizes[j]));
          if (sizes.size() < rank) continue;
          size_t skip = sizes.size() - rank;
          decide(expr_lt(sizes[skip + i], sizes[skip + j]));
        }
      }
    });
  }
}

// Where all arguments lie alike and have no gaps, a result may have their very
// strides: those of dims of one element say nothing, and are kept.
std::optional<std::vector<Expr>> strides_of_dense_inputs(
    const ShapeCall& call, const std::vector<Expr>& sizes) {
  std::optional<std::vector<Expr>> strides;
  bool alike = true;
  for (const c10::IValue& argument : call.arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      SymbolicShape shape = shape_of(tensor);
      alike &= shape.sizes == sizes && is_dense(shape) &&
               (!strides || *strides == shape.strides);
      strides = std::move(shape.strides);
    });
  }
  return alike ? strides : std::nullopt;
}

}  // namespace

// ---- arguments

ShapeCall::ShapeCall(const OpFacts& op_facts, c10::ArrayRef<c10::IValue> args,
                     std::vector<at::Tensor> results)
    : facts(op_facts),
      arguments(args),
      metas(std::move(results)),
      shapes(metas.size()) {}

bool ShapeCall::is_tensor(size_t i) const {
  return arguments[i].isTensor() && arguments[i].toTensor().defined();
}

SymbolicShape ShapeCall::tensor(size_t i) const {
  return shape_of(arguments[i].toTensor());
}

std::vector<SymbolicShape> ShapeCall::tensors(size_t i) const {
  std::vector<SymbolicShape> result;
  visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
    result.push_back(shape_of(tensor));
  });
  return result;
}

Expr ShapeCall::integer(size_t i) const {
  const c10::IValue& value = arguments[i];
  if (value.isSymInt()) return to_expr(value.toSymInt()).value();
  return Expr(value.toInt());
}

Expr ShapeCall::integer_or(size_t i, int64_t value) const {
  return has(i) ? integer(i) : Expr(value);
}

int64_t ShapeCall::constant(size_t i) const { return specialise(integer(i)); }

int64_t ShapeCall::constant_or(size_t i, int64_t value) const {
  return has(i) ? constant(i) : value;
}

bool ShapeCall::boolean(size_t i, bool otherwise) const {
  return has(i) ? arguments[i].toBool() : otherwise;
}

std::vector<Expr> ShapeCall::integers(size_t i) const {
  const c10::IValue& value = arguments[i];
  std::vector<Expr> result;
  if (value.isSymIntList()) {
    for (const c10::SymInt& item : value.toSymIntVector()) {
      result.push_back(to_expr(item).value());
    }
  } else if (value.isIntList()) {
    for (int64_t item : value.toIntVector()) result.emplace_back(item);
  } else if (!value.isNone()) {
    result.push_back(integer(i));
  }
  return result;
}

std::vector<int64_t> ShapeCall::constants(size_t i) const {
  std::vector<int64_t> result;
  for (const Expr& expr : integers(i)) result.push_back(specialise(expr));
  return result;
}

// ---- results

void ShapeCall::view(size_t result, SymbolicShape shape) {
  shapes.at(result) = std::move(shape);
}

bool ShapeCall::inputs_are_contiguous() const {
  bool contiguous = true;
  for (const c10::IValue& argument : arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      SymbolicShape shape = shape_of(tensor);
      contiguous &= shape.strides == plain_strides(shape.sizes);
    });
  }
  return contiguous;
}

bool ShapeCall::fresh_contiguous(size_t result, std::vector<Expr> sizes) {
  SymbolicShape& shape = shapes.at(result);
  shape.strides = contiguous_strides(sizes);
  shape.sizes = std::move(sizes);
  shape.storage_offset = Expr(0);
  return agrees(shape, metas[result]);
}

bool ShapeCall::fresh(size_t result, std::vector<Expr> sizes) {
  if (inputs_are_contiguous()) return fresh_contiguous(result, sizes);
  return fresh_nested(*this, result, std::move(sizes));
}

// ---- the driver

bool is_symbolic_call(c10::ArrayRef<c10::IValue> arguments) {
  bool symbolic = false;
  for (const c10::IValue& value : arguments) {
    if (value.isSymInt()) {
      symbolic |= !value.toSymInt().maybe_as_int().has_value();
    } else if (value.isSymIntList()) {
      for (const c10::SymInt& item : value.toSymIntVector()) {
        symbolic |= !item.maybe_as_int().has_value();
      }
    } else {
      visit_tensors(value, [&](const at::Tensor& tensor) {
        symbolic |= tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
      });
    }
  }
  return symbolic;
}

void infer_shapes(ShapeCall& call) {
  // Where it only writes to arguments, their sizes stay (out_arguments.h sees
  // to those of out=), and for sizes that do not fit it raises as eager does.
  // What becomes a view of itself is asked about afterwards.
  bool writes = call.facts.keeps_sizes || call.facts.changes_metadata ||
                call.facts.form == OpFacts::Form::kOut;
  if (writes && call.metas.empty() && !call.facts.is_custom) return;
  ShapeRuleFunction rule = call.facts.row ? call.facts.row->shape : nullptr;
  bool covered = rule && rule(call);
  if (covered) {
    for (size_t i = 0; i < call.metas.size(); ++i) {
      if (agrees(call.shapes[i], call.metas[i])) continue;
      mismatches++;
      covered = false;
    }
  }
  if (covered) return;
  specialise_arguments(call.facts, call.arguments);
  for (size_t i = 0; i < call.metas.size(); ++i) {
    call.shapes[i] = static_shape(call.metas[i]);
  }
}

int64_t shape_rule_mismatches() { return mismatches; }

// ---- shared by the families

int argument_index(const ShapeCall& call, std::string_view name) {
  const auto& schema = call.facts.op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == name) return static_cast<int>(i);
  }
  return -1;
}

bool fresh_nested(ShapeCall& call, size_t result, std::vector<Expr> sizes) {
  // Pin the order of the strides, then nest in the companion's.
  const at::Tensor& meta = call.metas.at(result);
  if (static_cast<size_t>(meta.dim()) != sizes.size()) return false;
  keep_order_of_strides(call, sizes);
  for (Expr& size : sizes) {
    // Sizes of 0 or 1 change the order: what is one now is one always.
    if (decide(expr_lt(1, size))) continue;
    size = Expr(specialise(size));
  }
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (meta.stride(a) != meta.stride(b))
      return meta.stride(a) < meta.stride(b);
    return meta.size(a) < meta.size(b) ||
           (meta.size(a) == meta.size(b) && a > b);
  });
  SymbolicShape& shape = call.shapes.at(result);
  shape.strides.assign(sizes.size(), Expr(1));
  shape.sizes = std::move(sizes);
  shape.storage_offset = Expr(0);
  // Behind a dim without elements TensorIterator has strides of 0, and other
  // code takes the dim for one of 1.
  for (bool as_one : {true, false}) {
    Expr stride(1);
    for (size_t dim : order) {
      shape.strides[dim] = stride;
      const Expr& size = shape.sizes[dim];
      stride = stride * (as_one && size.is_const(0) ? Expr(1) : size);
    }
    if (agrees(shape, meta)) return true;
  }
  auto strides = strides_of_dense_inputs(call, shape.sizes);
  if (!strides) return false;
  shape.strides = *std::move(strides);
  return agrees(shape, meta);
}

Expr normalised_dim(const Expr& index, const Expr& size) {
  return decide(expr_lt(index, 0)) ? index + size : index;
}

int64_t wrap_dim(int64_t dim, size_t rank) {
  int64_t count = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  if (dim < 0) dim += count;
  TORCH_CHECK_INDEX(dim >= 0 && dim < count, "dimension out of range");
  return dim;
}

bool decide_same(const std::vector<Expr>& a, const std::vector<Expr>& b,
                 size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!decide(expr_eq(a[i], b[i]))) return false;
  }
  return true;
}

bool broadcast(const std::vector<Expr>& a, const std::vector<Expr>& b,
               std::vector<Expr>* result) {
  const std::vector<Expr>& longer = a.size() >= b.size() ? a : b;
  const std::vector<Expr>& shorter = a.size() >= b.size() ? b : a;
  std::vector<Expr> sizes = longer;
  size_t skip = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Expr& x = longer[skip + i];
    const Expr& y = shorter[i];
    if (x == y) continue;
    // Which of the three cases of broadcasting it is must hold at every size.
    if (decide(expr_eq(y, 1))) continue;
    if (decide(expr_eq(x, 1))) {
      sizes[skip + i] = y;
      continue;
    }
    if (!decide(expr_eq(x, y))) return false;
    if (y.is_const()) sizes[skip + i] = y;
  }
  *result = std::move(sizes);
  return true;
}

Expr product(const std::vector<Expr>& sizes) {
  Expr result(1);
  for (const Expr& size : sizes) result = result * size;
  return result;
}

int64_t list_item(const std::vector<int64_t>& list, size_t i,
                  int64_t otherwise) {
  if (list.empty()) return otherwise;
  return list.size() == 1 ? list[0] : list.at(i);
}

Expr list_item(const std::vector<Expr>& list, size_t i, int64_t otherwise) {
  if (list.empty()) return Expr(otherwise);
  return list.size() == 1 ? list[0] : list.at(i);
}

Expr window_count(const Expr& size, const Expr& kernel, const Expr& stride,
                  const Expr& padding, const Expr& dilation) {
  Expr room = size + padding * 2 - dilation * (kernel - 1) - 1;
  return floor_div(room, stride) + 1;
}

}  // namespace framejit::graph
