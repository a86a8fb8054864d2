#include "bytecode/objects/breaks.h"

namespace framejit::bytecode {

Break unguardable(CaptureState& state, PyObject* object, const char* what) {
  return state.make_break(
      BreakReason::kUnguardableInput,
      std::string(what) + " of a " + Py_TYPE(object)->tp_name);
}

Break unguardable_key(CaptureState& state, PyObject* key) {
  return state.make_break(
      BreakReason::kUnguardableInput,
      std::string("a key of type ") + Py_TYPE(key)->tp_name);
}

Break unsupported_item(CaptureState& state, PyObject* object) {
  return state.make_break(
      BreakReason::kUnsupportedWrite,
      std::string("an item of a ") + Py_TYPE(object)->tp_name);
}

Break shared_cached_result(CaptureState& state, BreakReason reason) {
  return state.make_break(reason, "the result of an lru_cache function");
}

Break written_class_dict(CaptureState& state) {
  return state.make_break(BreakReason::kUnsupportedWrite,
                          "the dict of a class that was written");
}

Break too_deep(CaptureState& state, const char* what) {
  return state.make_break(BreakReason::kTooLarge,
                          std::string(what) + " nested too deeply");
}

}  // namespace framejit::bytecode
