// JitEntry: one compiled specialisation, made by the JitCompiler.
//
// Puts together what the layers below produced: the armed guards, the executor
// of the graph, and the steps that finish the frame. Also keeps, as text, what
// inspect() and explain() show.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bytecode/capture/capture.h"
#include "frame_hook/dispatch.h"
#include "framejit/csrc/past_entries.h"
#include "guards/emit/armed_guards.h"

namespace framejit {

struct CompileTimes {
  double capture_ms = 0;
  double backend_ms = 0;
  double guards_ms = 0;
};

class JitEntry final : public CacheEntry {
 public:
  // guards: frozen from here on. Throws nothing.
  JitEntry(bytecode::CaptureOutcome outcome, std::unique_ptr<Executor> executor,
           backend::CompiledInfo info);
  ~JitEntry() override;

  bool match_slow(PyObject* const* args, PyObject* function, PyObject** objects,
                  int64_t* symbols) override;
  PyObject* finish(PyObject* const* objects, const int64_t* symbols,
                   PyObject* const* outputs, PyObject* function) override;
  bool finish_runs_code() const override { return runs_code_; }

  // Compiles the predicate for the objects of this call. From here on the entry
  // keeps no object of the program alive by its guards, and goes with the first
  // one that dies.
  void arm(PyObject* const* args, PyObject* function);

  const bytecode::CaptureOutcome& outcome() const { return outcome_; }
  const GuardSet& guards() const { return armed_.guards(); }
  const ArmedGuards& armed() const { return armed_; }
  const backend::CompiledInfo& info() const { return info_; }
  CompileTimes times;
  size_t number = 0;  // entries of the function that were made before
  // By guard: calls it was the first to turn away, of those that compiled.
  std::vector<uint32_t> guard_failures;
  std::shared_ptr<PastEntries> past;  // where it is added up when it goes
  Ref decorated;  // a weak reference; empty: no decorated function's
  // The call of a module that broke within its forward, which is captured by
  // itself.
  bool hands_over = false;
  // The module whose method it is of, compared only; null: no module's.
  const PyObject* owner = nullptr;

 private:
  PyObject* make_token(PyObject** values, PyObject* function);
  void publish_predicates();

  bytecode::CaptureOutcome outcome_;
  ArmedGuards armed_;
  std::unique_ptr<Executor> executor_;
  backend::CompiledInfo info_;
  bool runs_code_ = false;
  int plain_output_ = -1;  // the result is this graph output, nothing else
};

}  // namespace framejit
