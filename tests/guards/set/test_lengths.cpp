// The length of a container as a symbol: native code against the reference
// evaluator, texts, and how a history comes to ask for one.
#include "guards/set/evaluate.h"
#include "guards/set/shape_history.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

class Lengths : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { fake::install(); }
};

constexpr const char* kContainers[] = {
    "[1] * %s",
    "(1,) * %s",
    "dict.fromkeys(range(%s))",
    "set(range(%s))",
    "frozenset(range(%s))",
    "collections.deque([1] * %s)",
    "'x' * %s",
    "b'x' * %s",
    "type('L', (list,), {'__len__': lambda self: 3})([1] * %s)",
    "type('D', (dict,), {})(dict.fromkeys(range(%s)))",
};

std::string with_length(std::string container, int length) {
  container.replace(container.find("%s"), 2, std::to_string(length));
  return "import collections\nargs = [" + container + "]";
}

TEST_F(Lengths, NativeCodeReadsThem) {
  PythonSource python;
  python.run("def function(a): pass");
  for (const char* container : kContainers) {
    python.run(with_length(container, 5).c_str());
    Call first(python);
    auto set = std::make_unique<GuardSet>();
    const Source* arg = set->sources().arg(0);
    set->add(GuardKind::kTypeIs, arg,
             reinterpret_cast<PyObject*>(Py_TYPE(first.args[0])));
    Expr length = Expr::symbol(
        set->add_symbol(set->sources().make(SourceKind::kLength, arg), 5));
    set->add_expr(expr_le(Expr(3), length));
    set->gather(arg);
    ArmedGuards armed(std::move(set));
    armed.arm(first.args.data(), first.function.get());
    ASSERT_FALSE(armed.predicate_functions().empty()) << container;
    EXPECT_TRUE(check_call(armed, first)) << container;
    for (const char* other : kContainers) {
      // Made anew, a class is another one.
      const bool is_class = std::string(other).starts_with("type");
      for (int n : {0, 1, 2, 3, 5, 200}) {
        python.run(with_length(other, n).c_str());
        Call call(python);
        EXPECT_EQ(check_call(armed, call),
                  other == container && !is_class && n >= 3)
            << container << " " << other << " " << n;
      }
    }
  }
}

TEST_F(Lengths, HistoryAndTexts) {
  PythonSource python;
  python.run("def function(a): pass\nargs = [[1, 2]]");
  Call first(python);
  Ref code = python.value("function.__code__");
  GuardSet set;
  const Source* arg = set.sources().arg(0);
  set.add(GuardKind::kLength, arg, nullptr, 2);
  const Source* length = set.sources().make(SourceKind::kLength, arg);
  EXPECT_EQ(source_text(length, code.get()), "len(a)");
  ShapeHistory history;
  EXPECT_FALSE(history.note_miss(set, first.args.data(), nullptr, code.get()));
  python.run("args = [5]");
  Call number(python);
  EXPECT_FALSE(history.note_miss(set, number.args.data(), nullptr, code.get()));
  python.run("args = [[1, 2, 3]]");
  Call second(python);
  EXPECT_TRUE(history.note_miss(set, second.args.data(), nullptr, code.get()));
  EXPECT_TRUE(history.dynamic_numbers().at("len(a)"));
  EXPECT_FALSE(history.note_miss(set, second.args.data(), nullptr, code.get()));
}

}  // namespace
}  // namespace framejit
