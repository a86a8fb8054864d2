// What CPython demands of special methods written in Python.
//
// The slots of C look at what `__len__`, `__hash__`, `__str__` and their like
// gave: another type is a TypeError in the slot's own words, a length must not
// be negative, a hash is made to fit. Whoever calls such a method in place of
// the slot passes the result through here. One row for each method.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

enum class SpecialResult : uint8_t {
  kStr,
  kRepr,
  kFormat,
  kBool,
  kInt,
  kFloat,
  kIndex,
  kLength,
  kHash,
  kIterator,
};

// `result`, or what the slot makes of it; raises what the slot would raise.
Result<Ref> checked_special(CaptureState& state, SpecialResult kind,
                            Ref result);
// Calls the method and checks what it gave.
Result<Ref> call_special(CaptureState& state, SpecialResult kind,
                         PyObject* method, PyObject* self);

}  // namespace framejit::bytecode
