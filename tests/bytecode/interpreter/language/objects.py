# ruff: noqa
# Classes, attributes, super(), class statements.

# ==== attributes of new objects
# args: (fake.tensor([1], [1.]),)
class A:
    tag = "class"

def f(x):
    a = A()
    a.x = x * 2.0
    a.n = 1
    a.n += 1
    a.tag = "instance"
    b = A()
    out = [a.x, a.n, a.tag, b.tag, hasattr(a, "zz"), getattr(a, "zz", 5)]
    del a.tag
    out.append(a.tag)
    try:
        del a.tag
    except AttributeError as e:
        out.append(str(e))
    return out, vars(a)

# ==== attributes of arguments
# args: (A(), fake.tensor([1], [1.]))
class A:
    def __init__(self):
        self.n, self.l = 1, []

def f(a, x):
    a.n += 1
    a.l.append(x + a.n)
    a.new = a.n
    del a.new
    a.other = {"k": x}
    return a.n, len(a.l), a.other["k"]

# ==== descriptors
# args: (3,)
class Data:
    def __get__(self, o, t):
        return ("get", o is None)
    def __set__(self, o, v):
        o.__dict__["stored"] = v
    def __delete__(self, o):
        o.__dict__["deleted"] = 1

class Plain:
    def __get__(self, o, t):
        return ("plain", t.__name__)

class A:
    data = Data()
    plain = Plain()
    @property
    def p(self):
        return self.__dict__.get("_p", 0)
    @p.setter
    def p(self, v):
        self._p = v
    @p.deleter
    def p(self):
        self._p = "gone"

def f(n):
    a = A()
    out = [a.data, A.data, a.plain]
    a.data = n
    del a.data
    a.p = n
    out.append(a.p)
    a.p += 1
    out.append(a.p)
    del a.p
    out.append(a.p)
    try:
        A().missing
    except AttributeError as e:
        out.append(str(e))
    return out, sorted(vars(a))

# ==== __getattr__ and __getattribute__
# args: ()
class A:
    def __init__(self):
        self.real = 1
    def __getattr__(self, name):
        if name.startswith("x"):
            return "made " + name
        raise AttributeError(name)
    @property
    def broken(self):
        raise AttributeError("inside")

class B:
    def __getattribute__(self, name):
        if name == "n":
            return 5
        return super().__getattribute__(name)

def f():
    a = A()
    out = [a.real, a.xyz, B().n, hasattr(a, "yyy")]
    try:
        a.broken
    except AttributeError as e:
        out.append(str(e))
    try:
        B().m
    except AttributeError as e:
        out.append(str(e))
    return out

# ==== __setattr__ and __slots__
# args: ()
class A:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)

class S:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a

def f():
    a = A()
    a.n = 4
    s = S(1)
    s.b = s.a + 1
    out = [a.n, s.a, s.b]
    del s.b
    try:
        s.b
    except AttributeError as e:
        out.append(str(e))
    try:
        s.c = 1
    except AttributeError as e:
        out.append("no c")
    return out

# ==== super without arguments
# args: (fake.tensor([1], [2.]),)
class Base:
    def __init__(self, n):
        self.n = n
    def hello(self, x):
        return x * self.n
    @classmethod
    def name(cls):
        return "base " + cls.__name__
    @property
    def p(self):
        return self.n

class Derived(Base):
    def __init__(self, n):
        super().__init__(n + 1)
        self.own = super().p
    def hello(self, x):
        h = super().hello
        return super().hello(x) + h(x)
    @classmethod
    def name(cls):
        return super().name() + "!"
    @property
    def p(self):
        return super().p * 10

def f(x):
    d = Derived(2)
    return d.hello(x), Derived.name(), d.name(), d.own, d.p

# ==== super with arguments and in cells
# args: (fake.tensor([1], [2.]),)
class Base:
    def m(self, x):
        return x + 1.0

class Mixin:
    def m(self, x):
        return super().m(x) * 3.0

class Derived(Mixin, Base):
    tag = "tag"
    def m(self, x):
        get = lambda: self.tag
        a = super(Derived, self).m(x)
        b = super().m(x)
        c = super(Mixin, self).m
        return a, b, c(x), get(), __class__.__name__

def f(x):
    return Derived().m(x)

# ==== super that finds nothing
# args: ()
class A:
    def m(self):
        return super().missing

def g():
    return super().m

