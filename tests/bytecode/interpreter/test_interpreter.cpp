// The interpreter on whole frames: what it captures must do what CPython does.
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

constexpr char kX[] = "(fake.tensor([3], [1., 2., 3.]),)";
constexpr char kXY[] =
    "(fake.tensor([3], [1., 2., 3.]), fake.tensor([3], [4., 5., 6.]))";

TEST(InterpreterTest, EveryMicroOpHasAHandler) {
  for (int kind = 0; kind < int(MicroOpKind::kCount); ++kind) {
    EXPECT_NE(micro_op_handler(MicroOpKind(kind)), nullptr);
  }
}

TEST(InterpreterTest, StraightLine) {
  CaptureRun run =
      check_whole("def f(x, y):\n  z = x + y\n  return z * 2.0 - x\n", kXY);
  EXPECT_EQ(run.graphs.size(), 1u);
}

TEST(InterpreterTest, Constants) {
  check_whole("def f(a, b):\n  c = a + b\n  return c * 2, -c, not c\n",
              "(3, 4)");
}

TEST(InterpreterTest, MethodsOfTensors) {
  check_whole("def f(x):\n  return x.cos().cos().sum()\n", kX);
}

TEST(InterpreterTest, DictArguments) {
  check_whole("def f(d):\n  x, y = d['x'], d['y']\n  return x.cos() * y\n",
              "({'x': fake.tensor([2], [1., 2.]),"
              " 'y': fake.tensor([2], [3., 4.])},)");
}

TEST(InterpreterTest, Attributes) {
  check_whole(
      "class A:\n  pass\na = A(); a.w = fake.tensor([2], [1., 2.]); a.n = 3\n"
      "def f(a):\n  return a.w * a.n\n",
      "(a,)");
}

TEST(InterpreterTest, Branches) {
  const char* source =
      "def f(x, n):\n"
      "  if n > 2 and n < 10:\n    x = x + 1.0\n"
      "  elif n is None or not n:\n    x = x - 1.0\n"
      "  else:\n    x = x * 2.0\n"
      "  return x if n else (x, n)\n";
  for (const char* n : {"1", "3", "20", "0"}) {
    check_whole(source, std::string("(fake.tensor([1], [1.]), ") + n + ")");
  }
}

TEST(InterpreterTest, Loops) {
  check_whole(
      "def f(x, n):\n"
      "  for i in range(n):\n"
      "    if i == 2: continue\n"
      "    x = x * 2.0 + i\n"
      "    if i == 4: break\n"
      "  else:\n    x = x - 100.0\n"
      "  while n > 0:\n    n -= 1\n    x = x + n\n"
      "  return x\n",
      "(fake.tensor([1], [1.]), 4)");
}

TEST(InterpreterTest, Calls) {
  CaptureRun run = check_whole(
      "def g(a, b=2, *rest, c, d=5, **more):\n"
      "  return (a, b, rest, c, d, sorted(more.items()))\n"
      "def p(a, b, /, c):\n  return a - b * c\n"
      "def f(x):\n"
      "  return (g(1, c=3), g(1, 2, 3, 4, c=x, e=6), g(*[1, 2], **{'c': 3}),\n"
      "          p(1, 2, 3), p(1, 2, c=x))\n",
      kX);
  EXPECT_EQ(run.inlined_calls, 5u);
}

TEST(InterpreterTest, BindingErrors) {
  const char* calls[] = {
      "g()",  "g(1)",        "g(1, 2, 3)",   "g(1, b=2, a=3)", "g(1, 2, c=3)",
      "h(1)", "h(a=1, k=2)", "h(1, 2, k=3)", "h(1, k=2, j=1)"};
  for (const char* call : calls) {
    check_whole(std::string("def g(a, b):\n  return a\n"
                            "def h(a, /, *, k):\n  return a\n"
                            "def f(x):\n  try:\n    return ") +
                    call + "\n  except TypeError as e:\n    return str(e)\n",
                "(1,)");
  }
}

TEST(InterpreterTest, Closures) {
  check_whole(
      "def f(x):\n"
      "  n = 1\n"
      "  def add(v):\n    nonlocal n\n    n += 1\n    return v + n\n"
      "  x = add(x)\n  x = add(x)\n"
      "  g = lambda a, b=n: a * b\n"
      "  return g(x), n, [i * n for i in range(3)]\n",
      kX);
}

