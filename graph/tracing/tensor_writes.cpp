#include "graph/tracing/tensor_writes.h"

#include <string_view>
#include <utility>

#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/accumulation.h"
#include "graph/tracing/number_tensors.h"
#include "graph/tracing/tensor_classes.h"
#include "graph/tracing/tensor_constructors.h"
#include "graph/tracing/tensor_methods.h"

namespace framejit::graph {

namespace {

bool is_text(PyObject* name, const char* text) {
  return PyUnicode_Check(name) &&
         PyUnicode_CompareWithASCIIString(name, text) == 0;
}

Break internals(Recorder& recorder, std::string what) {
  return Break{BreakReason::kTensorInternals, std::move(what), recorder.span()};
}

Break unsupported_write(Recorder& recorder, PyObject* name) {
  return Break{BreakReason::kUnsupportedWrite,
               "attribute " + text_of(name) + " of a tensor", recorder.span()};
}

// An attribute of an input that no tensor guard covers.
void guard_attribute(Recorder& recorder, const Recorder::Entry& entry,
                     const char* name, PyObject* value) {
  Ref text = Ref::steal(PyUnicode_InternFromString(name));
  GuardSet& guards = *recorder.guards();
  guards.add(
      GuardKind::kIs,
      guards.sources().make(SourceKind::kGetSet, entry.source, text.get()),
      value);
}

// Whether the tensor of the program is a leaf, with a guard where that can
// change.
Result<bool> is_leaf(Recorder& recorder, PyObject* stand_in) {
  const at::Tensor& tensor = unpack_tensor(stand_in);
  Recorder::Entry* entry = recorder.find(stand_in);
  if (!entry || !entry->source || !entry->real) return tensor.is_leaf();
  const at::Tensor& real = unpack_tensor(entry->real.get());
  // The Tensor guard says whether it requires grad.
  if (!real.requires_grad() || tensor.grad_fn()) return tensor.is_leaf();
  try {
    real.grad_fn();
  } catch (const c10::Error& error) {  // of a view that refuses every look
    return internals(recorder, "history of a tensor that refuses it");
  }
  guard_attribute(recorder, *entry, "is_leaf",
                  real.is_leaf() ? Py_True : Py_False);
  return real.is_leaf();
}

Result<Ref> builtin(const char* name) {
  Ref builtins = Ref::steal(PyImport_ImportModule("builtins"));
  if (!builtins) return Result<Ref>::raised();
  return from_api(PyObject_GetAttrString(builtins.get(), name));
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  SymbolicShape x = shape_of(a), y = shape_of(b);
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         x.sizes == y.sizes && x.strides == y.strides;
}

Result<Ref> write_data(Recorder& recorder, PyObject* stand_in, PyObject* name,
                       PyObject* value) {
  if (!is_tensor_object(value) || !recorder.find(value))
    return unsupported_write(recorder, name);
  // Nodes before and after name one value, so its metadata must stay.
  if (!same_layout(unpack_tensor(stand_in), unpack_tensor(value)))
    return Break{BreakReason::kUnsupportedWrite,
                 "data of another size, layout or type", recorder.span()};
  FJ_TRY(Ref setter, builtin("setattr"));
  FJ_CHECK_OK(recorder.record_effect(setter.get(), {stand_in, name, value},
                                     nullptr, nullptr));
  recorder.note_written(stand_in);
  return Ref();
}

Result<Ref> write_requires_grad(Recorder& recorder, PyObject* stand_in,
                                PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames, const char* method,
                                bool wanted) {
  const at::Tensor& tensor = unpack_tensor(stand_in);
  FJ_TRY(bool leaf, is_leaf(recorder, stand_in));
  if (leaf && tensor.requires_grad() == wanted) return Ref::borrow(stand_in);
  if (!leaf)
    return internals(recorder, "requires_grad of a tensor that is no leaf");
  FJ_TRY(Ref result, recorder.record_effect(callable, args, kwnames, method));
  recorder.note_written(stand_in);
  return result;
}

Result<Ref> write_grad(Recorder& recorder, PyObject* stand_in, PyObject* name,
                       PyObject* value) {
  FJ_TRY(bool leaf, is_leaf(recorder, stand_in));
  if (!leaf) return internals(recorder, "grad of a non-leaf tensor");
  if (value != Py_None && (!is_tensor_object(value) || !recorder.find(value)))
    return unsupported_write(recorder, name);
  // The stand-in takes it or refuses it as the tensor would.
  PauseHook pause;
  if (PyObject_SetAttr(stand_in, name, value) < 0) {
    PyErr_Clear();
    return Break{BreakReason::kLeafRaised, "assigns a .grad that does not fit",
                 recorder.span()};
  }
  recorder.written_grads[stand_in] = Ref::borrow(value);
  if (std::exchange(recorder.accumulates, nullptr) == stand_in)
    return gradient_accumulator();
  return Ref::borrow(Py_None);
}

Result<bool> true_of(Recorder& recorder, PyObject* value) {
  if (value == Py_True) return true;
  if (value == Py_False) return false;
  return Break{BreakReason::kUnsupportedWrite, "requires_grad is no bool",
               recorder.span()};
}

bool is_function(PyObject* callable, const char* module, const char* name) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* self = PyCFunction_GET_SELF(callable);
  if (!self || !PyModule_Check(self)) return false;
  const char* home = PyModule_GetName(self);
  if (!home) PyErr_Clear();
  return home && std::string_view(home) == module &&
         std::string_view(
             reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name) ==
             name;
}

Result<Ref> call_requires_grad(Recorder& recorder, const TensorMethod& method,
                               PyObject* kwnames) {
  bool wanted = true;
  if (method.args.size() > 1) {
    FJ_TRY(wanted, true_of(recorder, method.args[1]));
  }
  if (method.args.size() > 2)
    return internals(recorder, "arguments of requires_grad_");
  return write_requires_grad(recorder, method.self.get(),
                             method.descriptor.get(), method.args, kwnames,
                             method.by_name(), wanted);
}

// Guarded for an input that is none; an input that is one breaks.
Result<bool> is_view(Recorder& recorder, PyObject* stand_in, const char* what) {
  Recorder::Entry* entry = recorder.find(stand_in);
  if (!entry || !entry->source || !entry->real)
    return unpack_tensor(stand_in).is_view();
  if (unpack_tensor(entry->real.get()).is_view())
    return internals(recorder, std::string(what) + " of a view");
  guard_attribute(recorder, *entry, "_base", Py_None);
  return false;
}

// Autograd does it without an operator, and refuses views.
Result<Ref> call_detach(Recorder& recorder, const TensorMethod& method,
                        PyObject* kwnames) {
  PyObject* self = method.self.get();
  // Results of operators on it are views of other tensors in eager.
  if (is_of_subclass(self))
    return internals(recorder, "detach_ of a tensor of another class");
  FJ_TRY(bool view, is_view(recorder, self, "detach_"));
  FJ_TRY(bool leaf, is_leaf(recorder, self));
  if (!view && leaf && !unpack_tensor(self).requires_grad())
    return Ref::borrow(self);
  FJ_TRY(Ref result,
         recorder.record_effect(method.descriptor.get(), method.args, kwnames,
                                method.by_name()));
  recorder.note_written(self);
  return result;
}

// x.type(torch.LongTensor) as x.type("torch.LongTensor")
Result<Ref> call_type(Recorder& recorder, const TensorMethod& method) {
  PyObject* type = method.args[1];
  Ref module = Ref::steal(PyObject_GetAttrString(type, "__module__"));
  Ref name = Ref::steal(PyObject_GetAttrString(type, "__name__"));
  if (!module || !name) return Result<Ref>::raised();
  Ref text =
      Ref::steal(PyUnicode_FromFormat("%U.%U", module.get(), name.get()));
  if (!text) return Result<Ref>::raised();
  return recorder.record_call(method.descriptor.get(),
                              {method.self.get(), text.get()}, nullptr,
                              method.by_name());
}

}  // namespace

