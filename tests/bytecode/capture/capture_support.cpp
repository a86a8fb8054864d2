#include "tests/bytecode/capture/capture_support.h"

#include "frame_hook/dispatch.h"

namespace framejit::bytecode::testing {
namespace {

constexpr char kPrelude[] = R"(
import fake
def show(x, depth=0):
    if isinstance(x, fake.TensorBase):
        return ('tensor', x.shape, x.tolist(), x.requires_grad)
    if depth > 6:
        return '...'
    t = type(x)
    if t in (list, tuple):
        return (t.__name__, [show(v, depth + 1) for v in x])
    if isinstance(x, dict):
        return (t.__name__,
                [(show(k, depth + 1), show(v, depth + 1)) for k, v in x.items()])
    if t in (int, float, bool, str, bytes, type(None), complex):
        return repr(x)
    if isinstance(x, (set, frozenset)):
        return (t.__name__, sorted(map(repr, x)))
    if isinstance(x, BaseException):
        return (t.__name__, show(x.args, depth + 1))
    if isinstance(x, type) or callable(x):
        return getattr(x, '__qualname__', t.__name__)
    if hasattr(x, '__dict__'):
        return (t.__name__, show(dict(vars(x)), depth + 1))
    return t.__name__
def show_state(globals_, before):
    return [(k, show(v)) for k, v in globals_.items()
            if k not in before and k not in ('__builtins__', 'fake')
            and not k.startswith('show')]
)";

// The value of one step.
Ref run_step(const Step& step, const std::vector<Ref>& values,
             PyObject* const* objects, const int64_t* symbols,
             PyObject* const* outputs, PyObject* function) {
  auto operand = [&](size_t i) { return values[step.operands[i]].get(); };
  size_t count = step.operands.size();
  switch (step.kind) {
    case Step::Kind::kOutput:
      return Ref::borrow(outputs[step.index]);
    case Step::Kind::kGathered:
      return Ref::borrow(objects[step.index]);
    case Step::Kind::kConst:
      return step.object;
    case Step::Kind::kSymbolic:
      return Ref::steal(PyLong_FromLongLong(step.expr.evaluate(symbols)));
    case Step::Kind::kFunction:
      return Ref::borrow(function);
    case Step::Kind::kTuple: {
      Ref tuple = Ref::steal(PyTuple_New(count));
      for (size_t i = 0; i < count; ++i) {
        PyTuple_SET_ITEM(tuple.get(), i, Ref::borrow(operand(i)).release());
      }
      return tuple;
    }
    case Step::Kind::kList: {
      Ref list = Ref::steal(PyList_New(0));
      for (size_t i = 0; i < count; ++i) PyList_Append(list.get(), operand(i));
      return list;
    }
    case Step::Kind::kSet: {
      Ref set = Ref::steal(PySet_New(nullptr));
      for (size_t i = 0; i < count; ++i) PySet_Add(set.get(), operand(i));
      return set;
    }
    case Step::Kind::kDict: {
      Ref dict = Ref::steal(PyDict_New());
      for (size_t i = 0; i < count; i += 2) {
        PyDict_SetItem(dict.get(), operand(i), operand(i + 1));
      }
      return dict;
    }
    case Step::Kind::kCall: {
      std::vector<PyObject*> args;
      for (size_t i = 0; i < count; ++i) args.push_back(operand(i));
      args.push_back(nullptr);
      return Ref::steal(
          PyObject_Vectorcall(step.object.get(), args.data(), count, nullptr));
    }
  }
  return {};
}

Ref call_native(PyObject* function, const std::vector<Ref>& args) {
  std::vector<PyObject*> values;
  for (const Ref& arg : args) values.push_back(arg.get());
  values.push_back(nullptr);
  return Ref::steal(
      PyObject_Vectorcall(function, values.data(), args.size(), nullptr));
}

std::vector<Ref> items_of(PyObject* tuple, Py_ssize_t first) {
  std::vector<Ref> items;
  for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(tuple); ++i) {
    items.push_back(Ref::borrow(PyTuple_GET_ITEM(tuple, i)));
  }
  return items;
}

