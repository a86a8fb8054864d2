#include "tests/bytecode/capture/toy_compiler.h"

#include "bytecode/capture/capture.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/frame_eval.h"
#include "guards/emit/armed_guards.h"
#include "guards/set/guarded_raise.h"
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

class ToyEntry final : public CacheEntry {
 public:
  ToyEntry(CaptureOutcome outcome, const CompileRequest& request)
      : outcome_(std::move(outcome)), armed_(std::move(outcome_.guards)) {
    const GuardSet& guards = armed_.guards();
    num_objects = uint32_t(guards.gathered().size());
    num_symbols = uint32_t(guards.symbols().size());
    num_outputs = uint32_t(outcome_.num_outputs);
    if (outcome_.graph) {
      executor_ = fake::make_executor(
          static_cast<const fake::FakeGraph&>(*outcome_.graph));
      executor = executor_.get();
    }
    EXPECT_TRUE(armed_.arm(request.args, request.function));
    predicates = armed_.predicate_functions();
  }

  bool match_slow(PyObject* const* args, PyObject* function, PyObject** objects,
                  int64_t* symbols) override {
    bool holds = armed_.match_slow(args, function, objects, symbols);
    predicates = armed_.predicate_functions();
    return holds;
  }

  PyObject* finish(PyObject* const* objects, const int64_t* symbols,
                   PyObject* const* outputs, PyObject* function) override {
    std::vector<Ref> values;
    if (!run_steps(outcome_.steps, objects, symbols, outputs, function,
                   &values)) {
      return nullptr;
    }
    if (!outcome_.residual_code) return values.at(outcome_.result).release();
    Ref residual = Ref::steal(PyFunction_New(outcome_.residual_code.get(),
                                             PyFunction_GET_GLOBALS(function)));
    const std::vector<int>& args = outcome_.residual_args;
    Ref token = Ref::steal(PyTuple_New(Py_ssize_t(args.size()) + 2));
    if (!residual || !token) return nullptr;
    PyTuple_SET_ITEM(token.get(), 0, Py_NewRef(token_marker()));
    PyTuple_SET_ITEM(token.get(), 1, residual.release());
    for (size_t i = 0; i < args.size(); ++i) {
      PyTuple_SET_ITEM(token.get(), Py_ssize_t(i) + 2,
                       Py_NewRef(values.at(args[i]).get()));
    }
    return token.release();
  }

  bool finish_runs_code() const override {
    return bool(outcome_.residual_code);
  }

 private:
  CaptureOutcome outcome_;
  ArmedGuards armed_;
  std::unique_ptr<Executor> executor_;
};

bool is_program_code(PyObject* code) {
  PyObject* name = reinterpret_cast<PyCodeObject*>(code)->co_filename;
  return PyUnicode_CompareWithASCIIString(name, "<string>") == 0;
}

// Beneath a break, the functions of the program are compiled too.
CodeVerdict judge_callee(PyObject*, PyObject* code) {
  return is_program_code(code) ? CodeVerdict::kCallee : CodeVerdict::kSkip;
}

CodeVerdict judge_script(PyObject*, PyObject* code) {
  return is_program_code(code) ? CodeVerdict::kTensors : CodeVerdict::kSkip;
}

}  // namespace

ToyCompiler::ToyCompiler() {
  set_compiler(this);
  set_should_compile(judge_callee);
}

ToyCompiler::~ToyCompiler() {
  stop_script_mode();
  set_compiler(nullptr);
  set_should_compile(nullptr);
  forget_options(&options_);
}

Ref ToyCompiler::compiled(PyObject* function) {
  return Ref::steal(make_compiled_function(function, &options_, nullptr));
}

void ToyCompiler::start_script(ScriptView view) {
  set_should_compile(judge_script);
  ScriptPolicy policy;
  policy.holds_tensor = [](PyObject* const*, size_t) { return true; };
  start_script_mode(&options_, policy, view);
}

CompileOutcome ToyCompiler::compile(const CompileRequest& request) {
  CaptureRequest capture_request{request.function, request.args,
                                 request.num_args};
  capture_request.is_resume = request.is_resume;
  std::unique_ptr<GuardSet> raising;
  capture_request.raising = &raising;
  fake::FakeTracer tracer;
  CompileOutcome compiled;
  ++attempts;
  if (!tracer.refusal().empty()) {
    compiled.not_now = true;
    return compiled;
  }
  Result<CaptureOutcome> outcome = capture(capture_request, tracer);
  EXPECT_FALSE(PyErr_Occurred());
  if (!outcome.ok()) {
    EXPECT_TRUE(outcome.broke());
    ++fallbacks;
    compiled.hook_callees = true;
    if (raising) {
      compiled.raising = std::make_shared<GuardedRaise>(std::move(raising));
    }
    return compiled;
  }
  ++captures;
  if (outcome.value().residual_code) {
    mark_code(outcome.value().residual_code.get(), CodeKind::kResidual);
    for (const Ref& code : outcome.value().resume_codes) {
      mark_code(code.get(), CodeKind::kResume);
    }
  }
  compiled.entry = std::make_shared<ToyEntry>(outcome.take(), request);
  return compiled;
}

}  // namespace framejit::bytecode::testing
