// A toy library with rows of every kind that library.h has, for tests on any
// CPython.
//
//   toy::install();   // modules `toys` and `toys_meanings`; rows registered
//
// What toys holds is made in pairs: one that has a row, and one like it that
// has none, so that a test can see what the row does. `toys.bare()` is a C
// function without a row: calling it is a break.
#pragma once

namespace framejit::toy {

void install();  // safe to call again

// Calls of C functions of toys that ran natively since the last call of this.
int take_native_calls();

}  // namespace framejit::toy
