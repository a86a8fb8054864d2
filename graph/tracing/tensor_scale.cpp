#include "graph/tracing/tensor_scale.h"

#include <string_view>

#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/tensor_methods.h"

namespace framejit::graph {

namespace {

struct Scale {
  const char* method;
  const char* keyword;
  const char* combine;  // of the two operands; null: there is one
  const char* apply;
};
constexpr Scale kScales[] = {
    {"add", "alpha", nullptr, "add"},   {"add_", "alpha", nullptr, "add_"},
    {"sub", "alpha", nullptr, "sub"},   {"sub_", "alpha", nullptr, "sub_"},
    {"addcmul", "value", "mul", "add"}, {"addcmul_", "value", "mul", "add_"},
    {"addcdiv", "value", "div", "add"}, {"addcdiv_", "value", "div", "add_"},
};

const Scale* find_scale(std::string_view method, PyObject* kwnames) {
  if (!kwnames || PyTuple_GET_SIZE(kwnames) != 1) return nullptr;
  for (const Scale& row : kScales)
    if (method == row.method &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0),
                                         row.keyword) == 0)
      return &row;
  return nullptr;
}

bool is_float_tensor(PyObject* object) {
  return is_tensor_object(object) &&
         at::isFloatingType(unpack_tensor(object).scalar_type());
}

Result<Ref> record_method(Recorder& recorder, const char* name, PyObject* self,
                          PyObject* other) {
  FJ_TRY(TensorMethod method, tensor_method(self, name));
  return recorder.record_call(method.descriptor.get(), {self, other}, nullptr,
                              method.by_name());
}

}  // namespace

Result<Ref> record_with_tensor_scale(Recorder& recorder, const char* method,
                                     const std::vector<PyObject*>& args,
                                     PyObject* kwnames) {
  const Scale* row = find_scale(method, kwnames);
  if (!row || args.size() != (row->combine ? 4u : 3u)) return Ref();
  // A number among the operands, or integers, round in other ways.
  for (PyObject* arg : args)
    if (!is_float_tensor(arg)) return Ref();
  const at::Tensor& scale = unpack_tensor(args.back());
  if (scale.dim() != 0 || scale.requires_grad()) return Ref();
  Ref operand = Ref::borrow(args[1]);
  if (row->combine) {
    FJ_TRY(operand, record_method(recorder, row->combine, args[1], args[2]));
  }
  FJ_TRY(Ref scaled,
         record_method(recorder, "mul", operand.get(), args.back()));
  return record_method(recorder, row->apply, args[0], scaled.get());
}

}  // namespace framejit::graph