def f():
    out = []
    try:
        A().m()
    except AttributeError as e:
        out.append(str(e))
    try:
        g()
    except RuntimeError as e:
        out.append(str(e))
    return out

# ==== a name super of one's own
# args: ()
class Fake:
    def __init__(self, *args):
        self.args = len(args)
    def m(self, *a):
        return "own super", self.args, a

class A:
    def m(self, super=Fake):
        return super().m(1), super(1, 2).m(), super().args

def f():
    return A().m()

# ==== class statement
# args: (3,)
def f(n):
    class Local:
        "Documented."
        k = n
        l = [k, 1]
        def get(self):
            return self.k + n
        @staticmethod
        def s():
            return Local.__name__
    return Local().get(), Local.s(), Local.l, Local.__doc__

# ==== class statement with bases, keywords and a closure
# args: (2,)
class Base:
    def __init_subclass__(cls, tag=None, **kw):
        cls.tag = tag
    def hello(self):
        return "hello"

def f(n):
    m = n + 1
    class Local(Base, tag=n):
        k = m
        values = [i for i in range(3)]
        pairs = {k: v for k, v in zip("ab", values)}
        a: int = 5
        if n > 1:
            big = True
        for i in range(2):
            last = i
        del i
        def hello(self):
            return super().hello(), __class__.__name__, n
    return Local().hello(), Local.k, Local.values, Local.pairs, Local.tag, Local.big, Local.last

# ==== class statement that reads names of every scope
# args: (2,)
scope = "global"
def f(n):
    free = "free"
    class A:
        global scope
        own = free
        k = n
        size = len("abc")
        def get(self):
            return free, scope
    class B(A):
        k = A.k * 2
        scope = scope
        n = "own n"
        size = n
        class Inner:
            deep = n
        try:
            unknown_name
        except NameError as e:
            text = str(e)
        del n
    return A.own, A.k, A.size, A().get(), B.k, B.scope, B.size, B.Inner.deep, B.text, hasattr(B, "n")

# ==== metaclass
# args: ()
class Meta(type):
    def __call__(cls, *a):
        o = super().__call__(*a)
        o.made = True
        return o
    @property
    def mp(cls):
        return "meta " + cls.__name__

class A(metaclass=Meta):
    def __init__(self, n):
        self.n = n

def f():
    a = A(3)
    return a.n, a.made, A.mp

# ==== __new__ and subclasses of builtins
# args: ([1, 2],)
class L(list):
    def total(self):
        return sum(self)

class D(dict):
    def __missing__(self, k):
        return "missing " + k

class T(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, a)
    def first(self):
        return self[0]

class N:
    made = 0
    def __new__(cls, n):
        o = object.__new__(cls)
        o.early = n
        return o
    def __init__(self, n):
        self.late = self.early + n

def f(values):
    l = L(values)
    l.append(3)
    d = D(a=1)
    t = T(5, 6)
    n = N(4)
    return l.total(), d["a"], d["b"], t.first(), len(t), n.late

# ==== dataclasses, enums and namedtuples
# args: (2,)
import collections, dataclasses, enum
@dataclasses.dataclass
class P:
    x: int
    y: int = 5
    z: list = dataclasses.field(default_factory=list)

class E(enum.Enum):
    A = 1
    B = 2

NT = collections.namedtuple("NT", "a b")

def f(n):
    p = P(n)
    p.z.append(p.x)
    t = NT(n, b=3)
    a, b = t
    match p:
        case P(x, 5):
            m = x
    return p.x, p.y, p.z, P(1, 2) == P(1, 2), E.A is E.B, E(2).name, t.a + t.b, a, b, m, t._replace(a=9)

# ==== class patching of an argument's class is guarded
# args: (A(),)
class A:
    factor = 2
    def m(self, n):
        return n * self.factor

def f(a):
    return a.m(3), type(a).factor, a.__class__ is A, isinstance(a, (int, A)), issubclass(A, object)

# ==== rich comparison and hashing
# args: ()
class K:
    def __init__(self, n):
        self.n = n
    def __eq__(self, o):
        return isinstance(o, K) and self.n == o.n
    def __lt__(self, o):
        return self.n < o.n
    def __repr__(self):
        return f"K({self.n})"

def f():
    a, b, c = K(1), K(1), K(2)
    return a == b, a != b, a == c, a in [c, b], [c, a].index(a), sorted([c, a, b])[0].n, f"{a} {c!r}", max(a, c).n

