// Objects as short text for messages, without running user code: only the
// repr() of exact built-in constants is asked for.
#pragma once

#include <string>

#include "frame_hook/py_ref.h"

namespace framejit {

std::string object_text(PyObject* object);
// The characters of a str; "?" for anything else.
std::string string_text(PyObject* unicode);

}  // namespace framejit