TEST(InterpreterTest, ClosureCellsOfTheFunction) {
  check_whole(
      "def outer():\n  scale = 3.0\n  count = 0\n"
      "  def f(x):\n    nonlocal count\n    count += 1\n"
      "    return x * scale, count\n"
      "  return f\nf = outer()\n",
      kX);
}

TEST(InterpreterTest, Globals) {
  check_whole(
      "scale = 2.0\ncount = 0\n"
      "def f(x):\n  global count\n  count += 1\n  return x * scale\n",
      kX);
}

TEST(InterpreterTest, UserClasses) {
  check_whole(
      "class Base:\n"
      "  def __init__(self, n):\n    self.n = n\n"
      "  def scale(self, x):\n    return x * self.n\n"
      "class Sub(Base):\n"
      "  def __init__(self, n):\n    super().__init__(n + 1)\n"
      "    self.seen = []\n"
      "  def scale(self, x):\n    self.seen.append(self.n)\n"
      "    return super().scale(x) + 1.0\n"
      "  def __call__(self, x):\n    return self.scale(x)\n"
      "  @property\n  def twice(self):\n    return self.n * 2\n"
      "  @classmethod\n  def make(cls):\n    return cls(4)\n"
      "  @staticmethod\n  def plain(a):\n    return a + 1\n"
      "def f(x):\n"
      "  s = Sub.make()\n"
      "  return s(x), s.twice, Sub.plain(3), s.seen, isinstance(s, Base)\n",
      kX);
}

TEST(InterpreterTest, Containers) {
  check_whole(
      "def f(x, l, d):\n"
      "  l2 = [x, *l, 1]\n"
      "  t = (*l, x)\n"
      "  d2 = {**d, 'x': x}\n"
      "  a, *b, c = l\n"
      "  p, q = d.items()\n"
      "  s = {1, 2, *l}\n"
      "  l2[1:2] = [7, 8]\n  del l2[0]\n"
      "  return l2, t, d2, a, b, c, p, q, s, l[1:], len(d), 2 in l, "
      "f'{a}-{b}'\n",
      "(fake.tensor([1], [1.]), [1, 2, 3], {'a': 1, 'b': [2]})");
}

TEST(InterpreterTest, WritesToInputs) {
  check_whole(
      "class A:\n  pass\na = A(); a.log = []; a.n = 0\n"
      "def f(x, d, a):\n"
      "  d['y'] = x + 1.0\n  a.n += 1\n  a.log.append(x * 2.0)\n"
      "  a.extra = d['y']\n  del d['z']\n"
      "  return d['y'], len(a.log)\n",
      "(fake.tensor([1], [1.]), {'z': 1}, a)");
}

TEST(InterpreterTest, Exceptions) {
  check_whole(
      "class E(Exception):\n"
      "  def __init__(self, v):\n    super().__init__(v)\n    self.v = v\n"
      "def g(n):\n  if n > 2: raise E(n)\n  return n\n"
      "def f(x):\n"
      "  out = []\n"
      "  for i in range(5):\n"
      "    try:\n"
      "      out.append(g(i))\n"
      "    except E as e:\n"
      "      out.append(('E', e.v))\n"
      "      continue\n"
      "    except (ValueError, KeyError):\n      out.append('no')\n"
      "    else:\n      out.append('else')\n"
      "    finally:\n      out.append('fin')\n"
      "  try:\n    {}['k']\n"
      "  except KeyError as e:\n    out.append(str(e))\n"
      "  try:\n"
      "    try:\n      raise ValueError('a')\n"
      "    except ValueError as e:\n      raise TypeError('b') from e\n"
      "  except TypeError as e:\n"
      "    out.append((str(e), str(e.__cause__), str(e.__context__)))\n"
      "  try:\n"
      "    try:\n      raise ValueError('a')\n"
      "    except ValueError:\n      [][1]\n"
      "  except IndexError as e:\n    out.append(str(e.__context__))\n"
      "  try:\n"
      "    try:\n      raise ValueError('again')\n"
      "    except ValueError:\n      raise\n"
      "  except ValueError as e:\n    out.append(str(e))\n"
      "  return out, x + 1.0\n",
      kX);
}

