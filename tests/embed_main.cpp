// main() of every GoogleTest program: starts the CPython it was built for, so
// that tests can run Python source, and runs the tests with the GIL held.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  // The interpreter finds its standard library and site-packages as the
  // executable it was configured with does.
  PyConfig_SetBytesString(&config, &config.program_name, FJ_TEST_PYTHON);
  PyStatus status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
  int result = RUN_ALL_TESTS();
  if (Py_FinalizeEx() < 0 && result == 0) result = 1;
  return result;
}
