// Out calls: ATen operators that write their result where it is to lie.
//
// A row (out_calls.def) is a typed call of an operator's out= form, on a tensor
// over planned memory (perhaps that of an argument: `over`; then it is that
// tensor, as in the in-place form). It computes what the functional form would,
// which for these operators makes a contiguous result and calls the same
// kernel. What has no row is called boxed, and its result taken as it comes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>
#include <vector>

#include "backend/aten_args.h"

namespace framejit::backend {

// The arguments of one call, in the order of the functional schema.
class CallArguments {
 public:
  CallArguments(const std::vector<AtenArg>& args, c10::IValue* registers,
                const int64_t* symbols)
      : args_(args), registers_(registers), symbols_(symbols) {}

  const at::Tensor& tensor(size_t i) const;
  at::Scalar scalar(size_t i) const;

 private:
  const std::vector<AtenArg>& args_;
  c10::IValue* registers_;
  const int64_t* symbols_;
};

struct OutCall {
  std::string_view name, overload;
  int over;  // the argument in whose place the result may be made; -1: none
  void (*call)(at::Tensor& out, const CallArguments& args);
};

// Null: no row for the operator, or not for such arguments and such a result.
const OutCall* find_out_call(const c10::OperatorHandle& op,
                             const std::vector<AtenArg>& args,
                             const graph::TensorMeta& result);

// Somebody sees the operators that are called (a mode, a transform): they are
// to be those of the graph then.
bool are_calls_seen();

}  // namespace framejit::backend
