#include "graph/tracing/gradient_link.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <unordered_set>
#include <variant>

#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/block_runner.h"

namespace framejit::graph {

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Graphs hold Python objects, and a node may die on a thread without the GIL.
using SharedCode = std::shared_ptr<const GradientCode>;
SharedCode share(GradientCode code) {
  return SharedCode(new GradientCode(std::move(code)),
                    [](const GradientCode* dead) {
                      if (!Py_IsInitialized()) return;
                      HoldGil gil;
                      delete dead;
                    });
}

Ref wrapped(const at::Tensor& tensor) {
  Ref object = wrap_tensor(tensor);
  if (!object) throw python_error();
  return object;
}

const at::Tensor& tensor_at(PyObject* args, size_t index) {
  PyObject* object = PyTuple_GET_ITEM(args, index);
  TORCH_CHECK(is_tensor_object(object), "a gradient link needs tensors");
  return unpack_tensor(object);
}

// No Python objects: a node may die on a thread without the GIL.
using LinkNumber = std::variant<int64_t, double, Expr>;

std::vector<LinkNumber> numbers_at(PyObject* args, size_t first) {
  std::vector<LinkNumber> numbers;
  for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(args); ++i) {
    PyObject* number = PyTuple_GET_ITEM(args, i);
    if (PyFloat_Check(number)) {
      numbers.emplace_back(PyFloat_AS_DOUBLE(number));
    } else if (std::optional<Expr> expr = expr_of(number)) {
      numbers.emplace_back(*std::move(expr));
    } else {
      numbers.emplace_back(py::handle(number).cast<int64_t>());
    }
  }
  return numbers;
}

Ref object_of(const LinkNumber& number) {
  if (const auto* expr = std::get_if<Expr>(&number))
    return sym_number_object(*expr);
  const auto* real = std::get_if<double>(&number);
  return Ref::steal(real ? PyFloat_FromDouble(*real)
                         : PyLong_FromLongLong(std::get<int64_t>(number)));
}

// The captured graph on these gradients.
variable_list run_backward(const GradientCode& code,
                           const variable_list& gradients,
                           const variable_list& captured,
                           const std::vector<LinkNumber>& symbols) {
  HoldGil gil;
  std::vector<Ref> inputs;
  // The capture took them to be contiguous.
  for (const at::Tensor& gradient : gradients)
    inputs.push_back(wrapped(gradient.contiguous()));
  for (const at::Tensor& tensor : captured) inputs.push_back(wrapped(tensor));
  for (const LinkNumber& symbol : symbols) inputs.push_back(object_of(symbol));
  std::vector<Ref> outputs;
  {
    // The graph's own state writes end with it.
    StateScope state(code.graph->writes_state);
    try {
      outputs = run_block(*code.graph, inputs);
    } catch (python_error& error) {
      error.persist();
      throw;
    }
  }
  variable_list results;
  for (const Ref& output : outputs) {
    bool tensor = is_tensor_object(output.get());
    results.push_back(tensor ? unpack_tensor(output.get()) : at::Tensor());
  }
  return results;
}

// What the node saves of a captured tensor. A result of the function itself
// must not be held with its history: that would be a cycle.
class Captured {
 public:
  void save(const at::Tensor& tensor, bool is_result) {
    saved_.emplace_back(tensor, is_result);
    kept_.emplace_back();
  }
  void keep(const at::Tensor& tensor) {
    saved_.emplace_back();
    kept_.push_back(tensor);
  }
  variable_list unpack(const NodePtr<torch::autograd::Node>& node) {
    variable_list tensors;
    for (size_t i = 0; i < saved_.size(); ++i)
      tensors.push_back(unpack(node, i));
    return tensors;
  }
  at::Tensor unpack(const NodePtr<torch::autograd::Node>& node, size_t i) {
    return kept_[i].defined() ? kept_[i] : saved_[i].unpack(node);
  }
  // False: nothing was there to release.
  bool release() {
    bool any = false;
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (kept_[i].defined()) continue;
      saved_[i].reset_data();
      any = true;
    }
    return any;
  }

 private:
  std::vector<SavedVariable> saved_;
  variable_list kept_;
};

