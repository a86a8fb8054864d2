#include "bytecode/builtins/streams.h"

#include <string>

#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

bool is_io_type(PyObject* object, const char* name) {
  return as_object(Py_TYPE(object)) == library_object("_io", name);
}

// What the class has under this name is of the C library's own.
template <class Descriptor>
Descriptor* io_descriptor(PyObject* object, const char* name,
                          PyTypeObject* kind) {
  PyObject* found = raw_lookup(Py_TYPE(object), name);
  bool own = found && Py_IS_TYPE(found, kind) &&
             is_type_of_module(PyDescr_TYPE(found), "_io");
  return own ? reinterpret_cast<Descriptor*>(found) : nullptr;
}

// `get(object, name)`: an attribute, as Result<Ref>.
template <class Get>
Result<bool> has_io_method(PyObject* object, const char* name, Get get) {
  auto* descriptor =
      io_descriptor<PyMethodDescrObject>(object, name, &PyMethodDescr_Type);
  if (!descriptor) return false;
  // `stream.write = log` lies before it.
  FJ_TRY(Ref method, get(object, name));
  return PyCFunction_Check(method.get()) &&
         reinterpret_cast<PyCFunctionObject*>(method.get())->m_ml ==
             descriptor->d_method;
}

template <class Get>
Result<Ref> io_member(PyObject* object, const char* name, Get get) {
  if (!io_descriptor<PyMemberDescrObject>(object, name, &PyMemberDescr_Type))
    return Ref();
  return get(object, name);
}

template <class Get>
Result<bool> stays_in_c(PyObject* stream, Get get) {
  for (const char* name : {"write", "flush"}) {
    FJ_TRY(bool own, has_io_method(stream, name, get));
    if (!own) return false;
  }
  if (is_io_type(stream, "StringIO")) return true;
  FJ_TRY(Ref buffer, io_member(stream, "buffer", get));
  if (!buffer) return false;
  if (is_io_type(buffer.get(), "BytesIO") || is_io_type(buffer.get(), "FileIO"))
    return true;
  if (!is_io_type(buffer.get(), "BufferedWriter") &&
      !is_io_type(buffer.get(), "BufferedRandom"))
    return false;
  FJ_TRY(Ref raw, io_member(buffer.get(), "raw", get));
  return raw && is_io_type(raw.get(), "FileIO");
}

auto guarded(CaptureState& state) {
  return [&state](PyObject* object, const char* name) {
    return state.get_attr(object, interned(name));
  };
}

// Asked for natively; empty: it raised.
Ref native_attribute(PyObject* object, const char* name) {
  ErrorGuard keep;
  PauseHook pause;
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return value;
}

}  // namespace

Result<bool> writes_in_c(CaptureState& state, PyObject* stream) {
  return stays_in_c(stream, guarded(state));
}

bool writes_in_c_now(PyObject* stream) {
  ErrorGuard keep;
  Result<bool> found =
      stays_in_c(stream, [](PyObject* object, const char* name) -> Result<Ref> {
        // (Of a class with a __getattribute__ nothing is known.)
        if (Py_TYPE(object)->tp_getattro != PyObject_GenericGetAttr)
          return Result<Ref>::raised();
        return from_api(PyObject_GenericGetAttr(object, interned(name)));
      });
  if (PyErr_Occurred()) PyErr_Clear();
  return found.ok() && found.value();
}

namespace {

// Empty: there is none.
Result<Ref> standard_stream(CaptureState& state, const char* name) {
  Ref text = Ref::steal(PyUnicode_FromString("sys"));
  Ref module = text ? Ref::steal(PyImport_GetModule(text.get())) : Ref();
  if (!module) return Result<Ref>::raised();
  state.pin(module.get());
  Result<Ref> stream = state.get_attr(module.get(), interned(name));
  if (!stream.is_raised()) return stream;
  PyErr_Clear();
  return Ref();
}

}  // namespace

Result<bool> standard_writes_in_c(CaptureState& state, const char* name) {
  FJ_TRY(Ref stream, standard_stream(state, name));
  if (!stream) return false;
  if (stream.get() == Py_None) return true;
  return writes_in_c(state, stream.get());
}

bool standard_writes_in_c_now(const char* name) {
  PyObject* stream = PySys_GetObject(name);
  return !stream || stream == Py_None || writes_in_c_now(stream);
}

Result<bool> is_standard_replaced(CaptureState& state, const char* name) {
  FJ_TRY(Ref stream, standard_stream(state, name));
  return stream.get() != PySys_GetObject(name);
}

bool is_encodable(PyObject* text) {
  ErrorGuard keep;
  bool fine = PyUnicode_AsUTF8(text) != nullptr;
  if (!fine) PyErr_Clear();
  return fine;
}

Result<bool> takes_text(CaptureState& state, PyObject* stream,
                        const std::vector<PyObject*>& texts) {
  FJ_TRY(bool in_c, writes_in_c(state, stream));
  const Source* source = state.source_of(stream);
  if (!in_c || !source) return false;
  Ref closed = native_attribute(stream, "closed");
  if (closed.get() != Py_False) return false;
  state.guard(GuardKind::kEquals,
              state.guards.sources().make(SourceKind::kGetSet, source,
                                          interned("closed")),
              Py_False);
  if (is_io_type(stream, "StringIO")) return true;
  FJ_TRY(Ref buffer, state.get_attr(stream, interned("buffer")));
  // (Buffers of bytes asked their file when they were made.)
  if (is_io_type(buffer.get(), "FileIO")) {
    Ref mode = native_attribute(buffer.get(), "mode");
    const Source* file = state.source_of(buffer.get());
    if (!mode || !file ||
        text_of(mode.get()).find_first_of("wax+") == std::string::npos)
      return false;
    state.guard(GuardKind::kEquals,
                state.guards.sources().make(SourceKind::kGetSet, file,
                                            interned("mode")),
                mode.get());
  }
  FJ_TRY(Ref encoding, state.get_attr(stream, interned("encoding")));
  const bool all_of_unicode =
      PyUnicode_CheckExact(encoding.get()) &&
      (PyUnicode_CompareWithASCIIString(encoding.get(), "utf-8") == 0 ||
       PyUnicode_CompareWithASCIIString(encoding.get(), "UTF-8") == 0);
  for (PyObject* written : texts) {
    if (!PyUnicode_IS_ASCII(written) &&
        !(all_of_unicode && is_encodable(written))) {
      return false;
    }
  }
  return true;
}

}  // namespace framejit::bytecode
