// What is known of one operator of the running torch: its row of the op table
// (op_table.h) and what its schema, its tags and torch's own kernels say,
// looked up once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ops/op_table.h"
#include "graph/ops/trust.h"
#include "graph/tensors/libtorch_private.h"
#include "guards/set/guard_set.h"

namespace framejit::graph {

struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op);

  // Of the row, or of the tags where there is no row.
  bool has(Traits some) const {
    return (static_cast<uint32_t>(traits) & static_cast<uint32_t>(some)) != 0;
  }
  // An operator that writes to arguments, and the functional one it stands for.
  enum class Form : uint8_t { kFunctional, kInPlace, kOut };

  c10::OperatorHandle op;
  std::string name;   // "aten::add.Tensor"; no trailing dot
  std::string shown;  // "aten.add.Tensor"
  Form form = Form::kFunctional;
  std::optional<c10::OperatorHandle> functional;  // of kInPlace and kOut
  const OpRow* row = nullptr;  // of the functional form; null: none
  Traits traits = kNoTraits;
  size_t num_arguments = 0;
  size_t num_results = 0;
  int device_argument = -1;
  int pin_memory_argument = -1;
  bool has_tensor_arguments = false;
  std::vector<int> written_arguments;
  std::vector<int> aliased_arguments;  // whose memory the results may share
  std::vector<int> result_alias;       // the written argument returned, or -1
  bool only_in_place = false;          // every result is a written argument
  bool changes_metadata = false;       // tag inplace_view
  bool keeps_sizes = false;            // in place: add_, not add.out
  bool ignores_floats = false;         // the metadata of the results does not
                                // depend on the value of a float argument
  bool is_custom = false;  // registered by a package
  MetaKernel kernel;
  int running = 0;  // inference is in its composite kernel
  std::atomic<Trust> trust = Trust::kInference;
};

// Not of torch itself: what it does is known from its schema alone.
inline bool is_custom_operator(std::string_view name) {
  return !name.starts_with("aten::") && !name.starts_with("prims::");
}

OpFacts& facts_of(const c10::OperatorHandle& op);  // needs the GIL

// Guards that are added because of it.
inline GuardSet::Cause cause_of(const OpFacts& facts) {
  return {[](const void* what) {
            return static_cast<const OpFacts*>(what)->shown.c_str();
          },
          &facts};
}

}  // namespace framejit::graph
