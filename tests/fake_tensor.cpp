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

PyObject* error(const char* text) {
  PyErr_SetString(PyExc_RuntimeError, text);
  return nullptr;
}

// ---- operations on real tensors

Ref as_tensor(PyObject* value) {
  if (is_tensor(value)) return Ref::borrow(value);
  double number = PyFloat_AsDouble(value);
  if (number == -1.0 && PyErr_Occurred()) return nullptr;
  Ref tensor = make_tensor(g_tensor, {});
  if (tensor) impl_of(tensor.get())->storage->data[0] = number;
  return tensor;
}

bool read_sizes(PyObject* object, std::vector<int64_t>* out) {
  if (PyLong_Check(object)) {
    out->push_back(PyLong_AsLongLong(object));
    return !PyErr_Occurred();
  }
  Ref items = Ref::steal(PySequence_Fast(object, "sizes must be a sequence"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    Ref index =
        Ref::steal(PyNumber_Index(PySequence_Fast_GET_ITEM(items.get(), i)));
    if (!index) return false;
    out->push_back(PyLong_AsLongLong(index.get()));
  }
  return !PyErr_Occurred();
}

bool broadcast(const std::vector<Impl*>& inputs, std::vector<int64_t>* sizes) {
  size_t dim = 0;
  for (Impl* impl : inputs) dim = std::max(dim, static_cast<size_t>(impl->dim));
  sizes->assign(dim, 1);
  for (Impl* impl : inputs) {
    for (int64_t i = 0; i < impl->dim; ++i) {
      int64_t size = impl->sizes()[i];
      int64_t& out = (*sizes)[dim - impl->dim + i];
      if (size == 1 || size == out) continue;
      if (out != 1) return false;
      out = size;
    }
  }
  return true;
}

// The element of `impl` for a row-major position in the broadcast shape.
double& element(Impl* impl, const std::vector<int64_t>& sizes, int64_t linear) {
  int64_t position = impl->storage_offset;
  for (size_t i = sizes.size(); i-- > 0;) {
    int64_t index = linear % sizes[i];
    linear /= sizes[i];
    int64_t own = static_cast<int64_t>(i) -
                  (static_cast<int64_t>(sizes.size()) - impl->dim);
    if (own >= 0 && impl->sizes()[own] != 1)
      position += index * impl->strides()[own];
  }
  return impl->storage->data[position];
}

using Function3 = double (*)(double, double, double);

PyObject* elementwise(PyObject* const* arguments, size_t count,
                      Function3 function, PyObject* into = nullptr) {
  std::vector<Ref> tensors;
  std::vector<Impl*> impls;
  bool requires_grad = false;
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(as_tensor(arguments[i]));
    if (!tensors.back()) return nullptr;
    impls.push_back(impl_of(tensors.back().get()));
    requires_grad = requires_grad || impls.back()->requires_grad();
  }
  std::vector<int64_t> sizes;
  if (!broadcast(impls, &sizes)) return error("sizes do not match");
  Ref out = into ? Ref::borrow(into) : make_tensor(g_tensor, sizes);
  if (!out) return nullptr;
  Impl* result = impl_of(out.get());
  if (into && result->shape() != sizes) return error("sizes do not match");
  std::vector<double> values(static_cast<size_t>(result->numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    double x[3] = {};
    for (size_t j = 0; j < count; ++j)
      x[j] = element(impls[j], sizes, static_cast<int64_t>(i));
    values[i] = function(x[0], x[1], x[2]);
  }
  for (size_t i = 0; i < values.size(); ++i)
    result->at(static_cast<int64_t>(i)) = values[i];
  if (!into) result->set_requires_grad(requires_grad && g_grad_enabled);
  return out.release();
}

template <Function3 kFunction, size_t kCount>
PyObject* run_elementwise(PyObject* const* arguments) {
  return elementwise(arguments, kCount, kFunction);
}
template <Function3 kFunction, size_t kCount>
PyObject* run_in_place(PyObject* const* arguments) {
  return elementwise(arguments, kCount, kFunction, arguments[0]);
}

double f_add(double x, double y, double) { return x + y; }
double f_sub(double x, double y, double) { return x - y; }
double f_mul(double x, double y, double) { return x * y; }
double f_div(double x, double y, double) { return x / y; }
double f_neg(double x, double, double) { return -x; }
double f_cos(double x, double, double) { return std::cos(x); }
double f_sin(double x, double, double) { return std::sin(x); }
double f_exp(double x, double, double) { return std::exp(x); }
double f_tanh(double x, double, double) { return std::tanh(x); }
double f_relu(double x, double, double) { return x > 0 ? x : 0; }
double f_max(double x, double y, double) { return std::max(x, y); }
double f_gt(double x, double y, double) { return x > y; }
double f_ge(double x, double y, double) { return x >= y; }
double f_lt(double x, double y, double) { return x < y; }
double f_le(double x, double y, double) { return x <= y; }
double f_eq(double x, double y, double) { return x == y; }
double f_ne(double x, double y, double) { return x != y; }
double f_where(double c, double x, double y) { return c != 0 ? x : y; }
double f_same(double x, double, double) { return x; }
double f_second(double, double y, double) { return y; }
double f_zero(double, double, double) { return 0; }
double f_one(double, double, double) { return 1; }
double f_pow(double x, double y, double) { return std::pow(x, y); }

PyObject* reduce(PyObject* const* arguments, bool mean) {
  Impl* x = impl_of(arguments[0]);
  int64_t dim = -1;
  if (arguments[1] && arguments[1] != Py_None) {
    dim = PyLong_AsLongLong(arguments[1]);
    if (dim == -1 && PyErr_Occurred()) return nullptr;
    if (dim < 0) dim += x->dim;
    if (dim < 0 || dim >= x->dim) return error("dim out of range");
  }
  std::vector<int64_t> sizes = x->shape(), kept;
  for (int64_t i = 0; i < x->dim; ++i) {
    if (dim >= 0 && i != dim) kept.push_back(sizes[i]);
  }
  Ref out = make_tensor(g_tensor, kept);
  if (!out) return nullptr;
  Impl* result = impl_of(out.get());
  int64_t inner = 1;
  for (int64_t i = dim + 1; dim >= 0 && i < x->dim; ++i) inner *= sizes[i];
  int64_t count = x->numel();
  for (int64_t i = 0; i < count; ++i) {
    int64_t to = dim < 0 ? 0 : i / (inner * sizes[dim]) * inner + i % inner;
    result->storage->data[to] += x->at(i);
  }
  double share = static_cast<double>(dim < 0 ? count : sizes[dim]);
  if (mean) {
    for (double& value : result->storage->data) value /= share;
  }
  result->set_requires_grad(x->requires_grad() && g_grad_enabled);
  return out.release();
}
PyObject* run_sum(PyObject* const* arguments) {
  return reduce(arguments, false);
}
PyObject* run_mean(PyObject* const* arguments) {
  return reduce(arguments, true);
}

PyObject* run_matmul(PyObject* const* arguments) {
  if (!is_tensor(arguments[0]) || !is_tensor(arguments[1]))
    return error("matmul needs tensors");
  Impl *a = impl_of(arguments[0]), *b = impl_of(arguments[1]);
  if (a->dim != 2 || b->dim != 2 || a->sizes()[1] != b->sizes()[0])
    return error("matmul needs two matching matrices");
  int64_t n = a->sizes()[0], k = a->sizes()[1], m = b->sizes()[1];
  Ref out = make_tensor(g_tensor, {n, m});
  if (!out) return nullptr;
  Impl* result = impl_of(out.get());
  for (int64_t i = 0; i < n * m; ++i) {
    for (int64_t j = 0; j < k; ++j)
      result->storage->data[i] += a->at(i / m * k + j) * b->at(j * m + i % m);
  }
  result->set_requires_grad((a->requires_grad() || b->requires_grad()) &&
                            g_grad_enabled);
  return out.release();
}

// A second tensor object over the same storage.
Ref make_view(PyObject* of) {
  Ref out = make_tensor(g_tensor, {});
  if (!out) return out;
  Impl *x = impl_of(of), *view = impl_of(out.get());
  view->owner = x->owner;
  view->storage = x->storage;
  view->storage_offset = x->storage_offset;
  view->dtype = x->dtype;
  view->key_set = x->key_set;
  view->set_shape(x->shape(), {x->strides(), x->strides() + x->dim});
  view->set_requires_grad(x->requires_grad() && g_grad_enabled);
  return out;
}

PyObject* run_reshape(PyObject* const* arguments) {
  Impl* x = impl_of(arguments[0]);
  std::vector<int64_t> sizes;
  if (!read_sizes(arguments[1], &sizes)) return nullptr;
  int64_t known = 1, wild = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1)
      wild = static_cast<int64_t>(i);
    else
      known *= sizes[i];
  }
  if (wild >= 0 && known != 0) sizes[wild] = x->numel() / known;
  int64_t numel = 1;
  for (int64_t size : sizes) numel *= size;
  if (numel != x->numel()) return error("reshape: wrong number of elements");
  Ref out = make_tensor(g_tensor, sizes);
  if (!out) return nullptr;
  Impl* result = impl_of(out.get());
  for (int64_t i = 0; i < numel; ++i) result->storage->data[i] = x->at(i);
  result->set_requires_grad(x->requires_grad() && g_grad_enabled);
  return out.release();
}

