// The bytecode layer as a Python module for tests: the corpus, the standard
// library walk and the comparisons are Python, run inside the GoogleTests.
#pragma once

#include <string>

#include "frame_hook/py_ref.h"

namespace framejit::bytecode {

// Runs tests/bytecode/<file>, with the module `fj` in its globals, and calls
// `function`() in it. Empty when that returns None; else what went wrong: its
// result as text, or the traceback.
std::string run_python_test(const std::string& file,
                            const std::string& function);

}  // namespace framejit::bytecode
