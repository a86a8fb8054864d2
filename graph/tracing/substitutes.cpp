#include "graph/tracing/substitutes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/python_text.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/callees.h"

namespace framejit::graph {

namespace {

// torch.lstm(input, state, weights, has_biases, num_layers, dropout, train,
//            bidirectional, batch_first); a packed batch has other arguments.
constexpr size_t kRecurrentArguments = 9;
constexpr size_t kBatchFirst = 8;

bool has_symbolic_sizes(PyObject* object) {
  if (PyTuple_Check(object) || PyList_Check(object)) {
    if (native_stack_low()) return true;  // nobody knows
    Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
    for (Py_ssize_t i = 0; i < size; ++i)
      if (has_symbolic_sizes(PySequence_Fast_GET_ITEM(object, i))) return true;
    return false;
  }
  if (!is_tensor_object(object)) return false;
  for (const c10::SymInt& size : unpack_tensor(object).sym_sizes())
    if (size.is_symbolic()) return true;
  return false;
}

// On the CPU, of one type.
bool is_plain_tensor(PyObject* object, c10::ScalarType type) {
  if (!is_tensor_object(object)) return false;
  const at::Tensor& tensor = unpack_tensor(object);
  return tensor.device().is_cpu() && tensor.scalar_type() == type;
}

bool are_plain_tensors(PyObject* object, c10::ScalarType type) {
  if (!PyTuple_Check(object) && !PyList_Check(object))
    return is_plain_tensor(object, type);
  if (native_stack_low()) return false;
  Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!is_plain_tensor(PySequence_Fast_GET_ITEM(object, i), type))
      return false;
  return size > 0;
}

// framejit::recurrent makes the same call when the graph runs. (Of an input
// whose rows have gaps, it would not know how the gradient lies.)
bool is_plain_recurrence(const std::vector<PyObject*>& args, bool is_lstm) {
  const at::Tensor& input = unpack_tensor(args[0]);
  if (input.sym_strides().back().maybe_as_int() != 1) return false;
  const c10::ScalarType type = input.scalar_type();
  // Whether oneDNN takes an LSTM of 16 bits depends on the CPU.
  const bool has_kernels = type == c10::kFloat || type == c10::kDouble;
  const bool is_narrow = type == c10::kBFloat16 || type == c10::kHalf;
  if (!has_kernels && (!is_narrow || is_lstm)) return false;
  for (size_t i : {0, 1, 2})
    if (!are_plain_tensors(args[i], type)) return false;
  for (size_t i : {3, 6, 7, 8})
    if (!PyBool_Check(args[i])) return false;
  return PyLong_CheckExact(args[4]) && PyFloat_CheckExact(args[5]);
}

bool is_symbolic_recurrence(const std::vector<PyObject*>& args) {
  return args.size() == kRecurrentArguments &&
         PyBool_Check(args[kBatchFirst]) && unpack_tensor(args[0]).dim() == 3 &&
         (has_symbolic_sizes(args[0]) || has_symbolic_sizes(args[1]));
}

// torch.lstm_cell(input, (h, c), w_ih, w_hh, b_ih, b_hh); the others have h for
// the pair.
bool is_symbolic_cell(const std::vector<PyObject*>& args) {
  return has_symbolic_sizes(args[0]) || has_symbolic_sizes(args[1]);
}

// torch.ctc_loss(log_probs, targets, input_lengths, target_lengths, ...)
constexpr size_t kCtcArguments = 4;
// torch._C._nn.upsample_nearest1d(input, output_size, scale_factors)
constexpr size_t kFewestArguments = 3;

// The mean divides by a tensor that is made of the lengths.
bool reads_lengths(const std::vector<PyObject*>& args) {
  if (args.size() < kCtcArguments) return false;
  if (is_tensor_object(args[2]) && is_tensor_object(args[3])) return true;
  PyObject* reduction = args.size() > 5 ? args[5] : nullptr;
  return !reduction ||
         (PyLong_CheckExact(reduction) && PyLong_AsLong(reduction) == 1);
}

// A function of torch, or of a module in it: "_C._nn.upsample_linear1d".
Ref find_callable(PyObject* torch, PyObject* path) {
  Ref dot = Ref::steal(PyUnicode_FromString("."));
  Ref names = Ref::steal(dot ? PyUnicode_Split(path, dot.get(), -1) : nullptr);
  Ref found = Ref::borrow(torch);
  for (Py_ssize_t i = 0; names && found && i < PyList_GET_SIZE(names.get());
       ++i) {
    found = Ref::steal(
        PyObject_GetAttr(found.get(), PyList_GET_ITEM(names.get(), i)));
  }
  return names ? found : Ref();
}

const char* callable_name(PyObject* function) {
  return reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
}

struct Substitutes {
  std::unordered_map<PyObject*, Substitute> of_calls, of_plain_recurrences;
};

const Substitutes& substitutes() {
  // Never destroyed: it may outlive the interpreter.
  static const auto* table = [] {
    auto* made = new Substitutes;
    PauseHook pause;
    Ref module = Ref::steal(PyImport_ImportModule("framejit._substitutes"));
    Ref torch = Ref::steal(PyImport_ImportModule("torch"));
    for (const char* table : {"SUBSTITUTES", "DECOMPOSITIONS", "COMPOSITES",
                              "READERS", "RECURRENCES"}) {
      Ref rows = Ref::steal(module ? PyObject_GetAttrString(module.get(), table)
                                   : nullptr);
      bool exact = std::string_view(table) != "SUBSTITUTES";
      bool reads = std::string_view(table) == "READERS";
      bool composite = reads || std::string_view(table) == "COMPOSITES";
      auto& rows_of = std::string_view(table) == "RECURRENCES"
                          ? made->of_plain_recurrences
                          : made->of_calls;
      Py_ssize_t position = 0;
      PyObject *name, *function;
      while (rows && torch &&
             PyDict_Next(rows.get(), &position, &name, &function)) {
        Ref callable = find_callable(torch.get(), name);
        if (callable)
          rows_of.emplace(
              callable.release(),
              Substitute{Py_NewRef(function), exact, composite, reads});
      }
    }
    PyErr_Clear();
    return made;
  }();
  return *table;
}

// What only torch's own parser takes: NumPy's names for arguments, and out=.
constexpr const char* kNamesOfTorch[] = {"out", "axis", "x", "x1", "x2", "A"};

// Numbers are as they were: only sizes are symbols. Autocast has rules for the
// call that it has not for its parts.
bool is_composite(const Substitute& row, const std::vector<PyObject*>& args,
                  PyObject* kwnames) {
  for (const char* name : kNamesOfTorch)
    if (keyword_index(kwnames, name) >= 0) return false;
  if (AmbientState::now().any_autocast()) return false;
  return (row.of_reads || std::ranges::any_of(args, has_symbolic_sizes)) &&
         std::ranges::none_of(args, is_symbolic_object);
}

}  // namespace

