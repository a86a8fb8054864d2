// How an attribute of a stand-in is read (tensor_attributes.def).
#pragma once

#include <optional>

#include "frame_hook/py_ref.h"

namespace framejit::graph {

enum class AttributeAction {
  kNative,
  kOperation,
  kGrad,
  kIsLeaf,
  kGradFn,
  kBreak
};

// Null: no row (methods, plain class attributes).
std::optional<AttributeAction> attribute_action(PyObject* name);

}  // namespace framejit::graph
