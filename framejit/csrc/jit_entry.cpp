#include "framejit/csrc/jit_entry.h"

#include <utility>

#include "frame_hook/code_cache.h"
#include "frame_hook/options.h"
#include "guards/set/number_expr.h"

namespace framejit {

using bytecode::Step;

namespace {

// The values of the steps: owned references, released at the end of a scope.
class StepValues {
 public:
  explicit StepValues(size_t count) : count_(count) {
    if (count > kInline) heap_ = std::make_unique<PyObject*[]>(count);
    values_ = count > kInline ? heap_.get() : inline_;
    std::fill_n(values_, count, nullptr);
  }
  ~StepValues() {
    // Finalizers may look at the pending exception; they must not lose it.
    if (PyErr_Occurred()) {
      ErrorGuard error;
      clear();
    } else {
      clear();
    }
  }
  StepValues(const StepValues&) = delete;
  StepValues& operator=(const StepValues&) = delete;
  PyObject** data() { return values_; }

 private:
  void clear() {
    for (size_t i = 0; i < count_; ++i) Py_CLEAR(values_[i]);
  }
  static constexpr size_t kInline = 24;
  PyObject* inline_[kInline];
  std::unique_ptr<PyObject*[]> heap_;
  PyObject** values_;
  size_t count_;
};

PyObject* make_container(const Step& step, PyObject* const* values) {
  size_t count = step.operands.size();
  auto operand = [&](size_t i) { return values[step.operands[i]]; };
  switch (step.kind) {
    case Step::Kind::kTuple: {
      Ref tuple = Ref::steal(PyTuple_New(Py_ssize_t(count)));
      if (!tuple) return nullptr;
      for (size_t i = 0; i < count; ++i) {
        PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(operand(i)));
      }
      return tuple.release();
    }
    case Step::Kind::kList: {
      Ref list = Ref::steal(PyList_New(Py_ssize_t(count)));
      if (!list) return nullptr;
      for (size_t i = 0; i < count; ++i) {
        PyList_SET_ITEM(list.get(), i, Py_NewRef(operand(i)));
      }
      return list.release();
    }
    case Step::Kind::kSet: {
      Ref set = Ref::steal(PySet_New(nullptr));
      if (!set) return nullptr;
      for (size_t i = 0; i < count; ++i) {
        if (PySet_Add(set.get(), operand(i)) < 0) return nullptr;
      }
      return set.release();
    }
    default: {
      Ref dict = Ref::steal(PyDict_New());
      if (!dict) return nullptr;
      for (size_t i = 0; i + 1 < count; i += 2) {
        if (PyDict_SetItem(dict.get(), operand(i), operand(i + 1)) < 0) {
          return nullptr;
        }
      }
      return dict.release();
    }
  }
}

PyObject* call_step(const Step& step, PyObject* const* values) {
  constexpr size_t kInline = 8;
  PyObject* few[kInline];
  std::vector<PyObject*> many;
  PyObject** args = few;
  if (step.operands.size() > kInline) {
    many.resize(step.operands.size());
    args = many.data();
  }
  for (size_t i = 0; i < step.operands.size(); ++i) {
    args[i] = values[step.operands[i]];
  }
  return PyObject_Vectorcall(step.object.get(), args, step.operands.size(),
                             nullptr);
}

bool is_read(const Step& step) { return step.kind <= Step::Kind::kFunction; }

// The value of a step that only reads; null without an error for the others.
PyObject* read_step(const Step& step, PyObject* const* objects,
                    const int64_t* symbols, PyObject* const* outputs,
                    PyObject* function) {
  switch (step.kind) {
    case Step::Kind::kOutput:
      return Py_NewRef(outputs[step.index]);
    case Step::Kind::kGathered:
      return Py_NewRef(objects[step.index]);
    case Step::Kind::kConst:
      return step.object.new_reference();
    case Step::Kind::kSymbolic:
      return number_object(step.expr, symbols);
    case Step::Kind::kFunction:
      return Py_NewRef(function);
    default:
      return nullptr;
  }
}

}  // namespace

