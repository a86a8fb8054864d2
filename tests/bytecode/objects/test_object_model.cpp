// The object model: every program runs captured, in one piece, and natively;
// results and every change to arguments and globals must be equal.
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

constexpr char kX[] = "(fake.tensor([3], [1., 2., 3.]),)";
constexpr char kClasses[] = R"(
from enum import Enum
from collections import OrderedDict, namedtuple, deque, defaultdict
class m:  # modules, where the comparison of globals does not look
  import collections.abc, functools, operator, math
class Plain:
  shared = 3
  def __init__(self, n): self.n = n
  def method(self, x): return x * self.n
  @property
  def twice(self): return self.n * 2
  @twice.setter
  def twice(self, v): self.n = v / 2
  @staticmethod
  def static(x): return x + 1.0
  @classmethod
  def named(cls): return cls.__name__
  @m.functools.cached_property
  def cached(self): return self.n + 100
class Derived(Plain):
  shared = 4
  def __init__(self, n):
    super().__init__(n + 1)
    self.extra = super().shared
  def method(self, x): return super().method(x) + 1.0
class Slots:
  __slots__ = ('a', 'b')
  def __init__(self): self.a = 2.0
class Hooked:
  def __init__(self): self.__dict__['store'] = {'w': 5.0}
  def __getattr__(self, name):
    store = self.__dict__['store']
    if name in store: return store[name]
    raise AttributeError(f"no {name}")
  def __setattr__(self, name, value): self.__dict__['store'][name] = value
  def __delattr__(self, name): del self.__dict__['store'][name]
class Meta(type):
  level = 7
  def __getattr__(cls, name): return name + '!'
  def __call__(cls, *args):
    made = super().__call__(*args)
    made.by_meta = True
    return made
class Made(metaclass=Meta):
  def __init__(self, v): self.v = v
class Number:
  def __init__(self, v): self.v = v
  def __add__(self, o): return Number(self.v + (o.v if type(o) is Number else o))
  def __radd__(self, o): return Number(o + self.v)
  def __iadd__(self, o): self.v = self.v + o; return self
  def __mul__(self, o): return NotImplemented
  def __eq__(self, o): return self.v == getattr(o, 'v', o)
  def __lt__(self, o): return self.v < o.v
  def __hash__(self): return 1
  def __bool__(self): return self.v > 0
  def __neg__(self): return Number(-self.v)
  def __contains__(self, i): return i == self.v
  def __len__(self): return 4
  def __getitem__(self, i): return self.v + i
  def __call__(self, x): return x + self.v
  def __format__(self, spec): return f'<{self.v}|{spec}>'
  def __repr__(self): return f'Number({self.v})'
class Loud(Number):
  def __radd__(self, o): return 'loud'
class Descriptor:
  def __set_name__(self, owner, name): self.key = '_' + name
  def __get__(self, o, t): return self if o is None else getattr(o, self.key, 0.5)
  def __set__(self, o, v): setattr(o, self.key, v * 2)
class Described:
  d = Descriptor()
Point = namedtuple('Point', 'x y')
class Color(Enum):
  RED = 1
  BLUE = 2
)";

void whole(const std::string& body, const std::string& arguments) {
  check_whole(std::string(kClasses) + body, arguments);
}

// Statements of `def f(x)`; the result is `r`.
void on_x(const std::string& statements) {
  std::string body = "def f(x):\n";
  size_t start = 0;
  while (start < statements.size()) {
    size_t end = statements.find('\n', start);
    if (end == std::string::npos) end = statements.size();
    body += "  " + statements.substr(start, end - start) + "\n";
    start = end + 1;
  }
  whole(body + "  return r\n", kX);
}

TEST(ObjectModelTest, InstanceAttributes) {
  whole("def f(o, x): return o.method(x) + o.shared + o.n\n",
        "(Plain(2.0), fake.tensor([2], [1., 2.]))");
  whole("def f(o, x): return o.method(x) + o.shared + o.extra\n",
        "(Derived(2.0), fake.tensor([2], [1., 2.]))");
  whole("def f(o, x): return x * o.twice, o.static(x), o.named(), o.cached\n",
        "(Plain(2.0), fake.tensor([2], [1., 2.]))");
  whole(
      "def f(o): return hasattr(o, 'n'), hasattr(o, 'zz'), "
      "getattr(o, 'zz', 4), o.__class__.__name__, vars(o)['n']\n",
      "(Plain(2.0),)");
  whole(
      "def f(o):\n  try:\n    o.missing\n  except AttributeError as e:\n"
      "    return str(e)\n",
      "(Plain(2.0),)");
}

