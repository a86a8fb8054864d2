#include "graph/joint/user_lowerings.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_layouts.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <unordered_map>

#include "frame_hook/python_text.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {

namespace {

using Functions = std::unordered_map<c10::OperatorName, Ref>;

// Under the GIL. Never destroyed: Python may be gone by then.
Functions& functions() {
  static auto* out = new Functions;
  return *out;
}

// What the dispatcher has as numbers, Python has as objects of torch.
PyObject* enumerator(const c10::Argument& argument, const c10::IValue& value) {
  if (!value.isInt()) return nullptr;
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>())
    type = optional->getElementType();
  const int64_t number = value.toInt();
  PyObject* object = nullptr;
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
      object = reinterpret_cast<PyObject*>(
          torch::getTHPDtype(static_cast<at::ScalarType>(number)));
      break;
    case c10::TypeKind::LayoutType:
      object = reinterpret_cast<PyObject*>(
          torch::getTHPLayout(static_cast<at::Layout>(number)));
      break;
    case c10::TypeKind::MemoryFormatType:
      object = torch::utils::getTHPMemoryFormat(
          static_cast<at::MemoryFormat>(number));
      break;
    default:
      return nullptr;
  }
  return Py_NewRef(object);
}

Ref object_of(const c10::Argument& argument, const c10::IValue& value) {
  if (PyObject* object = enumerator(argument, value)) return Ref::steal(object);
  return Ref::steal(torch::jit::toPyObject(value).release().ptr());
}

// The arguments as Python calls the operator; null with an error set.
Ref positional_arguments(const c10::FunctionSchema& schema,
                         c10::ArrayRef<c10::IValue> arguments,
                         PyObject* named) {
  size_t count = 0;
  while (count < arguments.size() && !schema.arguments()[count].kwarg_only())
    ++count;
  Ref out = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  if (!out) return out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    Ref object = object_of(schema.arguments()[i], arguments[i]);
    if (!object) return Ref();
    if (i < count) {
      PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), object.release());
    } else if (PyDict_SetItemString(named, schema.arguments()[i].name().c_str(),
                                    object.get()) != 0) {
      return Ref();
    }
  }
  return out;
}

bool take_tensor(PyObject* object, std::vector<at::Tensor>* results) {
  if (!is_tensor_object(object)) return false;
  results->push_back(unpack_tensor(object));
  return true;
}

}  // namespace

void register_user_lowering(const std::string& name,
                            const std::string& overload, Ref function) {
  functions()[c10::OperatorName(name, overload)] = std::move(function);
}

PyObject* user_lowering(const c10::OperatorHandle& op) {
  if (functions().empty()) return nullptr;
  auto found = functions().find(op.operator_name());
  return found == functions().end() ? nullptr : found->second.get();
}

bool call_user_lowering(PyObject* function, const c10::OperatorHandle& op,
                        c10::ArrayRef<c10::IValue> arguments,
                        std::vector<at::Tensor>* results, std::string* error) {
  const Ref kept = Ref::borrow(function);  // it may register another
  Ref returned;
  try {
    Ref named = Ref::steal(PyDict_New());
    Ref given = named
                    ? positional_arguments(op.schema(), arguments, named.get())
                    : Ref();
    if (given)
      returned =
          Ref::steal(PyObject_Call(kept.get(), given.get(), named.get()));
  } catch (const std::exception& failure) {
    *error = std::string("is given what Python has not: ") + failure.what();
    return false;
  }
  if (!returned) {
    *error = "raises " + take_error_text();
    return false;
  }
  const size_t wanted = op.schema().returns().size();
  bool taken = true;
  if (wanted == 1) {
    taken = take_tensor(returned.get(), results);
  } else {
    taken = PyTuple_Check(returned.get()) || PyList_Check(returned.get());
    const Py_ssize_t size =
        taken ? PySequence_Fast_GET_SIZE(returned.get()) : 0;
    for (Py_ssize_t i = 0; i < size && taken; ++i)
      taken = take_tensor(PySequence_Fast_GET_ITEM(returned.get(), i), results);
  }
  if (taken && results->size() == wanted) return true;
  *error = "returns other than " + std::to_string(wanted) + " tensors";
  return false;
}

}  // namespace framejit::graph
