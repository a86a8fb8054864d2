// Calls of generator functions and coroutines, whose frames make the object and
// run nothing of the body. Nobody compiles them; who follows a program
// (CaptureCallbackScope::kOffered) sees them.
#pragma once

struct _PyInterpreterFrame;

namespace framejit::internals {

// As is_plain_call(), of such a function.
bool is_generator_call(_PyInterpreterFrame* frame);

}  // namespace framejit::internals
