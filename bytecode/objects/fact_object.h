// Facts that lie on no path through the program's objects: what becomes of a
// warning, which handlers a log record reaches, which thread runs. A fact
// object computes its answer when an attribute of it is read, so that a GetSet
// source over it is guarded like an attribute of the program.
#pragma once

#include <memory>

#include "bytecode/objects/classes.h"

namespace framejit::bytecode {

// One per attribute: the name is what guards are shown with.
// clang-format off
#define FJ_FACTS(X)        \
  X(warning_outlet)        \
  X(warning_list)          \
  X(log_outlet)            \
  X(class_names)           \
  X(recursion_limit)       \
  X(handles_exception)     \
  X(thread_ident)
// clang-format on
enum class FactName : uint8_t {
#define X(name) name,
  FJ_FACTS(X)
#undef X
};

class Fact {
 public:
  virtual ~Fact() = default;
  // Runs when guards are checked: no code of the program, no change of
  // anything. An empty Ref (no exception set) fits no guard.
  virtual Ref read(FactName name) = 0;
};

// The object that answers for `fact`; lives as long as a guard names it.
Result<Ref> make_fact(std::unique_ptr<Fact> fact);
// Its attribute as a source.
const Source* fact_source(CaptureState& state, PyObject* fact, FactName name);
Ref read_fact(PyObject* fact, FactName name);

}  // namespace framejit::bytecode
