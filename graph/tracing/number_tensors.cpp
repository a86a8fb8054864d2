#include "graph/tracing/number_tensors.h"

#include <torch/csrc/utils/tensor_numpy.h>

#include <string_view>

#include "frame_hook/native_stack.h"
#include "frame_hook/python_text.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tracing/callees.h"

namespace framejit::graph {

Break unsupported(const Recorder& recorder, const char* what) {
  return Break{BreakReason::kUnknownOperation, what, recorder.span()};
}

Result<Ref> torch_attribute(const char* name) {
  Ref module = Ref::steal(PyImport_ImportModule("torch"));
  if (!module) return Result<Ref>::raised();
  return from_api(PyObject_GetAttrString(module.get(), name));
}

namespace {

constexpr size_t kMaxNumbers = 256;

bool is_list(PyObject* data) {
  return PyList_CheckExact(data) || PyTuple_CheckExact(data);
}

struct Numbers {
  std::vector<PyObject*> items;
  std::vector<Py_ssize_t> shape;
  bool has_float = false;
  bool regular = true;  // lists of one length, of numbers we know
};

void collect(PyObject* data, size_t depth, Numbers* out) {
  if (!out->regular) return;
  if (is_list(data)) {
    Py_ssize_t size = PySequence_Fast_GET_SIZE(data);
    // Numbers have been met that lie less deep.
    bool mixed = out->shape.size() == depth && !out->items.empty();
    if (out->shape.size() == depth && !mixed) out->shape.push_back(size);
    if (mixed || native_stack_low() || out->shape[depth] != size) {
      out->regular = false;
      return;
    }
    for (Py_ssize_t i = 0; i < size; ++i)
      collect(PySequence_Fast_GET_ITEM(data, i), depth + 1, out);
    return;
  }
  out->has_float |= PyFloat_CheckExact(data) || is_sym_float(data);
  out->regular =
      out->shape.size() == depth && out->items.size() < kMaxNumbers &&
      (PyLong_CheckExact(data) || PyFloat_CheckExact(data) ||
       PyBool_Check(data) ||
       (is_symbolic_object(data) && plain_type_of(data) != &PyBool_Type));
  out->items.push_back(data);
}

// torch.full([], number, dtype=, device=)
Result<Ref> scalar(Recorder& recorder, PyObject* number, PyObject* dtype,
                   PyObject* device) {
  FJ_TRY(Ref full, torch_attribute("full"));
  Ref shape = Ref::steal(PyList_New(0));
  Ref names = Ref::steal(Py_BuildValue("(ss)", "dtype", "device"));
  if (!shape || !names) return Result<Ref>::raised();
  return recorder.record_call(full.get(), {shape.get(), number, dtype, device},
                              names.get());
}

}  // namespace

bool has_symbols(PyObject* data) {
  if (is_symbolic_object(data)) return true;
  if (!is_list(data) || native_stack_low()) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data); ++i)
    if (has_symbols(PySequence_Fast_GET_ITEM(data, i))) return true;
  return false;
}

Result<Ref> tensor_of_symbols(Recorder& recorder, PyObject* data,
                              PyObject* dtype, PyObject* device) {
  Numbers numbers;
  collect(data, 0, &numbers);
  if (!numbers.regular)
    return unsupported(recorder, "a tensor of these symbolic numbers");
  Ref inferred = Ref::borrow(dtype && dtype != Py_None ? dtype : nullptr);
  if (!inferred && numbers.has_float) {
    // What torch.set_default_dtype says now, which is guarded.
    FJ_TRY(Ref getter, torch_attribute("get_default_dtype"));
    FJ_TRY(inferred, from_api(PyObject_CallNoArgs(getter.get())));
  } else if (!inferred) {
    FJ_TRY(inferred, torch_attribute("int64"));
  }
  if (!device) device = Py_None;
  if (numbers.shape.empty())
    return scalar(recorder, data, inferred.get(), device);
  Ref scalars = Ref::steal(PyList_New(0));
  Ref shape = Ref::steal(PyList_New(0));
  if (!scalars || !shape) return Result<Ref>::raised();
  for (PyObject* item : numbers.items) {
    FJ_TRY(Ref made, scalar(recorder, item, inferred.get(), device));
    if (PyList_Append(scalars.get(), made.get()) < 0)
      return Result<Ref>::raised();
  }
  for (Py_ssize_t size : numbers.shape) {
    Ref number = Ref::steal(PyLong_FromSsize_t(size));
    if (!number || PyList_Append(shape.get(), number.get()) < 0)
      return Result<Ref>::raised();
  }
  FJ_TRY(Ref stack, torch_attribute("stack"));
  FJ_TRY(Ref flat, recorder.record_call(stack.get(), {scalars.get()}, nullptr));
  if (numbers.shape.size() == 1) return flat;
  FJ_TRY(Ref reshape, torch_attribute("reshape"));
  return recorder.record_call(reshape.get(), {flat.get(), shape.get()},
                              nullptr);
}