TEST(ObjectModelTest, WritesToInstances) {
  whole(
      "def f(o, x):\n  o.n += 1\n  o.t = x * o.n\n  o.twice = 6\n"
      "  y = o.t + o.n\n  o.gone = 1\n  del o.gone\n  return y\n",
      "(Plain(2), fake.tensor([2], [1., 2.]))");
  whole("def f(o, x):\n  a = o.cached\n  return o.cached + a, x + o.cached\n",
        "(Plain(2), fake.tensor([2], [1., 2.]))");
  whole(
      "def f(o):\n  o.__dict__['k'] = 1\n  o.k += 1\n"
      "  return list(o.__dict__), o.k\n",
      "(Plain(2),)");
  whole("def f(o):\n  for i in range(3): o.n = i\n  return o.n\n",
        "(Plain(2),)");
}

TEST(ObjectModelTest, SlotsHooksAndDescriptors) {
  whole("def f(s, x):\n  s.b = x * s.a\n  s.a = 3.0\n  return s.b + s.a\n",
        "(Slots(), fake.tensor([2], [1., 2.]))");
  whole(
      "def f(h, x):\n  h.k = x\n  a = h.k * h.w\n  del h.w\n"
      "  return a, hasattr(h, 'w')\n",
      "(Hooked(), fake.tensor([2], [1., 2.]))");
  whole(
      "def f(d, x):\n  d.d = 4.0\n  return x * d.d, "
      "type(Described.d).__name__\n",
      "(Described(), fake.tensor([2], [1., 2.]))");
}

TEST(ObjectModelTest, Metaclasses) {
  on_x("o = Made(3)\nr = o.v, o.by_meta, Made.level, Made.anything");
}

TEST(ObjectModelTest, FreshInstances) {
  on_x("o = Derived(2.0)\no.x = x * 2.0\nr = o");
  on_x("s = Slots()\ns.b = x\nr = s, s.a");
  on_x("o = Plain(1)\no.me = o\nr = o.me.n");
  on_x("p = Point(x, 2)\nr = p, p.x + p.y, p._replace(y=x)");
  on_x("n = Number(3)\nr = n");
  on_x("l = []\nl.append(l)\nr = len(l), x");
}

TEST(ObjectModelTest, PythonOperators) {
  on_x(
      "a = Number(2) + 3\nb = 3 + Number(2)\na += 5\n"
      "r = a.v, b.v, (-a).v, bool(a), len(a), a[1], 10 in a, a(x), a == 10, "
      "a != 10, Number(1) < Number(2), Number(1) > Number(2), f'{a:>3}', "
      "f'{a!r}', str(a)");
  on_x(
      "r = Number(1) + Loud(2), Loud(1) + Loud(2)\n"
      "r = r[0], r[1].v");
  on_x("try:\n  Number(1) * 2\nexcept TypeError as e:\n  r = str(e)");
  on_x("n = Number(x)\nm = n + x\nr = m.v");
  on_x("r = x + 1, 2 - x, -x, x ** 2, (x > 1.0), x[0]");
}

TEST(ObjectModelTest, Dicts) {
  const char* args = "({'a': 1, 'b': fake.tensor([2], [1., 2.]), 'c': [1]},)";
  whole(
      "def f(d):\n  return d['a'], d.get('z', 5), 'b' in d, 'q' in d, len(d)\n",
      args);
  whole(
      "def f(d):\n  return [k for k in d], list(d.items())[0], "
      "list(d.keys())\n",
      args);
  whole(
      "def f(d):\n  d['n'] = d['b'] * 2\n  d.setdefault('a', 9)\n"
      "  d.setdefault('s', []).append(1)\n  e = d.pop('a')\n"
      "  d.update({'u': 1}, v=2)\n  del d['c']\n  d['c'] = 0\n  return e, "
      "dict(d)\n",
      args);
  whole(
      "def f(d):\n  t = 0\n  for k, v in d.items():\n    t = v if k == 'b' "
      "else t\n"
      "  d.clear()\n  d['only'] = t\n  return t * 2\n",
      args);
  whole(
      "def f(d):\n  d['x'] = 1\n  try:\n    d['nope']\n  except KeyError as "
      "e:\n"
      "    return e.args\n",
      args);
  whole(
      "def f(d):\n  d['a'] = 2\n  d['zz'] = 3\n  del d['a']\n  d['a'] = 4\n"
      "  return list(d)\n",
      args);
  on_x(
      "d = dict(a=x, b=1)\nd |= {'c': 2}\nr = d, {**d, 'z': 0}, "
      "dict.fromkeys('ab', 0)");
  on_x(
      "d = OrderedDict(a=1)\nd['x'] = x\nd.move_to_end('a')\n"
      "e = defaultdict(list)\ne['k'].append(x)\nr = d, e");
  whole(
      "def f(d):\n  d['q'] = d['p'] + 1\n  d.move_to_end('p')\n  return "
      "list(d)\n",
      "(OrderedDict(p=1, o=2),)");
  whole("def f(d, x):\n  d['k'].append(x)\n  return len(d['k'])\n",
        "(defaultdict(list), fake.tensor([1], [1.]))");
}