TEST(InterpreterTest, UnboundNames) {
  check_whole(
      "def f(x):\n"
      "  out = []\n"
      "  try:\n    missing\n  except NameError as e:\n    out.append(str(e))\n"
      "  try:\n    y\n  except UnboundLocalError as e:\n"
      "    out.append(str(e))\n"
      "  y = 1\n  del y\n"
      "  try:\n    del y\n  except UnboundLocalError as e:\n"
      "    out.append(str(e))\n"
      "  return out\n",
      "(1,)");
}

TEST(InterpreterTest, WithStatements) {
  check_whole(
      "from contextlib import contextmanager\n"
      "log = []\n"
      "class M:\n"
      "  def __init__(self, swallow):\n    self.swallow = swallow\n"
      "  def __enter__(self):\n    log.append('in')\n    return 5\n"
      "  def __exit__(self, t, v, tb):\n"
      "    log.append((t.__name__ if t else None, str(v)))\n"
      "    return self.swallow\n"
      "@contextmanager\n"
      "def cm(n):\n"
      "  log.append(n)\n"
      "  try:\n    yield n + 1\n"
      "  except ValueError as e:\n    log.append(str(e))\n"
      "  finally:\n    log.append('out')\n"
      "def f(x):\n"
      "  with M(False) as m:\n    x = x + m\n"
      "  with M(True):\n    raise ValueError('v')\n"
      "  with cm(1) as c, M(False):\n    x = x + c\n"
      "  with cm(2):\n    raise ValueError('w')\n"
      "  return x\n",
      kX);
}

TEST(InterpreterTest, StateRegions) {
  check_whole(
      "def f(x):\n"
      "  with fake.no_grad():\n    a = x * 2.0\n    b = "
      "fake.is_grad_enabled()\n"
      "  return a, b, fake.is_grad_enabled()\n",
      "(fake.tensor([1], [1.], True),)");
}

TEST(InterpreterTest, Generators) {
  check_whole(
      "def count(n):\n"
      "  got = []\n"
      "  for i in range(n):\n    got.append((yield i))\n"
      "  return got\n"
      "def both():\n"
      "  r = yield from count(2)\n"
      "  yield r\n"
      "def closing(log):\n"
      "  try:\n    yield 1\n    yield 2\n"
      "  except ValueError as e:\n    yield str(e)\n"
      "  finally:\n    log.append('closed')\n"
      "def f(x):\n"
      "  log = []\n"
      "  g = count(3)\n  a = [next(g), g.send('s'), list(g)]\n"
      "  b = list(both())\n"
      "  c = closing(log)\n  next(c)\n  d = c.throw(ValueError('t'))\n"
      "  c.close()\n"
      "  e = sum(v * v for v in range(4))\n"
      "  h = [x * i for i in count(2)]\n"
      "  k = {i: i + 1 for i in count(2)}\n"
      "  t = tuple(i for i in (3, 4) if i > 3)\n"
      "  return a, b, d, e, h, k, t, log\n",
      kX);
}

TEST(InterpreterTest, Match) {
  check_whole(
      "class P:\n  __match_args__ = ('a', 'b')\n"
      "  def __init__(self, a, b):\n    self.a = a; self.b = b\n"
      "def kind(v):\n"
      "  match v:\n"
      "    case 0 | 1: return 'small'\n"
      "    case [a, *rest]: return ('list', a, rest)\n"
      "    case {'k': w}: return ('dict', w)\n"
      "    case P(1, b=q): return ('P', q)\n"
      "    case str(s): return s + '!'\n"
      "    case _: return None\n"
      "def f(x):\n"
      "  return [kind(v) for v in (0, [1, 2], {'k': 3}, P(1, 5), P(2, 5), "
      "'z')]\n",
      "(1,)");
}

TEST(InterpreterTest, Imports) {
  check_whole(
      "import math, os.path\n"
      "def f(x):\n"
      "  import math\n  from math import sqrt as s\n  import os.path\n"
      "  return x * math.pi, s(4.0), os.path is not None\n",
      kX);
}

}  // namespace
}  // namespace framejit::bytecode::testing
