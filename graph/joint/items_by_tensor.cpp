#include "graph/joint/items_by_tensor.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>

#include <algorithm>
#include <optional>

#include "graph/ir/torch_level.h"
#include "graph/joint/joint_replay.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "guards/known_objects.h"

namespace framejit::graph {

namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

// Those for which eager reads a number: not the masks.
bool is_number_tensor(PyObject* object) {
  if (!is_tensor_object(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  return tensor.dim() == 0 &&
         at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) &&
         tensor.scalar_type() != at::kByte;
}

// One index of a single element for each of the first dims; empty: other ones.
// Copies: eager has read the number, and the program may write to the tensor
// before the backward runs.
Indices indices_of(PyObject* index) {
  Indices found;
  const bool is_tuple = PyTuple_CheckExact(index);
  const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(index) : 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = is_tuple ? PyTuple_GET_ITEM(index, i) : index;
    if (!is_number_tensor(item)) return Indices();
    found.push_back(unpack_tensor(item).reshape({1}).to(
        at::kLong, /*non_blocking=*/false, /*copy=*/true));
  }
  return found;
}

size_t generation_of(const at::Tensor& tensor) {
  auto* memory =
      dynamic_cast<const at::functionalization::FunctionalStorageImpl*>(
          storage_of(tensor));
  FJ_CHECK(memory, "a wrapper without its memory");
  return memory->generation();
}

// Without elements no kernel looks whether the indices are in range.
bool has_elements_behind(const at::Tensor& tensor, size_t count) {
  const std::vector<Expr> sizes = shape_of(tensor).sizes;
  return std::none_of(sizes.begin() + count, sizes.end(),
                      [](const Expr& size) { return size.is_const(0); });
}

bool is_functional(const at::Tensor& tensor) {
  return at::functionalization::impl::isFunctionalTensor(tensor);
}

}  // namespace

bool ItemsByTensor::run(const Node& node, const std::vector<PyObject*>& args,
                        Ref* result) {
  // The tracer records every form of an index as these.
  static PyObject* const getitem = library_object("operator", "getitem");
  static PyObject* const setitem = library_object("operator", "setitem");
  const bool reads = node.callable.get() == getitem;
  const bool writes = node.callable.get() == setitem;
  if (!node.kwargs.empty() || args.size() != (writes ? 3u : 2u) ||
      (!reads && !writes) || !is_tensor_object(args[0])) {
    return false;
  }
  const at::Tensor& tensor = unpack_tensor(args[0]);
  if (!is_functional(tensor)) return false;
  const Indices indices = indices_of(args[1]);
  const auto count = static_cast<int64_t>(indices.size());
  if (count == 0 || count > tensor.dim() ||
      !has_elements_behind(tensor, indices.size()))
    return false;
  if (reads) {
    at::Tensor copy = at::index(tensor, indices).select(0, 0);
    if (!is_functional(copy)) return false;
    copies_.push_back(
        {tensor, copy, generation_of(tensor), generation_of(copy), &node});
    *result = wrap_tensor(copy);
    return true;
  }
  if (!is_tensor_object(args[2])) return false;
  const at::Tensor& value = unpack_tensor(args[2]);
  if (value.dim() > tensor.dim() - count || value.device() != tensor.device())
    return false;
  tensor.index_put_(indices, value.to(tensor.scalar_type()));
  *result = Ref::borrow(Py_None);
  return true;
}

const c10::StorageImpl* ItemsByTensor::memory_in_eager(
    const c10::StorageImpl* memory) const {
  for (auto each = copies_.rbegin(); each != copies_.rend(); ++each) {
    if (storage_of(each->copy) == memory) memory = storage_of(each->of);
  }
  return memory;
}

Status ItemsByTensor::check(const std::vector<at::Tensor>& outputs) const {
  for (const Copy& each : copies_) {
    if (generation_of(each.of) != each.generation_of ||
        generation_of(each.copy) != each.generation) {
      return torch_level_only(TorchLevel::kItemIsWritten,
                              place_of_node(each.node));
    }
    for (const at::Tensor& output : outputs) {
      if (output.defined() && storage_of(output) == storage_of(each.copy))
        return torch_level_only(TorchLevel::kItemIsReturned,
                                place_of_node(each.node));
    }
  }
  return ok_status();
}

}  // namespace framejit::graph