TEST(ObjectModelTest, Lists) {
  const char* args = "([1, fake.tensor([2], [1., 2.]), 3],)";
  whole(
      "def f(l):\n  return l[0], l[-1], l[1] * 2, len(l), l[0:2], 3 in l[2:]\n",
      args);
  whole(
      "def f(l):\n  l.append(l[1] + 1)\n  l.extend((7, 8))\n  l += [9]\n  "
      "return len(l)\n",
      args);
  whole(
      "def f(l):\n  l.append(4)\n  l[0] = 5\n  l.insert(1, 'i')\n  a = "
      "l.pop()\n"
      "  del l[2]\n  l.reverse()\n  return a, l\n",
      args);
  whole(
      "def f(l):\n  a, *b = l\n  for v in l:\n    a = a + 1\n  return a, b, "
      "list(l), tuple(l)\n",
      args);
  whole(
      "def f(l):\n  l.sort(key=lambda v: -v)\n  return sorted(l), l.index(2), "
      "l.count(2), min(l), max(l), sum(l)\n",
      "([3, 1, 2],)");
  whole("def f(l):\n  l.remove(1)\n  l[1:] = [x * 2 for x in l]\n  return l\n",
        "([3, 1, 2],)");
  on_x(
      "l = [x, 1]\nl.append(2)\nl.extend(range(2))\nl[0:1] = "
      "[5]\nl.sort(reverse=True)\nr = l, l * 2, l + [1]");
  whole("def f(q, x):\n  q.append(x)\n  a = q.popleft()\n  return a, len(q)\n",
        "(deque([1, 2]), fake.tensor([1], [1.]))");
}

TEST(ObjectModelTest, SetsAndTuples) {
  whole(
      "def f(s):\n  a = 1 in s\n  s.add(5)\n  s.discard(1)\n  return a, 9 in "
      "s, len(s), sorted(s)\n",
      "({1, 2, 3},)");
  whole("def f(s):\n  s.add(4)\n  return 1\n", "({1, 2, 3},)");
  on_x(
      "s = {1, 2} | {3}\ns.update([4])\nr = s, s & {1}, s.union([7]), "
      "frozenset(s)");
  whole(
      "def f(t):\n  a, (b, c) = t\n  return a * 2, b + c, t[1:], t + (1,), "
      "len(t), t[1].count(2)\n",
      "((fake.tensor([1], [1.]), (2, 3)),)");
  whole("def f(p):\n  return p, p.x * 2, p[1:] == (2,), isinstance(p, tuple)\n",
        "(Point(fake.tensor([1], [1.]), 2),)");
}

TEST(ObjectModelTest, Iteration) {
  on_x(
      "r = [a + b for a, b in zip([x, x], (1, 2))], list(enumerate('ab', 1)), "
      "list(map(lambda v, w: v + w, [1, 2], [3, 4])), list(filter(None, [0, "
      "1])), "
      "list(reversed([1, 2])), any([0, 1]), all([1, 0]), sum([x, x]), "
      "list(range(3)), next(iter([4])), next(iter([]), 5)");
  on_x(
      "log = []\ndef g(v):\n  log.append(v)\n  return v\n"
      "for w in map(g, [1, 2]):\n  log.append(w * 10)\nr = log");
  on_x(
      "def g():\n  yield 1\n  yield x\nr = list(g()), tuple(v for v in (1, "
      "2))");
  on_x(
      "r = m.functools.reduce(lambda a, b: a + b, [x, 1, 2]), m.math.prod([2, "
      "3]), "
      "max([1, 5], key=lambda v: -v), min(3, 2), max([], default=4), divmod(7, "
      "2), "
      "abs(-2), round(2.6), pow(2, 3), abs(x)");
}

