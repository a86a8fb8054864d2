#include "bytecode/objects/fact_object.h"

#include "bytecode/objects/private_type.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

struct FactObject {
  PyObject_HEAD Fact* fact;
};

PyObject* get_attribute(PyObject* self, void* closure) {
  auto name = static_cast<FactName>(reinterpret_cast<uintptr_t>(closure));
  Ref value;
  try {
    value = reinterpret_cast<FactObject*>(self)->fact->read(name);
  } catch (const std::exception&) {
  }
  PyErr_Clear();
  if (!value) PyErr_SetString(PyExc_AttributeError, "no such fact now");
  return value.release();
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<FactObject*>(self)->fact;
  type->tp_free(self);
  Py_DECREF(type);
}

const char* name_of(FactName name) {
  static const char* const kNames[] = {
#define X(name) #name,
      FJ_FACTS(X)
#undef X
  };
  return kNames[size_t(name)];
}

PyTypeObject* fact_type() {
  static PyTypeObject* type = made_once([] {
    static PyGetSetDef getset[] = {
#define X(name)                            \
  {#name, get_attribute, nullptr, nullptr, \
   reinterpret_cast<void*>(FactName::name)},
        FJ_FACTS(X)
#undef X
            {nullptr, nullptr, nullptr, nullptr, nullptr}};
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_getset, getset},
        {0, nullptr}};
    PyTypeObject* made =
        make_private_type("framejit.Fact", sizeof(FactObject), slots);
    set_fact_type(made);
    return made;
  });
  return type;
}

}  // namespace

Result<Ref> make_fact(std::unique_ptr<Fact> fact) {
  PyTypeObject* type = fact_type();
  if (!type) return Result<Ref>::raised();
  Ref made = Ref::steal(type->tp_alloc(type, 0));
  if (!made) return Result<Ref>::raised();
  reinterpret_cast<FactObject*>(made.get())->fact = fact.release();
  return made;
}

const Source* fact_source(CaptureState& state, PyObject* fact, FactName name) {
  SourceArena& sources = state.guards.sources();
  return sources.make(SourceKind::kGetSet, sources.constant(fact),
                      interned(name_of(name)));
}

Ref read_fact(PyObject* fact, FactName name) {
  return reinterpret_cast<FactObject*>(fact)->fact->read(name);
}

}  // namespace framejit::bytecode
