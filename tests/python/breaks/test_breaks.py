"""Graph breaks: every place a frame can stop and go on.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import torch

import framejit
from differential import leaf, one, opaque, positive, program, raising


def either():
    return (torch.randn(4, requires_grad=True),)


@program(one, graphs=2, breaks=1)
def test_unknown_call(x):
    y = x + 1
    opaque(y)
    return y * 2


@program(one, graphs=2, breaks=1)
def test_result_of_unknown_call(x):
    y = opaque(x + 1)
    return y * 2, y


@program(one, graphs=None, breaks=None)
def test_print(x):
    y = x + 1
    print("value", end="")
    return y * 2


@program(one, graphs=2, breaks=1)
def test_user_break(x):
    y = x.sin()
    framejit.graph_break()
    return y.cos()


@program(leaf, graphs=3, breaks=2)
def test_two_in_a_row(x):
    y = x.sin()
    framejit.graph_break()
    z = y.exp()
    framejit.graph_break("again")
    return z + y + x


@program(leaf, graphs=2, breaks=2)
def test_two_without_work_between(x):
    y = x.sin()
    framejit.graph_break()
    framejit.graph_break()
    return y.cos()


@program(positive, graphs=2, breaks=1)
def test_branch_on_tensor(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@program(either, graphs=3, breaks=1, calls=6)
def test_both_branches(x):
    if x.mean() > 0:
        x = x * 2
    else:
        x = x - 3
    return x.sin()


@program(positive, graphs=None, breaks=None)
def test_tensor_truth(x):
    y = x.sum()
    a = y and 3
    b = not (y > 100)
    c = 5 if y > 0 else 6
    return x * c, a, b


@program(positive, graphs=None, breaks=None)
def test_while_on_tensor(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
    return x, n


@program(positive, graphs=None, breaks=None)
def test_break_in_for_loop(x):
    out = []
    for i in range(4):
        x = x * 2
        opaque(i)
        out.append(x + i)
    return out


@program(positive, graphs=None, breaks=None)
def test_break_in_nested_loop(x):
    total = x * 0
    for i, row in enumerate([[1, 2], [3]]):
        for v in row:
            total = total + v * i
            opaque()
        else:
            total = total * 2
    return total


@program(positive, graphs=None, breaks=None)
def test_loop_over_zip_and_dict(x):
    for a, (k, v) in zip([1, 2], {"p": 3, "q": 4}.items()):
        x = x * a + v
        opaque(k)
    return x


@program(positive, graphs=None, breaks=None)
def test_conditional_break_out_of_loop(x):
    for i in range(10):
        x = x * 1.5
        if x.max() > 5:
            break
    else:
        x = x * 0
    return x, i


@program(leaf, graphs=2, breaks=1)
def test_in_no_grad(x):
    with torch.no_grad():
        y = x * 2
        opaque()
        z = y + x
    return z, x * z, torch.is_grad_enabled()


@program(leaf, graphs=3, breaks=2)
def test_in_nested_grad_modes(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
            opaque()
            c = x * 4
        opaque()
        d = x * 5
    return a, b, c, d


@program(leaf, graphs=None, breaks=None)
def test_error_in_no_grad(x):
    try:
        with torch.no_grad():
            y = x * 2
            raising(ValueError("inside"))
    except ValueError as error:
        return y, x * 3, str(error), torch.is_grad_enabled()


@program(leaf, graphs=None, breaks=None)
def test_breaking_call_raises_in_try(x):
    y = x + 1
    try:
        raising(ValueError("no"))
        y = y * 100
    except ValueError as error:
        y = y * 2
        text = str(error)
    return y, text


@program(leaf, graphs=None, breaks=None)
def test_breaking_call_raises_with_finally(x):
    log = []
    y = x + 1
    try:
        try:
            raising(KeyError("k"))
        finally:
            log.append("finally")
            y = y * 2
    except KeyError:
        log.append("caught")
        y = y + 1
    else:
        log.append("else")
    return y, log


@program(leaf, graphs=None, breaks=None)
def test_breaking_call_raises_out(x):
    y = x + 1
    raising(ValueError("out"))
    return y


@program(lambda: (torch.randn(3), []), graphs=None, breaks=None)
def test_breaking_call_raises_out_through_finally(x, log):
    try:
        log.append("before")
        raising(ValueError("out"))
    finally:
        log.append("after")
    return x


@program(leaf, graphs=2, breaks=1)
def test_break_in_try_without_error(x):
    try:
        y = x * 2
        opaque()
        y = y + 1
    except ValueError:
        y = x
    else:
        y = y * 3
    finally:
        y = y - 1
    return y


@program(leaf, graphs=None, breaks=None)
def test_break_in_except(x):
    try:
        raise ValueError("a")
    except ValueError as error:
        y = x * 2
        opaque()
        y = y + len(str(error))
    return y


@program(leaf, graphs=None, breaks=None)
def test_break_in_except_and_reraise(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            opaque()
            raise
    except ValueError as error:
        return x * 2, str(error)


@program(leaf, graphs=2, breaks=1)
def test_break_in_finally(x):
    y = x * 1
    try:
        y = y * 2
    finally:
        opaque()
        y = y + 3
    return y


def breaking_helper(x, n):
    y = x * n
    opaque()
    return y + 1


@program(leaf, graphs=None, breaks=None)
def test_in_callee(x):
    return breaking_helper(x, 2) * 3


@program(leaf, graphs=None, breaks=None)
def test_in_callee_twice(x):
    a = breaking_helper(x, 2)
    b = breaking_helper(a.sin(), 3)
    return a + b


@program(leaf, graphs=None, breaks=None)
def test_in_callee_in_expression(x):
    return [x * 2, (x + 1) * breaking_helper(x, 2), {"k": breaking_helper(x, 3)}]


@program(leaf, graphs=None, breaks=None)
def test_in_nested_callees(x):
    def outer(v):
        def inner(w):
            u = w * 2
            opaque()
            return u + v

        return inner(v) * 3

    return outer(x) + 1


@program(one, graphs=None, breaks=None)
def test_in_comprehension(x):
    y = x * 2
    return [opaque(i) * y for i in range(3)], {i: opaque(y) + i for i in range(2)}


@program(one, graphs=None, breaks=None)
def test_in_generator(x):
    def numbers():
        for i in range(3):
            opaque()
            yield x * i

    y = x + 1
    return [v + y for v in numbers()]


@program(one, graphs=None, breaks=None)
def test_live_iterators(x):
    it = iter([1, 2, 3, 4])
    a = next(it)
    e = enumerate("xyz")
    next(e)
    y = x * a
    opaque()
    return y, next(it), list(it), list(e)


@program(one, graphs=None, breaks=None)
def test_live_cells(x):
    n = 1

    def step():
        nonlocal n
        n += 1
        return x * n

    a = step()
    opaque()
    b = step()
    x = x + 1
    opaque()
    return a, b, step(), n


@program(one, graphs=2, breaks=1)
def test_unbound_locals(x):
    if x.ndim == 7:
        late = 1
    y = x * 2
    opaque()
    try:
        late
    except UnboundLocalError as error:
        return y + 1, str(error)


@program(one, graphs=2, breaks=1)
def test_deleted_local(x):
    y = x * 2
    z = 1
    del z
    opaque()
    z = y + 1
    return z


@program(one, graphs=None, breaks=None)
def test_item(x):
    y = x * 2
    n = y[0].item()
    return y * n, n


@program(one, graphs=None, breaks=None)
def test_float_int_and_tolist(x):
    y = x * 2
    a, b, c = float(y[0]), int(y[1]), y.tolist()
    return y * a + b, c


@program(one, graphs=None, breaks=None)
def test_item_as_size(x):
    n = int((x > -100).sum())
    return torch.zeros(n) + 1, x[:n], x.reshape(n)


@program(one, graphs=None, breaks=None)
def test_nonzero(x):
    i = (x > 0).nonzero()
    return i + 1, x[x > 0] * 2


@program(one, graphs=None, breaks=None)
def test_numpy(x):
    y = x * 2
    a = y.numpy()
    return y + 1, float(a.sum())


@program(leaf, graphs=None, breaks=None)
def test_stack_at_break(x):
    return x.sin() + opaque(2) * x.cos() + [x, opaque(3)][1], (x * 2).sum(dim=opaque(0))


@program(leaf, graphs=None, breaks=None)
def test_keyword_call_breaks(x):
    y = x + 1
    z = opaque(value=y)
    w = opaque(*[y * 2])
    v = opaque(**{"value": y * 3})
    return z + w + v


@program(lambda: ([1], {"k": 0}, torch.randn(3)), graphs=2, breaks=1)
def test_mutations_before_and_after(xs, d, x):
    xs.append(x * 2)
    d["k"] += 1
    opaque(xs)
    xs.append(x * 3)
    d["k"] += 1
    return xs[1] + xs[2]


@program(lambda: ([1], torch.randn(3)), graphs=2, breaks=1)
def test_local_list_crosses_break(log, x):
    mine = [x + 1]
    alias = mine
    both = {"a": mine}
    opaque(mine)
    mine.append(x + 2)
    log.append(alias)
    return both, alias is mine, both["a"] is alias


@program(leaf, graphs=2, breaks=1)
def test_object_crosses_break(x):
    class_ = type(x)
    items = (x * 2, [x * 3])
    text = f"{x.shape}"
    opaque()
    return items[0] + items[1][0], text, class_.__name__


@program(leaf, graphs=None, breaks=None)
def test_unknown_binary_operation(x):
    class Odd:
        def __radd__(self, other):
            opaque()
            return other * 2

    return x.sin() + (x * 1 + 1), [1] + [2], Odd().__radd__(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, v):
        w = v * self.scale
        opaque()
        return w + 1


@program(
    lambda: (torch.nn.Sequential(Net(), torch.nn.ReLU()), torch.randn(4)),
    graphs=None,
    breaks=None,
)
def test_break_in_module_forward(module, x):
    return module(x) * 3


@program(one, graphs=1, breaks=1)
def test_break_at_return(x):
    y = x * 2
    return opaque(y)


@program(one, graphs=1, breaks=1)
def test_break_first(x):
    n = opaque(3)
    return x * n


@program(one, graphs=None, breaks=None)
def test_delayed_view_across_break(x):
    y = (x * 2).view(2, 2)
    row = y[0]
    opaque()
    row.add_(1)
    return y, row


@program(lambda: (torch.randn(4),), graphs=2, breaks=1)
def test_input_mutated_before_break(x):
    x.mul_(2)
    opaque()
    x.add_(1)
    return x


@program(one, graphs=2, breaks=1)
def test_random_across_break(x):
    a = torch.rand(4)
    opaque()
    return a + torch.rand(4) + x


@program(leaf, graphs=2, breaks=1)
def test_detach_across_break(x):
    y = x.detach() * 2
    z = x * 3
    opaque()
    return y + z, y.requires_grad, z.requires_grad


@program(one, graphs=None, breaks=None)
def test_yielded_unpacking(x):
    a, b = opaque((x, 2))
    first, *rest = opaque([1, 2, 3])
    return a * b + first, rest


@program(positive, graphs=1, breaks=1)
def test_match_on_broken_value(x):
    match opaque({"kind": "mul", "by": 3}):
        case {"kind": "mul", "by": by}:
            return x * by
        case _:
            return x


@program(positive, graphs=2, breaks=1)
def test_assert_on_tensor(x):
    assert x.sum() > 0, "positive"
    return x + 1


@program(positive, graphs=None, breaks=None)
def test_failing_assert_on_tensor(x):
    y = x + 1
    assert y.sum() < 0, "negative"
    return y


@program(positive, graphs=None, breaks=None)
def test_chained_tensor_comparison(x):
    y = x * 1
    if 0 < y.sum() < 1000:
        y = y + 1
    return y


def test_inspect_follows_many_breaks_in_a_loop_once():
    def f(x, n):
        for i in range(n):
            x = x + 1
            framejit.graph_break()
            x = x * 2
            framejit.graph_break()
            if i % 2:
                framejit.graph_break()
                x = x - 1
            else:
                framejit.graph_break()
                x = x.cos()
            framejit.graph_break()
            for k in range(2):
                x = x.sin()
                framejit.graph_break()
                x = x + k
                framejit.graph_break()
        return x

    compiled = framejit.compile(f, backend="eager")
    x = torch.randn(3)
    assert torch.equal(compiled(x, 4), f(x, 4))
    walked = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert 5 < len(walked) < 100
