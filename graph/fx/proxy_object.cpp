// The type under framejit.fx.Proxy and .Attribute: what a program does with a
// value of a graph is recorded (recording.h).
#include <structmember.h>

#include "graph/fx/recording.h"

namespace framejit::graph::fx {

PyTypeObject* g_proxy_base = nullptr;

namespace {

PyTypeObject* g_attribute = nullptr;  // framejit.fx.Attribute
// Gives the set of the methods of tensors, which takes torch a while to make.
PyObject* g_list_methods = nullptr;

bool is_tensor_method(PyObject* function) {
  static PyObject* methods = nullptr;
  if (!methods) {
    Ref made = checked(PyObject_CallNoArgs(g_list_methods));
    if (!PyAnySet_Check(made.get()))
      raise(PyExc_TypeError, "a set is expected");
    if (!methods) methods = made.release();  // for good
  }
  int found = PySet_Contains(methods, function);
  checked(found);
  return found;
}

// ---- operators

enum Operator : uint8_t {
  kAdd,
  kSub,
  kMul,
  kTrueDiv,
  kFloorDiv,
  kMod,
  kPow,
  kLShift,
  kRShift,
  kAnd,
  kOr,
  kXor,
  kMatmul,
  kGetitem,
  kSetitem,
  kNeg,
  kPos,
  kInvert,
  kAbs,
  kLt,
  kLe,
  kEq,
  kNe,
  kGt,
  kGe,
  kNumOperators,
};
// Their names in the module operator.
constexpr const char* kOperatorNames[kNumOperators] = {
    "add",     "sub",    "mul",  "truediv", "floordiv", "mod",    "pow",
    "lshift",  "rshift", "and_", "or_",     "xor",      "matmul", "getitem",
    "setitem", "neg",    "pos",  "invert",  "abs",      "lt",     "le",
    "eq",      "ne",     "gt",   "ge"};
PyObject* g_operators[kNumOperators];

PyObject* recorded(PyObject* tracer, Operator which,
                   std::initializer_list<PyObject*> args) {
  return object_or_null([&] {
    if (!tracer) raise(PyExc_RuntimeError, "a proxy without a tracer");
    return record(tracer, {Opcode::kCallFunction, g_operators[which],
                           args.begin(), args.size()});
  });
}

// Either may be the proxy.
template <Operator which>
PyObject* binary(PyObject* left, PyObject* right) {
  PyObject* proxy = is_proxy(left) ? left : right;
  return recorded(as_proxy(proxy)->tracer, which, {left, right});
}
PyObject* power(PyObject* left, PyObject* right, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<kPow>(left, right);
}
template <Operator which>
PyObject* unary(PyObject* self) {
  return recorded(as_proxy(self)->tracer, which, {self});
}
PyObject* compare(PyObject* left, PyObject* right, int op) {
  Operator which = op == Py_LT   ? kLt
                   : op == Py_LE ? kLe
                   : op == Py_EQ ? kEq
                   : op == Py_NE ? kNe
                   : op == Py_GT ? kGt
                                 : kGe;
  return recorded(as_proxy(left)->tracer, which, {left, right});
}
// (A type that compares does not inherit it.)
Py_hash_t hash_proxy(PyObject* self) { return PyBaseObject_Type.tp_hash(self); }

int set_item(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError,
                    "an item of a traced value cannot be deleted");
    return -1;
  }
  Ref done = Ref::steal(
      recorded(as_proxy(self)->tracer, kSetitem, {self, key, value}));
  return done ? 0 : -1;
}

// ---- attributes and calls

// Never those of a proxy that is being made, or what copies and pickles ask.
bool is_never_recorded(PyObject* name) {
  for (const char* own : {"tracer", "node", "__deepcopy__", "__setstate__"})
    if (PyUnicode_CompareWithASCIIString(name, own) == 0) return true;
  return false;
}

