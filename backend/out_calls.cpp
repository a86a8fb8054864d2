#include "backend/out_calls.h"

#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string_view>

namespace framejit::backend {

namespace {

const OutCall kRows[] = {
#define FJ_OUT_CALL(name, overload, over, ...) \
  {"aten::" name, overload, over,              \
   [](at::Tensor& out, const CallArguments& args) { (__VA_ARGS__); }},
#include "backend/out_calls.def"
#undef FJ_OUT_CALL
};

// A tensor at hand, or a number. (A number that becomes a tensor is made for
// the call.)
bool is_plain(const AtenArg& arg) {
  return arg.kind == AtenArg::Kind::kConstant ||
         arg.kind == AtenArg::Kind::kRegister ||
         arg.kind == AtenArg::Kind::kExpr;
}

}  // namespace

const at::Tensor& CallArguments::tensor(size_t i) const {
  const AtenArg& arg = args_[i];
  return (arg.kind == AtenArg::Kind::kRegister ? registers_[arg.reg]
                                               : arg.constant)
      .toTensor();
}

at::Scalar CallArguments::scalar(size_t i) const {
  return build_aten_arg(args_[i], registers_, symbols_).toScalar();
}

const OutCall* find_out_call(const c10::OperatorHandle& op,
                             const std::vector<AtenArg>& args,
                             const graph::TensorMeta& result) {
  // Whether the memory of a complex tensor is conjugated is up to the operator.
  if (!graph::is_contiguous(result) || result.is_conj || result.is_neg ||
      c10::isComplexType(result.dtype) ||
      !std::all_of(args.begin(), args.end(), is_plain))
    return nullptr;
  const c10::OperatorName& name = op.operator_name();
  for (const OutCall& row : kRows)
    if (name.name == row.name && name.overload_name == row.overload)
      return &row;
  return nullptr;
}

bool are_calls_seen() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  return !(keys.included_ - keys.excluded_ - c10::default_included_set).empty();
}

}  // namespace framejit::backend