Result<Ref> read_is_leaf(Recorder& recorder, PyObject* stand_in) {
  FJ_TRY(bool leaf, is_leaf(recorder, stand_in));
  return Ref::borrow(leaf ? Py_True : Py_False);
}

Result<Ref> read_grad_fn(Recorder& recorder, PyObject* stand_in) {
  FJ_TRY(bool leaf, is_leaf(recorder, stand_in));
  if (leaf) return Ref::borrow(Py_None);
  return internals(recorder, "attribute grad_fn");
}

Ref written_grad(Recorder& recorder, PyObject* stand_in) {
  auto found = recorder.written_grads.find(stand_in);
  return found == recorder.written_grads.end() ? Ref() : found->second;
}

Result<Ref> write_attribute(Recorder& recorder, PyObject* stand_in,
                            PyObject* name, PyObject* value) {
  // A gradient function runs later, and perhaps not at all.
  if (!recorder.find(stand_in) || recorder.in_block())
    return unsupported_write(recorder, name);
  if (is_text(name, "grad")) {
    return write_grad(recorder, stand_in, name, value ? value : Py_None);
  }
  if (!value) return unsupported_write(recorder, name);
  if (is_text(name, "data")) return write_data(recorder, stand_in, name, value);
  if (is_text(name, "requires_grad")) {
    FJ_TRY(bool wanted, true_of(recorder, value));
    FJ_TRY(Ref setter, builtin("setattr"));
    FJ_CHECK_OK(write_requires_grad(recorder, stand_in, setter.get(),
                                    {stand_in, name, value}, nullptr, nullptr,
                                    wanted));
    return Ref();
  }
  if (is_text(name, "real") || is_text(name, "imag")) {
    FJ_TRY(Ref setter, builtin("setattr"));
    FJ_CHECK_OK(
        recorder.record_call(setter.get(), {stand_in, name, value}, nullptr));
    return Ref();
  }
  return unsupported_write(recorder, name);
}

