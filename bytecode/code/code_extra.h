// Data of this layer that belongs to a code object and dies with it.
//
// CPython gives each code object a few slots for others (PEP 523); this layer
// takes one of them, on first use, for all its data: tables, of which each room
// has its own (the decoded code, what residual code was made of it ...).
#pragma once

#include "frame_hook/py_ref.h"
#include "frame_hook/table_registry.h"

namespace framejit::bytecode {

// Null when CPython has no slot left or memory is short.
TableRegistry* code_extra(PyObject* code);

}  // namespace framejit::bytecode
