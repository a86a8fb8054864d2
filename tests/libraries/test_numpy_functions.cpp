// Rows of NumPy, with a module of its name that has the shape of it.
#include "libraries/libraries.h"
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

constexpr char kNumPy[] = R"(
show_text = """
class generic:
    pass
class integer(int, generic):
    pass
class int64(integer):
    pass
class float64(float, generic):
    pass
class bool_(generic):
    pass
class ufunc:
    def __init__(self, name, function):
        self.__name__ = name
        self.function = function
    def __call__(self, *args, out=None):
        calls.append(self.__name__)
        if strict and args and args[0] == 0:
            raise ZeroDivisionError('floating point')
        result = self.function(*args)
        if out is not None:
            out[0] = result
        return result
calls = []
strict = []
class errstate:
    def __init__(self, all):
        self.all = all
    def __enter__(self):
        now().strict.append(self.all)
    def __exit__(self, *exception):
        now().strict.pop()
def now():  # a capture keeps the class of the first test
    return __import__('sys').modules['numpy']
add = ufunc('add', lambda a, b: a + b)
inverse = ufunc('inverse', lambda a: 1 / a if a else 0.0)
listed = ufunc('listed', lambda a: [a])
def prod(numbers):
    result = 1
    for n in numbers:
        result *= n
    return result
def unknown(x):
    return x + 1
"""
show_numpy = __import__('types').ModuleType('numpy')
exec(show_text, show_numpy.__dict__)
__import__('sys').modules['numpy'] = show_numpy
)";

class NumPyTest : public ::testing::Test {
 protected:
  void SetUp() override { register_library(libraries::numpy_functions()); }
  static CaptureRun whole(const std::string& body, const char* arguments) {
    return check_whole(kNumPy + body, arguments);
  }
  static CaptureRun broken(const std::string& body, const char* arguments) {
    CaptureRun run = check(kNumPy + body, arguments);
    EXPECT_FALSE(run.reasons.empty()) << body;
    return run;
  }
};

TEST_F(NumPyTest, FunctionsComputeConstants) {
  CaptureRun run = whole("def f(x):\n  return show_numpy.add(x, 2)\n", "(3,)");
  EXPECT_EQ(run.inlined_calls, 0u);
  run =
      whole("def f(x):\n  return show_numpy.prod([x, 2, (3).real])\n", "(4,)");
  EXPECT_EQ(run.inlined_calls, 0u) << "the row of a function in Python";
  EXPECT_EQ(whole("def f(x):\n  return show_numpy.unknown(x)\n", "(4,)")
                .inlined_calls,
            1u);
}

TEST_F(NumPyTest, WhatItWouldWarnAboutIsABreak) {
  whole("def f(x):\n  return show_numpy.inverse(x)\n", "(4,)");
  // `strict` is empty again: the break's own call is the program's.
  broken("def f(x):\n  return show_numpy.inverse(x)\n", "(0,)");
}

TEST_F(NumPyTest, ResultsThatCanBeWrittenToAreABreak) {
  broken("def f(x):\n  return show_numpy.listed(x)\n", "(4,)");
}

TEST_F(NumPyTest, FunctionsOfTheProgramAreNotTheLibrarys) {
  // As frompyfunc makes them: of the type, but not in the module.
  CaptureRun run = whole(
      "mine = show_numpy.ufunc('add', lambda a, b: a - b)\n"
      "def f(x):\n  return mine(x, 2)\n",
      "(3,)");
  EXPECT_GT(run.inlined_calls, 0u);
}

TEST_F(NumPyTest, NumbersAreConstants) {
  Ref globals = make_globals(kNumPy);
  resolve_libraries();
  auto is_constant = [&](const char* text) {
    return is_foreign_constant(evaluate_text(globals.get(), text).get());
  };
  EXPECT_TRUE(is_constant("show_numpy.int64(3)"));
  EXPECT_TRUE(is_constant("show_numpy.float64(3)"));
  EXPECT_TRUE(is_constant("show_numpy.bool_()"));
  EXPECT_FALSE(is_constant("show_numpy.generic()"));
  EXPECT_FALSE(is_constant("type('int64', (show_numpy.int64,), {})(3)"));
}

}  // namespace
}  // namespace framejit::bytecode::testing
