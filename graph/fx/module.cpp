#include "graph/fx/module.h"

#include "graph/fx/module_parts.h"
#include "graph/fx/recording.h"

namespace framejit::graph {

namespace fx {
namespace {

PyTypeObject* type_argument(PyObject* object, PyTypeObject* base) {
  if (!PyType_Check(object) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object), base))
    raise(PyExc_TypeError,
          std::string("a class derived from ") + base->tp_name);
  Py_INCREF(object);  // for good
  return reinterpret_cast<PyTypeObject*>(object);
}

PyObject* set_classes(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 4) raise(PyExc_TypeError, "set_classes takes four classes");
    Classes made;
    made.node = type_argument(args[0], g_node_base);
    made.graph = type_argument(args[1], g_graph_base);
    made.list = type_argument(args[2], &PyList_Type);
    made.dict = type_argument(args[3], &PyDict_Type);
    made.no_kwargs = checked(PyObject_CallNoArgs(args[3])).release();
    g_classes = made;
    return Ref::borrow(Py_None);
  });
}

PyObject* reserve_names(PyObject*, PyObject* names) {
  return object_or_null([&] {
    Ref list = checked(PySequence_List(names));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
      reserve_name(text_of(PyList_GET_ITEM(list.get(), i)));
    return Ref::borrow(Py_None);
  });
}

// ---- names of generated code

struct NamesObject {
  PyObject_HEAD Names* names;
};

PyObject* make_names(PyTypeObject* type, PyObject*, PyObject*) {
  return object_or_null([&] {
    Ref made = checked(type->tp_alloc(type, 0));
    reinterpret_cast<NamesObject*>(made.get())->names = new Names;
    return made;
  });
}
void delete_names(PyObject* self) {
  delete reinterpret_cast<NamesObject*>(self)->names;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
// create(candidate, may_be_reserved=False)
PyObject* create_unique(PyObject* self, PyObject* const* args,
                        Py_ssize_t count) {
  return object_or_null([&] {
    if (count < 1) raise(PyExc_TypeError, "create takes a candidate");
    int may_be_reserved = count > 1 ? PyObject_IsTrue(args[1]) : 0;
    checked(may_be_reserved);
    return text_object(reinterpret_cast<NamesObject*>(self)->names->create(
        text_of(args[0]), may_be_reserved));
  });
}

PyMethodDef g_names_methods[] = {
    {"create", as_function(create_unique), METH_FASTCALL,
     "A unique name made from a candidate."},
    {}};
PyType_Slot g_names_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make_names)},
    {Py_tp_dealloc, reinterpret_cast<void*>(delete_names)},
    {Py_tp_methods, g_names_methods},
    {0, nullptr}};
PyType_Spec g_names_spec = {"framejit._C._fx.Names", sizeof(NamesObject), 0,
                            Py_TPFLAGS_DEFAULT, g_names_slots};

PyTypeObject* g_names_type = nullptr;

PyMethodDef g_module_functions[] = {
    {"set_classes", as_function(set_classes), METH_FASTCALL,
     "Node, Graph, the immutable list and dict."},
    {"reserve_names", reserve_names, METH_O,
     "Names that no node gets: keywords, builtins, globals of generated code."},
    {}};
PyModuleDef g_fx_module = {PyModuleDef_HEAD_INIT,
                           "framejit._C._fx",
                           "The C++ part of framejit.fx.",
                           -1,
                           g_module_functions,
                           nullptr,
                           nullptr,
                           nullptr,
                           nullptr};

}  // namespace

Names& names_in(PyObject* object) {
  if (!Py_IS_TYPE(object, g_names_type))
    raise(PyExc_TypeError, "names of generated code are expected");
  return *reinterpret_cast<NamesObject*>(object)->names;
}

}  // namespace fx

Ref fx_module() {
  try {
    Ref module = fx::checked(PyModule_Create(&fx::g_fx_module));
    fx::add_node_type(module.get());
    fx::add_graph_type(module.get());
    fx::add_views(module.get());
    fx::add_argument_functions(module.get());
    fx::add_tracing(module.get());
    fx::add_proxy_type(module.get());
    fx::add_followed_programs(module.get());
    fx::add_module_parts(module.get());
    Ref names = fx::checked(PyType_FromSpec(&fx::g_names_spec));
    fx::checked(PyModule_AddObjectRef(module.get(), "Names", names.get()));
    fx::g_names_type = reinterpret_cast<PyTypeObject*>(names.release());
    fx::add_source_writer(module.get());
    return module;
  } catch (const fx::Raised&) {
    return {};
  }
}

}  // namespace framejit::graph
