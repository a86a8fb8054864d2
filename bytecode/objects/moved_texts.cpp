#include "bytecode/objects/moved_texts.h"

#include "bytecode/objects/opaque_value.h"

namespace framejit::bytecode {

Result<Ref> moved_text(CaptureState& state, PyObject* object,
                       const Source* source) {
  MovedTexts& texts = state.table<MovedTexts>();
  if (!texts.allowed || source->kind == SourceKind::kConst) return Ref();
  if (!PyUnicode_CheckExact(object) && !PyBytes_CheckExact(object))
    return Ref();
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  FJ_TRY(Ref moved, make_opaque(state, OpaqueKind::kMoved, type));
  state.guard(GuardKind::kTypeIs, source, type);
  state.register_input(moved.get(), source);
  texts.any = true;
  return moved;
}

namespace {

constexpr int kMaxDepth = 4;
constexpr int kMaxItems = 256;

// `left`: how many objects may still be looked at.
bool holds(CaptureState& state, PyObject* object, int depth, int& left) {
  if (!object) return false;
  if (is_opaque(object, OpaqueKind::kMoved)) return true;
  if (PyExceptionInstance_Check(object))
    object = reinterpret_cast<PyBaseExceptionObject*>(object)->args;
  const bool is_sequence = PyTuple_Check(object) || PyList_Check(object);
  if (!is_sequence && !PyDict_Check(object)) return false;
  // One that came in holds none: what is written to it is in the write log.
  if (state.is_input(object)) return false;
  if (depth == kMaxDepth) return true;
  if (is_sequence) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(object, i);
      if (--left < 0 || holds(state, item, depth + 1, left)) return true;
    }
    return false;
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(object, &position, &key, &value)) {
    if (--left < 0 || holds(state, value, depth + 1, left)) return true;
  }
  return false;
}

}  // namespace

bool holds_moved_text(CaptureState& state, PyObject* object) {
  if (!state.table<MovedTexts>().any) return false;
  int left = kMaxItems;
  return holds(state, object, 0, left);
}

Status check_given_to_c(CaptureState& state, PyObject* object) {
  if (!holds_moved_text(state, object)) return ok_status();
  return state.make_break(BreakReason::kUnguardableInput,
                          "C code is given a text that is handed on");
}

Status check_given_to_c(CaptureState& state,
                        const std::vector<PyObject*>& objects) {
  if (!state.table<MovedTexts>().any) return ok_status();
  for (PyObject* object : objects) FJ_CHECK_OK(check_given_to_c(state, object));
  return ok_status();
}

}  // namespace framejit::bytecode
