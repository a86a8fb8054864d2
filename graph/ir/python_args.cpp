#include "graph/ir/python_args.h"

#include <c10/core/SymInt.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/utils/tensor_dtypes.h>
#include <torch/csrc/utils/tensor_layouts.h>
#include <torch/csrc/utils/tensor_memoryformats.h>
#include <torch/csrc/utils/tensor_numpy.h>

#include "frame_hook/native_stack.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {

namespace {

Break not_an_argument(PyObject* object) {
  if (std::string_view(Py_TYPE(object)->tp_name) == "torch._C.Generator")
    return Break{BreakReason::kTensorRandomState,
                 "numbers drawn from a torch.Generator that is passed",
                 {}};
  return Break{BreakReason::kUnknownOperation,
               std::string("argument of type ") + Py_TYPE(object)->tp_name,
               {}};
}

class ToArg {
 public:
  ToArg(const TensorToValue& tensor, const ObjectToValue& other)
      : tensor_(tensor), other_(other) {}

  Result<Arg> convert(PyObject* object) {
    if (++depth_ > kMaxArgDepth) return not_an_argument(object);
    Result<Arg> result = dispatch(object);
    --depth_;
    return result;
  }

 private:
  Result<Arg> dispatch(PyObject* object) {
    if (object == Py_None) return Arg();
    if (is_tensor_object(object)) {
      FJ_TRY(Value * value, tensor_(object));
      return Arg(value);
    }
    if (PyBool_Check(object)) return Arg(object == Py_True);
    if (PyLong_CheckExact(object)) return integer(object);
    // (NumPy's float64 is one, too.)
    if (PyFloat_Check(object)) return Arg(PyFloat_AS_DOUBLE(object));
    if (PyComplex_CheckExact(object)) {
      Py_complex value = PyComplex_AsCComplex(object);
      return Arg(c10::complex<double>(value.real, value.imag));
    }
    if (PyUnicode_CheckExact(object)) return string(object);
    if (PyList_Check(object)) return sequence<Arg::List>(object);
    if (PyTuple_Check(object)) return sequence<Arg::Tuple>(object);
    if (PyDict_Check(object)) return dict(object);
    if (PySlice_Check(object)) return slice(object);
    if (other_) {
      if (Value* value = other_(object)) return Arg(value);
    }
    return torch_object(object);
  }

  Result<Arg> integer(PyObject* object) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) return Arg(Ref::borrow(object));
    return Arg(static_cast<int64_t>(value));
  }

  Result<Arg> string(PyObject* object) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) {
      PyErr_Clear();  // lone surrogates
      return not_an_argument(object);
    }
    return Arg(std::string(text, size));
  }

  template <class Sequence>
  Result<Arg> sequence(PyObject* object) {
    Sequence out;
    bool is_list = PyList_Check(object);
    for (Py_ssize_t i = 0;; ++i) {
      if (i >= (is_list ? PyList_GET_SIZE(object) : PyTuple_GET_SIZE(object)))
        break;
      FJ_TRY(Arg item, convert(is_list ? PyList_GET_ITEM(object, i)
                                       : PyTuple_GET_ITEM(object, i)));
      out.items.push_back(std::move(item));
    }
    return Arg(std::move(out));
  }

  Result<Arg> dict(PyObject* object) {
    Arg::Dict out;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) {
      FJ_TRY(Arg key_arg, convert(key));
      FJ_TRY(Arg value_arg, convert(value));
      out.items.emplace_back(std::move(key_arg), std::move(value_arg));
    }
    return Arg(std::move(out));
  }

  Result<Arg> slice(PyObject* object) {
    auto* raw = reinterpret_cast<PySliceObject*>(object);
    auto out = std::make_shared<Arg::Slice>();
    FJ_TRY(out->start, convert(raw->start));
    FJ_TRY(out->stop, convert(raw->stop));
    FJ_TRY(out->step, convert(raw->step));
    return Arg(std::move(out));
  }

  Result<Arg> torch_object(PyObject* object) {
    if (THPDtype_Check(object))
      return Arg(reinterpret_cast<THPDtype*>(object)->scalar_type);
    if (THPDevice_Check(object))
      return Arg(reinterpret_cast<THPDevice*>(object)->device);
    if (THPLayout_Check(object))
      return Arg(reinterpret_cast<THPLayout*>(object)->layout);
    if (THPMemoryFormat_Check(object))
      return Arg(reinterpret_cast<THPMemoryFormat*>(object)->memory_format);
    if (auto value = sym_int_of(object)) {
      if (auto expr = to_expr(*value)) {
        if (expr->is_const()) return Arg(expr->constant());
        return Arg(*expr);
      }
      return not_an_argument(object);
    }
    if (is_sym_float(object)) {
      auto expr = expr_of(object);
      if (!expr) return not_an_argument(object);
      if (expr->is_float_const()) return Arg(expr->real());
      return Arg(*expr);
    }
    if (torch::utils::is_numpy_bool(object))
      return Arg(PyObject_IsTrue(object) == 1);
    if (torch::utils::is_numpy_int(object)) {
      Ref number = Ref::steal(PyNumber_Index(object));
      if (!number) return Result<Arg>::raised();
      return integer(number.get());
    }
    // Immutable singletons of Python.
    if (object == Py_Ellipsis || object == Py_NotImplemented ||
        object == reinterpret_cast<PyObject*>(&PyBool_Type) ||
        object == reinterpret_cast<PyObject*>(&PyLong_Type) ||
        object == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
        object == reinterpret_cast<PyObject*>(&PyComplex_Type))
      return Arg(Ref::borrow(object));
    return not_an_argument(object);
  }

  const TensorToValue& tensor_;
  const ObjectToValue& other_;
  int depth_ = 0;
};

