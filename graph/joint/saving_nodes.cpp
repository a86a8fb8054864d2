#include "graph/joint/saving_nodes.h"

#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "frame_hook/py_ref.h"
#include "frame_hook/python_text.h"
#include "graph/ops/recurrent.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/gradient_link.h"

namespace framejit::graph {

namespace {

using AutogradNode = torch::autograd::Node;

// The names of the attributes, by type. torch makes a type for each kind of
// node and keeps it.
const std::vector<Ref>& saved_attributes(PyTypeObject* type) {
  static auto* known = new std::unordered_map<PyTypeObject*, std::vector<Ref>>;
  auto [entry, is_new] = known->try_emplace(type);
  if (!is_new) return entry->second;
  Ref names = Ref::steal(PyObject_Dir(reinterpret_cast<PyObject*>(type)));
  if (!names) PyErr_Clear();
  for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names.get()); ++i) {
    // Only tensors have a raw form; to read a number would fix its value.
    std::string raw = text_of(PyList_GET_ITEM(names.get(), i));
    if (!raw.starts_with("_raw_saved_")) continue;
    Ref name = Ref::steal(PyUnicode_FromString(raw.c_str() + 4));
    if (!name) PyErr_Clear();
    if (name) entry->second.push_back(std::move(name));
  }
  return entry->second;
}

void collect_tensors(PyObject* value, std::vector<at::Tensor>* found) {
  if (is_tensor_object(value)) found->push_back(unpack_tensor(value));
  if (!PyTuple_Check(value)) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
    collect_tensors(PyTuple_GET_ITEM(value, i), found);
}

// Adds what it saves. False: some of it cannot be had.
bool collect_saved(const NodePtr<AutogradNode>& node,
                   std::vector<at::Tensor>* saved) {
  for (at::Tensor& tensor : saved_by_link(node))
    saved->push_back(std::move(tensor));
  for (at::Tensor& tensor : saved_by_recurrent(node))
    saved->push_back(std::move(tensor));
  Ref object = Ref::steal(torch::autograd::functionToPyObject(node));
  if (!object) {
    PyErr_Clear();
    return true;
  }
  bool readable = true;
  for (const Ref& name : saved_attributes(Py_TYPE(object.get()))) {
    Ref value = Ref::steal(PyObject_GetAttr(object.get(), name.get()));
    // Written to meanwhile: the backward says so.
    if (!value) PyErr_Clear();
    readable &= static_cast<bool>(value);
    if (value) collect_tensors(value.get(), saved);
  }
  return readable;
}

// Does it save anything? Also where what it saved cannot be had.
bool saves(const NodePtr<AutogradNode>& node, std::vector<at::Tensor>* saved) {
  bool readable = collect_saved(node, saved);
  // A write to a view: the node of the operator is within that of the base.
  auto* slices = dynamic_cast<torch::autograd::CopySlices*>(node.get());
  if (!slices) return !readable || !saved->empty();
  if (slices->fn) collect_saved(slices->fn, saved);
  return true;  // it lets go of that node, if of nothing else
}

}  // namespace

std::vector<SavingNode> saving_nodes(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs) {
  std::unordered_set<const AutogradNode*> goals;
  for (const at::Tensor& input : inputs)
    goals.insert(torch::autograd::impl::gradient_edge(input).function.get());
  // Callers before callees; what leads to a goal is known from the end on.
  struct Place {
    NodePtr<AutogradNode> node;
    size_t next = 0;
  };
  std::unordered_map<const AutogradNode*, bool> leads;
  std::vector<Place> open;
  std::vector<SavingNode> found;
  auto visit = [&](const NodePtr<AutogradNode>& node) {
    if (node &&
        leads.try_emplace(node.get(), goals.contains(node.get())).second)
      open.push_back({node});
  };
  for (const at::Tensor& output : outputs) {
    visit(torch::autograd::impl::gradient_edge(output).function);
    while (!open.empty()) {
      AutogradNode* node = open.back().node.get();
      if (open.back().next < node->next_edges().size()) {
        visit(node->next_edges()[open.back().next++].function);
        continue;
      }
      bool& passes = leads[node];
      for (const auto& edge : node->next_edges())
        passes |= edge.function && leads[edge.function.get()];
      SavingNode saving{node, {}};
      if (passes && !goals.contains(node) &&
          saves(open.back().node, &saving.saved))
        found.push_back(std::move(saving));
      open.pop_back();
    }
  }
  return found;
}

}  // namespace framejit::graph
