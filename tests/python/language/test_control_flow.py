"""Python's own control flow runs at capture; one graph comes out.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import torch

from differential import leaf, one, program, two


@program(one)
def test_for_range(x):
    for i in range(4):
        x = x * i + 1
    return x


@program(one)
def test_for_else(x):
    for i in range(3):
        if i == 5:
            break
        x = x + i
    else:
        x = x * 10
    for i in range(3):
        if i == 1:
            break
    else:
        x = x * 100
    return x, i


@program(one)
def test_while_else_continue(x):
    n = 0
    while n < 6:
        n += 1
        if n % 2:
            continue
        if n > 4:
            break
        x = x + n
    else:
        x = x * 0
    return x, n


@program(one)
def test_nested_loops(x):
    for i in range(3):
        for j in range(i):
            if j == 1:
                break
            x = x + i * j
        else:
            x = x - 1
    return x


@program(two)
def test_comprehensions(x, y):
    a = [x * i for i in range(3) if i != 1]
    b = {i: y + i for i in range(2)}
    c = {i % 2 for i in range(5)}
    return (
        a,
        b,
        c,
        sum(v for v in b.values()),
        [[x[i, j] for j in range(2)] for i in range(2)],
    )


@program(one)
def test_comprehension_sees_locals(x):
    scale = 3
    return [x * scale for _ in range(2)], [lambda: x + scale for _ in range(1)][0]()


@program(lambda: (torch.randn(3), {"op": "scale", "by": 2.0}, [1, 2, 3]))
def test_match(x, request, seq):
    match request:
        case {"op": "shift", "by": by}:
            x = x + by
        case {"op": "scale", "by": float(by)} if by > 1:
            x = x * by
        case _:
            x = x * 0
    match seq:
        case [first, *rest]:
            x = x + first * len(rest)
    match x.ndim:
        case 2 | 3:
            return x
        case 1:
            return x - 1


class Point:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


@program(lambda: (torch.randn(3), Point(1, 2.0)))
def test_match_class(x, p):
    match p:
        case Point(0, _):
            return x
        case Point(a, b=b):
            return x * a + b


@program(lambda: (torch.randn(3), 5, None))
def test_conditionals(x, n, none):
    y = x if n > 3 else -x
    y = y + (1 if none is None else 2)
    y = y * (none or 3)
    y = y - (n and 4)
    if not none and n:
        y = y / 2
    elif n == 5:
        y = y / 3
    return y


@program(lambda: (torch.randn(3), 5))
def test_chained_comparison(x, n):
    if 1 < n <= 5 != 6:
        x = x + 1
    return x if 0 < n < 3 else x * 2, n in (1, 5), n not in [5], n is None


@program(one)
def test_walrus(x):
    if (n := x.shape[0]) > 2:
        x = x * n
    total = [y := x, y + 1, (z := y * 2)]
    return total, z


@program(lambda: ([torch.randn(2), torch.randn(2), torch.randn(2)], (1, (2, 3))))
def test_unpacking(xs, nested):
    a, *rest = xs
    *_, last = xs
    p, (q, r) = nested
    a, last = last, a
    [b, c] = rest
    return a * p, b * q, c + r, last


@program(two)
def test_unpack_tensor(x, y):
    a, b, c = x
    first, *others = y.unbind(1)
    return a + b * c, first, others[0] - others[-1]


@program(two)
def test_iterate_tensor(x, y):
    total = 0
    for row in x:
        total = total + row
    for i, (a, b) in enumerate(zip(x, y)):
        total = total + a * b * i
    return total


@program(two)
def test_star_arguments(x, y):
    def inner(a, *args, k=1, **kwargs):
        return a + sum(args) * k + kwargs.get("z", 0)

    args, kwargs = (x, y), {"k": 3, "z": 2}
    return inner(*args, **kwargs), inner(x, *[y, y]), inner(*args, z=y), max(*[1, 2])


@program(two)
def test_f_strings(x, y):
    return (
        f"{x.shape} {tuple(y.shape)!r:>10} {x.dtype} {3.14159:.2f} {x.ndim=}",
        "%d-%s" % (2, x.dtype),
        "{} {a}".format(1, a=x.size(0)),
        x + y,
    )


@program(one)
def test_string_dispatch(x):
    names = "sin,cos".split(",")
    for name in names:
        x = getattr(x, name)()
    return getattr(torch, "ex" + "p")(x), names[0].upper()


@program(one)
def test_augmented_assignment(x):
    n = 1
    n += 2
    n **= 2
    n //= 2
    n <<= 1
    n |= 1
    y = x * 1
    y += n
    y *= 2
    items = [1]
    items += (2,)
    items[0] += 5
    return y, n, items


@program(one)
def test_del_and_rebind(x):
    y = x + 1
    z = [y]
    del y
    y = z.pop() * 2
    d = {"a": 1, "b": 2}
    del d["a"]
    return y, z, d


@program(one, graphs=0, breaks=0)
def test_delete_then_read(x):
    y = x + 1
    del y
    return y


@program(one, graphs=None, breaks=None)
def test_unbound_local(x):
    if x.ndim == 3:
        late = x
    return late + 1


@program(one)
def test_assert_true(x):
    assert x.ndim == 1, "one dimension"
    assert x.shape == (4,)
    return x + 1


@program(leaf)
def test_slices_and_ranges(x):
    total = x * 0
    for i in range(3, -1, -1):
        total = total + x[i]
    for i in reversed(range(2)):
        total = total + x[i : i + 2].sum()
    return total, list(range(2, 8, 3)), len(range(10)), [1, 2, 3][::-1]


@program(one)
def test_iterator_protocol(x):
    it = iter([1, 2, 3])
    first = next(it)
    rest = list(it)
    missing = next(it, "none")
    return x * first, rest, missing


@program(one)
def test_zip_map_filter(x):
    pairs = list(zip("ab", [1, 2, 3]))
    doubled = list(map(lambda v: v * x, [1, 2]))
    odd = list(filter(lambda n: n % 2, range(5)))
    return (
        pairs,
        doubled,
        odd,
        sorted([3, 1, 2], key=lambda n: -n),
        any(n > 1 for n in odd),
        all([]),
    )


@program(one)
def test_min_max_sum_abs(x):
    return (
        max(1, 2),
        min([3, 4]),
        sum([x, x], x),
        abs(-3),
        round(2.567, 2),
        divmod(7, 3),
        pow(2, 5),
        int("12"),
        float("2.5"),
        bool(0),
    )


@program(one)
def test_isinstance(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance(x, (int, torch.nn.Parameter)),
        type(x) is torch.Tensor,
        callable(x),
        hasattr(x, "shape"),
        x + 1,
    )


@program(lambda: (torch.randn(3), [("a", 1), ("b", 2)]))
def test_loop_over_input(x, pairs):
    names = []
    for name, n in pairs:
        names.append(name)
        x = x * n + len(names)
    return x, names


@program(lambda: (torch.randn(3), {"lr": 0.1, "steps": 3}))
def test_loop_over_input_dict(x, config):
    for key, value in config.items():
        x = x + value
    for key in config:
        x = x * len(key)
    return x, list(config), sorted(config)


@program(one)
def test_import_inside(x):
    import math
    from math import sqrt as root

    import torch.nn.functional as F

    return F.relu(x) * math.pi + root(2)


@program(one)
def test_big_unrolled_loop(x):
    for i in range(300):
        x = x + 1 if i % 2 else x * 0.5
    return x


@program(one)
def test_try_finally_no_error(x):
    log = []
    try:
        log.append("try")
        return x + 1, log
    finally:
        log.append("finally")


@program(one)
def test_nested_conditionals_on_types(x):
    out = []
    for v in (1, 2.0, "s", None, [x], (x,), {"k": x}):
        if v is None:
            out.append("none")
        elif isinstance(v, (list, tuple)):
            out.append(v[0] + len(v))
        elif isinstance(v, dict):
            out.append(v["k"] * 2)
        else:
            out.append(v * 2)
    return out
