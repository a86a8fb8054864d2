"""A break in every position, and what the pieces of the frame come to.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import collections
import contextlib
import itertools

import torch

from differential import leaf, opaque, positive, program, raising

# ---- loops: one graph per piece, and no break at the loop's head


@program(positive, graphs=4, breaks=3)
def test_for_range(x):
    for i in range(4):
        x = x * 2 + i
        opaque(i)
    return x + 1


@program(positive, graphs=None, breaks=None)
def test_for_enumerate(x):
    out = []
    for i, v in enumerate([1, 2, 3]):
        x = x * v
        opaque(i)
        out.append(x)
    return out


@program(positive, graphs=None, breaks=None)
def test_for_zip(x):
    for a, b in zip([1, 2, 3], (4, 5, 6)):
        x = x * a + b
        opaque()
        x = x + 1
    return x


@program(lambda: (torch.rand(3), [1, 2, 3]), graphs=None, breaks=None)
def test_for_input_list(x, xs):
    for v in xs:
        x = x * v
        opaque()
        x = x + 1
    return x


@program(lambda: (torch.rand(3), {"a": 1, "b": 2, "c": 3}), graphs=None, breaks=None)
def test_for_input_dict_items(x, d):
    for k, v in d.items():
        x = x * v
        opaque(k)
        x = x + len(k)
    for v in d.values():
        opaque(v)
        x = x + v
    for k in d:
        opaque(k)
        x = x + len(k)
    return x


@program(
    lambda: (torch.rand(3), [torch.rand(3), torch.rand(3), torch.rand(3)]),
    graphs=None,
    breaks=None,
)
def test_for_input_tensors(x, xs):
    total = x * 0
    for i, v in enumerate(xs):
        total = total + v * i
        opaque(i)
    return total


@program(lambda: (torch.rand(3, 2), torch.rand(3)), graphs=None, breaks=None)
def test_for_rows(x, y):
    total = 0
    for row in x:
        total = total + row.sum()
        opaque()
    for a, b in zip(x, y):
        total = total + (a * b).sum()
        opaque()
    return total


@program(
    lambda: (
        torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)]),
        torch.randn(3),
    ),
    graphs=None,
    breaks=None,
)
def test_for_module_list(layers, x):
    for i, layer in enumerate(layers):
        x = layer(x)
        if x.sum() > 1000:
            return x * i
    return x


@program(lambda: (torch.rand(3), [3, 1, 2]), graphs=None, breaks=None)
def test_for_sorted_reversed_map_filter(x, xs):
    for v in sorted(xs):
        x = x * v
        opaque()
    for v in reversed(xs):
        x = x + v
        opaque()
    for v in map(lambda n: n + 1, xs):
        x = x * v
        opaque()
    for v in filter(lambda n: n > 1, xs):
        x = x - v
        opaque()
    return x


@program(positive, graphs=None, breaks=None)
def test_for_itertools(x):
    for a in itertools.chain([1], [2]):
        x = x * a
        opaque()
    for a, b in itertools.product([1, 2], [3]):
        x = x + a * b
        opaque()
    for i in itertools.count():
        x = x + i
        opaque()
        if i == 2:
            break
    for v in itertools.islice([1, 2, 3], 2):
        x = x * v
        opaque()
    return x


@program(positive, graphs=None, breaks=None)
def test_for_generator(x):
    def gen(n):
        for i in range(n):
            yield x * i

    y = x
    for v in gen(3):
        y = y + v
        opaque()
    return y


@program(positive, graphs=None, breaks=None)
def test_for_generator_expression(x):
    y = x
    for v in (x * i for i in range(3)):
        y = y + v
        opaque()
    return y


@program(positive, graphs=None, breaks=None)
def test_for_string_set_tuple(x):
    for c in "abc":
        x = x + ord(c)
        opaque()
    for v in {5}:
        x = x + v
        opaque()
    for v in (1, 2):
        x = x * v
        opaque()
    return x


@program(positive, graphs=None, breaks=None)
def test_nested_for(x):
    for i in range(2):
        for j in [1, 2]:
            opaque()
            x = x * j + i
    return x


@program(positive, graphs=None, breaks=None)
def test_for_else_continue(x):
    for i in [1, 2, 3]:
        if i == 2:
            continue
        x = x * i
        opaque()
    else:
        x = x + 100
    return x


@program(positive, graphs=None, breaks=None)
def test_loop_with_mutated_list(x):
    xs = [1, 2]
    for v in xs:
        opaque()
        if len(xs) < 4:
            xs.append(v + 2)
        x = x * v
    return x, xs


@program(positive, graphs=None, breaks=None)
def test_user_iterator(x):
    class Down:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    for v in Down(3):
        x = x + v
        opaque()
    return x


@program(positive, graphs=None, breaks=None)
def test_exhausted_iterator(x):
    it = iter([1, 2])
    a = list(it)
    opaque()
    return x * len(a), list(it), next(it, "end")


@program(positive, graphs=None, breaks=None)
def test_half_consumed_iterators(x):
    z = zip([1, 2, 3], "abc")
    e = enumerate([7, 8, 9])
    d = iter({"p": 1, "q": 2}.items())
    r = iter(range(5))
    rev = reversed([1, 2, 3])
    c = itertools.count(3)
    for it in (z, e, d, r, rev, c):
        next(it)
    y = x * 2
    opaque()
    return y + next(c), list(z), list(e), list(d), list(r), list(rev)


@program(lambda: (torch.rand(3), [1, 2, 3], {"a": 1, "b": 2}), graphs=None, breaks=None)
def test_half_consumed_iterators_of_inputs(x, xs, d):
    z = zip(xs, xs)
    e = enumerate(xs, 5)
    k = iter(d)
    i = iter(d.items())
    for it in (z, e, k, i):
        next(it)
    y = x * 2
    opaque()
    xs.append(4)
    return y, list(z), list(e), list(k), list(i)


@program(positive, graphs=None, breaks=None)
def test_while_with_break_in_condition(x):
    n = 0
    while opaque(n) < 3:
        x = x * 2
        n += 1
    return x


@program(positive, graphs=None, breaks=None)
def test_break_statement_after_break(x):
    for i in range(5):
        x = x * 2
        if (x > 3).all():
            break
        x = x + 1
    return x, i


# ---- handlers


@program(leaf, graphs=1, breaks=1)
def test_in_except(x):
    try:
        raise ValueError("a")
    except ValueError as error:
        opaque()
        y = x * 2 + len(str(error))
    return y


@program(leaf, graphs=2, breaks=1)
def test_between_work_in_except(x):
    y = x * 3
    try:
        raise ValueError("a")
    except ValueError as error:
        y = y + 1
        opaque()
        y = y * 2 + len(str(error))
    return y


@program(leaf, graphs=None, breaks=None)
def test_in_except_and_reraise(x):
    log = []
    try:
        try:
            raise ValueError("a")
        except ValueError:
            opaque()
            log.append(x * 2)
            raise
    except ValueError as error:
        return log, str(error), error.__context__


@program(leaf, graphs=None, breaks=None)
def test_in_except_raise_other(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            opaque()
            raise KeyError("b")
    except KeyError as error:
        return x * 2, repr(error.__context__)


@program(leaf, graphs=None, breaks=None)
def test_breaking_call_raises_in_except(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raising(KeyError("b"))
    except KeyError as error:
        return x * 2, repr(error.__context__)


@program(leaf, graphs=None, breaks=None)
def test_in_nested_excepts(x):
    out = []
    try:
        raise ValueError("a")
    except ValueError:
        try:
            raise KeyError("b")
        except KeyError as inner:
            opaque()
            out.append(repr(inner))
            out.append(repr(inner.__context__))
        opaque()
        out.append("after")
    opaque()
    return x * len(out), out


@program(leaf, graphs=None, breaks=None)
def test_in_except_of_loop(x):
    for i in range(3):
        try:
            if i == 1:
                raise ValueError(i)
            x = x + 1
        except ValueError:
            opaque()
            x = x * 2
    return x


@program(leaf, graphs=None, breaks=None)
def test_in_finally_while_raising(x):
    log = []
    try:
        try:
            raise ValueError("a")
        finally:
            opaque()
            log.append("finally")
    except ValueError:
        log.append("caught")
    return x * 2, log


@program(leaf, graphs=None, breaks=None)
def test_in_finally_while_raising_out(x):
    try:
        raise ValueError("a")
    finally:
        y = x * 2
        opaque(y)


@program(leaf, graphs=None, breaks=None)
def test_return_in_except_after_break(x):
    try:
        raise ValueError("a")
    except ValueError:
        opaque()
        return x * 2
    finally:
        opaque()


@program(leaf, graphs=None, breaks=None)
def test_in_exit_of_context_manager(x):
    class CM:
        def __enter__(self):
            return 2

        def __exit__(self, kind, value, tb):
            opaque()
            return kind is KeyError

    with CM() as n:
        y = x * n
    with CM():
        raise KeyError("a")
    return y + 1


@program(leaf, graphs=None, breaks=None)
def test_in_enter_of_context_manager(x):
    class CM:
        def __enter__(self):
            opaque()
            return 2

        def __exit__(self, kind, value, tb):
            return False

    with CM() as n:
        y = x * n
    return y + 1


@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield 3
    finally:
        log.append("out")


@program(leaf, graphs=None, breaks=None)
def test_in_contextmanager_block(x):
    log = []
    with managed(log) as n:
        y = x * n
        opaque()
        y = y + 1
    return y, log


@program(leaf, graphs=None, breaks=None)
def test_in_user_context_manager(x):
    log = []

    class CM:
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, *a):
            log.append(a[0])
            return True

    with CM(), torch.no_grad(), CM():
        y = x * 2
        opaque()
        raising(ValueError("v"))
    return y, log, torch.is_grad_enabled()


@program(leaf, graphs=None, breaks=None)
def test_try_in_loop_with_break(x):
    for i in range(3):
        try:
            opaque(i)
            if i == 1:
                continue
            x = x * 2
        finally:
            x = x + i
    return x


# ---- expressions


@program(leaf, graphs=None, breaks=None)
def test_in_every_expression(x):
    a = [x * 2, opaque(1), x * 3]
    b = {"k": x + 1, opaque("z"): x}
    c = (x if opaque(True) else x * 2) + opaque(1)
    d = f"{opaque(3)}-{x.shape}"
    e = x[opaque(slice(0, 2))]
    f = opaque(3) < 5 < opaque(6)
    g = (lambda v: v + opaque(1))(x)
    h = not opaque(False) and opaque(4)
    return a, b, c, d, e, f, g, h


@program(leaf, graphs=None, breaks=None)
def test_in_arguments(x):
    def f(a, b, *c, d, **e):
        return a + b, c, d, e

    return f(x * 1, opaque(2), *opaque([3]), d=opaque(4), **opaque({"e": 5}))


@program(leaf, graphs=None, breaks=None)
def test_in_method_call_arguments(x):
    xs = []
    xs.append(opaque(x * 2))
    y = x.mul(opaque(3)).add(1)
    return xs, y, "{}".format(opaque(2)), x.sum(dim=opaque(0))


@program(leaf, graphs=None, breaks=None)
def test_in_subscript_store(x):
    d = {}
    d[opaque("k")] = x * 2
    d["z"] = opaque(x * 3)
    xs = [1, 2, 3]
    xs[opaque(0)] += opaque(5)
    return d, xs


@program(leaf, graphs=None, breaks=None)
def test_in_attribute_store(x):
    class Box:
        pass

    b = Box()
    b.v = opaque(x * 2)
    b.w = 1
    b.w += opaque(3)
    return b.v + b.w


@program(leaf, graphs=None, breaks=None)
def test_in_comprehensions(x):
    a = [opaque(i) * x for i in range(3)]
    b = {i: opaque(i) for i in range(2)}
    c = {opaque(i) for i in range(2)}
    d = [i for i in range(4) if opaque(i) % 2]
    e = [[opaque(j) for j in range(i)] for i in range(3)]
    f = sum(opaque(i) for i in range(3))
    return a, b, c, d, e, f


@program(leaf, graphs=None, breaks=None)
def test_in_lambda_and_local_function(x):
    def helper(v):
        opaque()
        return v * 2

    f = lambda v: helper(v) + 1  # noqa: E731
    return f(x) + helper(x)


@program(leaf, graphs=None, breaks=None)
def test_in_callback_of_sorted_and_map(x):
    a = sorted([3, 1, 2], key=lambda v: opaque(-v))
    b = list(map(opaque, [1, 2]))
    return x * a[0], b


@program(leaf, graphs=None, breaks=None)
def test_in_property_and_getattr(x):
    class Odd:
        @property
        def p(self):
            return opaque(2)

        def __getattr__(self, name):
            return opaque(len(name))

        def __getitem__(self, i):
            return opaque(i)

        def __len__(self):
            return opaque(4)

        def __bool__(self):
            return opaque(False)

        def __eq__(self, other):
            return opaque(True)

        def __contains__(self, v):
            return opaque(False)

        def __iter__(self):
            return iter(opaque([1, 2]))

        def __call__(self, v):
            return opaque(v)

    o = Odd()
    return (
        x * o.p + o.abc,
        o[3],
        len(o),
        1 if o else 2,
        o == 3,
        5 in o,
        [*o],
        o(x),
    )


@program(leaf, graphs=None, breaks=None)
def test_in_init_and_new(x):
    class Made:
        def __new__(cls, v):
            opaque()
            return super().__new__(cls)

        def __init__(self, v):
            opaque()
            self.v = v

    return Made(x * 2).v + 1


@program(leaf, graphs=None, breaks=None)
def test_in_decorated_and_class_body(x):
    class Local:
        k = opaque(3)

        def f(self, v):
            return v * self.k

    return Local().f(x)


@program(leaf, graphs=None, breaks=None)
def test_recursive_break(x):
    def down(n, v):
        if n == 0:
            return v
        opaque()
        return down(n - 1, v * 2) + 1

    return down(3, x)


# ---- state that crosses


@program(leaf, graphs=None, breaks=None)
def test_objects_cross(x):
    class Box:
        def __init__(self, v):
            self.v = v

    b = Box(x * 2)
    pair = (b, b)
    d = {"b": b}
    opaque()
    return pair[0].v + 1, pair[0] is d["b"]


@program(leaf, graphs=2, breaks=1)
def test_containers_cross(x):
    dq = collections.deque([x, 1], maxlen=3)
    od = collections.OrderedDict(a=x + 1)
    dd = collections.defaultdict(list, k=[x + 2])
    st, fz = {1, 2}, frozenset([3])
    opaque()
    dd["n"].append(1)
    return dq[0] * 2, od, dd, st | fz, dq.maxlen


@program(leaf, graphs=None, breaks=None)
def test_functions_cross(x):
    n = 2

    def f(v, *, k=3):
        return v * k + n

    m = [1].append
    p = "abc".upper
    opaque()
    m(2)
    return f(x), p()


@program(leaf, graphs=None, breaks=None)
def test_partial_bound_and_getters_cross(x):
    import functools
    import operator

    p = functools.partial(torch.mul, x)
    g = operator.itemgetter(1)
    bound = x.mul
    opaque()
    return p(2), g([1, 2]), bound(3)


@program(leaf, graphs=None, breaks=None)
def test_generator_crosses(x):
    def gen():
        got = 1
        while got < 4:
            got += yield x * got

    g = gen()
    a = next(g)
    opaque()
    b = g.send(1)
    opaque()
    return a, b, list(itertools.islice(g, 0))


@program(leaf, graphs=None, breaks=None)
def test_map_zip_filter_cross(x):
    m = map(lambda v: v * x, [1, 2])
    z = zip([1], [2])
    f = filter(None, [0, 1])
    e = enumerate("ab")
    opaque()
    return list(m), list(z), list(f), list(e)


@program(leaf, graphs=None, breaks=None)
def test_module_made_inside_crosses(x):
    lin = torch.nn.ReLU()
    opaque()
    return lin(x)


@program(leaf, graphs=None, breaks=None)
def test_exception_crosses(x):
    try:
        raise ValueError("a", 1)
    except ValueError as error:
        kept = error
    opaque()
    return x * kept.args[1], kept


@program(leaf, graphs=None, breaks=None)
def test_class_crosses(x):
    class Local:
        k = 3

    opaque()
    return x * Local.k


@program(leaf, graphs=None, breaks=None)
def test_super_in_resumed_method(x):
    class A:
        def f(self, v):
            return v + 1

    class B(A):
        def f(self, v):
            opaque()
            return super().f(v) * 2

    return B().f(x)


@program(leaf, graphs=None, breaks=None)
def test_globals_and_nonlocals_cross(x):
    n = 0

    def bump():
        nonlocal n
        n += 1
        opaque(n)
        n += 1
        return n

    return x * bump() + bump(), n