// Guards, graph and steps of one capture; the return value or a token.
Ref run_outcome(const CaptureOutcome& outcome, PyObject* function,
                const std::vector<Ref>& args) {
  std::vector<PyObject*> slots;
  for (const Ref& arg : args) slots.push_back(arg.get());
  std::vector<PyObject*> objects(outcome.guards->gathered().size() + 1);
  std::vector<int64_t> symbols(outcome.guards->symbols().size() + 1);
  size_t failed = 0;
  bool holds = evaluate(*outcome.guards, slots.data(), function, objects.data(),
                        symbols.data(), &failed);
  auto* function_object = reinterpret_cast<PyFunctionObject*>(function);
  EXPECT_TRUE(holds) << "guard fails right after the capture: "
                     << (failed < outcome.guards->guards().size()
                             ? guard_text(*outcome.guards,
                                          outcome.guards->guards()[failed],
                                          function_object->func_code)
                             : "?");
  if (!holds) return {};
  std::vector<Ref> outputs;
  if (outcome.graph) {
    auto* graph = static_cast<fake::FakeGraph*>(outcome.graph.get());
    if (!graph->run(objects.data(), symbols.data(), &outputs)) return {};
  }
  std::vector<PyObject*> output_objects;
  for (const Ref& output : outputs) output_objects.push_back(output.get());
  std::vector<Ref> values;
  if (!run_steps(outcome.steps, objects.data(), symbols.data(),
                 output_objects.data(), function, &values)) {
    return {};
  }
  if (!outcome.residual_code) return values.at(outcome.result);
  std::vector<Ref> residual_args;
  for (int index : outcome.residual_args) {
    residual_args.push_back(values.at(index));
  }
  Ref residual = Ref::steal(PyFunction_New(outcome.residual_code.get(),
                                           function_object->func_globals));
  return call_native(residual.get(), residual_args);
}

}  // namespace

bool run_steps(const std::vector<Step>& steps, PyObject* const* objects,
               const int64_t* symbols, PyObject* const* outputs,
               PyObject* function, std::vector<Ref>* values) {
  for (const Step& step : steps) {
    values->push_back(
        run_step(step, *values, objects, symbols, outputs, function));
    if (!values->back()) return false;
  }
  return true;
}

std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return "";
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref own_type = Ref::steal(type), own_value = Ref::steal(value),
      own_traceback = Ref::steal(traceback);
  Ref text = Ref::steal(PyObject_Str(value));
  std::string result = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (text) result += std::string(": ") + PyUnicode_AsUTF8(text.get());
  return result;
}

Ref make_globals(const std::string& source) {
  fake::install();
  Ref globals = Ref::steal(PyDict_New());
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  Ref name = Ref::steal(PyUnicode_FromString("program"));
  PyDict_SetItemString(globals.get(), "__name__", name.get());
  // Compiled once: checks make globals by the thousand.
  static PyObject* prelude =
      Py_CompileString(kPrelude, "<prelude>", Py_file_input);
  Ref ready =
      Ref::steal(PyEval_EvalCode(prelude, globals.get(), globals.get()));
  if (!ready) ADD_FAILURE() << take_error();
  Ref done = Ref::steal(PyRun_String(source.c_str(), Py_file_input,
                                     globals.get(), globals.get()));
  if (!done) ADD_FAILURE() << take_error() << "\n" << source;
  return globals;
}

Ref evaluate_text(PyObject* globals, const std::string& expression) {
  Ref value = Ref::steal(
      PyRun_String(expression.c_str(), Py_eval_input, globals, globals));
  if (!value) ADD_FAILURE() << take_error() << " in " << expression;
  return value;
}

