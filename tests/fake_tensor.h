// A toy tensor for tests without torch: module `fake` of the embedded Python.
//
// A fake.Tensor holds doubles behind an impl object whose fields lie somewhere
// in memory as TensorImpl's do (inline sizes and strides up to five dims, then
// a pointer; autograd meta behind a pointer; ...), so that native guards read
// it as they read a real one. Every operation is a row of one table; given a
// stand-in of the running capture, it asks the tracer instead of computing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "guards/foreign.h"

namespace framejit::fake {

struct Storage {
  std::vector<double> data;
};

struct AutogradMeta {
  void* padding = nullptr;
  void* grad_fn = nullptr;
  bool requires_grad = false;
};

// What a stand-in knows of its capture.
struct Trace {
  uint64_t capture = 0;
  int node = -1;
  std::vector<Expr> sizes;
  const Source* source = nullptr;  // of an input
  Ref real;                        // of an input
};

struct Impl {
  uint64_t padding = 0x5A5A5A5A5A5A5A5A;
  Storage* storage = nullptr;  // owned through `owner`
  AutogradMeta* autograd = nullptr;
  int64_t dim = 0;
  union {
    int64_t inline_numbers[10];
    int64_t* numbers;
  };
  int64_t storage_offset = 0;
  int16_t dtype = 6;
  int8_t device[3] = {0, -1, 1};
  uint64_t key_set = 0x8001;
  std::shared_ptr<Storage> owner;
  std::unique_ptr<Trace> trace;

  Impl() : inline_numbers{} {}
  ~Impl();
  Impl(const Impl&) = delete;
  int64_t* sizes() { return dim <= 5 ? inline_numbers : numbers; }
  int64_t* strides() { return sizes() + (dim <= 5 ? 5 : dim); }
  void set_shape(const std::vector<int64_t>& sizes);  // contiguous
  void set_shape(const std::vector<int64_t>& sizes,
                 const std::vector<int64_t>& strides);
  void set_requires_grad(bool value);
  bool requires_grad() const { return autograd && autograd->requires_grad; }
  std::vector<int64_t> shape() { return {sizes(), sizes() + dim}; }
  int64_t numel();
  double& at(int64_t linear);  // in row-major order
};

struct TensorObject {
  PyObject_HEAD Impl* impl;
  PyObject* grad;
};

extern PyTypeObject* g_tensor_base;  // fake.TensorBase, in C
extern PyTypeObject* g_tensor;       // fake.Tensor, has a __dict__
extern PyTypeObject* g_parameter;    // fake.Parameter
extern PyTypeObject* g_sym_int;      // fake.SymInt
extern bool g_grad_enabled;

bool is_tensor(PyObject* object);
Impl* impl_of(PyObject* tensor);
// New tensor of the class, contiguous; data 0, or kept by the caller.
Ref make_tensor(PyTypeObject* type, const std::vector<int64_t>& sizes);

// ---- operations (fake_operations.cpp): one row each
enum class Shape {
  kBroadcast,
  kReduce,
  kMatmul,
  kReshape,
  kTranspose,
  kSame,
  kFactory,
  kOpaque
};
struct Operation {
  const char* name;
  const char* parameters;  // "x y?": names, ? optional
  Shape shape;
  bool in_place;  // writes and returns its first argument
  // Positional by parameter, null where left out. Real tensors only.
  PyObject* (*run)(PyObject* const* arguments);
};
const Operation* find_operation(const std::string& name);
// Which operation a callable is: module function, method or bound method (then
// *self is the tensor), operator.add and the like. Null: none.
const Operation* operation_of(PyObject* callable, PyObject** self);
// Arguments by parameter; false with an error set.
bool bind_arguments(const Operation& operation,
                    const std::vector<PyObject*>& args, PyObject* kwnames,
                    std::vector<PyObject*>* bound);

PyObject* call_operation(const Operation& operation, PyObject* self,
                         PyObject* args, PyObject* keywords);
bool read_sizes(PyObject* object, std::vector<int64_t>* out);
PyObject* error(const char* text);  // null, the error is set
// The functions of the module and the methods of a tensor, one per operation;
// there is room for a few more methods behind them. Filled once.
extern PyMethodDef g_functions[];
extern PyMethodDef g_methods[];
size_t num_operations();
void fill_operation_tables();

// ---- overrides (fake_overrides.cpp): a class with __fake_function__(func,
// types, args, kwargs), or the innermost mode, is asked before an operation.
// A mode's own method is asked without the mode; classes of the tensors it is
// given are asked next.
std::vector<Ref>& override_modes();
bool overrides_are_as_usual();  // no mode, and asking is not switched off
// fake.push_mode, pop_mode, num_modes, has_override, set_asking(level) and
// plainly(function, *args): a library's rows may name them, the tracer does
// not know them.
extern PyMethodDef g_override_functions[];
bool overrides(PyObject* object);
// What is asked, as the method is given it; function empty: an error is set.
struct OverriddenCall {
  Ref function, types, args, kwargs;
};
OverriddenCall overridden_call(const Operation& operation,
                               const std::vector<PyObject*>& args,
                               PyObject* kwnames);
// False: nobody is asked. Otherwise *result is the answer, or null.
bool ask_overrides(const Operation& operation,
                   const std::vector<PyObject*>& args, PyObject* kwnames,
                   PyObject** result);

// Implemented by fake_tracer.cpp.
bool has_stand_in(PyObject* const* arguments, size_t count);
PyObject* trace_operation(PyObject* callable,
                          const std::vector<PyObject*>& args);
PyObject* trace_attribute(PyObject* stand_in, const char* name);
bool sym_bool(PyObject* sym, bool* out);  // false: error set
PyObject* sym_int(PyObject* sym);

// A symbolic value: expression and the Python type it stands for.
struct SymObject {
  PyObject_HEAD Expr* expr;
  PyTypeObject* stands_for;
};
inline bool is_sym(PyObject* object) {
  return object && Py_TYPE(object) == g_sym_int;
}
inline const Expr& expr_in(PyObject* sym) {
  return *reinterpret_cast<SymObject*>(sym)->expr;
}
PyTypeObject* make_sym_type();  // fake_symbols.cpp

// A function as the slots of a type want it.
template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

PyObject* create_module();  // fake_tensor.cpp

}  // namespace framejit::fake