Ref attribute_of(PyObject* self, PyObject* name) {
  if (is_never_recorded(name) || !as_proxy(self)->tracer) {
    PyErr_SetObject(PyExc_AttributeError, name);
    throw Raised{};
  }
  Ref made = checked(g_attribute->tp_alloc(g_attribute, 0));
  ProxyObject* proxy = as_proxy(made.get());
  proxy->tracer = Py_NewRef(as_proxy(self)->tracer);
  proxy->root = Py_NewRef(self);
  proxy->attr = Py_NewRef(name);
  return made;
}

PyObject* own_getattr = nullptr;  // ProxyBase.__getattr__

PyObject* get_attribute(PyObject* self, PyObject* name) {
  static PyObject* const hook = PyUnicode_InternFromString("__getattr__");
  PyObject* found = _PyObject_GenericGetAttrWithDict(self, name, nullptr, 1);
  if (found || PyErr_Occurred()) return found;
  return object_or_null([&]() -> Ref {
    // A class of the program that has its own is asked by CPython.
    PyObject* own = _PyType_Lookup(Py_TYPE(self), hook);
    if (own && own != own_getattr) {
      PyErr_SetObject(PyExc_AttributeError, name);
      throw Raised{};
    }
    return attribute_of(self, name);
  });
}
PyObject* getattr_method(PyObject* self, PyObject* name) {
  return object_or_null([&] { return attribute_of(self, name); });
}

PyObject* call_proxy(PyObject* self, PyObject* args, PyObject* kwargs) {
  static PyObject* const call = PyUnicode_InternFromString("__call__");
  return object_or_null([&] {
    ProxyObject* proxy = as_proxy(self);
    if (!proxy->tracer) raise(PyExc_RuntimeError, "a proxy without a tracer");
    size_t count = PyTuple_GET_SIZE(args);
    std::vector<PyObject*> all = {proxy->root ? proxy->root : self};
    for (size_t i = 0; i < count; ++i) all.push_back(PyTuple_GET_ITEM(args, i));
    return record(proxy->tracer,
                  {Opcode::kCallMethod, proxy->root ? proxy->attr : call,
                   all.data(), all.size(), kwargs});
  });
}

// ---- torch's functions

// The tracer of the proxies among arguments; `others`: there are several.
struct Tracers {
  PyObject* first = nullptr;
  std::vector<PyObject*> others;

  void look(PyObject* object) {
    if (is_proxy(object)) {
      PyObject* tracer = as_proxy(object)->tracer;
      if (!first) first = tracer;
      if (tracer != first) others.push_back(tracer);
    } else if (PyTuple_Check(object)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
        look(PyTuple_GET_ITEM(object, i));
    } else if (PyList_Check(object)) {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
        look(PyList_GET_ITEM(object, i));
    } else if (PyDict_Check(object)) {
      Py_ssize_t position = 0;
      PyObject *key, *value;
      while (PyDict_Next(object, &position, &key, &value)) look(value);
    }
  }
};

[[noreturn]] void raise_several(const Tracers& tracers, PyObject* function) {
  Ref list = checked(PyList_New(0));
  checked(PyList_Append(list.get(), tracers.first));
  for (PyObject* other : tracers.others)
    checked(PyList_Append(list.get(), other));
  Ref text = checked(PyUnicode_FromFormat(
      "Found multiple different tracers %S while trying to trace operations %S",
      list.get(), function));
  PyErr_SetObject(PyExc_RuntimeError, text.get());
  throw Raised{};
}

