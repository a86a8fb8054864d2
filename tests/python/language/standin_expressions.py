"""The programs of test_standins_in_c_code.py: expressions over v, and what is around."""

EXPRESSIONS = r"""
hash(v)
{v: 1}
{v}
{v: 1}[v]
{1: 2}.get(v)
v in {1: 2}
v in {1, 2}
{1: 2}[v]
{1: 2}.get(v, 5)
frozenset([v])
set([v, v])
len({v, v + 1})
int(v)
float(v)
bool(v)
complex(v)
len(v)
list(iter(v))
list(v)
tuple(v)
operator.index(v)
[10,20,30,40,50,60,70,80,90][v]
(10,20,30,40,50,60,70,80,90)[v]
"abcdefghij"[v]
b"abcdefghij"[v]
range(10)[v]
[10,20,30,40,50,60,70,80,90][:v]
"abcdefghij"[v:]
v in [1, 2, 3]
v in (1, 2, 3)
[1,2,3,4,5].index(v)
[1,2,3,3].count(v)
L.count(v)
L.index(v)
v in L
[v, 1].index(1)
[1, v].remove(v)
[v].remove(v)
v in [v]
[v].index(v)
[v].count(v)
v in range(10)
range(10).index(v)
range(10).count(v)
"a" in str(v)
str(v)
repr(v)
format(v)
format(v, "5")
format(v, ".3f")
format(v, "d")
f"{v}"
f"{v!r}"
f"{v:>8}"
f"{v:.2f}"
"%s" % v
"%d" % v
"%f" % v
"%r" % (v,)
"%*d" % (v, 3)
"%x" % v
"%c" % v
"{}".format(v)
"{0!r:>5}".format(v)
"{:d}".format(v)
"{0.real}".format(v)
"{0.__class__}".format(v)
str.format("{}", v)
"{a}".format_map({"a": v})
ascii(v)
bytes(v)
bytearray(v)
memoryview(v)
bytes([v])
b"%d" % v
np.asarray(v)
np.array([v, v])
np.array(v) + 1
np.add(v, 1)
np.zeros(v)
np.float32(v)
np.arange(v)
np.sum(v)
np.ones(3) * v
np.ones(3) + v
np.int64(2) * v
v * np.float64(2)
v.__array__()
v.__array_interface__
v.__dlpack__()
v.__reduce_ex__(2)
v.__reduce_ex__(2)[0]
pickle.dumps(v) == b""
pickle.loads(pickle.dumps(v))
copy.copy(v)
copy.deepcopy(v)
copy.deepcopy([v, v])
copy.deepcopy({"a": v})
weakref.ref(v)() is v
v.__class__
type(v)
v.__class__.__name__
type(v).__name__
isinstance(v, int)
isinstance(v, float)
isinstance(v, torch.Tensor)
isinstance(v, (int, float))
isinstance(v, torch.SymInt)
v == 3
v != 3
v < 3
3 < v
v == "a"
v == None
v is v
v is 3
v is None
v @ v
v + "a"
"a" + v
"ab" * v
[1, 2] * v
v * [1]
(1,) * v
b"ab" * v
v + [1]
[1] + v
v and 5
v or 5
not v
5 if v else 6
[i for i in range(3) if v]
all([v, v])
any([v])
list(filter(None, [v]))
list(filter(lambda t: v, [1, 2]))
sorted([v, v])
sorted([3, 1, 2], key=lambda t: v)
min(v, 1)
max([v, 1])
min([1, 2], key=lambda t: v)
max(1, 2, v)
sum([v, v])
sum([1], v)
abs(v)
-v
+v
~v
round(v)
round(v, 1)
divmod(v, 2)
divmod(7, v)
pow(v, 2)
pow(2, v)
pow(v, 2, 5)
pow(2, v, 5)
v ** 0.5
v // 2
v % 2
7 % v
v << 1
1 << v
v >> 1
v & 1
v | 1
v ^ 1
math.sqrt(v)
math.floor(v)
math.ceil(v)
math.trunc(v)
math.isnan(v)
math.gcd(v, 2)
math.comb(5, v)
math.log(v)
math.prod([v, 2])
math.fsum([v, 2.0])
math.hypot(v, 1)
math.isclose(v, 1)
math.copysign(1.0, v)
math.pow(v, 2)
math.log2(v)
cmath.sqrt(v)
chr(v)
ord(v)
bin(v)
hex(v)
oct(v)
range(v)
list(range(v))
list(range(0, 10, v))
list(enumerate("ab", v))
enumerate("ab", v).__next__()
list(zip(range(3), [v]))
slice(v)
slice(v, v)
slice(v).indices(10)
slice(1, v).indices(10)
random.Random(0).choice([1, 2, v])
random.Random(0).randint(0, v)
random.Random(v).random()
random.Random(0).sample(range(20), v)
json.dumps(v)
json.dumps([v])
json.dumps({"a": v})
json.dumps({v: 1})
struct.pack("i", v)
struct.pack("f", v)
ctypes.c_int(v).value
ctypes.c_double(v).value
(ctypes.c_int * 3)(v)[0]
array.array("i", [v])
array.array("d", [v])
decimal.Decimal(v)
fractions.Fraction(v)
fractions.Fraction(1, v)
datetime.timedelta(seconds=v)
"x".center(v)
"x".zfill(v)
"x".ljust(v)
"a,b,c".split(",", v)
"aaa".replace("a", "b", v)
"abc".find("c", v)
(5).to_bytes(v, "big")
int("11", v)
int.from_bytes(b"a", "big") + v
int.__add__(v, 1)
int.__index__(v)
float.__add__(1.0, v)
float(v).hex()
v.bit_length()
v.real
v.imag
v.numerator
v.denominator
v.conjugate()
v.is_integer()
v.as_integer_ratio()
v.to_bytes(2, "big")
v.__index__()
v.__int__()
v.__float__()
v.__bool__()
v.__hash__()
v.__format__("")
v.__str__()
v.__repr__()
v.__len__()
v.__sizeof__()
v.__dir__()
dir(v) == 1
v.__eq__(3)
v.__add__(1)
v.__radd__(1)
v.__trunc__()
v.__floor__()
v.__ceil__()
v.__round__()
v.__doc__
v.__getattribute__("real")
getattr(v, "nope")
getattr(v, "nope", 7)
hasattr(v, "nope")
hasattr(v, "__iter__")
hasattr(v, "__len__")
hasattr(v, "__index__")
hasattr(v, "node")
hasattr(v, "shape")
hasattr(v, "is_integer")
hasattr(v, "dtype")
setattr(v, "foo", 3)
delattr(v, "nope")
setattr(v, "real", 3)
vars(v)
v.foo
v.nope
v()
v(1)
v[0]
v[0, 0]
v["a"]
v[None]
v[...]
v[100]
v[1:2]
v[0.5]
v[-100]
operator.setitem(v, 0, 1)
operator.delitem(v, 0)
operator.getitem(v, 0)
operator.contains(v, 1)
operator.length_hint(v)
operator.concat(v, v)
operator.countOf([v, 1], 1)
operator.truth(v)
operator.not_(v)
operator.eq(v, 3)
operator.is_(v, v)
operator.attrgetter("real")(v)
operator.itemgetter(v)([1,2,3,4,5,6])
operator.itemgetter(0)(v)
operator.methodcaller("__str__")(v)
reversed(v)
list(reversed(v))
next(v)
iter(v).__next__()
v.__next__()
with_v(v)
[*v]
dict(v)
dict(a=v)
{**v}
f1(*v)
f1(**v)
str(v, "ascii")
str([v])
repr((v,))
str({"a": v})
repr({1: [v]})
"%s" % [v]
f"{[v]}"
",".join(v)
",".join([v])
",".join(map(str, [v]))
list(map(str, [v]))
list(map(int, [v]))
list(map(float, [v]))
list(map(hash, [v]))
list(map(operator.index, [v]))
functools.reduce(operator.add, [v, v])
functools.partial(f1, v)()
functools.cmp_to_key(lambda a, b: v)(1) < functools.cmp_to_key(lambda a, b: v)(2)
list(itertools.repeat(1, v))
list(itertools.islice(range(10), v))
list(itertools.accumulate([v, v]))
list(itertools.groupby([v, v]))[0][0]
list(itertools.combinations(range(3), v))
list(itertools.product([1], repeat=v))
list(itertools.takewhile(lambda t: v, [1, 2]))
list(itertools.chain(v))
list(itertools.chain([v]))
list(itertools.compress([1, 2], [v, v]))
next(itertools.count(v))
next(itertools.cycle([v]))
collections.Counter([v, v])
collections.deque([v], v)
collections.deque([1, 2], maxlen=v)
collections.deque([1, 2, 3]).rotate(v)
collections.OrderedDict([(v, 1)])
collections.namedtuple("P", "a")(v)
collections.defaultdict(int)[v]
bisect.bisect([1, 2, 3, 4, 5], v)
heapq.nsmallest(v, [3, 1, 2])
heapq.heapify([v, 1, v])
re.match("a", v)
re.sub("a", "b", "aaaa", v)
io.StringIO("abcdefgh").read(v)
io.BytesIO(v)
io.StringIO(v)
print(v, file=io.StringIO())
eval("v + 1", {"v": v})
exec("v + 1", {"v": v})
isinstance(v, v)
issubclass(v, int)
super(v, v)
v.item()
v.tolist()
v.numpy()
v.data_ptr()
v.storage()
v.cpu().numpy()
v.detach().numpy()
v.detach().tolist()
v.sum().item()
v.is_cuda
v.shape
v.size()
v.size(0)
hash(v.shape)
{v.shape: 1}
str(v.shape)
json.dumps(list(v.shape))
v.shape == (3,)
v.shape in [(3,)]
{(3,): 5}.get(v.shape)
{tuple(v.shape): 5}
str(v.dtype)
torch.zeros(v)
torch.zeros(v, 2)
torch.zeros((v,))
torch.zeros([v, v])
torch.ones(3).view(v, -1)
torch.tensor(v)
torch.tensor([v, 1])
torch.as_tensor(v)
torch.full((2,), v)
torch.arange(v)
torch.ones(10)[v]
torch.ones(10)[:v]
torch.ones(10)[v:]
torch.ones(3) * v
torch.ones(3) == v
torch.ones(2, 3).sum(v)
torch.ones(3).add(1, alpha=v)
torch.ones(3).repeat(v)
torch.ones(12).reshape(v, -1)
torch.ones(12).split(v)
torch.ones(4, 3).expand(v, 4, 3)
torch.ones(3).to(v)
torch.ones(3).clamp(max=v)
torch.linspace(0, 1, v)
torch.is_tensor(v)
torch.is_floating_point(v)
torch.Size([v])
torch.Size((1, v)).numel()
torch.Size([2, 3])[v]
torch.equal(v, v)
torch.nn.functional.pad(torch.ones(3), (v, 0))
torch.dtype(v)
torch.from_numpy(v)
torch.Tensor.add(v, 1)
torch.add(v, 1)
torch.linalg.matrix_rank(torch.eye(5), out=v)
torch.stack([v, v])
torch.cat([v, v])
torch.sym_int(v)
torch.sym_max(v, 2)
torch.sym_not(v)
sys.intern(v)
callable(v)
isinstance([v], list)
([v], 1) == ([3], 1)
[v] == [v]
[v] < [v, 1]
(v,) == (3,)
(1, v) < (2, v)
{"a": v} == {"a": 3}
[v] == [3]
slice(v) == slice(3)
(v,) in [(3,)]
{(v, 1): 2}
{(3, 1): 2}.get((v, 1))
{1: 2}.pop(v, 4)
{1: 2}.setdefault(v, 4)
[1, 2, 3, 4, 5, 6, 7].pop(v)
[1].insert(v, 2)
[1].append(v)
[1].extend(v)
{1}.add(v)
{1}.discard(v)
{1} | {v}
{3, 1} - {v}
{1}.issubset([v])
frozenset([1, 3]) & {v}
raise_it(v)
assert_it(v)
while_it(v)
match_it(v)
match_lit(v)
for_it(v)
unpack_it(v)
slicing(v)
del_item(v)
Cls(v).a
Cls(v) == Cls(v)
DC(v)
DC(v) == DC(v)
str(DC(v))
IntSub(v)
Enum_(v)
Exception(v).args[0]
str(Exception(v))
str(ValueError("a", v))
KeyError(v)
str(KeyError(v))
"""

AROUND = {
    "caught": """
def f(v, x):
    {before}
    try:
        r = {e}
    except Exception as error:
        r = "caught", type(error), str(error)
    return r, x + 1
""",
    "not caught": """
def f(v, x):
    {before}
    return {e}, x + 1
""",
    "bare": """
def f(v, x):
    {before}
    y = x * 2
    try:
        return {e}, y
    except:
        return "bare", y
""",
    "finally returns": """
def f(v, x):
    {before}
    r = 0
    try:
        r = {e}
    finally:
        return r, x + 1
""",
    "suppressed": """
def f(v, x):
    {before}
    r = 0
    with contextlib.suppress(Exception):
        r = {e}
    return r, x + 1
""",
    "beneath C code": """
def h(v):
    try:
        return {e}
    except Exception as error:
        return type(error), error.args
def f(v, x):
    {before}
    r = []
    y = sorted([1, 2], key=lambda t: (r.append(h(v)), 1)[1])
    return r, y, x + 1
""",
}
