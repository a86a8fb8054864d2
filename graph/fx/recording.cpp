#include "graph/fx/recording.h"

#include <structmember.h>

#include <array>

#include "frame_hook/cpython_internals.h"

namespace framejit::graph::fx {

PyTypeObject* g_tracer_base = nullptr;

namespace {

constexpr size_t kNumMethods = static_cast<size_t>(TracerMethod::kCount);
constexpr const char* kMethodNames[kNumMethods] = {
    "create_proxy", "create_node",    "create_arg",     "proxy",
    "call_module",  "is_leaf_module", "path_of_module", "getattr"};

// Set once by framejit/fx.
struct Tracing {
  std::array<std::vector<PyObject*>, kNumMethods> ours;
  PyTypeObject* proxy = nullptr;
  PyObject* note_place = nullptr;  // of a node, where stack traces are recorded
};
Tracing g_tracing;

// ---- arguments

// What Tracer.create_arg makes of the kinds that are met all the time; all
// others are its own.
class RecordedArguments : public ToArg {
 public:
  RecordedArguments(PyObject* graph, PyObject* tracer)
      : ToArg(graph), tracer_(tracer) {}

  Arg convert(PyObject* object) override {
    if (is_proxy(object)) return node(node_of_proxy(object).get());
    if (object == Py_None || PyBool_Check(object) ||
        PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
        PyUnicode_CheckExact(object))
      return object == Py_None ? Arg() : leaf(object);
    if (PyTuple_CheckExact(object)) return tree(object);
    // Converting may run Python code of the program.
    if (PyList_CheckExact(object)) {
      Ref copy = checked(PyList_GetSlice(object, 0, PyList_GET_SIZE(object)));
      return tree(copy.get());
    }
    if (PyDict_CheckExact(object) && has_plain_keys(object)) {
      Ref copy = checked(PyDict_Copy(object));
      return tree(copy.get());
    }
    if (PySlice_Check(object)) return tree(object);
    Ref name = Ref::borrow(method_name(TracerMethod::kCreateArg));
    Ref made = checked(PyObject_CallMethodOneArg(tracer_, name.get(), object));
    return ToArg::convert(made.get());
  }

 private:
  static bool has_plain_keys(PyObject* dict) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &position, &key, &value))
      if (!PyUnicode_CheckExact(key)) return false;
    return true;
  }

  PyObject* tracer_;
};

Arguments converted(PyObject* graph, PyObject* tracer,
                    const Operation& operation) {
  RecordedArguments convert(graph, tracer);
  Arguments out;
  out.args.reserve(operation.count);
  for (size_t i = 0; i < operation.count; ++i)
    out.args.push_back(convert.convert(operation.args[i]));
  if (operation.kwargs && PyDict_GET_SIZE(operation.kwargs)) {
    Ref copy = checked(PyDict_Copy(operation.kwargs));
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(copy.get(), &position, &key, &value))
      out.kwargs.emplace_back(text_of(key), convert.convert(value));
  }
  return out;
}

// ---- nodes

// The modules that a node is traced in; where it is in the program.
void describe(PyObject* tracer, Node& node, PyObject* face) {
  static PyObject* const key = PyUnicode_InternFromString("nn_module_stack");
  static PyObject* const places =
      PyUnicode_InternFromString("record_stack_traces");
  auto* object = reinterpret_cast<TracerObject*>(tracer);
  PyObject* stack = object->module_stack;
  if (object->stack_chain) {
    node.meta = Ref::borrow(object->stack_chain);
  } else if (stack && PyDict_Check(stack) && PyDict_GET_SIZE(stack)) {
    Ref copy = checked(PyDict_Copy(stack));
    if (!node.meta) node.meta = checked(PyDict_New());
    checked(PyDict_SetItem(node.meta.get(), key, copy.get()));
  }
  Ref records = checked(PyObject_GetAttr(tracer, places));
  if (records.get() == Py_False) return;
  int is_true = PyObject_IsTrue(records.get());
  checked(is_true);
  if (is_true) checked(PyObject_CallOneArg(g_tracing.note_place, face));
}

Ref record_by_methods(PyObject* tracer, const Operation& operation) {
  static PyObject* const name_keyword = PyUnicode_InternFromString("name");
  Ref args = checked(PyTuple_New(operation.count));
  for (size_t i = 0; i < operation.count; ++i)
    PyTuple_SET_ITEM(args.get(), i, Py_NewRef(operation.args[i]));
  Ref kwargs =
      operation.kwargs ? Ref::borrow(operation.kwargs) : checked(PyDict_New());
  Ref method = checked(
      PyObject_GetAttr(tracer, method_name(TracerMethod::kCreateProxy)));
  Ref all = checked(PyTuple_Pack(4, opcode_name(operation.op), operation.target,
                                 args.get(), kwargs.get()));
  if (!operation.name)
    return checked(PyObject_CallObject(method.get(), all.get()));
  Ref named = checked(PyDict_New());
  checked(PyDict_SetItem(named.get(), name_keyword, operation.name));
  return checked(PyObject_Call(method.get(), all.get(), named.get()));
}

// ---- the type

