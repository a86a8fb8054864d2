// A break before every single instruction of a frame: whatever the stack, the
// cells, the iterators and the open blocks are, the frame goes on as CPython
// would have.
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

constexpr char kX[] = "(fake.tensor([2], [1., 2.]),)";

TEST(BreakEverywhereTest, Expressions) {
  check_break_everywhere(
      "class A:\n  def __init__(self, v):\n    self.v = v\n"
      "  def m(self, a, b=1):\n    return self.v + a * b\n"
      "def f(x):\n"
      "  a = A(x)\n"
      "  l = [x, 1, (2, a.m(3.0, b=x))]\n"
      "  d = {'k': l[1:], **{'z': a.m(1.0)}}\n"
      "  return [l[2][1], d['k'][0] if l else None, f'{l[1]}-{2}', a.v is x,\n"
      "          1 < 2 < 3, -l[1], *l]\n",
      kX);
}

TEST(BreakEverywhereTest, Loops) {
  check_break_everywhere(
      "def f(x):\n"
      "  out = []\n"
      "  for i in range(2):\n"
      "    for k, v in {'a': 1, 'b': x}.items():\n      out.append((i, k, v))\n"
      "  for j, w in enumerate([x, 2.0]):\n    out.append(w * j)\n"
      "  for p, q in zip((1, 2), [3, x]):\n    out.append(p * q)\n"
      "  n = 2\n"
      "  while n:\n    n -= 1\n    if n == 1: continue\n    x = x + n\n"
      "  return out, x\n",
      kX);
}

TEST(BreakEverywhereTest, LoopsOverInputs) {
  check_break_everywhere(
      "def f(x, l, d):\n"
      "  for v in l:\n    x = x + v\n    l[0] = 7\n"
      "  for k in d:\n    x = x * d[k]\n"
      "  d['new'] = x\n"
      "  return x\n",
      "(fake.tensor([2], [1., 2.]), [1.0, 2.0], {'a': 3.0, 'b': 4.0})");
}

TEST(BreakEverywhereTest, TryAndWith) {
  check_break_everywhere(
      "log = []\n"
      "class M:\n"
      "  def __enter__(self):\n    log.append('in')\n    return self\n"
      "  def __exit__(self, *e):\n    log.append(e[0])\n    return True\n"
      "def g(n):\n  if n: raise ValueError(n)\n  return 5\n"
      "def f(x):\n"
      "  out = []\n"
      "  try:\n    out.append(g(0))\n    x = x + g(0)\n"
      "  except ValueError as e:\n    out.append(str(e))\n"
      "  else:\n    out.append('else')\n"
      "  finally:\n    out.append('finally')\n"
      "  try:\n    out.append(g(1))\n"
      "  except ValueError as e:\n    out.append(str(e))\n"
      "  with M() as m:\n    x = x * 2.0\n    out.append(m is not None)\n"
      "  with M():\n    g(2)\n"
      "  return out, x\n",
      kX);
}

// Each text of a symbolic number is made late, or where the break was.
TEST(BreakEverywhereTest, PrintedNumbers) {
  for (size_t at = 0; at < 70; ++at) {
    CaptureRun run;
    run.dynamic = true;
    run.break_at = at;
    run = check(
        "import io\n"
        "out = io.StringIO()\n"
        "def f(x, n):\n"
        "  y = x * 2.0\n"
        "  print(f'{n}: {n + 1:>4} {n!r}', 'a', n, file=out)\n"
        "  print('%d of %s' % (n, n), str(n), file=out)\n"
        "  print('{} {:03d} {}'.format(n, n, f'{n:x}'), format(n), file=out)\n"
        "  z = y + 1.0\n"
        "  return z, out.getvalue()\n",
        "(fake.tensor([2], [1., 2.]), 17)", std::move(run));
    EXPECT_EQ(run.error, "") << at;
  }
}