void transpose(Impl* impl) {
  std::vector<int64_t> sizes = impl->shape();
  std::vector<int64_t> strides(impl->strides(), impl->strides() + impl->dim);
  std::reverse(sizes.begin(), sizes.end());
  std::reverse(strides.begin(), strides.end());
  impl->set_shape(sizes, strides);
}
PyObject* run_t(PyObject* const* arguments) {
  Ref view = make_view(arguments[0]);
  if (view) transpose(impl_of(view.get()));
  return view.release();
}
PyObject* run_t_(PyObject* const* arguments) {
  transpose(impl_of(arguments[0]));
  return Py_NewRef(arguments[0]);
}
PyObject* run_resize_(PyObject* const* arguments) {
  std::vector<int64_t> sizes;
  if (!read_sizes(arguments[1], &sizes)) return nullptr;
  Impl* x = impl_of(arguments[0]);
  x->set_shape(sizes);
  if (x->storage->data.size() < static_cast<size_t>(x->numel()))
    x->storage->data.resize(static_cast<size_t>(x->numel()));
  return Py_NewRef(arguments[0]);
}
PyObject* run_requires_grad_(PyObject* const* arguments) {
  int value = arguments[1] ? PyObject_IsTrue(arguments[1]) : 1;
  if (value < 0) return nullptr;
  impl_of(arguments[0])->set_requires_grad(value);
  return Py_NewRef(arguments[0]);
}
PyObject* run_detach(PyObject* const* arguments) {
  Ref view = make_view(arguments[0]);
  if (view) impl_of(view.get())->set_requires_grad(false);
  return view.release();
}
PyObject* run_item(PyObject* const* arguments) {
  Impl* x = impl_of(arguments[0]);
  if (x->numel() != 1) return error("item: one element expected");
  return PyFloat_FromDouble(x->at(0));
}
PyObject* run_tolist(PyObject* const* arguments) {
  Impl* x = impl_of(arguments[0]);
  Ref list = Ref::steal(PyList_New(x->numel()));
  for (int64_t i = 0; list && i < x->numel(); ++i) {
    PyObject* value = PyFloat_FromDouble(x->at(i));
    if (!value) return nullptr;
    PyList_SET_ITEM(list.get(), i, value);
  }
  return list.release();
}
PyObject* filled(PyObject* sizes_object, double value) {
  std::vector<int64_t> sizes;
  if (!read_sizes(sizes_object, &sizes)) return nullptr;
  Ref out = make_tensor(g_tensor, sizes);
  if (!out) return nullptr;
  for (double& x : impl_of(out.get())->storage->data) x = value;
  return out.release();
}
PyObject* run_zeros(PyObject* const* arguments) {
  return filled(arguments[0], 0);
}
PyObject* run_ones(PyObject* const* arguments) {
  return filled(arguments[0], 1);
}

