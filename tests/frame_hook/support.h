// What the frame_hook tests share: running Python source, and hand-made
// compilers and entries whose predicates are plain C++ functions.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frame_hook/code_cache.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/dispatch.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/options.h"
#include "frame_hook/py_ref.h"

namespace framejit::testing {

std::string take_error();  // "TypeError: text"; "" when none. Clears it.

// A namespace that source runs in.
class Namespace {
 public:
  explicit Namespace(const std::string& source = "");
  void run(const std::string& source);
  Ref eval(const std::string& expression);
  std::string repr(const std::string& expression);
  bool truth(const std::string& expression) {
    return repr(expression) == "True";
  }
  Ref get(const std::string& name);
  void set(const std::string& name, PyObject* value);
  PyObject* dict() { return dict_.get(); }

 private:
  Ref dict_;
};

// An entry made of closures. The predicate gathers the first `gather` slots.
class FakeEntry : public CacheEntry {
 public:
  FakeEntry() { ++alive; }
  ~FakeEntry() override { --alive; }
  bool match_slow(PyObject* const* args, PyObject* function, PyObject** objects,
                  int64_t* symbols) override {
    ++slow_matches;
    if (throw_in_match) throw std::runtime_error("match failed on purpose");
    return on_match ? on_match(args, objects) : false;
  }
  PyObject* finish(PyObject* const* objects, const int64_t* symbols,
                   PyObject* const* outputs, PyObject* function) override {
    return on_finish(objects, outputs, function);
  }
  bool finish_runs_code() const override { return runs_code; }

  std::function<bool(PyObject* const*, PyObject**)> on_match;
  std::function<PyObject*(PyObject* const*, PyObject* const*, PyObject*)>
      on_finish;
  std::unique_ptr<Executor> owned_executor;
  bool runs_code = false;
  bool throw_in_match = false;
  int slow_matches = 0;
  static int alive;
};

class FakeExecutor : public Executor {
 public:
  using Run = std::function<RunStatus(PyObject* const*, PyObject**)>;
  explicit FakeExecutor(Run run) : run_(std::move(run)) {}
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override {
    return run_(inputs, outputs);
  }

 private:
  Run run_;
};

class FakeCompiler : public Compiler {
 public:
  CompileOutcome compile(const CompileRequest& request) override {
    ++calls;
    return on_compile ? on_compile(request) : CompileOutcome{};
  }
  std::function<CompileOutcome(const CompileRequest&)> on_compile;
  int calls = 0;
};

int always(PyObject* const* args, PyObject* function, PyObject** objects,
           int64_t* symbols);  // holds, gathers nothing
int gather_first(PyObject* const* args, PyObject* function, PyObject** objects,
                 int64_t* symbols);  // holds, gathers slot 0
int first_is_int(PyObject* const* args, PyObject* function, PyObject** objects,
                 int64_t* symbols);  // type(slot 0) is int; gathers it
int first_is_str(PyObject* const* args, PyObject* function, PyObject** objects,
                 int64_t* symbols);
int never(PyObject* const* args, PyObject* function, PyObject** objects,
          int64_t* symbols);

// An entry whose result is `value(slot 0)`.
std::shared_ptr<FakeEntry> value_entry(
    PredicateFn predicate, std::function<PyObject*(PyObject*)> value);
// A token for a function.
PyObject* make_token(PyObject* function, std::vector<PyObject*> args);

// Installs a compiler, restores everything at the end and checks that no entry
// and no hook is left.
class FrameHookTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  Ref compiled(PyObject* function);
  // Compiles ns[name] in place.
  void compile_in(Namespace& ns, const std::string& name);
  // From now on the originals run.
  void never_compile(bool hook_callees = false);
  FakeCompiler compiler_;
  int options_ = 0;  // its address is the key of the caches
};

}  // namespace framejit::testing
