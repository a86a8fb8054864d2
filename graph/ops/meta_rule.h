// The meta column of the op table: where the metadata of an operator's results
// comes from (dtype, sizes, strides; on meta tensors with concrete sizes).
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace framejit::graph {

using Stack = std::vector<c10::IValue>;
// Replaces exactly the operator's arguments by its results. False: this case
// is not the rule's, and the arguments are unchanged.
using MetaRule = bool (*)(Stack* arguments);

// Raises where eager would and torch's meta kernel would not. False.
struct MetaCheck {
  MetaRule check;
};

struct MetaColumn {
  enum class Kind : uint8_t {
    kTorch,     // torch's C++ meta kernel, or the kernels it is composed of
    kRehearse,  // eager's own kernel, run on small change (rehearsal.h)
    kRule,      // our rule; what it leaves is rehearsed
    kChecked,   // kTorch, after our check
    kNone,      // unknown: a break
  };
  Kind kind;
  MetaRule rule = nullptr;

  constexpr MetaColumn(Kind of) : kind(of) {}
  constexpr MetaColumn(MetaCheck own) : kind(Kind::kChecked), rule(own.check) {}
  constexpr MetaColumn(MetaRule function) : kind(Kind::kRule), rule(function) {}
};

}  // namespace framejit::graph