constexpr Operation kOperations[] = {
    {"add", "x y", Shape::kBroadcast, false, run_elementwise<f_add, 2>},
    {"sub", "x y", Shape::kBroadcast, false, run_elementwise<f_sub, 2>},
    {"mul", "x y", Shape::kBroadcast, false, run_elementwise<f_mul, 2>},
    {"div", "x y", Shape::kBroadcast, false, run_elementwise<f_div, 2>},
    {"pow", "x y", Shape::kBroadcast, false, run_elementwise<f_pow, 2>},
    {"maximum", "x y", Shape::kBroadcast, false, run_elementwise<f_max, 2>},
    {"gt", "x y", Shape::kBroadcast, false, run_elementwise<f_gt, 2>},
    {"ge", "x y", Shape::kBroadcast, false, run_elementwise<f_ge, 2>},
    {"lt", "x y", Shape::kBroadcast, false, run_elementwise<f_lt, 2>},
    {"le", "x y", Shape::kBroadcast, false, run_elementwise<f_le, 2>},
    {"eq", "x y", Shape::kBroadcast, false, run_elementwise<f_eq, 2>},
    {"ne", "x y", Shape::kBroadcast, false, run_elementwise<f_ne, 2>},
    {"where", "c x y", Shape::kBroadcast, false, run_elementwise<f_where, 3>},
    {"neg", "x", Shape::kBroadcast, false, run_elementwise<f_neg, 1>},
    {"cos", "x", Shape::kBroadcast, false, run_elementwise<f_cos, 1>},
    {"sin", "x", Shape::kBroadcast, false, run_elementwise<f_sin, 1>},
    {"exp", "x", Shape::kBroadcast, false, run_elementwise<f_exp, 1>},
    {"tanh", "x", Shape::kBroadcast, false, run_elementwise<f_tanh, 1>},
    {"relu", "x", Shape::kBroadcast, false, run_elementwise<f_relu, 1>},
    {"clone", "x", Shape::kBroadcast, false, run_elementwise<f_same, 1>},
    {"zeros_like", "x", Shape::kBroadcast, false, run_elementwise<f_zero, 1>},
    {"ones_like", "x", Shape::kBroadcast, false, run_elementwise<f_one, 1>},
    {"add_", "x y", Shape::kSame, true, run_in_place<f_add, 2>},
    {"sub_", "x y", Shape::kSame, true, run_in_place<f_sub, 2>},
    {"mul_", "x y", Shape::kSame, true, run_in_place<f_mul, 2>},
    {"copy_", "x y", Shape::kSame, true, run_in_place<f_second, 2>},
    {"zero_", "x", Shape::kSame, true, run_in_place<f_zero, 1>},
    {"sum", "x dim?", Shape::kReduce, false, run_sum},
    {"mean", "x dim?", Shape::kReduce, false, run_mean},
    {"matmul", "x y", Shape::kMatmul, false, run_matmul},
    {"reshape", "x shape", Shape::kReshape, false, run_reshape},
    {"view", "x shape", Shape::kReshape, false, run_reshape},
    {"t", "x", Shape::kTranspose, false, run_t},
    {"detach", "x", Shape::kSame, false, run_detach},
    {"zeros", "sizes", Shape::kFactory, false, run_zeros},
    {"ones", "sizes", Shape::kFactory, false, run_ones},
    {"item", "x", Shape::kOpaque, false, run_item},
    {"tolist", "x", Shape::kOpaque, false, run_tolist},
    {"t_", "x", Shape::kOpaque, true, run_t_},
    {"resize_", "x sizes", Shape::kOpaque, true, run_resize_},
    {"requires_grad_", "x value?", Shape::kOpaque, true, run_requires_grad_},
};
constexpr size_t kNumOperations = sizeof(kOperations) / sizeof(Operation);
PyMethodDef g_functions[kNumOperations + 1];
PyMethodDef g_methods[kNumOperations + 8];

