"""Longer pieces of Python, written as templates.

A line is program text with random expressions in it (``$I1$``, as everywhere)
and new names (``%v%``: one name per piece). ``<body a:I b:M>`` stands for
statements of a function that has those names, ``<block a:I>`` for statements
at this place; ``-> v:I x:M`` says what the piece leaves behind.
"""

from __future__ import annotations

FUNCTIONS = (
    """
def %f%(a, /, b=$I1$, *c, d, e=2, **g):
    <body a:I b:I d:I e:I>
    return a + b * d - e + len(c) + sum(g.values())
%v% = %f%($I1$, $I0$, *$LI1$[:2], d=$I1$, **$DI1$)
-> v:I
""",
    """
def %f%(a, b=$M1$, *, c=1.5):
    <body a:M b:M c:F>
    return a * c + b
%x% = %f%($M1$) if $B1$ else %f%(b=$M1$, a=$M1$, c=$F0$)
-> x:M
""",
    """
def %o%():
    n = $I1$
    def inner(p):
        nonlocal n
        def deeper():
            nonlocal n
            <body n:I p:I>
            n = n % 50 + 1
            return n
        return deeper() + p
    return inner
%f% = %o%()
%v% = [%f%(i) for i in range(3)]
-> v:LI
""",
    """
def %d%(n, tag='t'):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            LOG.append((fn.__name__, n, tag, len(args)))
            return fn(*args, **kwargs) + n
        wrapper.count = n
        return wrapper
    return decorate
@%d%($I1$, tag=$Z0$)
@%d%(2)
def %f%(p, q=$I1$):
    '''A docstring.'''
    <body p:I q:I>
    return p * 2 + q
%v% = %f%($I1$) + %f%.count
%z% = %f%.__name__ + %f%.__doc__
-> v:I z:Z
""",
    """
def %f%(n):
    return 1 if n <= 0 else n % 7 + %f%(n - 2)
def %g%(x, n):
    if n == 0:
        return x
    <body x:M>
    return %g%(x * 0.5, n - 1) + x
%v% = %f%($I1$ % 9)
%x% = %g%($M1$, 3)
-> v:I x:M
""",
    """
%f% = functools.partial(lambda a, b, *c, k=1: a * k + b + len(c), $I1$, k=2)
%v% = %f%($I1$) + %f%($I1$, 3, 4, k=$I0$)
%x% = functools.reduce(lambda p, q: p * 0.5 + q, [$M1$, $M1$, $M1$])
-> v:I x:M
""",
    """
%l% = [lambda x, i=i: x * i + %n% for i in range(3) for %n% in (1,)]
%x% = [fn($M1$) for fn in %l%][-1]
%f% = (lambda *a, **k: (a, sorted(k)))
%v% = len(%f%(1, *$LI1$, z=3, **{'y': $I0$})[0])
-> x:M v:I
""",
    """
@functools.lru_cache(maxsize=None)
def %f%(n):
    LOG.append(('computed', n))
    return n * 2 + 1
%v% = [%f%(n) for n in (1, 2, 1, $I0$ % 3)]
-> v:LI
""",
    """
@functools.singledispatch
def %f%(v):
    return -1
@%f%.register
def _(v: int):
    return v + 1
@%f%.register(list)
def _(v):
    return len(v)
%v% = %f%($I1$) + %f%($LI1$) + %f%($Z0$)
-> v:I
""",
)

