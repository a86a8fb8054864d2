#include "libraries/libraries.h"

namespace framejit::libraries {

void register_libraries() {
  for (const bytecode::Library* library :
       {&torch_functions(), &torch_modules(), &torch_overrides(),
        &torch_types(), &numpy_functions(), &debuggers()}) {
    bytecode::register_library(*library);
  }
}

}  // namespace framejit::libraries
