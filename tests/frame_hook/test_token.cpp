// Tokens: residual and resume functions in one flat loop.
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class Tokens : public FrameHookTest {
 protected:
  // An entry whose finish returns a token for `function` with slot 0.
  std::shared_ptr<FakeEntry> token_entry(Ref function) {
    return value_entry(gather_first, [function](PyObject* object) {
      return make_token(function.get(), {object});
    });
  }
  static void mark(Namespace& ns, const std::string& name, CodeKind kind) {
    Ref code = ns.eval(name + ".__code__");
    ASSERT_TRUE(mark_code(code.get(), kind));
  }
};

CompileOutcome outcome_of(std::shared_ptr<CacheEntry> entry) {
  CompileOutcome outcome;
  outcome.entry = std::move(entry);
  return outcome;
}

TEST_F(Tokens, ResidualFunctionRunsNatively) {
  Namespace ns("def f(x): return x\ndef residual(x): return x + 1000");
  mark(ns, "residual", CodeKind::kResidual);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(token_entry(residual));
  };
  EXPECT_EQ(ns.repr("[f(1), f(2)]"), "[1001, 1002]");
  EXPECT_EQ(compiler_.calls, 1);  // the residual function is not compiled
}

// f -> residual -> resume (compiled) -> residual -> resume ... 60 times, which
// is below what a loop without graphs is left to CPython after.
TEST_F(Tokens, ManyTokensStayFlat) {
  Namespace ns(
      "import sys\n"
      "depths = []\n"
      "def depth():\n"
      "  n, frame = 0, sys._getframe()\n"
      "  while frame: n += 1; frame = frame.f_back\n"
      "  return n\n"
      "def f(x): return x\n"
      "def resume(x): raise AssertionError('must be compiled')\n"
      "def residual(x):\n"
      "  depths.append(depth())\n"
      "  if x == 0: return 'done'\n"
      "  return (MARKER, resume, x - 1)\n");
  ns.set("MARKER", token_marker());
  mark(ns, "residual", CodeKind::kResidual);
  mark(ns, "resume", CodeKind::kResume);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  int resumes = 0;
  compiler_.on_compile = [&](const CompileRequest& request) {
    resumes += request.is_resume;
    EXPECT_EQ(request.options, &options_);
    return outcome_of(token_entry(residual));
  };
  EXPECT_EQ(ns.repr("f(60)"), "'done'");
  EXPECT_EQ(ns.repr("len(depths), len(set(depths))"), "(61, 1)");
  EXPECT_EQ(compiler_.calls, 2);
  EXPECT_EQ(resumes, 1);
}

TEST_F(Tokens, ResumeFunctionWithoutEntryRunsNatively) {
  Namespace ns(
      "def f(x): return x\n"
      "def resume(x, y): return ('resumed', x, y)\n"
      "def residual(x): return (MARKER, resume, x, 5)\n");
  ns.set("MARKER", token_marker());
  mark(ns, "residual", CodeKind::kResidual);
  mark(ns, "resume", CodeKind::kResume);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest& request) {
    CompileOutcome outcome;
    if (!request.is_resume) return outcome_of(token_entry(residual));
    outcome.skip_forever = true;
    return outcome;
  };
  EXPECT_EQ(ns.repr("f(1)"), "('resumed', 1, 5)");
}

TEST_F(Tokens, ErrorsOfResidualFunctionsPropagate) {
  Namespace ns("def f(x): return x\ndef residual(x): raise KeyError(x)");
  mark(ns, "residual", CodeKind::kResidual);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(token_entry(residual));
  };
  EXPECT_EQ(ns.repr("f(1)"), "KeyError: 1");
  EXPECT_EQ(ns.repr("f(1)"), "KeyError: 1");
}

// `x = None` in the residual code must free the object, as it would in the
// original function.
TEST_F(Tokens, ArgumentsBelongToTheFrame) {
  Namespace ns(
      "import weakref\n"
      "class C: pass\n"
      "def f(x): return x\n"
      "def resume(x):\n"
      "  r = weakref.ref(x)\n"
      "  x = None\n"
      "  return r() is None\n"
      "def residual(x):\n"
      "  c = C(); r = weakref.ref(c)\n"
      "  if x: return (MARKER, resume, c)\n"
      "  return (MARKER, residual2, c)\n"
      "def residual2(c):\n"
      "  r = weakref.ref(c); del c\n"
      "  return r() is None\n");
  ns.set("MARKER", token_marker());
  mark(ns, "residual", CodeKind::kResidual);
  mark(ns, "residual2", CodeKind::kResidual);
  mark(ns, "resume", CodeKind::kResume);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (!request.is_resume) return outcome_of(token_entry(residual));
    return CompileOutcome{};
  };
  EXPECT_EQ(ns.repr("[f(0), f(1), f(0), f(1)]"), "[True, True, True, True]");
}

TEST_F(Tokens, NoReferenceLeaks) {
  Namespace ns(
      "import sys\n"
      "def f(x): return x\n"
      "def resume(x, y): return x\n"
      "def residual(x): return (MARKER, resume, x, x)\n"
      "o = object()");
  ns.set("MARKER", token_marker());
  mark(ns, "residual", CodeKind::kResidual);
  mark(ns, "resume", CodeKind::kResume);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  bool compile_resume = true;
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (!request.is_resume) return outcome_of(token_entry(residual));
    if (!compile_resume) return CompileOutcome{};
    return outcome_of(
        value_entry(gather_first, [](PyObject* x) { return Py_NewRef(x); }));
  };
  const char* loop =
      "before = sys.getrefcount(o)\n"
      "for i in range(1000): f(o)\n"
      "assert sys.getrefcount(o) == before";
  ns.run(loop);
  compile_resume = false;
  clear_all_caches();
  ns.run(loop);
}

TEST_F(Tokens, MalformedTokenIsAnError) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(
        gather_first, [](PyObject*) { return make_token(Py_None, {}); }));
  };
  EXPECT_EQ(ns.repr("f(1)"), "RuntimeError: FrameJIT: malformed token");
}

TEST_F(Tokens, ResumeWithWrongArityRaisesCPythonsError) {
  Namespace ns(
      "def f(x): return x\n"
      "def resume(x, y): return x\n"
      "def residual(x): return (MARKER, resume, x)\n");
  ns.set("MARKER", token_marker());
  mark(ns, "residual", CodeKind::kResidual);
  mark(ns, "resume", CodeKind::kResume);
  Ref residual = ns.get("residual");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(token_entry(residual));
  };
  EXPECT_EQ(ns.repr("f(1)").substr(0, 10), "TypeError:");
}

TEST_F(Tokens, UserTuplesAreNotTokens) {
  Namespace ns("t = (object(), 1, 2)\ndef f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(
        value_entry(gather_first, [](PyObject* x) { return Py_NewRef(x); }));
  };
  EXPECT_TRUE(ns.truth("f(t) is t and f(()) == ()"));
}

}  // namespace
}  // namespace framejit::testing