Result<Ref> index_without_tensors(PyObject* index) {
  auto selects = [](PyObject* item) {
    if (!is_tensor_object(item)) return false;
    const at::Tensor& tensor = unpack_tensor(item);
    return tensor.dim() == 0 &&
           at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) &&
           tensor.scalar_type() != at::kByte;
  };
  if (selects(index)) return from_api(PyLong_FromLong(0));
  if (!PyTuple_CheckExact(index)) return Ref();
  bool found = false;
  Ref items = Ref::steal(PySequence_List(index));
  if (!items) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    // Beside other tensors it is one of the indices of advanced indexing.
    if (!selects(item)) {
      if (is_tensor_object(item) || PyList_Check(item)) return Ref();
      continue;
    }
    found = true;
    if (PyList_SetItem(items.get(), i, PyLong_FromLong(0)) < 0)
      return Result<Ref>::raised();
  }
  if (!found) return Ref();
  return from_api(PyList_AsTuple(items.get()));
}

Result<Ref> call_special_method(Recorder& recorder, PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames) {
  FJ_TRY(TensorMethod method, method_of(callable, args));
  if (!method.self) {
    if (is_function(callable, "torch._C._nn", "one_hot"))
      return call_one_hot(recorder, args, kwnames);
    return call_with_numbers(recorder, callable, args, kwnames);
  }
  // An explicit offset counts from the start of the storage, which is not
  // guarded.
  if (method.name == "as_strided" && !kwnames && method.args.size() == 3) {
    return recorder.record_call(method.descriptor.get(), method.args, nullptr,
                                method.by_name());
  }
  bool changes_history = method.name == "requires_grad_" ||
                         method.name == "retain_grad" ||
                         method.name == "detach_";
  if (changes_history && recorder.in_block())
    return internals(recorder,
                     std::string(method.name) + " in a gradient function");
  if (method.name == "requires_grad_")
    return call_requires_grad(recorder, method, kwnames);
  if (method.name == "retain_grad" && method.args.size() == 1) {
    if (!unpack_tensor(method.self.get()).requires_grad())
      return internals(recorder, "retain_grad without requires_grad");
    FJ_TRY(bool leaf, is_leaf(recorder, method.self.get()));
    if (leaf) return Ref::borrow(Py_None);
    return recorder.record_effect(method.descriptor.get(), method.args, kwnames,
                                  method.by_name());
  }
  if (method.name == "detach_" && method.args.size() == 1)
    return call_detach(recorder, method, kwnames);
  if (method.name == "_is_view" && method.args.size() == 1) {
    FJ_TRY(bool view, is_view(recorder, method.self.get(), "_is_view"));
    return Ref::borrow(view ? Py_True : Py_False);
  }
  if (method.name == "type" && method.args.size() == 2 && !kwnames &&
      method.args[1] != THPVariableClass && is_tensor_type(method.args[1])) {
    return call_type(recorder, method);
  }
  if (method.name == "as_subclass" && method.args.size() == 2 && !kwnames)
    return make_view_of_class(recorder, method.self.get(), method.args[1]);
  if (method.name == "new") return call_new(recorder, method.args, kwnames);
  if (method.name == "new_tensor")
    return call_new_tensor(recorder, method.args, kwnames);
  if (method.name == "item" && method.args.size() == 1)
    return recorder.constant_of(method.self.get());
  return Ref();
}

}  // namespace framejit::graph