TEST(BreakEverywhereTest, StateRegions) {
  check_break_everywhere(
      "def f(x):\n"
      "  y = x * 2.0\n"
      "  with fake.no_grad():\n"
      "    z = y + 1.0\n    a = fake.is_grad_enabled()\n"
      "  return z, a, fake.is_grad_enabled(), y.requires_grad, "
      "z.requires_grad\n",
      "(fake.tensor([2], [1., 2.], True),)");
}

TEST(BreakEverywhereTest, CellsAndFunctions) {
  check_break_everywhere(
      "def outer():\n"
      "  count = 0\n"
      "  def f(x):\n"
      "    nonlocal count\n"
      "    n = 1.0\n"
      "    def add(v, w=x):\n      nonlocal n\n      n += 1.0\n"
      "      return v + w * n\n"
      "    count += 1\n"
      "    a = add(x)\n"
      "    b = [i * n for i in range(2)]\n"
      "    g = lambda *r: (r, n)\n"
      "    count += 1\n"
      "    return add(a), b, g(a), n, count\n"
      "  return f\n"
      "f = outer()\n",
      kX);
}

TEST(BreakEverywhereTest, WritesAndDeletes) {
  check_break_everywhere(
      "class A:\n  pass\na = A(); a.log = []; a.n = 0\n"
      "def f(x, d, a):\n"
      "  d['y'] = x + 1.0\n  a.n += 1\n  a.log.append(x * 2.0)\n"
      "  a.extra = d['y']\n  del d['z']\n  a.n += 1\n"
      "  e = {'own': a.log}\n  e['own'].append(1)\n  del a.extra\n"
      "  return d['y'], len(a.log), e\n",
      "(fake.tensor([1], [1.]), {'z': 1}, a)");
}

TEST(BreakEverywhereTest, UnboundAndDeleted) {
  check_break_everywhere(
      "def f(x, flag):\n"
      "  if flag: y = 1\n"
      "  try:\n    z = y\n  except NameError:\n    z = 2\n"
      "  del z\n"
      "  z = x + 1.0\n"
      "  del x\n"
      "  return z\n",
      "(fake.tensor([2], [1., 2.]), False)");
}

TEST(BreakEverywhereTest, Comprehensions) {
  check_break_everywhere(
      "def f(x, l):\n"
      "  a = [v * 2 for v in l if v > 1]\n"
      "  b = {k: x * k for k in a}\n"
      "  c = {v for v in l}\n"
      "  d = [*l, *a, x]\n"
      "  e = {**b, 'z': 1}\n"
      "  g = [(i, j) for i in l for j in range(2)]\n"
      "  return a, b, sorted(c), d, e, g, sum(v for v in l), (*l, *a)\n",
      "(fake.tensor([2], [1., 2.]), [1, 2, 3])");
}

TEST(BreakEverywhereTest, CallsOfManyKinds) {
  check_break_everywhere(
      "import functools, math\n"
      "class A:\n"
      "  def __call__(self, *a, **k):\n    return a, sorted(k)\n"
      "  @property\n  def p(self):\n    return 7\n"
      "  @classmethod\n  def c(cls, n):\n    return cls.__name__, n\n"
      "def g(a, *r, k=1, **m):\n  return a, r, k, sorted(m.items())\n"
      "def f(x, args, kwargs):\n"
      "  a = A()\n"
      "  h = functools.partial(g, 1, k=2)\n"
      "  return [g(*args), g(*args, **kwargs), g(1, *args, k=3, z=4, "
      "**kwargs),\n"
      "          a(1, k=x) == ((1,), ['k']), a.p, A.c(3), h(5, q=6),\n"
      "          math.sqrt(4.0), max(args), x.sum(), len(args), str(3)]\n",
      "(fake.tensor([2], [1., 2.]), (1, 2), {'kw': 5})");
}

}  // namespace
}  // namespace framejit::bytecode::testing