GENERATORS = (
    """
def %f%(p):
    total = p
    while True:
        got = yield total
        if got is None:
            return total
        <body p:I>
        total = (total + got) % 100
%g% = %f%($I1$)
%v% = [next(%g%), %g%.send($I1$), %g%.send($I1$)]
try:
    %g%.send(None)
except StopIteration as stop:
    %v%.append(stop.value)
-> v:LI
""",
    """
def %h%(p):
    yield p
    <body p:M>
    yield p * 2
    return p + 1
def %f%(q):
    got = yield from %h%(q)
    yield got
    yield from (got * i for i in range(2))
%v% = list(%f%($M1$))
-> v:LM
""",
    """
def %f%(p):
    try:
        yield p
        yield $I1$
    except KeyError as error:
        LOG.append(('thrown', str(error)))
        yield -1
    finally:
        LOG.append(('done', p))
%g% = %f%($I1$)
%v% = [next(%g%)]
if $B1$:
    %v%.append(%g%.throw(KeyError('x')))
%g%.close()
-> v:LI
""",
    """
def %f%(n):
    for i in range(n):
        if i == 2:
            continue
        yield i, $M1$ * i
%x% = $M1$
for %i%, %y% in %f%($I0$ % 4):
    %x% = %x% + %y%
%v% = dict((str(a), a) for a, b in %f%(4))
-> x:M v:DI
""",
    """
%v% = sum(a * b for a, b in zip($LI1$, itertools.count(1)))
%w% = all(a < 100 for a in $LI1$) and any(a == $I0$ for a in $LI1$)
%x% = sum((m for m in $LM1$ if m.size(0) > 1), $M1$)
-> v:I w:B x:M
""",
    """
def %f%(a, b):
    yield from a
    c = yield from iter(b)
    yield c is None
%v% = list(itertools.islice(%f%($LI1$, $LI1$), 4))
-> v:LI
""",
)

CLASSES = (
    """
class %A%:
    kind = $I0$
    count = 0
    def __init__(self, v, x=None):
        self.v = v
        self.x = x
        type(self).count += 1
    def m(self, p):
        <body p:I>
        return p + self.v
    @property
    def twice(self):
        return self.v * 2
    @twice.setter
    def twice(self, value):
        self.v = value // 2
    @classmethod
    def make(cls, v):
        return cls(v, $M1$)
    @staticmethod
    def helper(a, b=2):
        return a * b
class %B%(%A%):
    kind = 7
    def __init__(self, v, x=None):
        super().__init__(v, x)
        self.w = v + 1
    def m(self, p):
        return super().m(p) - self.w
    @property
    def twice(self):
        return super().twice + 1
%o% = (%A% if $B1$ else %B%).make($I1$)
%v% = %o%.m($I1$) + %o%.twice + %o%.kind + %o%.helper(3) + %A%.count
%x% = %o%.x * %o%.v
-> v:I x:M
""",
    """
@dataclasses.dataclass(order=True)
class %D%:
    n: int
    x: object = dataclasses.field(default=None, compare=False)
    items: list = dataclasses.field(default_factory=list)
    def __post_init__(self):
        self.m = self.n + len(self.items)
%a% = %D%($I1$, $M1$)
%b% = dataclasses.replace(%a%, n=$I1$, items=[1, 2])
%v% = [%a%.m, %b%.m, int(%a% < %b%), int(%a% == %a%)]
%x% = %b%.x + 1
-> v:LI x:M
""",
    """
class %C%:
    def __init__(self, n):
        self.n = n
        self.log = []
    def __iter__(self):
        self.i = 0
        return self
    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i * 2
    def __enter__(self):
        self.log.append('in')
        return self
    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else None)
        return kind is KeyError
    def __len__(self):
        return self.n
    def __bool__(self):
        return self.n > 1
    def __call__(self, x, *, by=2):
        return x * by
%o% = %C%($I0$ % 4)
%v% = list(%o%)
with %o% as %u%:
    <block>
    if $B1$:
        raise KeyError('swallowed')
%x% = %o%($M1$, by=3) if %o% else $M1$
LOG.append(tuple(%o%.log))
-> v:LI x:M
""",
    """
class %D%:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, obj, owner):
        return self if obj is None else getattr(obj, self.name, 5)
    def __set__(self, obj, value):
        setattr(obj, self.name, value + 1)
class %C%:
    field = %D%()
    def __init_subclass__(cls, **kw):
        cls.made = len(kw)
    def __getattr__(self, name):
        if name.startswith('x'):
            return len(name)
        raise AttributeError(name)
class %S%(%C%, flag=1):
    __slots__ = ('q',)
%o% = %S%()
%v% = [%o%.field, %o%.xyz, %S%.made]
%o%.field = $I1$
%v%.append(%o%.field)
try:
    %o%.missing
except AttributeError as error:
    LOG.append(str(error))
-> v:LI
""",
    """
@functools.total_ordering
class %C%:
    def __init__(self, n, x):
        self.n, self.x = n, x
    def __eq__(self, other):
        return self.n == other.n
    def __lt__(self, other):
        return self.n < other.n
    def __hash__(self):
        return hash(self.n)
    def __matmul__(self, other):
        return self.x @ other
    def __rmul__(self, other):
        return %C%(self.n * other, self.x * other)
    def __neg__(self):
        return %C%(-self.n, -self.x)
    def __getitem__(self, key):
        return self.x[key]
%a%, %b% = %C%($I1$, $M1$), %C%($I1$, $M1$)
%v% = [int(%a% < %b%), int(%a% >= %b%), max(%a%, %b%).n, (2 * %a%).n, (-%b%).n]
%x% = %a% @ sorted([%a%, %b%])[0].x
%r% = %b%[0]
-> v:LI x:M r:R
""",
    """
class %E%(UserError):
    def __init__(self, message, *, extra=0):
        super().__init__(message, code=extra)
    def __str__(self):
        return f'{self.args[0]}!{self.code}'
try:
    <block>
    if $B1$:
        raise %E%($Z0$, extra=$I0$)
except UserError as error:
    LOG.append((type(error).__name__[:0], str(error), error.code))
""",
    """
class %M%(type):
    def __call__(cls, *args):
        LOG.append(('made', len(args)))
        return super().__call__(*args)
    @property
    def label(cls):
        return 3
class %C%(metaclass=%M%):
    def __init__(self, n=1):
        self.n = n
%v% = %C%($I1$).n + %C%().n + %C%.label
-> v:I
""",
    """
class %C%(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key]
class %L%(list):
    def total(self):
        return sum(self)
%d% = %C%(a=$I0$)
%v% = [%d%['a'], %d%['zzz'], len(%d%), %L%($LI1$).total()]
-> v:LI
""",
    """
@dataclasses.dataclass(frozen=True)
class %P%:
    a: int
    b: object
    @functools.cached_property
    def c(self):
        return self.a * 2
    def moved(self, n):
        return dataclasses.replace(self, a=self.a + n)
%p% = %P%($I1$, $M1$)
try:
    %p%.a = 3
except dataclasses.FrozenInstanceError as error:
    LOG.append(str(error))
match %p%:
    case %P%(0, _):
        %v% = 0
    case %P%(a=%k%, b=%m%) if %k% > 2:
        %v% = %k%
    case _:
        %v% = %p%.moved(1).a
-> v:I
""",
)