Ref CaptureRun::call(PyObject* function, const std::vector<Ref>& args) {
  constexpr int kMaxFrames = 200;
  if (captured + fallbacks > kMaxFrames) {
    ADD_FAILURE() << "resumes without end";
    return {};
  }
  std::vector<PyObject*> slots;
  for (const Ref& arg : args) slots.push_back(arg.get());
  CaptureRequest request{function, slots.data(), slots.size()};
  request.fullgraph = fullgraph;
  if (dynamic) request.dynamic = 1;
  fake::FakeTracer tracer;
  g_inject_break_at = captured + fallbacks == 0 ? break_at : 0;
  Result<CaptureOutcome> outcome = capture(request, tracer);
  g_inject_break_at = 0;
  EXPECT_FALSE(PyErr_Occurred()) << take_error();
  EXPECT_FALSE(tracer.running());
  if (!outcome.ok()) {
    EXPECT_TRUE(outcome.broke());
    ++fallbacks;
    if (outcome.broke()) {
      reasons.push_back(break_reason_row(outcome.brk().reason).id);
      details.push_back(outcome.brk().detail);
    }
    return call_native(function, args);
  }
  CaptureOutcome& done = outcome.value();
  ++captured;
  instructions += done.instructions;
  inlined_calls += done.inlined_calls;
  guards += done.guards->guards().size();
  steps += done.steps.size();
  graphs.push_back(done.graph ? done.graph->str() : "");
  for (const BreakRecord& record : done.breaks) {
    reasons.push_back(break_reason_row(record.brk.reason).id);
    details.push_back(record.brk.detail);
  }
  Ref value = run_outcome(done, function, args);
  if (value && PyTuple_CheckExact(value.get()) &&
      PyTuple_GET_SIZE(value.get()) > 1 &&
      PyTuple_GET_ITEM(value.get(), 0) == token_marker()) {
    return call(PyTuple_GET_ITEM(value.get(), 1), items_of(value.get(), 2));
  }
  return value;
}

namespace {

struct Side {
  std::string result, arguments, globals, error;
};

template <class Call>
Side run_side(const std::string& source, const std::string& arguments,
              Call call) {
  Side side;
  Ref globals = make_globals(source);
  Ref before = evaluate_text(globals.get(), "set()");
  PyDict_SetItemString(globals.get(), "before_", before.get());
  Ref args = evaluate_text(globals.get(), arguments);
  if (!args) return side;
  PyDict_SetItemString(globals.get(), "args_", args.get());
  Ref function = Ref::borrow(PyDict_GetItemString(globals.get(), "f"));
  Ref result = call(function.get(), items_of(args.get(), 0));
  if (!result) {
    side.error = take_error();
    result = Ref::borrow(Py_None);
  }
  PyDict_SetItemString(globals.get(), "result_", result.get());
  auto text = [&](const char* expression) -> std::string {
    Ref value = evaluate_text(globals.get(), expression);
    const char* utf8 = value ? PyUnicode_AsUTF8(value.get()) : nullptr;
    return utf8 ? utf8 : "?";
  };
  side.result = text("repr(show(result_))");
  side.arguments = text("repr(show(args_))");
  side.globals = text("repr(show_state(globals(), before_))");
  return side;
}

}  // namespace

CaptureRun check(const std::string& source, const std::string& arguments,
                 CaptureRun run) {
  Side native = run_side(source, arguments, call_native);
  Side captured = run_side(source, arguments,
                           [&](PyObject* function, std::vector<Ref> args) {
                             return run.call(function, args);
                           });
  EXPECT_EQ(native.result, captured.result) << source;
  EXPECT_EQ(native.arguments, captured.arguments) << source;
  EXPECT_EQ(native.globals, captured.globals) << source;
  EXPECT_EQ(native.error, captured.error) << source;
  run.error = captured.error;
  return run;
}

CaptureRun check_whole(const std::string& source, const std::string& arguments,
                       CaptureRun run) {
  run = check(source, arguments, std::move(run));
  std::string text;
  for (size_t i = 0; i < run.reasons.size(); ++i) {
    text += run.reasons[i] + " " + run.details[i] + "\n";
  }
  EXPECT_EQ(run.captured, 1) << text << source;
  EXPECT_EQ(run.fallbacks, 0) << text << source;
  return run;
}

void check_break_everywhere(const std::string& source,
                            const std::string& arguments) {
  for (size_t at = 1; at < 1000; ++at) {
    SCOPED_TRACE("break before micro-op " + std::to_string(at));
    CaptureRun run;
    run.break_at = at;
    run = check(source, arguments, std::move(run));
    if (::testing::Test::HasFailure()) return;
    // The function ended before it came to this one.
    bool broke = false;
    for (const std::string& detail : run.details) {
      broke |= detail.find("injected") != std::string::npos;
    }
    if (!broke) return;
  }
}

}  // namespace framejit::bytecode::testing
