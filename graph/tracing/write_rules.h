// Which writes to tensors a graph without writes can say.
//
// Below autograd a write becomes a new value of the whole memory: the view that
// is written to gets its new elements, and each tensor above it is made again
// of those below. That is exact as long as every element has one place and an
// operation does not read what it writes. Where it is not, the program's own
// calls have to run (the torch level), which also refuse what eager refuses.
// The rules are asked for every operation that a capture records; what they
// find out about symbolic sizes becomes guards.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/ir/torch_level.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {

class WriteRules {
 public:
  // After an operation on stand-ins. Empty: the graph may lose its writes;
  // otherwise why it must stay at torch level.
  std::optional<TorchLevel> check(const c10::OperatorHandle& op,
                                  c10::ArrayRef<c10::IValue> arguments,
                                  c10::ArrayRef<c10::IValue> results);

 private:
  // How a view was made of another tensor.
  struct View {
    int base = 0;             // value id
    bool repeats = false;     // perhaps: by its shape
    bool not_undone = false;  // new elements do not give the base's exactly
    SymbolicShape shape;      // where it may repeat elements
  };

  void note_views(const c10::OperatorHandle& op,
                  c10::ArrayRef<c10::IValue> arguments,
                  c10::ArrayRef<c10::IValue> results);
  std::optional<TorchLevel> check_reshaped(
      c10::ArrayRef<c10::IValue> arguments) const;
  std::optional<TorchLevel> check_view(const at::Tensor& written) const;
  static std::optional<TorchLevel> check_operands(
      const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  std::unordered_map<int, View> views_;  // by value id
  std::unordered_set<int> bases_;        // of the views
};

// Does as_strided() reach for elements that the tensor itself does not have?
// What else is in its storage is not known.
bool reaches_beyond(const at::Tensor& base, const at::Tensor& view);

// The storage of a stand-in's companion: views share it. Null: no stand-in.
const void* companion_storage(const at::Tensor& tensor);
// It itself, which the companion holds.
const c10::Storage* companion_memory(const at::Tensor& tensor);

}  // namespace framejit::graph