int traverse_tracer(PyObject* self, visitproc visit, void* arg) {
  auto* tracer = reinterpret_cast<TracerObject*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(tracer->graph);
  Py_VISIT(tracer->module_stack);
  Py_VISIT(tracer->num_calls);
  Py_VISIT(tracer->submodule_paths);
  Py_VISIT(tracer->state_paths);
  Py_VISIT(tracer->parameters);
  Py_VISIT(tracer->stack_chain);
  return 0;
}
int clear_tracer(PyObject* self) {
  auto* tracer = reinterpret_cast<TracerObject*>(self);
  Py_CLEAR(tracer->graph);
  Py_CLEAR(tracer->module_stack);
  Py_CLEAR(tracer->num_calls);
  Py_CLEAR(tracer->submodule_paths);
  Py_CLEAR(tracer->state_paths);
  Py_CLEAR(tracer->parameters);
  Py_CLEAR(tracer->stack_chain);
  return 0;
}
void deallocate_tracer(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_tracer(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef g_tracer_members[] = {
    {"graph", T_OBJECT_EX, offsetof(TracerObject, graph), 0,
     "The graph that is being made."},
    {"module_stack", T_OBJECT_EX, offsetof(TracerObject, module_stack), 0,
     "The modules that are being called: path of a call -> (path, class)."},
    {"num_calls", T_OBJECT_EX, offsetof(TracerObject, num_calls), 0,
     "How often each module was called, by path."},
    {"submodule_paths", T_OBJECT_EX, offsetof(TracerObject, submodule_paths), 0,
     "The paths of the modules of the root."},
    {"_state_paths", T_OBJECT, offsetof(TracerObject, state_paths), 0, nullptr},
    {"_parameters", T_OBJECT_EX, offsetof(TracerObject, parameters), 0,
     nullptr},
    {"_by_methods", T_BOOL, offsetof(TracerObject, by_methods), 0, nullptr},
    {}};
PyType_Slot g_tracer_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_tracer)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_tracer)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_tracer)},
    {Py_tp_members, g_tracer_members},
    {0, nullptr}};
PyType_Spec g_tracer_spec = {
    "framejit._C._fx.TracerBase", sizeof(TracerObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    g_tracer_slots};

// set_tracing(proxy class, note_place, {name of a method: functions of ours})
PyObject* set_tracing(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 3 || !PyType_Check(args[0]) || !PyDict_Check(args[2]))
      raise(PyExc_TypeError, "set_tracing takes a class, a function, a dict");
    Tracing made;
    made.proxy = reinterpret_cast<PyTypeObject*>(Py_NewRef(args[0]));
    made.note_place = Py_NewRef(args[1]);
    for (size_t i = 0; i < kNumMethods; ++i) {
      PyObject* functions = PyDict_GetItemString(args[2], kMethodNames[i]);
      if (!functions) raise(PyExc_KeyError, kMethodNames[i]);
      Ref all = checked(PySequence_List(functions));
      for (Py_ssize_t k = 0; k < PyList_GET_SIZE(all.get()); ++k)
        made.ours[i].push_back(Py_NewRef(PyList_GET_ITEM(all.get(), k)));
    }
    g_tracing = std::move(made);  // for good
    return Ref::borrow(Py_None);
  });
}

PyMethodDef g_tracing_functions[] = {
    {"set_tracing", as_function(set_tracing), METH_FASTCALL,
     "What tracers are made of, by framejit/fx."},
    {}};

}  // namespace

PyObject* method_name(TracerMethod method) {
  static PyObject** const names = [] {
    auto** made = new PyObject*[kNumMethods];
    for (size_t i = 0; i < kNumMethods; ++i)
      made[i] = PyUnicode_InternFromString(kMethodNames[i]);
    return made;
  }();
  return names[static_cast<size_t>(method)];
}

bool is_ours(PyObject* tracer, TracerMethod method) {
  PyObject* found = _PyType_Lookup(Py_TYPE(tracer), method_name(method));
  for (PyObject* own : g_tracing.ours[static_cast<size_t>(method)])
    if (own == found) return true;
  return false;
}

bool records_here(PyObject* tracer) {
  if (!PyObject_TypeCheck(tracer, g_tracer_base)) return false;
  auto* object = reinterpret_cast<TracerObject*>(tracer);
  return !object->by_methods && object->graph &&
         Py_IS_TYPE(object->graph, g_classes.graph) &&
         is_ours(tracer, TracerMethod::kCreateProxy) &&
         is_ours(tracer, TracerMethod::kCreateNode) &&
         is_ours(tracer, TracerMethod::kCreateArg) &&
         is_ours(tracer, TracerMethod::kProxy);
}

Ref record(PyObject* tracer, const Operation& operation) {
  if (!records_here(tracer)) return record_by_methods(tracer, operation);
  Ref graph = Ref::borrow(reinterpret_cast<TracerObject*>(tracer)->graph);
  check_target(graph.get(), operation.op, operation.target);
  Arguments arguments = converted(graph.get(), tracer, operation);
  Ref node =
      add_node(graph.get(), {operation.op, operation.target, operation.name},
               std::move(arguments));
  describe(tracer, *as_node(node.get())->node, node.get());
  Ref made = checked(g_tracing.proxy->tp_alloc(g_tracing.proxy, 0));
  as_proxy(made.get())->tracer = Py_NewRef(tracer);
  as_proxy(made.get())->node = node.release();
  return made;
}

void add_tracing(PyObject* module) {
  Ref type = checked(PyType_FromSpec(&g_tracer_spec));
  g_tracer_base = reinterpret_cast<PyTypeObject*>(type.get());
  checked(PyModule_AddObjectRef(module, "TracerBase", type.get()));
  type.release();  // for good
  checked(PyModule_AddFunctions(module, g_tracing_functions));
}

}  // namespace framejit::graph::fx