TEST(ObjectModelTest, Callables) {
  on_x(
      "p = m.functools.partial(lambda a, b, c=0: a + b + c, x, c=2)\nr = p(1), "
      "p(1, c=5)");
  on_x(
      "g = m.operator.itemgetter(1)\na = m.operator.attrgetter('n')\n"
      "r = g([1, 2]), a(Plain(3)), m.operator.methodcaller('method', "
      "x)(Plain(2)), "
      "m.operator.add(x, 1), m.operator.eq(1, 1), m.operator.is_(x, x)");
  on_x("r = [].append, Plain(1).method\nr[0](1)\nr = len(r)");
  on_x(
      "r = isinstance(1, int), isinstance(True, (str, int)), "
      "issubclass(Derived, Plain), "
      "isinstance(x, fake.Tensor), type(x) is fake.Tensor, callable(len), "
      "callable(1), "
      "type(3.0).__name__, isinstance(Plain(1), m.collections.abc.Iterable)");
  on_x(
      "r = int('3'), float(2), bool([]), str(1.5), repr('a'), "
      "'a-b'.split('-'), "
      "'{} {}'.format(1, 'b'), '%s %d' % ('a', 2), ','.join(['a', 'b']), "
      "hash('a') == hash('a'), "
      "ord('a'), chr(98), complex(1, 2), bytes(2), slice(1, 2), 'ab'[::-1], "
      "m.math.sqrt(4.0)");
  on_x("e = ValueError('a', 1)\nr = e.args, str(e), isinstance(e, Exception)");
  on_x(
      "r = Color.RED is Color.RED, Color.RED == Color.BLUE, Color['RED'].name");
}

TEST(ObjectModelTest, ObjectsThatOutliveTheGraph) {
  on_x("def g(a, b=x, *, c=3):\n  return a + b + c + k\nk = 5.0\nr = g(1.0)");
  on_x(
      "r = m.functools.partial(max, 3)(1), {1: (x, [x, {'a': x}])}, "
      "{x.shape[0]}");
  on_x("l = [x]\nr = l, l");
}

TEST(ObjectModelTest, Closures) {
  whole(
      "def make():\n  n = 0\n  def inner(x):\n    nonlocal n\n    n += 1\n    "
      "return x * n\n  return inner\n"
      "f = make()\n",
      kX);
  whole(
      "count = 0\ndef f(x):\n  global count\n  count += 1\n  return x + "
      "count\n",
      kX);
}

// ---- breaks in the middle: what is on the stack and in the locals comes back
TEST(ObjectModelTest, BreaksWithLiveIterators) {
  const char* loops[] = {
      "for i, v in enumerate([x, x * 2]):\n  y = y + v * i\n  fake.mystery(y)",
      "for a, b in zip([x, x], (1., 2.)):\n  y = y + a * b\n  fake.mystery(y)",
      "for k, v in {'p': x, 'q': 2.0}.items():\n  y = y * v\n  fake.mystery(y)",
      "for k in {'p': x, 'q': 2.0}:\n  y = y + len(k)\n  fake.mystery(y)",
      "for v in {'p': x, 'q': 2.0}.values():\n  y = y + v\n  fake.mystery(y)",
      "for v in reversed([x, 2.0]):\n  y = y + v\n  fake.mystery(y)",
      "for v in map(lambda v: v * 2, [x, 2.0]):\n  y = y + v\n  "
      "fake.mystery(y)",
      "for v in (x, 2.0):\n  y = y + v\n  fake.mystery(y)",
      "for v in 'ab':\n  y = y + ord(v)\n  fake.mystery(y)",
  };
  for (const char* loop : loops) {
    std::string body = "def f(x):\n  y = x\n";
    std::string text = loop;
    for (size_t i = 0, end; i < text.size(); i = end + 1) {
      end = std::min(text.find('\n', i), text.size());
      body += "  " + text.substr(i, end - i) + "\n";
    }
    CaptureRun run = check(std::string(kClasses) + body + "  return y\n", kX);
    EXPECT_EQ(run.fallbacks, 0)
        << body << (run.details.empty() ? "" : run.details[0]);
    EXPECT_GT(run.captured, 1) << body;
  }
}

TEST(ObjectModelTest, BreaksWithLiveObjects) {
  const char* source =
      "def f(o, d, l, x):\n"
      "  o.n += 1\n  d['k'] = x * 2\n  l.append(x)\n"
      "  fresh = Derived(3)\n  fresh.t = x + 1\n"
      "  g = lambda v: v + fresh.n\n"
      "  bound = fresh.method\n"
      "  it = iter(l)\n  next(it)\n"
      "  fake.mystery(x)\n"
      "  o.n += 1\n"
      "  return g(x), bound(d['k']), list(it), fresh, o.n\n";
  CaptureRun run = check(std::string(kClasses) + source,
                         "(Plain(1), {}, [1], fake.tensor([2], [1., 2.]))");
  EXPECT_EQ(run.fallbacks, 0) << (run.details.empty() ? "" : run.details[0]);
}

}  // namespace
}  // namespace framejit::bytecode::testing