// One C function per row, so that a callable names its operation.
PyObject* call_operation(size_t index, PyObject* self, PyObject* args,
                         PyObject* keywords) {
  const Operation& operation = kOperations[index];
  std::vector<PyObject*> positional;
  if (self) positional.push_back(self);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i)
    positional.push_back(PyTuple_GET_ITEM(args, i));
  Ref names = keywords ? Ref::steal(PySequence_Tuple(keywords)) : nullptr;
  if (keywords && !names) return nullptr;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i)
    positional.push_back(
        PyDict_GetItem(keywords, PyTuple_GET_ITEM(names.get(), i)));
  PyObject* answer = nullptr;
  if (ask_overrides(operation, positional, names.get(), &answer)) return answer;
  std::vector<PyObject*> bound;
  if (!bind_arguments(operation, positional, names.get(), &bound))
    return nullptr;
  if (has_stand_in(bound.data(), bound.size())) {
    Ref callable = Ref::steal(
        PyObject_GetAttrString(self ? reinterpret_cast<PyObject*>(g_tensor_base)
                                    : PyImport_AddModule("fake"),
                               operation.name));
    return callable ? trace_operation(callable.get(), bound) : nullptr;
  }
  if (operation.shape != Shape::kBroadcast &&
      operation.shape != Shape::kFactory && !is_tensor(bound[0]))
    return error("a tensor is needed");
  return operation.run(bound.data());
}