namespace {

bool has_numpy_numbers(PyObject* data) {
  if (!is_list(data)) {
    return !PyLong_CheckExact(data) && !PyFloat_CheckExact(data) &&
           !PyBool_Check(data) && torch::utils::is_numpy_scalar(data);
  }
  if (native_stack_low()) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data); ++i) {
    if (has_numpy_numbers(PySequence_Fast_GET_ITEM(data, i))) return true;
  }
  return false;
}

// With the dtype that torch infers, for the graph keeps Python's numbers.
Result<Ref> call_with_numpy_numbers(Recorder& recorder, PyObject* callable,
                                    std::vector<PyObject*> args,
                                    PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  size_t positional = args.size() - keywords;
  const Py_ssize_t place = keyword_index(kwnames, "dtype");
  bool given = place >= 0 && args[positional + place] != Py_None;
  if (given || positional != 1) return Ref();
  Ref real = Ref::steal(PyObject_CallOneArg(callable, args[0]));
  if (!real) return Result<Ref>::raised();
  FJ_TRY(Ref dtype, from_api(PyObject_GetAttrString(real.get(), "dtype")));
  Ref names = Ref::borrow(kwnames);
  if (place >= 0) {
    args[positional + place] = dtype.get();
  } else {
    args.push_back(dtype.get());
    names = Ref::steal(PyTuple_New(keywords + 1));
    Ref name = Ref::steal(PyUnicode_InternFromString("dtype"));
    if (!names || !name) return Result<Ref>::raised();
    for (size_t i = 0; i < keywords; ++i) {
      PyTuple_SET_ITEM(names.get(), i, Py_NewRef(PyTuple_GET_ITEM(kwnames, i)));
    }
    PyTuple_SET_ITEM(names.get(), keywords, name.release());
  }
  return recorder.record_call(callable, args, names.get());
}

// torch.tensor(data=...): the data first.
Result<Ref> call_by_keyword(Recorder& recorder, PyObject* callable,
                            const std::vector<PyObject*>& args,
                            PyObject* kwnames) {
  std::vector<PyObject*> moved;
  Ref names = Ref::steal(PyList_New(0));
  if (!names) return Result<Ref>::raised();
  for (size_t i = 0; i < args.size(); ++i) {
    std::string name = text_of(PyTuple_GET_ITEM(kwnames, i));
    if (moved.size() == i && (name == "data" || name == "obj")) {
      moved.insert(moved.begin(), args[i]);
      continue;
    }
    moved.push_back(args[i]);
    if (PyList_Append(names.get(), PyTuple_GET_ITEM(kwnames, i)) < 0)
      return Result<Ref>::raised();
  }
  Ref keywords = Ref::steal(PyList_AsTuple(names.get()));
  if (!keywords) return Result<Ref>::raised();
  if (PyTuple_GET_SIZE(keywords.get()) == Py_ssize_t(args.size())) return Ref();
  return call_with_numbers(recorder, callable, moved, keywords.get());
}

}  // namespace

Result<Ref> call_with_numbers(Recorder& recorder, PyObject* callable,
                              const std::vector<PyObject*>& args,
                              PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (args.empty() || !PyCFunction_Check(callable)) return Ref();
  if (args.size() == keywords)
    return call_by_keyword(recorder, callable, args, kwnames);
  bool symbols = has_symbols(args[0]);
  if (!symbols && !has_numpy_numbers(args[0])) return Ref();
  std::string name = canonical_name(callable);
  if (name != "torch.tensor" && name != "torch.as_tensor" &&
      name != "torch.asarray")
    return Ref();
  if (!symbols)
    return call_with_numpy_numbers(recorder, callable, args, kwnames);
  const size_t positional = args.size() - keywords;
  PyObject *dtype = nullptr, *device = nullptr;
  bool known = positional == 1;
  for (size_t i = 0; i < keywords; ++i) {
    std::string keyword = text_of(PyTuple_GET_ITEM(kwnames, i));
    PyObject* value = args[positional + i];
    if (keyword == "dtype") {
      dtype = value;
    } else if (keyword == "device") {
      device = value;
    } else {
      known &= value == Py_False || value == Py_None;
    }
  }
  if (!known)
    return unsupported(recorder, "a tensor of symbolic numbers with options");
  return tensor_of_symbols(recorder, args[0], dtype, device);
}

}  // namespace framejit::graph
