#include "graph/tracing/out_arguments.h"

#include "frame_hook/python_text.h"
#include "graph/ops/op_facts.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {

namespace {

// False: there is something else inside.
bool collect_tensors(PyObject* object, std::vector<at::Tensor>* tensors) {
  if (is_tensor_object(object)) {
    tensors->push_back(unpack_tensor(object));
    return true;
  }
  if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    if (!collect_tensors(PySequence_Fast_GET_ITEM(object, i), tensors))
      return false;
  }
  return true;
}

bool decide_fits(const at::Tensor& out, const at::Tensor& result) {
  if (out.scalar_type() != result.scalar_type() ||
      out.device() != result.device() || out.layout() != result.layout() ||
      out.dim() != result.dim())
    return false;
  auto wanted = shape_of(result).sizes, given = shape_of(out).sizes;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != given[i] && !decide(expr_eq(wanted[i], given[i])))
      return false;
  }
  return true;
}

Result<Ref> call_without(Recorder& recorder, PyObject* callable,
                         const std::vector<PyObject*>& args, PyObject* kwnames,
                         Py_ssize_t keyword) {
  Py_ssize_t count = PyTuple_GET_SIZE(kwnames);
  size_t positional = args.size() - static_cast<size_t>(count);
  std::vector<PyObject*> others = args;
  others.erase(others.begin() + static_cast<long>(positional) + keyword);
  Ref names;
  if (count > 1) {
    names = Ref::steal(PyTuple_New(count - 1));
    if (!names) return Result<Ref>::raised();
    for (Py_ssize_t i = 0, next = 0; i < count; ++i) {
      if (i == keyword) continue;
      PyTuple_SET_ITEM(names.get(), next++,
                       Py_NewRef(PyTuple_GET_ITEM(kwnames, i)));
    }
  }
  return recorder.run_unrecorded(callable, others, names.get());
}

}  // namespace

bool may_resize_out(const c10::OperatorHandle& op) {
  // One in Python says nothing of eager's kernel, and comes with some imports.
  return facts_of(op).kernel.kind != MetaKernel::Kind::kMeta;
}

Result<bool> check_out_argument(Recorder& recorder, PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames) {
  Py_ssize_t keyword = keyword_index(kwnames, "out");
  if (keyword < 0) return false;
  size_t positional =
      args.size() - static_cast<size_t>(PyTuple_GET_SIZE(kwnames));
  PyObject* given = args[positional + static_cast<size_t>(keyword)];
  if (given == Py_None) return false;
  auto refuse = [&](const char* why) -> Result<bool> {
    return Break{BreakReason::kOutArgument, why, recorder.span()};
  };
  std::vector<at::Tensor> outs, results;
  if (!collect_tensors(given, &outs)) return refuse("no tensors");
  Result<Ref> result = call_without(recorder, callable, args, kwnames, keyword);
  if (!result.ok()) {
    if (result.is_raised()) return Result<bool>::raised();
    return refuse("the call cannot be made without it");
  }
  if (!collect_tensors(result.value().get(), &results) ||
      outs.size() != results.size())
    return refuse("another number of tensors than the result");
  for (size_t i = 0; i < outs.size(); ++i) {
    if (!decide_fits(outs[i], results[i]))
      return refuse("a tensor of another size or type than the result");
  }
  return true;
}

}  // namespace framejit::graph
