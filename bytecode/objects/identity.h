// `is` between numbers, strings and other constants.
//
// A capture guards what came in by its value, and the next call may bring an
// equal object that is another one, or one object twice. Where a program asks
// which object it is, that is guarded, too.
#pragma once

#include <unordered_map>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

struct NumbersThatCameIn {
  // Symbolic numbers, and where they came in: what is computed of one may be
  // the same symbol, and is another object.
  std::unordered_map<PyObject*, const Source*> places;
};

// Of two equal values: constants, or symbolic numbers. Breaks where neither
// came in.
Result<bool> is_same_value(CaptureState& state, PyObject* a, PyObject* b);

// NaN is not equal to itself: keys, `in` and equal tuples ask which object it
// is. Guards that, for a constant that is one or holds one.
void pin_unequal_to_itself(CaptureState& state, PyObject* constant);
// As containers compare: identical, or else equal.
Result<bool> is_same_or_equal(CaptureState& state, PyObject* a, PyObject* b);

}  // namespace framejit::bytecode
