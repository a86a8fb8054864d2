#include "bytecode/nn_module.h"

namespace framejit::bytecode {

Result<Ref> call_module_function(Interpreter& interpreter, PyObject* function,
                                 const Arguments& args, PyObject* kwnames,
                                 bool* handled) {
  *handled = false;
  return Ref();
}

}  // namespace framejit::bytecode
