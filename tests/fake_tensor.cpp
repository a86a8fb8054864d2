#include "fake_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace framejit::fake {

PyTypeObject* g_tensor_base;
PyTypeObject* g_tensor;
PyTypeObject* g_parameter;
PyTypeObject* g_sym_int;
bool g_grad_enabled = true;

// ---- impl

Impl::~Impl() {
  if (dim > 5) delete[] numbers;
  delete autograd;
}

void Impl::set_shape(const std::vector<int64_t>& new_sizes) {
  std::vector<int64_t> strides(new_sizes.size());
  int64_t stride = 1;
  for (size_t i = new_sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(new_sizes[i], 1);
  }
  set_shape(new_sizes, strides);
}

void Impl::set_shape(const std::vector<int64_t>& new_sizes,
                     const std::vector<int64_t>& new_strides) {
  if (dim > 5) delete[] numbers;
  dim = static_cast<int64_t>(new_sizes.size());
  if (dim > 5) numbers = new int64_t[2 * dim];
  std::copy(new_sizes.begin(), new_sizes.end(), sizes());
  std::copy(new_strides.begin(), new_strides.end(), strides());
}

void Impl::set_requires_grad(bool value) {
  if (!autograd && !value) return;
  if (!autograd) autograd = new AutogradMeta;
  autograd->requires_grad = value;
}

int64_t Impl::numel() {
  int64_t count = 1;
  for (int64_t i = 0; i < dim; ++i) count *= sizes()[i];
  return count;
}

double& Impl::at(int64_t linear) {
  int64_t position = storage_offset;
  for (int64_t i = dim; i-- > 0;) {
    position += linear % sizes()[i] * strides()[i];
    linear /= sizes()[i];
  }
  return storage->data[position];
}

bool is_tensor(PyObject* object) {
  return g_tensor_base && PyObject_TypeCheck(object, g_tensor_base);
}

Impl* impl_of(PyObject* tensor) {
  return reinterpret_cast<TensorObject*>(tensor)->impl;
}

Ref make_tensor(PyTypeObject* type, const std::vector<int64_t>& sizes) {
  Ref object = Ref::steal(type->tp_alloc(type, 0));
  if (!object) return object;
  auto* tensor = reinterpret_cast<TensorObject*>(object.get());
  tensor->impl = new Impl;
  tensor->impl->set_shape(sizes);
  tensor->impl->owner = std::make_shared<Storage>();
  tensor->impl->storage = tensor->impl->owner.get();
  tensor->impl->storage->data.resize(
      static_cast<size_t>(tensor->impl->numel()));
  return object;
}

