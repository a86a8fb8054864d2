// Generators of the interpreted program.
//
// Calling a generator function inside a capture makes one of these objects: an
// iterator with send, throw and close whose frame is interpreted at each
// resumption, whether the interpreter or C code asks for the next value. It may
// not outlive the capture: the plan has no rule to rebuild it.
#pragma once

#include "bytecode/interpreter/interpreter.h"

namespace framejit::bytecode {

bool is_generator(PyObject* object);

// Takes the frame, which has run up to RETURN_GENERATOR.
Result<Ref> make_generator(Interpreter& interpreter,
                           std::unique_ptr<Frame> frame);

struct GeneratorStep {
  bool finished = false;
  Ref value;  // yielded, or returned when finished
};
// send(value), or throw(thrown) when given.
Result<GeneratorStep> generator_resume(PyObject* generator, PyObject* value,
                                       Ref thrown = {});
Status generator_close(PyObject* generator);

}  // namespace framejit::bytecode
