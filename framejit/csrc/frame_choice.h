// Which of the frames that the hook meets are worth compiling.
//
// Decided once per code object from where it lies (the user's, the standard
// library's, torch's machinery, another compiler's), from FRAMEJIT_ONLY, and
// from what it names; and for a single call of whole-script mode from whether
// its arguments hold a tensor. Also what wakes that mode: a callback that
// torch runs at its next operation.
#pragma once

#include "frame_hook/script_mode.h"

namespace framejit {

CodeVerdict judge_code(PyObject* function, PyObject* code);
const ScriptPolicy& script_policy();

// Does a pattern of a comma-separated list match? A pattern is a module or a
// package ("models", "models.*"), or file:function ("train.py:step*").
bool matches_only(std::string_view list, const std::string& module,
                  const std::string& file, const std::string& qualified_name);

}  // namespace framejit
