// Methods of tensors that are written in C, however the program calls them.
//
// x.name(...), torch.Tensor.name(x, ...) and super().name(...) come to one
// form: the function of C and its arguments, the tensor first. A class of the
// program may have a method in Python of the same name, which is what x.name
// would find when the graph runs; a node must call what the program called.
#pragma once

#include <string>
#include <vector>

#include "frame_hook/py_ref.h"
#include "guards/result.h"

namespace framejit::graph {

struct TensorMethod {
  std::string name;
  std::vector<PyObject*> args;  // the tensor first
  Ref self;                     // empty: no method of a tensor
  Ref descriptor;
  bool is_found_by_name = true;

  // How a node is to call it: by name, or (null) as a function.
  const char* by_name() const {
    return is_found_by_name ? name.c_str() : nullptr;
  }
};

Result<TensorMethod> method_of(PyObject* callable,
                               const std::vector<PyObject*>& args);

// The method of C that torch.Tensor has by that name.
Result<TensorMethod> tensor_method(PyObject* self, const char* name);

}  // namespace framejit::graph
