// Getters and setters of C called as such: type(descriptor).__get__(d, x).
#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/object_kinds.h"

namespace framejit::bytecode {

namespace {

// A getter or setter of C that the tensor has under this name.
bool is_tensor_getset(CaptureState& state, const BuiltinCall& call) {
  if (call.args.size() < 2 || call.has_keywords()) return false;
  PyObject* descriptor = call.args[0];
  if (!Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) return false;
  return is_stand_in(state, call.args[1]) &&
         _PyType_Lookup(Py_TYPE(call.args[1]), PyDescr_NAME(descriptor)) ==
             descriptor;
}

}  // namespace

// type(descriptor).__get__(descriptor, x).
Result<Ref> model_getset_get(BuiltinCall& call) {
  if (is_tensor_getset(call.state, call)) {
    return call.state.get_attr(call.args[1], PyDescr_NAME(call.args[0]));
  }
  if (!call.plain(2, 3) || !Py_IS_TYPE(call.args[0], &PyGetSetDescr_Type)) {
    return call.unknown();
  }
  return bind_descriptor(call.state, call.args[0], call.args[1],
                         Py_TYPE(call.args[1]), PyDescr_NAME(call.args[0]));
}

Result<Ref> model_getset_set(BuiltinCall& call) {
  if (!is_tensor_getset(call.state, call) || !call.plain(2, 3)) {
    return call.unknown();
  }
  PyObject* name = PyDescr_NAME(call.args[0]);
  if (call.args.size() == 2) {
    FJ_CHECK_OK(call.state.del_attr(call.args[1], name));
  } else {
    FJ_CHECK_OK(call.state.set_attr(call.args[1], name, call.args[2]));
  }
  return none();
}

}  // namespace framejit::bytecode