namespace {

// ---- the tensor type

PyObject* binary(const char* name, PyObject* a, PyObject* b) {
  for (PyObject* operand : {a, b}) {
    if (!is_tensor(operand) && !PyFloat_Check(operand) &&
        !PyLong_Check(operand) && Py_TYPE(operand) != g_sym_int)
      Py_RETURN_NOTIMPLEMENTED;
  }
  const Operation* operation = find_operation(name);
  Ref args = Ref::steal(operation->parameters[1] ? PyTuple_Pack(2, a, b)
                                                 : PyTuple_Pack(1, a));
  return args ? call_operation(*operation, nullptr, args.get(), nullptr)
              : nullptr;
}
PyObject* nb_add(PyObject* a, PyObject* b) { return binary("add", a, b); }
PyObject* nb_sub(PyObject* a, PyObject* b) { return binary("sub", a, b); }
PyObject* nb_mul(PyObject* a, PyObject* b) { return binary("mul", a, b); }
PyObject* nb_div(PyObject* a, PyObject* b) { return binary("div", a, b); }
PyObject* nb_matmul(PyObject* a, PyObject* b) { return binary("matmul", a, b); }
PyObject* nb_iadd(PyObject* a, PyObject* b) { return binary("add_", a, b); }
PyObject* nb_isub(PyObject* a, PyObject* b) { return binary("sub_", a, b); }
PyObject* nb_imul(PyObject* a, PyObject* b) { return binary("mul_", a, b); }
PyObject* nb_pow(PyObject* a, PyObject* b, PyObject*) {
  return binary("pow", a, b);
}
PyObject* nb_neg(PyObject* a) {
  Ref args = Ref::steal(PyTuple_Pack(1, a));
  return args ? call_operation(*find_operation("neg"), nullptr, args.get(),
                               nullptr)
              : nullptr;
}
int nb_bool(PyObject* a) {
  if (has_stand_in(&a, 1)) {
    Ref never = Ref::steal(trace_attribute(a, "__bool__"));
    return -1;
  }
  Impl* impl = impl_of(a);
  if (impl->numel() != 1) {
    error("truth of a tensor with more than one element");
    return -1;
  }
  return impl->at(0) != 0;
}
PyObject* tp_richcompare(PyObject* a, PyObject* b, int op) {
  static const char* const kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  return binary(kNames[op], a, b);
}

Ref shape_tuple(PyObject* self) {
  Impl* impl = impl_of(self);
  Ref tuple = Ref::steal(PyTuple_New(impl->dim));
  for (int64_t i = 0; tuple && i < impl->dim; ++i)
    PyTuple_SET_ITEM(tuple.get(), i, PyLong_FromLongLong(impl->sizes()[i]));
  return tuple;
}
template <int kWhich>
PyObject* get_field(PyObject* self, void*) {
  static const char* const kNames[] = {"shape", "ndim", "requires_grad", "grad",
                                       "dtype"};
  Impl* impl = impl_of(self);
  if (impl->trace) return trace_attribute(self, kNames[kWhich]);
  switch (kWhich) {
    case 0:
      return shape_tuple(self).release();
    case 1:
      return PyLong_FromLongLong(impl->dim);
    case 2:
      return PyBool_FromLong(impl->requires_grad());
    case 3: {
      PyObject* grad = reinterpret_cast<TensorObject*>(self)->grad;
      return Py_NewRef(grad ? grad : Py_None);
    }
    default:
      return PyLong_FromLong(impl->dtype);
  }
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  int truth = value ? PyObject_IsTrue(value) : -1;
  if (truth < 0) return -1;
  impl_of(self)->set_requires_grad(truth);
  return 0;
}
int set_grad(PyObject* self, PyObject* value, void*) {
  auto* tensor = reinterpret_cast<TensorObject*>(self);
  PyObject* old = tensor->grad;
  tensor->grad = value && value != Py_None ? Py_NewRef(value) : nullptr;
  Py_XDECREF(old);
  return 0;
}
int set_dtype(PyObject* self, PyObject* value, void*) {
  long number = value ? PyLong_AsLong(value) : -1;
  if (number == -1 && PyErr_Occurred()) return -1;
  impl_of(self)->dtype = static_cast<int16_t>(number);
  return 0;
}
PyGetSetDef g_fields[] = {
    {"shape", get_field<0>, nullptr, nullptr, nullptr},
    {"ndim", get_field<1>, nullptr, nullptr, nullptr},
    {"requires_grad", get_field<2>, set_requires_grad, nullptr, nullptr},
    {"grad", get_field<3>, set_grad, nullptr, nullptr},
    {"dtype", get_field<4>, set_dtype, nullptr, nullptr},
    {}};

PyObject* method_size(PyObject* self, PyObject* args) {
  PyObject* dim = nullptr;
  if (!PyArg_ParseTuple(args, "|O", &dim)) return nullptr;
  Ref shape = Ref::steal(PyObject_GetAttrString(self, "shape"));
  if (!shape || !dim) return shape.release();
  return PyObject_GetItem(shape.get(), dim);
}
PyObject* method_dim(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(impl_of(self)->dim);
}

// Tensor(sizes, data=None, requires_grad=False); data None counts up from 0.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names[] = {"sizes", "data", "requires_grad", nullptr};
  PyObject *sizes_object, *data = Py_None;
  int requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|Op",
                                   const_cast<char**>(names), &sizes_object,
                                   &data, &requires_grad))
    return nullptr;
  std::vector<int64_t> sizes;
  if (!read_sizes(sizes_object, &sizes)) return nullptr;
  Ref out = make_tensor(type, sizes);
  if (!out) return nullptr;
  std::vector<double>& values = impl_of(out.get())->storage->data;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  if (data != Py_None) {
    Ref items = Ref::steal(PySequence_Fast(data, "data must be a sequence"));
    if (!items) return nullptr;
    if (PySequence_Fast_GET_SIZE(items.get()) !=
        static_cast<Py_ssize_t>(values.size()))
      return error("data of another size");
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(items.get(), i));
    if (PyErr_Occurred()) return nullptr;
  }
  impl_of(out.get())->set_requires_grad(requires_grad);
  return out.release();
}
int tensor_init(PyObject*, PyObject*, PyObject*) { return 0; }