PyObject* torch_function(PyObject*, PyObject* const* in, Py_ssize_t nargs,
                         PyObject* kwnames) {
  static PyObject* const name_attribute =
      PyUnicode_InternFromString("__name__");
  static PyObject* const no_args = PyTuple_New(0);
  return object_or_null([&] {
    static const char* const kNames[] = {"orig_method", "types", "args",
                                         "kwargs"};
    PyObject* given[4];
    read_arguments("__torch_function__", kNames, 4, 2, in, nargs, kwnames,
                   given);
    PyObject* function = given[0];
    PyObject* args = given[2] && given[2] != Py_None ? given[2] : no_args;
    PyObject* kwargs = given[3] == Py_None ? nullptr : given[3];
    if (!PyTuple_Check(args) || (kwargs && !PyDict_Check(kwargs)))
      raise(PyExc_TypeError, "__torch_function__ takes a tuple and a dict");
    Tracers tracers;
    tracers.look(args);
    if (kwargs) tracers.look(kwargs);
    if (!tracers.first)
      raise(PyExc_RuntimeError, "no proxy is among the arguments");
    if (!tracers.others.empty()) raise_several(tracers, function);
    Ref name = checked(PyObject_GetAttr(function, name_attribute));
    bool is_method =
        is_tensor_method(function) ||
        (PyUnicode_Check(name.get()) &&
         PyUnicode_CompareWithASCIIString(name.get(), "__get__") == 0);
    Operation operation{is_method ? Opcode::kCallMethod : Opcode::kCallFunction,
                        is_method ? name.get() : function,
                        &PyTuple_GET_ITEM(args, 0),
                        static_cast<size_t>(PyTuple_GET_SIZE(args)), kwargs};
    return record(tracers.first, operation);
  });
}

// ---- the type

int traverse_proxy(PyObject* self, visitproc visit, void* arg) {
  ProxyObject* proxy = as_proxy(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(proxy->tracer);
  Py_VISIT(proxy->node);
  Py_VISIT(proxy->root);
  Py_VISIT(proxy->attr);
  Py_VISIT(proxy->attributes);
  return 0;
}
int clear_proxy(PyObject* self) {
  ProxyObject* proxy = as_proxy(self);
  Py_CLEAR(proxy->tracer);
  Py_CLEAR(proxy->node);
  Py_CLEAR(proxy->root);
  Py_CLEAR(proxy->attr);
  Py_CLEAR(proxy->attributes);
  return 0;
}
void deallocate_proxy(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (as_proxy(self)->weak_references) PyObject_ClearWeakRefs(self);
  clear_proxy(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_node(PyObject* self, void*) {
  return object_or_null([&] { return node_of_proxy(self); });
}
int set_node(PyObject* self, PyObject* value, void*) {
  Ref old = Ref::steal(std::exchange(as_proxy(self)->node, Py_XNewRef(value)));
  return 0;
}

PyGetSetDef g_proxy_getset[] = {
    {"node", get_node, set_node,
     "The node whose value it is. (The read of an attribute is inserted when "
     "it is asked for.)",
     nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr,
     nullptr},
    {}};
PyMemberDef g_proxy_members[] = {
    {"tracer", T_OBJECT_EX, offsetof(ProxyObject, tracer), 0,
     "Who records what happens to it."},
    {"_root", T_OBJECT, offsetof(ProxyObject, root), 0, nullptr},
    {"_attr", T_OBJECT, offsetof(ProxyObject, attr), 0, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(ProxyObject, attributes), READONLY,
     nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ProxyObject, weak_references),
     READONLY, nullptr},
    {}};
PyMethodDef g_proxy_methods[] = {
    {"__torch_function__", as_function(torch_function), kFast | METH_CLASS,
     "A call of one of torch's functions: a node."},
    {}};
PyMethodDef g_getattr_method = {"__getattr__", getattr_method, METH_O,
                                "An attribute of the value."};

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}
PyType_Slot g_proxy_slots[] = {{Py_tp_traverse, slot(traverse_proxy)},
                               {Py_tp_clear, slot(clear_proxy)},
                               {Py_tp_dealloc, slot(deallocate_proxy)},
                               {Py_tp_getattro, slot(get_attribute)},
                               {Py_tp_call, slot(call_proxy)},
                               {Py_tp_richcompare, slot(compare)},
                               {Py_tp_hash, slot(hash_proxy)},
                               {Py_tp_getset, g_proxy_getset},
                               {Py_tp_members, g_proxy_members},
                               {Py_tp_methods, g_proxy_methods},
                               {Py_mp_subscript, slot(binary<kGetitem>)},
                               {Py_mp_ass_subscript, slot(set_item)},
                               {Py_nb_add, slot(binary<kAdd>)},
                               {Py_nb_subtract, slot(binary<kSub>)},
                               {Py_nb_multiply, slot(binary<kMul>)},
                               {Py_nb_true_divide, slot(binary<kTrueDiv>)},
                               {Py_nb_floor_divide, slot(binary<kFloorDiv>)},
                               {Py_nb_remainder, slot(binary<kMod>)},
                               {Py_nb_power, slot(power)},
                               {Py_nb_lshift, slot(binary<kLShift>)},
                               {Py_nb_rshift, slot(binary<kRShift>)},
                               {Py_nb_and, slot(binary<kAnd>)},
                               {Py_nb_or, slot(binary<kOr>)},
                               {Py_nb_xor, slot(binary<kXor>)},
                               {Py_nb_matrix_multiply, slot(binary<kMatmul>)},
                               {Py_nb_negative, slot(unary<kNeg>)},
                               {Py_nb_positive, slot(unary<kPos>)},
                               {Py_nb_invert, slot(unary<kInvert>)},
                               {Py_nb_absolute, slot(unary<kAbs>)},
                               {0, nullptr}};
PyType_Spec g_proxy_spec = {
    "framejit._C._fx.ProxyBase", sizeof(ProxyObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    g_proxy_slots};

// set_proxy_classes(Proxy, Attribute, what gives the methods of tensors)
PyObject* set_proxy_classes(PyObject*, PyObject* const* args,
                            Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 3 || !PyType_Check(args[0]) || !PyType_Check(args[1]) ||
        !PyCallable_Check(args[2]))
      raise(PyExc_TypeError,
            "set_proxy_classes takes two classes and a function");
    g_attribute = reinterpret_cast<PyTypeObject*>(Py_NewRef(args[1]));
    g_list_methods = Py_NewRef(args[2]);
    // Not through the type: `__getattr__` of a class would be asked for every
    // attribute, while this one is for programs that call or derive from it.
    Ref method = checked(PyDescr_NewMethod(g_proxy_base, &g_getattr_method));
    own_getattr = method.get();
    checked(PyDict_SetItemString(g_proxy_base->tp_dict, "__getattr__",
                                 method.get()));
    PyType_Modified(g_proxy_base);
    return Ref::borrow(Py_None);
  });
}
PyMethodDef g_proxy_functions[] = {
    {"set_proxy_classes", as_function(set_proxy_classes), METH_FASTCALL,
     "Proxy and Attribute, by framejit/fx."},
    {}};

}  // namespace