class FunctionNode final : public torch::autograd::Node {
 public:
  FunctionNode(SharedCode code, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), code_(std::move(code)) {}

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
    at::OptionalDeviceGuard guard;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = infos_[i].zeros(guard);
    bool twice = code_->once && c10::GradMode::is_enabled() &&
                 std::any_of(gradients.begin(), gradients.end(),
                             [](const at::Tensor& gradient) {
                               return gradient.requires_grad();
                             });
    watched_.unpack(getptr());
    variable_list results =
        run_backward(*code_, gradients, captured_.unpack(getptr()), symbols_);
    if (twice) forbid_twice(&results);
    return results;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool released = captured_.release();
    released_ = watched_.release() || released;
  }
  variable_list saved() {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list found = watched_.unpack(getptr());
    for (size_t i = 0; i < code_->num_captured; ++i)
      if (code_->saved[i]) found.push_back(captured_.unpack(getptr(), i));
    return found;
  }
  std::string name() const override { return code_->name; }

  Captured captured_, watched_;
  std::vector<torch::autograd::VariableInfo> infos_;
  std::vector<LinkNumber> symbols_;

 private:
  static void forbid_twice(variable_list* results) {
    auto error = make_node<torch::autograd::DelayedError>(
        "trying to differentiate twice a function that was marked with "
        "@once_differentiable",
        static_cast<int64_t>(results->size()));
    variable_list inputs;
    for (const at::Tensor& result : *results) {
      at::Tensor input = result.defined() ? result.detach() : result;
      if (input.defined() &&
          torch::autograd::isDifferentiableType(input.scalar_type()))
        input.requires_grad_(true);
      inputs.push_back(std::move(input));
    }
    *results = (*error)(std::move(inputs));
  }

  SharedCode code_;
  std::mutex mutex_;
  bool released_ = false;
};

// ---- the callables

struct LinkObject {
  PyObject_HEAD SharedCode* code;
  bool is_hook;
  PyObject* dict;
};

PyObject* link_results(const variable_list& results) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(results.size()));
  if (!tuple) throw python_error();
  for (size_t i = 0; i < results.size(); ++i)
    PyTuple_SET_ITEM(tuple, i, THPVariable_Wrap(results[i]));
  return tuple;
}

PyObject* call_function_gradient(const SharedCode& code, PyObject* args) {
  variable_list inputs, results;
  size_t next = 0;
  for (; next < code->num_inputs; ++next)
    inputs.push_back(tensor_at(args, next));
  for (size_t i = 0; i < code->num_results; ++i)
    results.push_back(tensor_at(args, next++));
  auto node = make_node<FunctionNode>(
      code, torch::autograd::collect_next_edges(inputs));
  std::unordered_set<at::TensorImpl*> constant;
  std::vector<std::optional<at::Tensor>> raw;
  for (size_t i = 0; i < results.size(); ++i) {
    raw.emplace_back(results[i]);
    if (!code->differentiable[i])
      constant.insert(results[i].unsafeGetTensorImpl());
    node->infos_.emplace_back(results[i]);
  }
  auto no_jvp = [](variable_list, variable_list) -> variable_list {
    TORCH_CHECK(false, "forward mode is not captured");
  };
  auto made = torch::autograd::_wrap_outputs(
      inputs, constant, {}, raw, node, no_jvp, {},
      [](const at::Tensor& tensor) { return tensor.view_as(tensor); },
      /*pure_view=*/false);
  variable_list out;
  for (auto& result : made) out.push_back(*result);
  auto is_result = [&](const at::Tensor& tensor) {
    return std::any_of(out.begin(), out.end(), [&](const at::Tensor& result) {
      return tensor.is_same(result);
    });
  };
  for (size_t i = 0; i < code->num_captured; ++i) {
    const at::Tensor& tensor = tensor_at(args, next++);
    if (code->saved[i] || is_result(tensor)) {
      node->captured_.save(tensor, is_result(tensor));
    } else {
      node->captured_.keep(tensor);
    }
  }
  for (size_t i = 0; i < code->num_watched; ++i) {
    const at::Tensor& tensor = tensor_at(args, next++);
    node->watched_.save(tensor, is_result(tensor));
  }
  node->symbols_ = numbers_at(args, next);
  return link_results(out);
}

