// Lines of instructions, decoded once, against CPython's own walk.
#include "frame_hook/line_table.h"

#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

// All code of the modules, and code whose lines go back, far on, and nowhere.
constexpr const char* kCodes = R"py(
import argparse, dataclasses, inspect, tarfile, types, typing, unittest.mock
codes = []
def add(code):
    codes.append(code)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            add(c)
for m in (argparse, dataclasses, inspect, tarfile, typing, unittest.mock):
    add(compile(open(m.__file__).read(), m.__file__, "exec"))
def program(lines):
    source = "def f(x):\n" + "\n".join(lines) + "\n    return x\n"
    add(compile(source, "f.py", "exec"))
program(["    x = x + 1"] * 3000)
program(["    x = (x +", *["\n"] * 5000, "        1)"] * 20)
program(["    for i in range(3):", "        with x:", "            x = x[i]"] * 100)
program(["    try:", "        x()", "    except E: raise", "    finally: x = 2"] * 50)
add((lambda x: x).__code__.replace(co_linetable=b""))
)py";

TEST(LineTable, AnswersAsCPythonDoes) {
  Namespace space(kCodes);
  Ref codes = space.get("codes");
  size_t lines = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(codes.get()); ++i) {
    PyObject* object = PyList_GET_ITEM(codes.get(), i);
    auto* code = reinterpret_cast<PyCodeObject*>(object);
    const LineTable table(code);
    const int end = static_cast<int>(Py_SIZE(code)) * kCodeUnitBytes;
    for (int at = 0; at < end; at += kCodeUnitBytes) {
      const int expected = std::max(PyCode_Addr2Line(code, at), 0);
      ASSERT_EQ(table.line(at), expected) << at << " in code " << i;
      ASSERT_EQ(line_of_instruction(object, at), expected) << at;
      lines += expected > 0;
    }
    EXPECT_EQ(table.line(end), 0);
    EXPECT_EQ(line_of_instruction(object, -1),
              std::max(PyCode_Addr2Line(code, -1), 0));
  }
  EXPECT_GT(lines, 20000u);
}

}  // namespace
}  // namespace framejit::testing