CONTROL = (
    """
@contextlib.contextmanager
def %c%(p):
    LOG.append('in')
    try:
        yield p
    except ValueError as error:
        LOG.append(('caught', str(error)))
    finally:
        LOG.append('out')
with %c%($I1$) as %a%, Manager('m', KeyError):
    <block a:I>
    if $B1$:
        raise ValueError('v')
""",
    """
with contextlib.ExitStack() as %s%:
    %s%.enter_context(Manager('q'))
    %s%.callback(LOG.append, 'callback')
    <block>
    if $B1$:
        %s%.enter_context(torch.no_grad())
    <block>
""",
    """
try:
    try:
        <block>
        if $B1$: raise ValueError($Z0$)
    except ValueError as error:
        raise KeyError('k') from error
    finally:
        <block>
except KeyError as error:
    LOG.append((type(error.__cause__).__name__, str(error)))
""",
    """
def %f%(p):
    for i in range(3):
        try:
            <body p:I i:I>
            if i == 1: continue
            if p > i: return i
        except (KeyError, IndexError):
            return -2
        finally:
            LOG.append(('f', i))
    else:
        return -3
    return -1
%v% = %f%($I1$)
-> v:I
""",
    """
def %f%(p):
    try:
        <body p:I>
        return p
    finally:
        LOG.append('first')
        try:
            LOG.append($I1$)
        finally:
            LOG.append('second')
%v% = %f%($I1$)
-> v:I
""",
    """
try:
    try:
        <block>
        {}['missing']
    finally:
        LOG.append('unwinding')
        <block>
except LookupError as error:
    LOG.append((type(error).__name__, error.__context__ is None))
""",
    """
match ($I1$, $LI1$, {'k': $I1$, 'l': 2}):
    case (0 | 1, _, _):
        <block>
    case (%a%, [%b%, *%c%], {'k': %d%, **%e%}) if %a% > %b%:
        <block a:I b:I c:LI d:I e:DI>
    case (int() as %g%, [], _):
        <block g:I>
    case [_, [_, _], {}]:
        <block>
    case _:
        <block>
""",
    """
match $obj1$:
    case ChildBox(n=1 | 2 | 3) as %a%:
        <block a:obj>
    case Box(n=int(%b%), items=[]) if %b% != 2:
        <block b:I>
    case SlotBox() | Box():
        <block>
""",
    """
match {'op': $Z0$, 'v': [$I1$, ($F0$, None, True)]}:
    case {'op': 'a', 'v': [%a%, _]}:
        <block a:I>
    case {'op': str(%b%), 'v': [_, (float(%c%), None, True)]}:
        <block b:Z c:F>
    case _:
        <block>
""",
    """
%v% = 0
for %i% in range(4):
    for %j% in range(3):
        if %i% * %j% == $I0$ % 5:
            break
        %v% += %j%
    else:
        %v% += 10
        continue
    if %v% > 12:
        break
else:
    %v% = -1
-> v:I
""",
    """
%t% = 0
while True:
    %t% += 1
    if %t% > 3:
        break
    <block>
    if not $B1$ or True:
        break
while (%n% := $I0$ % 3) > 5:
    pass
-> n:I t:I
""",
)

