// Impostors: classes of the program that have the name of one that FrameJIT
// knows. Only the name is the same, so they behave as any other class does:
// same results, same number of captures, nothing left to CPython.
#include "tests/bytecode/capture/capture_support.h"
#include "tests/bytecode/capture/toy_compiler.h"

namespace framejit::bytecode::testing {
namespace {

// Names that mean something somewhere below, as type.__name__ can be set.
const char* const kNames[] = {"ContextVar",
                              "_contextvars.ContextVar",
                              "re.Pattern",
                              "re.Match",
                              "Pattern",
                              "functools._lru_cache_wrapper",
                              "functools._lru_list_elem",
                              "functools.partial",
                              "operator.itemgetter",
                              "operator.attrgetter",
                              "operator.methodcaller",
                              "types.UnionType",
                              "types.GenericAlias",
                              "types.SimpleNamespace",
                              "str_ascii_iterator",
                              "str_iterator",
                              "itertools.count",
                              "itertools.chain",
                              "collections.deque",
                              "collections.defaultdict",
                              "_io.TextIOWrapper",
                              "_io.StringIO",
                              "builtins.dict",
                              "framejit.Fact",
                              "framejit.generator",
                              "EnumType",
                              "EnumMeta",
                              "pybind11_type",
                              "pybind11_builtins.pybind11_type"};

const char kClass[] = R"(
class Meta(type):
    pass

class C(metaclass=Meta):
    limit = 10
    def __init__(self, n=0):
        self.n = n
        self.items = [n, n + 1]
    def __repr__(self):
        return "C%d" % self.n
    def __call__(self, k):
        self.n += k
        return self.n
    def __iter__(self):
        return iter(self.items)
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return self.items[i]
    def __contains__(self, k):
        return k == self.n
    def __eq__(self, other):
        return isinstance(other, C) and self.n == other.n
    def __hash__(self):
        return 7
    def __lt__(self, other):
        return self.n < other.n
    def write(self, text):
        self.items.append(text)
    def group(self):
        return self.n
    def get(self):
        return self.n
    @property
    def args(self):
        return (self.n,)
    @property
    def __args__(self):
        return (self.n, 1)

class Plain(metaclass=Meta):
    def __init__(self, n=0):
        self.n = n

class Iterator:
    def __init__(self, n=0):
        self.n = n
    def __iter__(self):
        return self
    def __next__(self):
        self.n += 1
        if self.n % 5 == 0:
            raise StopIteration
        return self.n
    def __reduce__(self):
        raise RuntimeError("pickled")

import functools, copy
@functools.lru_cache(maxsize=None)
def cached(k):
    return C(k)

def show_all(*objects):
    return [getattr(o, "__dict__", o) for o in objects]
)";

// Bodies of f(c, p, i): a C, a Plain and an Iterator, new in each call.
const char* const kUses[] = {
    "c.n += 1; c.extra = p; p.n = c.n; k = c.extra.n; del c.extra; "
    "return c.n, k",
    "return '%r %s' % (c, [c]), f'{c}', repr((c, 1)), str({1: c})",
    "d = {c: 1}; return d[c], c in {c: 2}, len({c, C(c.n)})",
    "d = {p: 1}; return d[p], p in {p: 2}, len({p, Plain(3)})",
    "return list(c), sum(c), [a for a in c], max(c), tuple(c), (*c,)",
    "return sorted([C(4), c])[0].n, c < C(100), max(c, C(1)).n",
    "return c(3), c.n, list(map(c, [1, 2]))",
    "return bool(c), not c, len(c), (c and 1), bool(p)",
    "k = C(c.n + 5); k.more = 1; return k.n, k.items, show_all(k)",
    "return [Plain(p.n + 1), Plain(2)][0].__dict__, show_all(Plain(p.n))",
    "return c[0], c[-1], c[0:1], 3 in c, c.n in c",
    "return c == C(c.n), c != p, c is p, c is not c, p == p",
    "return isinstance(c, C), isinstance(c, (int, dict)), type(c) is C, "
    "callable(c), issubclass(C, object)",
    "return c.__args__, c.args, c.limit, C.limit, type(c).limit, c.group()",
    "c.write('a'); return c.items, c.get(), hash(c), vars(p)",
    "e = copy.copy(p); e.n += 1; return e.n, p.n, copy.deepcopy(p).n",
    "return [a for a in i], i.n, next(i), list(zip(i, [1, 2])), i.n",
    "k = Iterator(c.n); next(k); return k.n, show_all(k)",
    "return cached(1).n, cached(c.n).n, cached(1).items",
    "a, *b = c; return a, b, [x for x in reversed(list(c))]",
    "setattr(c, 'q', 1); delattr(c, 'q'); return hasattr(c, 'q'), dir(p)",
    "return min([c, C(0)], key=C.get).n, any([c, p]), all((c, p))",
    "t = (c, p); return t[0].n, t.index(c), [c, p].count(c), (c,) + t == 1",
};

struct Seen {
  std::string results;
  int captures = 0, fallbacks = 0;
  bool operator==(const Seen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  return out << seen.results << seen.captures << " captures, " << seen.fallbacks
             << " fallbacks";
}

enum class Run { kPlain, kCompiled };

Seen see(const std::string& use, const std::string& name, bool metaclass,
         Run run) {
  ToyCompiler compiler;
  std::string source = kClass;
  for (const char* made : {"C", "Plain", "Iterator"}) {
    if (!metaclass) source += std::string(made) + ".__name__ = NAME\n";
  }
  if (metaclass) source += "Meta.__name__ = NAME\n";
  source =
      "NAME = '" + name + "'\n" + source + "def f(c, p, i):\n  " + use + "\n";
  Ref globals = make_globals(source);
  Seen seen;
  Ref function = Ref::borrow(PyDict_GetItemString(globals.get(), "f"));
  if (run == Run::kCompiled) function = compiler.compiled(function.get());
  for (int round = 0; round < 4; ++round) {
    PyDict_SetItemString(globals.get(), "f_", function.get());
    Ref text = evaluate_text(
        globals.get(),
        "(lambda c, p, i: repr((f_(c, p, i), c.__dict__, p.__dict__, "
        "i.__dict__)).replace(NAME, '?'))(C(3), Plain(4), Iterator(1))");
    const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    seen.results += utf8 ? std::string(utf8) : take_error();
    seen.results += "\n";
  }
  seen.captures = compiler.captures;
  seen.fallbacks = compiler.fallbacks;
  return seen;
}

TEST(Impostors, BehaveAsOtherClassesOfTheProgram) {
  for (const char* use : kUses) {
    for (bool metaclass : {false, true}) {
      Seen expected = see(use, "Neutral", metaclass, Run::kCompiled);
      EXPECT_EQ(expected.results,
                see(use, "Neutral", metaclass, Run::kPlain).results)
          << use;
      for (const char* name : kNames) {
        EXPECT_EQ(expected, see(use, name, metaclass, Run::kCompiled))
            << name << (metaclass ? " (metaclass)" : "") << ": " << use;
      }
    }
  }
}

// Functions and classes that say they are from another module, as those made
// with functools.wraps do. Each program's f(n) is called four times.
const char* const kPrograms[] = {
    R"(
import abc, functools
class Meta(abc.ABCMeta):
    @functools.wraps(abc.ABCMeta.__instancecheck__)
    def __instancecheck__(cls, subject):
        return subject == 3
    @functools.wraps(abc.ABCMeta.__subclasscheck__)
    def __subclasscheck__(cls, subject):
        return subject is int
class A(metaclass=Meta):
    pass
def f(n):
    return isinstance(n, A), isinstance(4, A), issubclass(int, A), issubclass(str, A)
)",
    R"(
import math, operator, functools
@functools.wraps(math.sqrt)
def sqrt(x):
    return ("mine", x)
@functools.wraps(operator.add)
def add(a, b):
    return ("mine", a, b)
sqrt.__module__, add.__module__ = "math", "_operator"
def f(n):
    return sqrt(n), add(n, 1), math.sqrt(n), operator.add(n, 1)
)",
    R"(
import functools
Link = type("functools._lru_list_elem", (), {})
@functools.lru_cache(maxsize=None)
def unbounded(k):
    made = Link()
    made.k = k
    return made
@functools.lru_cache(maxsize=4)
def bounded(k):
    made = Link()
    made.k = k
    return made
for k in range(3):
    unbounded(k), bounded(k)
def f(n):
    return unbounded(1).k, bounded(1).k, unbounded(2).k, bounded(n).k
)",
    R"(
import logging
seen = []
class Handler(logging.Handler):
    __module__ = "logging"
    def emit(self, record):
        seen.append(record.getMessage())
Handler.__name__ = Handler.__qualname__ = "StreamHandler"
logger = logging.Logger("impostor")
logger.addHandler(Handler())
def f(n):
    logger.warning("number %d", n)
    return len(seen), seen[-1]
)"};

TEST(Impostors, AreNotBelievedToBeOfAnotherModule) {
  for (const char* source : kPrograms) {
    std::string seen[2];
    for (bool compile : {false, true}) {
      ToyCompiler compiler;
      Ref globals = make_globals(source);
      Ref function = Ref::borrow(PyDict_GetItemString(globals.get(), "f"));
      if (compile) function = compiler.compiled(function.get());
      PyDict_SetItemString(globals.get(), "f_", function.get());
      for (int round = 0; round < 4; ++round) {
        Ref text = evaluate_text(globals.get(), "repr(f_(3))");
        const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
        seen[compile] += (utf8 ? std::string(utf8) : take_error()) + "\n";
      }
    }
    EXPECT_EQ(seen[0], seen[1]) << source;
  }
}

}  // namespace
}  // namespace framejit::bytecode::testing