PyObject* call_tensor_hook(const SharedCode& code, PyObject* args) {
  const at::Tensor& tensor = tensor_at(args, 0);
  variable_list captured;
  size_t next = 1;
  for (size_t i = 0; i < code->num_captured; ++i)
    captured.push_back(tensor_at(args, next++));
  auto symbols = numbers_at(args, next);
  tensor.register_hook(
      [code, captured, symbols](const at::Tensor& gradient) -> at::Tensor {
        if (!gradient.defined()) return at::Tensor();
        return run_backward(*code, {gradient}, captured, symbols).at(0);
      });
  Py_RETURN_NONE;
}

PyObject* link_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  auto* link = reinterpret_cast<LinkObject*>(self);
  const SharedCode& code = *link->code;
  size_t expected = code->num_captured + code->num_watched +
                    symbol_inputs(*code->graph).size() +
                    (link->is_hook ? 1 : code->num_inputs + code->num_results);
  TORCH_CHECK(
      !kwargs && PyTuple_GET_SIZE(args) == static_cast<Py_ssize_t>(expected),
      "a gradient link called with other arguments than captured");
  return link->is_hook ? call_tensor_hook(code, args)
                       : call_function_gradient(code, args);
  END_HANDLE_TH_ERRORS
}

void link_dealloc(PyObject* self) {
  auto* link = reinterpret_cast<LinkObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete link->code;
  Py_XDECREF(link->dict);
  type->tp_free(self);
  Py_DECREF(type);
}

// Backends copy modules; the captured graph is shared.
PyObject* link_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyMethodDef kLinkMethods[] = {{"__copy__", link_copy, METH_NOARGS, nullptr},
                              {"__deepcopy__", link_copy, METH_O, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

PyMemberDef kLinkMembers[] = {{"__dictoffset__", T_PYSSIZET,
                               offsetof(LinkObject, dict), READONLY, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};

PyTypeObject* link_type() {
  static PyTypeObject* type = made_once([] {
    static PyType_Slot slots[] = {
        {Py_tp_call, reinterpret_cast<void*>(link_call)},
        {Py_tp_dealloc, reinterpret_cast<void*>(link_dealloc)},
        {Py_tp_methods, kLinkMethods},
        {Py_tp_members, kLinkMembers},
        {Py_tp_getattro, reinterpret_cast<void*>(PyObject_GenericGetAttr)},
        {0, nullptr}};
    static PyType_Spec spec = {"framejit.GradientLink", sizeof(LinkObject), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
  FJ_CHECK(type, "the type of gradient links");
  return type;
}

Ref make_link(GradientCode code, bool is_hook, const char* name) {
  Ref object = Ref::steal(link_type()->tp_alloc(link_type(), 0));
  FJ_CHECK(object, "no memory");
  auto* link = reinterpret_cast<LinkObject*>(object.get());
  link->code = new SharedCode(share(std::move(code)));
  link->is_hook = is_hook;
  // torch.fx names what it calls by these.
  link->dict = Py_BuildValue("{ssssss}", "__name__", name, "__qualname__", name,
                             "__module__", "framejit");
  FJ_CHECK(link->dict, "no memory");
  return object;
}

}  // namespace

Ref make_function_gradient(GradientCode code) {
  return make_link(std::move(code), false, "function_gradient");
}

Ref make_tensor_hook(GradientCode code) {
  return make_link(std::move(code), true, "tensor_hook");
}

std::vector<size_t> unsaved_arguments(PyObject* callable) {
  std::vector<size_t> found;
  if (!is_gradient_link(callable)) return found;
  auto* link = reinterpret_cast<LinkObject*>(callable);
  const GradientCode& code = **link->code;
  size_t first = link->is_hook ? 1 : code.num_inputs + code.num_results;
  for (size_t i = 0; i < code.num_captured; ++i)
    if (!code.saved[i]) found.push_back(first + i);
  return found;
}

bool is_gradient_link(PyObject* callable) {
  return callable && Py_TYPE(callable) == link_type();
}

std::vector<at::Tensor> saved_by_link(
    const NodePtr<torch::autograd::Node>& node) {
  auto* link = dynamic_cast<FunctionNode*>(node.get());
  return link ? link->saved() : std::vector<at::Tensor>();
}

bool is_python_formula(const torch::autograd::Node& node) {
  return is_python_node(node);
}

}  // namespace framejit::graph