VALUES = (
    """
%v% = [w for i in range(4) if (w := i * 2 + $I0$ % 3) > 1]
%d% = {str(i): i * i for i in $LI1$ if i % 2 == 0}
%s% = {i % 3 for i in $LI1$} | {j for j in (1, 2)}
%l% = [[i + j for j in range(2)] for i in range(2)][-1]
-> v:LI d:DI s:set l:LI
""",
    """
%z% = f"{$I1$:>4}|{$Z1$!r:^6}|{$F0$:.2f}|{$I0$:#x}|{len($LI1$)=}|{$B0$}"
%y% = '%s-%d-%5.1f-%r' % ($Z0$, $I0$, $F0$, $Z0$)
%w% = '{0}{1!r:>5}{k:03d}'.format($Z0$, $Z0$, k=$I0$) + '{:,}'.format($I0$)
%u% = '-'.join(sorted([$Z0$, 'b', $Z0$])).upper().replace('B', 'q').split('-')[0]
-> z:Z y:Z w:Z u:Z
""",
    """
%l% = list(itertools.chain($LI1$, itertools.accumulate($LI1$)))[:5]
%v% = [a * b for a, b in itertools.product((1, 2), $LI1$[:2])]
%g% = {k: len(list(v)) for k, v in itertools.groupby('aabca')}
%w% = sum(a - b for a, b in itertools.pairwise(%l%))
%t% = list(itertools.takewhile(lambda i: i < 4, %l%)) + list(itertools.starmap(max, [(1, 2)]))
%c% = len(list(itertools.zip_longest(%l%, %v%, fillvalue=0)))
-> l:LI v:LI g:DI w:I t:LI c:I
""",
    """
%q% = collections.deque($LI1$, maxlen=3)
%q%.append($I1$)
%q%.rotate(1)
%c% = collections.Counter('abca')
%c%.update({'a': 2})
%d% = collections.defaultdict(list)
%d%['k'].append($I1$)
%o% = collections.OrderedDict([('a', 1), ('b', $I0$)])
%o%.move_to_end('a')
%v% = [*%q%, %c%['a'], len(%d%['z']), *%o%.values()]
%w% = collections.ChainMap({'a': 1}, {'b': $I0$})['b']
-> v:LI w:I
""",
    """
%v% = sorted($LI1$, key=lambda i: (i % 3, -i), reverse=True)
%w% = max($LI1$, key=abs, default=0) + min([3, $I0$], key=lambda i: -i)
%l% = sorted([('b', 2), ('a', $I0$)], key=operator.itemgetter(1))
%z% = %l%[0][0]
%u% = sorted($LI1$, key=functools.cmp_to_key(lambda a, b: b - a))
-> v:LI w:I z:Z u:LI
""",
    """
%a%, (%b%, *%c%), [%d%] = $I1$, [1, *$LI1$], ($Z0$,)
*%e%, %g% = range(3)
[%h%, _] = $I0$, 2
-> a:I b:I c:LI d:Z e:LI g:I h:I
""",
    """
%v% = divmod($I1$, 3)[1] + pow(2, 3, 5) + round($F0$) + int('12') + ($I1$ >> 1) ^ 3
%w% = 0 < $I0$ <= 3 != $I0$ and not $B0$ or $I0$ is None
%u% = ($LI1$ or [0])[::-1][0] + [1, 2, 3][slice(None, 1)][0]
-> v:I w:B u:I
""",
)

