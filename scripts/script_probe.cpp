// Whole-script mode without torch, as an extension module: for running whatever
// Python program on a CPython that has no torch (scripts/cpython_tests
// --probe). Nothing is compiled. "quiet": no call has a tensor, so functions
// are looked at a few times and let go; "restless": every call has one, so all
// of them go on being looked at, and run the original.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string_view>

#include "frame_hook/dispatcher.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/function_watcher.h"
#include "frame_hook/script_mode.h"

namespace {

using namespace framejit;

uint64_t looks = 0;

class NothingToCompile : public Compiler {
 public:
  CompileOutcome compile(const CompileRequest&) override { return {}; }
};

PyObject* start(PyObject*, PyObject* args) {
  const char* view = nullptr;
  const char* kind = nullptr;
  if (!PyArg_ParseTuple(args, "ss", &view, &kind)) return nullptr;
  static NothingToCompile compiler;
  static const int options = 0;
  set_compiler(&compiler);
  set_should_compile(
      [](PyObject*, PyObject*) { return CodeVerdict::kTensors; });
  ScriptPolicy policy;
  bool restless = std::string_view(kind) == "restless";
  policy.holds_tensor =
      restless ? [](PyObject* const*, size_t) { return ++looks != 0; }
               : [](PyObject* const*, size_t) { return ++looks == 0; };
  bool by_hook = std::string_view(view) == "hook";
  start_script_mode(&options, policy,
                    by_hook ? ScriptView::kHook : ScriptView::kBest);
  if (watches_functions() == by_hook) {
    stop_script_mode();
    PyErr_SetString(PyExc_RuntimeError, "calls cannot be seen this way here");
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* stop(PyObject*, PyObject*) {
  stop_script_mode();
  Py_RETURN_NONE;
}

PyObject* count(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(looks);
}

PyMethodDef methods[] = {
    {"start", start, METH_VARARGS,
     "start('watcher' | 'hook', 'quiet' | 'restless')"},
    {"stop", stop, METH_NOARGS, "ends the mode"},
    {"looks", count, METH_NOARGS, "calls looked at so far"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "script_probe", nullptr, -1,
                          methods};

}  // namespace

PyMODINIT_FUNC PyInit_script_probe() { return PyModule_Create(&definition); }