JitEntry::JitEntry(bytecode::CaptureOutcome outcome,
                   std::unique_ptr<Executor> executor_in,
                   backend::CompiledInfo info)
    : outcome_(std::move(outcome)),
      armed_(std::move(outcome_.guards)),
      executor_(std::move(executor_in)),
      info_(std::move(info)) {
  num_objects = uint32_t(guards().gathered().size());
  num_symbols = uint32_t(guards().symbols().size());
  num_outputs = uint32_t(outcome_.num_outputs);
  executor = executor_.get();
  if (executor) executor->keeps_gil = outcome_.replaces_values;
  // Calls of C callables may run user code too (a weakref callback, a
  // descriptor); only residual functions need their callees compiled.
  runs_code_ = bool(outcome_.residual_code);
  const auto& steps = outcome_.steps;
  if (!outcome_.residual_code && steps.size() == 1 && outcome_.result == 0) {
    if (steps[0].kind == Step::Kind::kGathered && !executor) {
      identity_result = steps[0].index;
    } else if (steps[0].kind == Step::Kind::kOutput) {
      plain_output_ = steps[0].index;
    }
  }
}

void JitEntry::publish_predicates() {
  // Every call is then evaluated, and the predicates are compared with that.
  if (options().verify || armed_.dead()) return;
  predicates = armed_.predicate_functions();
}

void JitEntry::arm(PyObject* const* args, PyObject* function) {
  armed_.arm(args, function);
  armed_.hold_weakly([this] { drop_entry(this); });
  publish_predicates();
}

JitEntry::~JitEntry() {
  if (!past) return;
  ErrorGuard error;
  Figures& sum = hands_over ? past->handing_over : past->own;
  ++sum.entries;
  sum.hits += hits;
  sum.operations += info_.num_operations;
  sum.ms += times.capture_ms + times.backend_ms + times.guards_ms;
  for (const auto& record : outcome_.breaks)
    ++sum.breaks[past_break(record.brk)];
  for (PastPin& pin : past_pins(guards())) ++sum.pins[std::move(pin)];
}

bool JitEntry::match_slow(PyObject* const* args, PyObject* function,
                          PyObject** objects, int64_t* symbols) {
  bool matches =
      armed_.match_slow(args, function, objects, symbols, &failed_fact);
  publish_predicates();
  return matches;
}

PyObject* JitEntry::make_token(PyObject** values, PyObject* function) {
  // Made at each call: kept here, it would keep the globals, which may hold the
  // function that owns this entry, in a cycle that no collector sees.
  Ref residual = Ref::steal(PyFunction_New(outcome_.residual_code.get(),
                                           PyFunction_GET_GLOBALS(function)));
  if (!residual) return nullptr;
  const std::vector<int>& args = outcome_.residual_args;
  Ref token = Ref::steal(PyTuple_New(Py_ssize_t(args.size()) + 2));
  if (!token) return nullptr;
  PyTuple_SET_ITEM(token.get(), 0, Py_NewRef(token_marker()));
  PyTuple_SET_ITEM(token.get(), 1, residual.release());
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SET_ITEM(token.get(), i + 2, Py_NewRef(values[args[i]]));
  }
  return token.release();
}

PyObject* JitEntry::finish(PyObject* const* objects, const int64_t* symbols,
                           PyObject* const* outputs, PyObject* function) {
  if (plain_output_ >= 0) return Py_NewRef(outputs[plain_output_]);
  const std::vector<Step>& steps = outcome_.steps;
  StepValues scope(steps.size());
  PyObject** values = scope.data();
  // What is merely read first: the effects below may drop the last reference
  // to a gathered object.
  for (size_t i = 0; i < steps.size(); ++i) {
    values[i] = read_step(steps[i], objects, symbols, outputs, function);
    if (!values[i] && is_read(steps[i])) return nullptr;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (values[i]) continue;
    values[i] = steps[i].kind == Step::Kind::kCall
                    ? call_step(steps[i], values)
                    : make_container(steps[i], values);
    if (!values[i]) return nullptr;
  }
  if (outcome_.residual_code) return make_token(values, function);
  return Py_NewRef(values[outcome_.result]);
}

}  // namespace framejit