Substitute find_substitute(PyObject* callable,
                           const std::vector<PyObject*>& args,
                           PyObject* kwnames) {
  bool is_method = Py_IS_TYPE(callable, &PyMethodDescr_Type);
  if ((!PyCFunction_Check(callable) && !is_method) || args.empty()) return {};
  auto found = substitutes().of_calls.find(callable);
  if (found == substitutes().of_calls.end()) return {};
  if (found->second.composite)
    return is_composite(found->second, args, kwnames) ? found->second
                                                      : Substitute{};
  // torch.randperm(n, ...)
  if (is_symbolic_object(args[0])) return found->second;
  if (args.size() < kFewestArguments ||
      (kwnames && PyTuple_GET_SIZE(kwnames)) || !is_tensor_object(args[0]))
    return {};
  if (found->second.exact)
    return is_symbolic_cell(args) ? found->second : Substitute{};
  // Autocast would choose another type for the results.
  if (AmbientState::now().any_autocast()) return {};
  const std::string_view name = callable_name(callable);
  if (name == "ctc_loss")
    return reads_lengths(args) ? found->second : Substitute{};
  if (!is_symbolic_recurrence(args)) return {};
  return is_plain_recurrence(args, name == "lstm")
             ? substitutes().of_plain_recurrences.at(callable)
             : found->second;
}

}  // namespace framejit::graph