# ==== str, repr, len, bool, contains, index and call
# args: ()
class O:
    def __str__(self):
        return "str"
    def __repr__(self):
        return "repr"
    def __len__(self):
        return 0
    def __format__(self, spec):
        return "fmt<" + spec + ">"
    def __index__(self):
        return 1
    def __contains__(self, v):
        return v == "yes"

def f():
    o = O()
    return str(o), repr(o), f"{o} {o!s} {o!r} {o:x}", bool(o), not o, "yes" in o, "no" in o, len(o), [1, 2, 3][o]

# ==== locals
# args: (3,)
def f(n):
    a = 1
    b = lambda: a
    r = dict(locals())
    r.pop("b")
    return sorted(r.items())

# ==== reflected and in-place operators of subclasses
# args: (2,)
class A:
    def __init__(self, n):
        self.n = n
    def __add__(self, o):
        return "A+", self.n
    def __radd__(self, o):
        return "A r", self.n
    def __mul__(self, o):
        return NotImplemented
    def __eq__(self, o):
        return NotImplemented
    def __lt__(self, o):
        return NotImplemented
    def __gt__(self, o):
        return "gt"

class B(A):
    def __radd__(self, o):
        return "B r", self.n
    def __rmul__(self, o):
        return "B rmul"
    def __iadd__(self, o):
        self.n += 100
        return self

def f(n):
    a, b = A(n), B(n + 1)
    out = [a + b, b + a, 1 + a, a + 1, a * b, a == b, a != b, a < b]
    c = b
    c += 1
    out.append((c is b, b.n))
    try:
        a * 2
    except TypeError as e:
        out.append(str(e))
    try:
        a <= b
    except TypeError as e:
        out.append(str(e))
    return out

# ==== multiple inheritance and the order of super
# args: (fake.tensor([1], [1.]),)
class Base:
    def go(self, x, trace):
        trace.append("Base")
        return x

class Left(Base):
    def go(self, x, trace):
        trace.append("Left")
        return super().go(x + 1.0, trace)

class Right(Base):
    def go(self, x, trace):
        trace.append("Right")
        return super().go(x * 2.0, trace)

class Both(Left, Right):
    def go(self, x, trace):
        trace.append("Both")
        return super().go(x, trace)

def f(x):
    trace = []
    y = Both().go(x, trace)
    return y, trace, [c.__name__ for c in Both.__mro__]

# ==== properties, class attributes and instance dicts
# args: (3,)
class P:
    count = 0
    def __init__(self, n):
        self._n = n
        P.count += 1
        type(self).last = n
    @property
    def n(self):
        return self._n
    @n.setter
    def n(self, v):
        if v < 0:
            raise ValueError("negative")
        self._n = v

def f(k):
    p, q = P(k), P(k + 1)
    p.n += 5
    out = [p.n, q.n, P.count, P.last]
    try:
        p.n = -1
    except ValueError as e:
        out.append(str(e))
    p.__dict__["n"] = "hidden"
    out.append(p.n)
    return out, sorted(vars(p))

# ==== an object and its dict side by side
# args: (fake.tensor([1], [1.]), 3)
class A:
    pass

def f(x, n):
    held = a = A()
    held = vars(a)
    a.n = n
    held["x"] = x * 2.0
    a.own = held
    b = A()
    b.__dict__ = held
    b.n += 1
    def g():
        return g.n
    of_g = g.__dict__
    g.n = 4
    of_g["n"] += n
    out = [a.n, held["n"], a.x, a.own is held, vars(b) is held, g(), sorted(of_g)]
    del held["n"]
    return out, hasattr(a, "n"), hasattr(b, "n")

# ==== objects with slots and inheritance
# args: (2,)
class S:
    __slots__ = ("a",)

class T(S):
    __slots__ = ("b", "__dict__")

def f(n):
    t = T()
    t.a, t.b, t.c = n, n + 1, n + 2
    t.a *= 10
    out = [t.a, t.b, t.c, vars(t), hasattr(t, "d")]
    del t.a
    try:
        t.a
    except AttributeError as e:
        out.append(str(e))
    return out

# ==== static data of a class used as a namespace
# args: (fake.tensor([1], [1.]),)
class Config:
    scale = 2.0
    names = ["a", "b"]
    class Inner:
        shift = 1.0
    @staticmethod
    def apply(x):
        return x * Config.scale + Config.Inner.shift

def f(x):
    for name in Config.names:
        x = Config.apply(x)
    Config.scale = 3.0
    return Config.apply(x), len(Config.names)