class ToPython {
 public:
  ToPython(const ValueToPython& value, const ExprToPython& expr)
      : value_(value), expr_(expr) {}

  Ref convert(const Arg& arg) {
    return std::visit([&](const auto& held) { return make(held); }, arg.value);
  }

 private:
  Ref make(const Arg::None&) { return Ref::borrow(Py_None); }
  Ref make(Value* value) { return Ref::borrow(value_(value)); }
  Ref make(bool value) { return Ref::borrow(value ? Py_True : Py_False); }
  Ref make(int64_t value) { return Ref::steal(PyLong_FromLongLong(value)); }
  Ref make(double value) { return Ref::steal(PyFloat_FromDouble(value)); }
  Ref make(const c10::complex<double>& value) {
    return Ref::steal(PyComplex_FromDoubles(value.real(), value.imag()));
  }
  Ref make(const std::string& value) {
    return Ref::steal(PyUnicode_FromStringAndSize(value.data(), value.size()));
  }
  Ref make(const Expr& value) { return expr_(value); }
  Ref make(c10::ScalarType value) {
    return Ref::borrow(reinterpret_cast<PyObject*>(torch::getTHPDtype(value)));
  }
  Ref make(const c10::Device& value) {
    return Ref::steal(THPDevice_New(value));
  }
  Ref make(c10::Layout value) {
    return Ref::borrow(reinterpret_cast<PyObject*>(torch::getTHPLayout(value)));
  }
  Ref make(c10::MemoryFormat value) {
    return Ref::borrow(torch::utils::getTHPMemoryFormat(value));
  }
  Ref make(const Ref& value) { return value ? value : Ref::borrow(Py_None); }
  Ref make(const Arg::List& list) {
    Ref out = Ref::steal(PyList_New(list.items.size()));
    for (size_t i = 0; out && i < list.items.size(); ++i) {
      Ref item = convert(list.items[i]);
      if (!item) return {};
      PyList_SET_ITEM(out.get(), i, item.release());
    }
    return out;
  }
  Ref make(const Arg::Tuple& tuple) {
    Ref out = Ref::steal(PyTuple_New(tuple.items.size()));
    for (size_t i = 0; out && i < tuple.items.size(); ++i) {
      Ref item = convert(tuple.items[i]);
      if (!item) return {};
      PyTuple_SET_ITEM(out.get(), i, item.release());
    }
    return out;
  }
  Ref make(const Arg::Dict& dict) {
    Ref out = Ref::steal(PyDict_New());
    if (!out) return {};
    for (const auto& [key, value] : dict.items) {
      Ref python_key = convert(key);
      if (!python_key) return {};
      Ref python_value = convert(value);
      if (!python_value ||
          PyDict_SetItem(out.get(), python_key.get(), python_value.get()) < 0)
        return {};
    }
    return out;
  }
  Ref make(const std::shared_ptr<Arg::Slice>& slice) {
    Ref start = convert(slice->start);
    if (!start) return {};
    Ref stop = convert(slice->stop);
    if (!stop) return {};
    Ref step = convert(slice->step);
    if (!step) return {};
    return Ref::steal(PySlice_New(start.get(), stop.get(), step.get()));
  }

  const ValueToPython& value_;
  const ExprToPython& expr_;
};

}  // namespace

Result<Arg> to_arg(PyObject* object, const TensorToValue& tensor,
                   const ObjectToValue& other) {
  return ToArg(tensor, other).convert(object);
}

Ref to_python(const Arg& arg, const ValueToPython& value,
              const ExprToPython& expr) {
  return ToPython(value, expr).convert(arg);
}

Ref to_python(const Arg& arg, const ValueToPython& value,
              const int64_t* symbols) {
  return to_python(arg, value, ExprToPython([&](const Expr& expr) {
                     return Ref::steal(number_object(expr, symbols));
                   }));
}

}  // namespace framejit::graph
