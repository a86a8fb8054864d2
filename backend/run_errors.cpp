#include "backend/run_errors.h"

#include <stdexcept>

#include "frame_hook/dispatcher.h"
#include "graph/tensors/python_tensor.h"
#include "guards/result.h"

namespace framejit::backend {

void set_run_error() {
  if (PyErr_Occurred()) return;
  try {
    throw;
  } catch (const InternalError& error) {
    set_internal_error("running a graph: " + error.message());
  } catch (const std::logic_error& error) {  // .at() and the like
    set_internal_error(std::string("running a graph: ") + error.what());
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace framejit::backend