template <size_t I>
PyObject* function_entry(PyObject*, PyObject* args, PyObject* keywords) {
  return call_operation(I, nullptr, args, keywords);
}
template <size_t I>
PyObject* method_entry(PyObject* self, PyObject* args, PyObject* keywords) {
  return call_operation(I, self, args, keywords);
}
template <size_t... I>
void fill_tables(std::index_sequence<I...>) {
  ((g_functions[I] = {kOperations[I].name,
                      reinterpret_cast<PyCFunction>(
                          reinterpret_cast<void*>(function_entry<I>)),
                      METH_VARARGS | METH_KEYWORDS, nullptr}),
   ...);
  ((g_methods[I] = {kOperations[I].name,
                    reinterpret_cast<PyCFunction>(
                        reinterpret_cast<void*>(method_entry<I>)),
                    METH_VARARGS | METH_KEYWORDS, nullptr}),
   ...);
}

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
  return args ? call_operation(operation - kOperations, nullptr, args.get(),
                               nullptr)
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
  return args ? call_operation(find_operation("neg") - kOperations, nullptr,
                               args.get(), nullptr)
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

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

PyTypeObject* make_tensor_type() {
  size_t count = kNumOperations;
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

// ---- symbolic ints

Ref operator_function(const char* name) {
  Ref module = Ref::steal(PyImport_ImportModule("operator"));
  return module ? Ref::steal(PyObject_GetAttrString(module.get(), name))
                : nullptr;
}
PyObject* sym_operate(const char* name, std::vector<PyObject*> operands) {
  Ref function = operator_function(name);
  return function ? trace_operation(function.get(), operands) : nullptr;
}
PyObject* sym_add(PyObject* a, PyObject* b) {
  return sym_operate("add", {a, b});
}
PyObject* sym_sub(PyObject* a, PyObject* b) {
  return sym_operate("sub", {a, b});
}
PyObject* sym_mul(PyObject* a, PyObject* b) {
  return sym_operate("mul", {a, b});
}
PyObject* sym_floordiv(PyObject* a, PyObject* b) {
  return sym_operate("floordiv", {a, b});
}
PyObject* sym_mod(PyObject* a, PyObject* b) {
  return sym_operate("mod", {a, b});
}
PyObject* sym_truediv(PyObject* a, PyObject* b) {
  return sym_operate("truediv", {a, b});
}
PyObject* sym_neg(PyObject* a) { return sym_operate("neg", {a}); }
PyObject* sym_compare(PyObject* a, PyObject* b, int op) {
  static const char* const kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  return sym_operate(kNames[op], {a, b});
}
int sym_truth(PyObject* self) {
  bool value;
  return sym_bool(self, &value) ? value : -1;
}
PyObject* sym_index(PyObject* self) { return sym_int(self); }
void sym_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<SymObject*>(self)->expr;
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* sym_repr(PyObject* self) {
  return PyUnicode_FromString(
      reinterpret_cast<SymObject*>(self)->expr->str().c_str());
}

PyTypeObject* make_sym_type() {
  PyType_Slot slots[] = {{Py_nb_add, slot(sym_add)},
                         {Py_nb_subtract, slot(sym_sub)},
                         {Py_nb_multiply, slot(sym_mul)},
                         {Py_nb_floor_divide, slot(sym_floordiv)},
                         {Py_nb_remainder, slot(sym_mod)},
                         {Py_nb_true_divide, slot(sym_truediv)},
                         {Py_nb_negative, slot(sym_neg)},
                         {Py_nb_bool, slot(sym_truth)},
                         {Py_nb_index, slot(sym_index)},
                         {Py_nb_int, slot(sym_index)},
                         {Py_tp_richcompare, slot(sym_compare)},
                         {Py_tp_repr, slot(sym_repr)},
                         {Py_tp_dealloc, slot(sym_dealloc)},
                         {0, nullptr}};
  PyType_Spec spec = {"fake.SymInt", sizeof(SymObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
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

const Operation* find_operation(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return &operation;
  }
  return nullptr;
}

const Operation* operation_of(PyObject* callable, PyObject** self) {
  *self = nullptr;
  PyMethodDef* definition = nullptr;
  if (PyCFunction_Check(callable)) {
    definition = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  } else if (Py_IS_TYPE(callable, &PyMethodDescr_Type)) {
    definition = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  }
  if (!definition) return nullptr;
  if (definition >= g_functions && definition < g_functions + kNumOperations)
    return &kOperations[definition - g_functions];
  if (definition < g_methods || definition >= g_methods + kNumOperations) {
    // operator.add and its like: the row of that name.
    PyObject* module =
        PyCFunction_Check(callable)
            ? reinterpret_cast<PyCFunctionObject*>(callable)->m_module
            : nullptr;
    if (!module || !PyUnicode_Check(module) ||
        PyUnicode_CompareWithASCIIString(module, "_operator") != 0)
      return nullptr;
    std::string name = definition->ml_name;
    if (name == "truediv") name = "div";
    if (name == "iadd" || name == "isub" || name == "imul")
      name = name.substr(1) + "_";
    return find_operation(name);
  }
  if (PyCFunction_Check(callable)) *self = PyCFunction_GET_SELF(callable);
  return &kOperations[definition - g_methods];
}

bool bind_arguments(const Operation& operation,
                    const std::vector<PyObject*>& args, PyObject* kwnames,
                    std::vector<PyObject*>* bound) {
  size_t keywords =
      kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0;
  size_t positional = args.size() - keywords, used = 0, index = 0;
  const char* p = operation.parameters;
  while (*p) {
    const char* end = p + std::strcspn(p, " ");
    bool optional = end[-1] == '?';
    std::string name(p, end - optional);
    PyObject* value = index < positional ? args[index] : nullptr;
    for (size_t i = 0; i < keywords; ++i) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i),
                                           name.c_str()) != 0)
        continue;
      value = args[positional + i];
      ++used;
    }
    if (!value && !optional) {
      PyErr_Format(PyExc_TypeError, "%s: %s is missing", operation.name,
                   name.c_str());
      return false;
    }
    bound->push_back(value);
    ++index;
    p = *end ? end + 1 : end;
  }
  if (positional > index || used != keywords) {
    PyErr_Format(PyExc_TypeError, "%s: wrong arguments", operation.name);
    return false;
  }
  return true;
}

PyObject* create_module() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fake", nullptr, -1,
                                   g_functions};
  fill_tables(std::make_index_sequence<kNumOperations>());
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
