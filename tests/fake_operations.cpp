// The operations of the fake library: a row each, run on real tensors or given
// to the tracer.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "fake_tensor.h"

namespace framejit::fake {

PyObject* error(const char* text) {
  PyErr_SetString(PyExc_RuntimeError, text);
  return nullptr;
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

namespace {

Ref as_tensor(PyObject* value) {
  if (is_tensor(value)) return Ref::borrow(value);
  double number = PyFloat_AsDouble(value);
  if (number == -1.0 && PyErr_Occurred()) return nullptr;
  Ref tensor = make_tensor(g_tensor, {});
  if (tensor) impl_of(tensor.get())->storage->data[0] = number;
  return tensor;
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
}  // namespace

PyMethodDef g_functions[kNumOperations + 1];
PyMethodDef g_methods[kNumOperations + 8];

namespace {

// One C function per row, so that a callable names its operation.
template <size_t I>
PyObject* function_entry(PyObject*, PyObject* args, PyObject* keywords) {
  return call_operation(kOperations[I], nullptr, args, keywords);
}
template <size_t I>
PyObject* method_entry(PyObject* self, PyObject* args, PyObject* keywords) {
  return call_operation(kOperations[I], self, args, keywords);
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

}  // namespace

PyObject* call_operation(const Operation& operation, PyObject* self,
                         PyObject* args, PyObject* keywords) {
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

size_t num_operations() { return kNumOperations; }

void fill_operation_tables() {
  fill_tables(std::make_index_sequence<kNumOperations>());
}

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

}  // namespace framejit::fake
