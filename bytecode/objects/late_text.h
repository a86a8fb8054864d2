// Late texts: what print() gets of numbers that differ from call to call.
//
// A text is a value, and a value that is read is a fact to be guarded: a loop
// that prints its loss would be a program of its own at each turn. So where a
// text goes to print() and nowhere else (printed_texts.h says when), it stays
// unknown: an opaque value that knows how it is made, and is made after the
// graph, when the deferred print() takes place, or at a break before it.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Of a symbolic number, as an f-string makes it (conversion: 0, 1 str, 2 repr,
// 3 ascii; spec: a str or null). Empty: a text that is to be known, or one that
// may raise for another number.
Result<Ref> late_text_of_number(CaptureState& state, PyObject* number,
                                int conversion, PyObject* spec);
// A callable that makes a text of numbers: str, format, or the method format of
// a str, which becomes the first operand. Null: another one.
PyObject* text_maker(PyObject* callable, std::vector<PyObject*>* operands);
// The call of one, or of operator.mod with a str, where an operand is a
// symbolic number or a late text. Empty, as above.
Result<Ref> late_call(CaptureState& state, PyObject* maker,
                      const std::vector<PyObject*>& operands);
// Of strings, some of which are late texts.
Result<Ref> late_join(CaptureState& state, const std::vector<PyObject*>& parts);
// A str that came in and is not looked at; that it has only characters that any
// stream takes is guarded. Empty: it has others.
Result<Ref> late_text_of_input(CaptureState& state, PyObject* text,
                               const Source* source);

bool is_late_text(PyObject* object);
// What of it is known now, and may have any characters.
void constants_of_late_text(PyObject* text, std::vector<PyObject*>* constants);

}  // namespace framejit::bytecode
