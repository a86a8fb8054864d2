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

}  // namespace framejit::bytecode
