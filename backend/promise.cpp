#include "backend/promise.h"

#include <algorithm>
#include <sstream>

namespace framejit::backend {

Promise::Promise(const graph::TensorMeta& meta)
    : made_(true),
      dtype_(meta.dtype),
      device_(meta.device),
      is_conj_(meta.is_conj),
      is_neg_(meta.is_neg) {
  bool is_static = true;
  for (size_t i = 0; i < meta.sizes.size(); ++i)
    is_static &= meta.sizes[i].is_const() && meta.strides[i].is_const();
  if (!is_static) {
    symbolic_sizes_ = meta.sizes;
    symbolic_strides_ = meta.strides;
    return;
  }
  for (const Expr& size : meta.sizes) sizes_.push_back(size.constant());
  for (const Expr& stride : meta.strides) strides_.push_back(stride.constant());
}

namespace {

c10::SmallVector<int64_t, 8> values_of(const std::vector<Expr>& symbolic,
                                       const std::vector<int64_t>& constant,
                                       const int64_t* symbols) {
  c10::SmallVector<int64_t, 8> values(constant.begin(), constant.end());
  for (const Expr& expr : symbolic) values.push_back(expr.evaluate(symbols));
  return values;
}

bool same_strides(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && a[i] != b[i]) {
      return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    }
  }
  return true;
}

}  // namespace

c10::SmallVector<int64_t, 8> Promise::sizes(const int64_t* symbols) const {
  return values_of(symbolic_sizes_, sizes_, symbols);
}

c10::SmallVector<int64_t, 8> Promise::strides(const int64_t* symbols) const {
  return values_of(symbolic_strides_, strides_, symbols);
}

bool Promise::same_kind(const at::Tensor& result) const {
  return result.defined() && result.scalar_type() == dtype_ &&
         result.layout() == c10::kStrided && result.device() == device_ &&
         result.is_conj() == is_conj_ && result.is_neg() == is_neg_ &&
         !result._is_zerotensor();
}

bool Promise::exactly_kept_by(const at::Tensor& result,
                              const int64_t* symbols) const {
  if (!made_) return true;
  if (!same_kind(result)) return false;
  const at::IntArrayRef sizes = result.sizes(), strides = result.strides();
  if (symbolic_sizes_.empty())
    return sizes == at::IntArrayRef(sizes_) &&
           strides == at::IntArrayRef(strides_);
  if (sizes.size() != symbolic_sizes_.size()) return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != symbolic_sizes_[i].evaluate(symbols) ||
        strides[i] != symbolic_strides_[i].evaluate(symbols))
      return false;
  }
  return true;
}

Promise::Kept Promise::kept_by(const at::Tensor& result,
                               const int64_t* symbols) const {
  if (!made_) return Kept::kYes;
  if (!same_kind(result)) return Kept::kNo;
  bool strides_kept;
  if (symbolic_sizes_.empty()) {
    if (result.sizes() != at::IntArrayRef(sizes_)) return Kept::kNo;
    strides_kept = same_strides(sizes_, result.strides(), strides_);
  } else {
    auto wanted = sizes(symbols);
    if (result.sizes() != at::IntArrayRef(wanted)) return Kept::kNo;
    strides_kept = same_strides(wanted, result.strides(), strides(symbols));
  }
  return strides_kept ? Kept::kYes : Kept::kExceptStrides;
}

std::string Promise::difference(const at::Tensor& result,
                                const int64_t* symbols) const {
  std::ostringstream text;
  auto add = [&](c10::ScalarType dtype, at::IntArrayRef sizes,
                 at::IntArrayRef strides, bool conj, bool neg) {
    text << dtype << " " << sizes << " strides " << strides;
    if (conj) text << " conjugate";
    if (neg) text << " negative";
  };
  if (!result.defined()) {
    text << "nothing";
  } else if (result.layout() != c10::kStrided) {
    text << result.layout();
  } else {
    if (result.device() != device_) text << result.device() << " ";
    if (result._is_zerotensor()) text << "without memory ";
    add(result.scalar_type(), result.sizes(), result.strides(),
        result.is_conj(), result.is_neg());
  }
  text << ", not the ";
  add(dtype_, sizes(symbols), strides(symbols), is_conj_, is_neg_);
  text << " of the trace";
  return text.str();
}

void Suspects::add(const c10::OperatorHandle& op) {
  operators_.push_back(graph::trusted_operator(op));
}

void Suspects::note() const {
  for (const graph::TrustedOperator& each : operators_)
    each.surprise(operators_.size() == 1);
}

void Suspects::fail(const std::string& difference) const {
  note();
  std::string names;
  for (const graph::TrustedOperator& each : operators_)
    names += (names.empty() ? "" : ", ") + each.name();
  throw UnexpectedResult(names + " returned " + difference +
                         "; eager is asked from now on");
}

}  // namespace framejit::backend
