// Runs a guard set natively and by the reference evaluator, and compares.
#pragma once

#include <functional>

#include "../fake_tracer.h"
#include "guards/emit/armed_guards.h"
#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"
#include "tests/guards/python_source.h"

namespace framejit {

// A call: `function` and `args` (a tuple) of a Python namespace.
struct Call {
  explicit Call(PythonSource& python) {
    tuple = python.value("tuple(args)");
    function = python.value("function");
    for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple.get()); ++i)
      args.push_back(PyTuple_GET_ITEM(tuple.get(), i));
  }
  Ref tuple, function;
  std::vector<PyObject*> args;
};

struct Outcome {
  bool holds = false;
  std::vector<PyObject*> objects;
  std::vector<int64_t> symbols;
};

inline Outcome reference_outcome(const GuardSet& set, const Call& call) {
  Outcome outcome;
  outcome.objects.resize(set.gathered().size());
  outcome.symbols.resize(set.symbols().size());
  outcome.holds = evaluate(set, call.args.data(), call.function.get(),
                           outcome.objects.data(), outcome.symbols.data());
  return outcome;
}

// One predicate alone.
inline Outcome native_outcome(const GuardSet& set, PredicateFn predicate,
                              const Call& call) {
  Outcome outcome;
  outcome.objects.resize(set.gathered().size());
  outcome.symbols.resize(set.symbols().size());
  outcome.holds = predicate(call.args.data(), call.function.get(),
                            outcome.objects.data(), outcome.symbols.data());
  EXPECT_FALSE(PyErr_Occurred());
  return outcome;
}

// The same twice: the second call may take what the first has found out about
// the dicts for granted (dict_epoch.h).
inline Outcome native_outcome_again(const GuardSet& set, PredicateFn predicate,
                                    const Call& call) {
  const Outcome first = native_outcome(set, predicate, call);
  Outcome second = native_outcome(set, predicate, call);
  EXPECT_EQ(first.holds, second.holds);
  if (first.holds) {
    EXPECT_EQ(first.objects, second.objects);
    EXPECT_EQ(first.symbols, second.symbols);
  }
  return second;
}

inline void expect_same(const Outcome& native, const Outcome& reference) {
  ASSERT_TRUE(reference.holds) << "a predicate holds where the facts do not";
  EXPECT_EQ(native.objects, reference.objects);
  EXPECT_EQ(native.symbols, reference.symbols);
}

// What the dispatcher does: predicates first, then match_slow(). Checks that
// the answer is the reference's; returns it.
inline bool check_call(ArmedGuards& armed, const Call& call) {
  Outcome reference = reference_outcome(armed.guards(), call);
  bool native_holds = false;
  for (PredicateFn predicate : armed.predicate_functions()) {
    Outcome native = native_outcome_again(armed.guards(), predicate, call);
    if (!native.holds) continue;
    native_holds = true;
    expect_same(native, reference);
  }
  if (native_holds) return true;
  Outcome slow;
  slow.objects.resize(armed.guards().gathered().size());
  slow.symbols.resize(armed.guards().symbols().size());
  slow.holds = armed.match_slow(call.args.data(), call.function.get(),
                                slow.objects.data(), slow.symbols.data());
  EXPECT_EQ(slow.holds, reference.holds);
  if (slow.holds) {
    EXPECT_EQ(slow.objects, reference.objects);
    EXPECT_EQ(slow.symbols, reference.symbols);
    // Armed again for these very objects.
    bool again = false;
    for (PredicateFn predicate : armed.predicate_functions())
      again = again || native_outcome(armed.guards(), predicate, call).holds;
    EXPECT_TRUE(again) << "re-armed, but fails again";
  }
  return slow.holds;
}

}  // namespace framejit