Ref node_of_proxy(PyObject* object) {
  static PyObject* const function = made_once([] {
    Ref builtins = Ref::borrow(PyEval_GetBuiltins());
    return Py_XNewRef(PyDict_GetItemString(builtins.get(), "getattr"));
  });
  static PyObject* const node_name = PyUnicode_InternFromString("node");
  ProxyObject* proxy = as_proxy(object);
  if (!proxy->node) {
    if (!proxy->root) {
      PyErr_SetObject(PyExc_AttributeError, node_name);
      throw Raised{};
    }
    PyObject* args[] = {proxy->root, proxy->attr};
    Ref read =
        record(proxy->tracer, {Opcode::kCallFunction, function, args, 2});
    Ref node = checked(PyObject_GetAttr(read.get(), node_name));
    Ref old = Ref::steal(std::exchange(proxy->node, node.release()));
  }
  return Ref::borrow(proxy->node);
}

void add_proxy_type(PyObject* module) {
  Ref type = checked(PyType_FromSpec(&g_proxy_spec));
  g_proxy_base = reinterpret_cast<PyTypeObject*>(type.get());
  checked(PyModule_AddObjectRef(module, "ProxyBase", type.get()));
  type.release();  // for good
  Ref operators = checked(PyImport_ImportModule("operator"));
  for (size_t i = 0; i < kNumOperators; ++i)
    g_operators[i] =
        checked(PyObject_GetAttrString(operators.get(), kOperatorNames[i]))
            .release();  // for good
  checked(PyModule_AddFunctions(module, g_proxy_functions));
}

}  // namespace framejit::graph::fx