TENSOR_CODE = (
    """
%x% = $M1$ * 1
%w% = %x%[1:]
%w%.mul_(2)
%r% = %x%[0]
%r% += $S0$
%x%[:, ::2] = $F0$
%x%[..., -1] = %r%[0]
%t% = %x%.t()[:1]
%t%.zero_()
-> x:M r:R
""",
    """
%x% = $M1$ + 0
%x%[[0]] = $R1$
%x%[%x% > 0] += 1
%x%.view(-1)[::2].add_(1)
%x%.narrow(0, 0, 1).copy_($M1$[:1])
%y% = torch.split(%x%, 1)[0]
%y%.fill_($F0$)
%x%.t()[0].sub_($R1$)
-> x:M
""",
    """
%x% = $M1$ + 0
%l% = list(%x%.unbind(0))
%l%[0].add_(1)
%l%.append(%x%.flatten())
%r% = torch.stack(%l%[:-1]).sum(0)
%a%, %b% = %x%.chunk(2, 1) if %x%.size(1) > 1 else (%x%, %x%)
%b%.neg_()
-> x:M r:R
""",
    """
%y% = $M1$.as_subclass(Tagged)
%q% = (%y% * 2 + $M1$).relu() if $B1$ else torch.sum(%y%, 0, keepdim=True) + %y%
%v% = [type(%q%).__name__ == 'Tagged', %q%.shape[0]]
%x% = %q%.as_subclass(torch.Tensor)
LOG.append(Tagged.asked > 0)
-> x:M
""",
    """
with Scaling($F0$) as %m%:
    %x% = torch.ones_like($M1$) + $M1$
    <block x:M>
LOG.append(len(%m%.names) > 1)
-> x:M
""",
    """
%x% = Square.apply($M1$) + 1
%r% = torch.func.vmap(lambda row: row.sum() * 2)($M1$)
%y% = torch.utils.checkpoint.checkpoint(lambda v: v.sin() * 2, %x%, use_reentrant=False)
-> x:M r:R y:M
""",
    """
@torch.no_grad()
def %f%(x, n=2):
    <body x:M n:I>
    return x * n
%x% = %f%($M1$)
%y% = NET(%x%) if $B1$ else NET(%x%, skip=True)
-> x:M y:M
""",
    """
%x% = NET.deep($M1$)
%y% = copy.copy(NET).deep(%x%)
%v% = [NET.steps, len(list(NET.named_parameters())), len(NET.blocks)]
-> x:M y:M v:LI
""",
    """
%d% = {'m': $M1$, 'n': [$M1$, ($R1$, None)]}
%x%, (%r%, *_) = %d%['m'] * 2, %d%['n'][1]
%c% = copy.deepcopy({'k': [1, 2], 'z': (3,)})
%c%['k'].append($I0$)
%v% = %c%['k']
%p% = Pair(%x%, $I0$)._replace(second=2)
%y% = %p%.first + %p%.second
-> x:M r:R v:LI y:M
""",
)

IDIOMS = (
    *((4, text) for text in FUNCTIONS),
    *((5, text) for text in GENERATORS),
    *((4, text) for text in CLASSES),
    *((5, text) for text in CONTROL),
    *((3, text) for text in VALUES),
    *((4, text) for text in TENSOR_CODE),
)