void tensor_dealloc(PyObject* self) {
  auto* tensor = reinterpret_cast<TensorObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete tensor->impl;
  Py_CLEAR(tensor->grad);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* tensor_repr(PyObject* self) {
  Ref shape = shape_tuple(self);
  if (!shape) return nullptr;
  return PyUnicode_FromFormat("%s(%R%s)", Py_TYPE(self)->tp_name, shape.get(),
                              impl_of(self)->trace ? ", stand-in" : "");
}

PyTypeObject* make_tensor_type() {
  size_t count = num_operations();
  g_methods[count++] = {"size", method_size, METH_VARARGS, nullptr};
  g_methods[count++] = {"dim", method_dim, METH_NOARGS, nullptr};
  g_methods[count] = {};
  PyType_Slot slots[] = {{Py_nb_add, slot(nb_add)},
                         {Py_nb_subtract, slot(nb_sub)},
                         {Py_nb_multiply, slot(nb_mul)},
                         {Py_nb_true_divide, slot(nb_div)},
                         {Py_nb_matrix_multiply, slot(nb_matmul)},
                         {Py_nb_inplace_add, slot(nb_iadd)},
                         {Py_nb_inplace_subtract, slot(nb_isub)},
                         {Py_nb_inplace_multiply, slot(nb_imul)},
                         {Py_nb_power, slot(nb_pow)},
                         {Py_nb_negative, slot(nb_neg)},
                         {Py_nb_bool, slot(nb_bool)},
                         {Py_tp_richcompare, slot(tp_richcompare)},
                         {Py_tp_hash, slot(PyBaseObject_Type.tp_hash)},
                         {Py_tp_new, slot(tensor_new)},
                         {Py_tp_init, slot(tensor_init)},
                         {Py_tp_dealloc, slot(tensor_dealloc)},
                         {Py_tp_repr, slot(tensor_repr)},
                         {Py_tp_getset, g_fields},
                         {Py_tp_methods, g_methods},
                         {0, nullptr}};
  PyType_Spec spec = {"fake.TensorBase", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

// ---- state and odd callees

PyObject* fake_set_grad_enabled(PyObject*, PyObject* value) {
  int truth = PyObject_IsTrue(value);
  if (truth < 0) return nullptr;
  g_grad_enabled = truth;
  Py_RETURN_NONE;
}
PyObject* fake_is_grad_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(g_grad_enabled);
}
PyObject* fake_is_compiling(PyObject*, PyObject*) { Py_RETURN_FALSE; }
PyObject* fake_none(PyObject*, PyObject*) { Py_RETURN_NONE; }
PyMethodDef g_state_functions[] = {
    {"set_grad_enabled", fake_set_grad_enabled, METH_O, nullptr},
    {"is_grad_enabled", fake_is_grad_enabled, METH_NOARGS, nullptr},
    {"is_compiling", fake_is_compiling, METH_NOARGS, nullptr},
    {"checkpoint", fake_none, METH_VARARGS, nullptr},  // a sub-block
    {"mystery", fake_none, METH_VARARGS, nullptr},     // unknown callee
    {}};

constexpr char kPrelude[] = R"(
class Tensor(TensorBase):
    pass
class Parameter(Tensor):
    pass
class SubclassedTensor(Tensor):
    pass
def tensor(sizes, data=None, requires_grad=False):
    return Tensor(sizes, data, requires_grad)
def region(function, *args):
    return function(*args)
class no_grad:
    def __enter__(self):
        self.before = is_grad_enabled()
        set_grad_enabled(False)
    def __exit__(self, *exception):
        set_grad_enabled(self.before)
)";

}  // namespace

PyObject* create_module() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fake", nullptr, -1,
                                   g_functions};
  fill_operation_tables();
  Ref module = Ref::steal(PyModule_Create(&definition));
  if (!module || PyModule_AddFunctions(module.get(), g_state_functions) < 0 ||
      PyModule_AddFunctions(module.get(), g_override_functions) < 0)
    return nullptr;
  g_tensor_base = make_tensor_type();
  g_sym_int = make_sym_type();
  if (!g_tensor_base || !g_sym_int) return nullptr;
  PyObject* dict = PyModule_GetDict(module.get());
  PyDict_SetItemString(dict, "TensorBase",
                       reinterpret_cast<PyObject*>(g_tensor_base));
  PyDict_SetItemString(dict, "SymInt", reinterpret_cast<PyObject*>(g_sym_int));
  PyDict_SetItemString(dict, "__builtins__", PyEval_GetBuiltins());
  Ref result = Ref::steal(PyRun_String(kPrelude, Py_file_input, dict, dict));
  if (!result) return nullptr;
  g_tensor =
      reinterpret_cast<PyTypeObject*>(PyDict_GetItemString(dict, "Tensor"));
  g_parameter =
      reinterpret_cast<PyTypeObject*>(PyDict_GetItemString(dict, "Parameter"));
  return module.release();
}

}  // namespace framejit::fake
