"""In-place operations, views and where their effects are seen."""

import pytest
import torch

import framejit
from differential import BACKENDS, leaf, one, program


def matrices():
    return torch.randn(3, 4), torch.randn(3, 4)


def aliased():
    base = torch.randn(8)
    return base[:4], base[4:], base


@program(one)
def test_input_mutated(x):
    x.add_(1)
    return x * 2


@program(one)
def test_input_mutated_and_returned(x):
    x.mul_(2).add_(1)
    return x


@program(one)
def test_input_mutated_returns_nothing(x):
    x.zero_()


@program(matrices)
def test_two_inputs_mutated(x, y):
    x += y
    y -= x
    return x @ y.t()


@program(matrices)
def test_copy_into_input(x, y):
    x.copy_(y * 2)
    y.fill_(3)
    return x + y


@program(matrices)
def test_slice_assignment(x, y):
    x[0] = 5
    x[:, 1] = y[:, 0]
    x[1:, 2:] += 1
    x[..., -1] *= 2
    return x.sum()


@program(matrices)
def test_mask_assignment(x, y):
    x[y > 0] = 0.5
    y.masked_fill_(y < 0, 1.0)
    return x + y


@program(matrices)
def test_index_put(x, y):
    index = torch.tensor([0, 2])
    x[index] = y[index] * 2
    x.index_add_(0, index, y[:2])
    return x


@program(matrices)
def test_mutation_through_view(x, y):
    row = x[1]
    row.add_(10)
    flat = x.view(-1)
    flat[0] = 7
    return x + y, row * 2


@program(matrices)
def test_view_of_input_returned(x, y):
    return x[0], x.view(-1), x.t(), y + 1


@program(matrices)
def test_view_returned_after_mutation(x, y):
    x.add_(1)
    return x[0], x.t()


@program(matrices)
def test_mutation_after_view_taken(x, y):
    first = x[0]
    total = first.sum()
    x.add_(1)
    return first.sum() - total, first


@program(one)
def test_intermediate_mutated(x):
    y = x * 2
    y.add_(1)
    y[0] = 0
    z = y.view(2, 2)
    z.mul_(3)
    return y, z


@program(one)
def test_intermediate_view_returned(x):
    y = x * 2
    return y, y[1:], y.view(2, 2)


@program(leaf)
def test_intermediate_mutated_with_grad(x):
    y = x * 2
    y.mul_(x)
    y[1:] = y[1:] + 1
    return y.sin_()


@program(leaf)
def test_copy_and_fill_with_grad(x):
    y = torch.zeros(4)
    y[:2] = x[:2] * 3
    z = torch.empty(4)
    z.copy_(x)
    w = torch.ones(4).masked_fill_(x > 0, 2.0)
    return y, z, w * x


@program(matrices)
def test_out_argument(x, y):
    out = torch.empty(3, 4)
    torch.add(x, y, out=out)
    torch.mul(out, 2, out=out)
    return out


@program(matrices)
def test_out_is_input(x, y):
    torch.add(x, 1, out=y)
    return y * 2


@program(aliased, graphs=None, breaks=None)
def test_inputs_that_share_storage(a, b, base):
    a.add_(1)
    return b * 2, base.sum()


@program(lambda: (*aliased(), torch.zeros(4)))
def test_inputs_that_share_storage_and_are_only_read(a, b, base, total):
    total.add_(a * b)
    return b * 2, base.sum(), total * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_shares_storage_changes_from_call_to_call(backend):
    def f(x, y, total):
        total.add_(1)
        return x + y, total.sum()

    def given(kind):
        data, own = torch.arange(8.0), torch.ones(4)
        return {
            "none": (torch.arange(4.0), torch.ones(4), own),
            "what is read": (data[:4], data[1:5], own),
            "one of it is written": (data[:4], torch.ones(4), data[2:6]),
            "all": (data[:4], data[1:5], data[2:6]),
            "the same": (own, data[:4], own),
        }[kind]

    kinds = ["what is read", "none", "one of it is written", "all", "the same"]
    compiled = framejit.compile(f, backend=backend)
    for kind in kinds + kinds[::-1]:
        expected, actual = given(kind), given(kind)
        assert [r.tolist() for r in compiled(*actual)] == [
            r.tolist() for r in f(*expected)
        ]
        assert [x.tolist() for x in actual] == [x.tolist() for x in expected], kind


# The inputs and the targets of a language model are parts of one tensor.
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_training_step_on_parts_of_one_tensor(make):
    torch.manual_seed(0)
    tokens = torch.randint(8, (30,))
    embed = torch.nn.Embedding(8, 8)
    optimizer = make(embed.parameters(), lr=0.1)

    def step(x, y):
        loss = torch.nn.functional.cross_entropy(embed(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = framejit.compile(step)
    for _ in range(2):  # the first makes the optimizer's state
        compiled(tokens[:6], tokens[1:7])
    with framejit.testing.no_recompile():
        for i in range(1, 6):
            compiled(tokens[i : i + 6], tokens[i + 1 : i + 7])
    assert framejit.counters()["breaks"] == 0


def test_a_break_for_shared_storage_names_the_write():
    def f(x, y, total):
        total.add_(x)
        x.mul_(2)
        return y * 2

    data = torch.arange(8.0)
    framejit.compile(f)(data[:4], data[4:], torch.zeros(4))
    (text,) = [text for kind, text in framejit.events() if kind == "graph_breaks"]
    assert "FJ305" in text and f":{f.__code__.co_firstlineno + 2} " in text


def test_a_write_through_data_is_no_matter_of_shared_storage():
    weight = torch.nn.Parameter(torch.ones(3))

    def f(x):
        weight.data.clamp_(-0.5, 0.5)
        return weight * x

    compiled = framejit.compile(f)
    compiled(torch.ones(3))
    (entry,) = framejit.inspect(compiled)
    assert "written to through .data" in entry.fallback_reason
    assert "share" not in entry.fallback_reason


@program(lambda: (lambda x: (x, x))(torch.randn(3)), graphs=None, breaks=None)
def test_same_tensor_twice_mutated(x, y):
    x.add_(1)
    return y * 2


@program(leaf)
def test_no_grad_update(x):
    loss = (x * x).sum()
    with torch.no_grad():
        y = x * 0.5
        y.add_(1)
    return loss, y


@program(leaf)
def test_leaf_mutated_in_no_grad(x):
    with torch.no_grad():
        x.mul_(0.5)
    return x * 2


@program(leaf, graphs=None, breaks=None)
def test_leaf_mutated_raises(x):
    x.add_(1)
    return x


@program(leaf)
def test_detach_shares_storage(x):
    y = x * 2
    d = y.detach()
    return y, d, d + 1


@program(one)
def test_detach_mutated(x):
    d = x.detach()
    d.add_(1)
    return x * 2, d


@program(leaf)
def test_clone_then_mutate(x):
    y = x.clone()
    y.add_(x)
    z = x.detach().clone()
    z.zero_()
    return y, z


@program(one)
def test_aliases_of_intermediate(x):
    y = x * 1
    z = y
    z += 1
    w = [y, z]
    w[0] -= 2
    return y, z is y, w


@program(lambda: ([torch.randn(3), torch.randn(3)],))
def test_list_of_tensors_mutated(xs):
    for x in xs:
        x.mul_(2)
    xs[0] += xs[1]
    return xs[0]


@program(lambda: (torch.randn(3, 4), torch.randn(4)))
def test_broadcast_in_place(x, y):
    x += y
    x.sub_(y[None]).div_(2).clamp_(-1, 1)
    return x


@program(lambda: (torch.arange(4), torch.randn(4)))
def test_integer_in_place(i, x):
    i += 2
    i *= 3
    i //= 2
    x[i > 4] = 0
    return i, x


@program(one)
def test_resize_metadata_in_place(x):
    y = x * 2
    y.unsqueeze_(0)
    z = (x + 1).view(2, 2)
    z.t_()
    return y, z


@program(lambda: (torch.randn(4, 4).t(),))
def test_strided_input_mutated(x):
    x.add_(1)
    x[0].mul_(2)
    return x.sum(0), x


@program(lambda: (torch.randn(8)[::2], torch.randn(2, 2, 2)[:, 1]))
def test_view_inputs_mutated(x, y):
    x.mul_(3)
    y[0] = x[0]
    return x + y.reshape(-1)[:4]


@program(one)
def test_random_in_place(x):
    x.uniform_()
    y = torch.empty(4).normal_()
    return x + y, torch.zeros(4).bernoulli_(0.5)


@program(one)
def test_mutated_twice_and_copied_between(x):
    before = x.clone()
    x.add_(1)
    middle = x * 1
    x.mul_(2)
    return before, middle, x


@program(lambda: (torch.randn(2, 3), torch.randn(2, 3)))
def test_swap_through_temporaries(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)


@program(leaf)
def test_chunks_mutated(x):
    y = x * 1
    a, b = y[:2], y[2:]
    a.mul_(2)
    b.add_(a)
    return y


@program(one, graphs=None, breaks=None)
def test_set_requires_grad(x):
    y = x.clone().requires_grad_()
    return (y * y).sum(), y


@program(lambda: (torch.randn(3, 4), torch.zeros(3, 4)))
def test_expanded_and_scatter(x, y):
    y.scatter_(1, torch.zeros(3, 1, dtype=torch.long), 5.0)
    z = x[:1].expand(3, 4) + y
    return z, y.scatter_add(1, torch.ones(3, 1, dtype=torch.long), x[:, :1])


@program(one)
def test_data_swap(x):
    x, y = x + 1, x - 1
    y += x
    return x, y


def overlapping(kind):
    x = torch.arange(4.0)
    return {
        "expand": x[:1].expand(3),
        "expand_rows": x[:2].expand(3, 2),
        "unfold": x.unfold(0, 2, 1),
        "as_strided": x.as_strided((2, 2), (1, 1)),
        "every_second": x[::2],
    }[kind]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "kind", ["expand", "expand_rows", "unfold", "as_strided", "every_second"]
)
def test_write_to_an_input_whose_elements_share_memory(kind, backend):
    def fn(x):
        x[0] += 1
        return x * 2

    plain, given = overlapping(kind), overlapping(kind)
    expected = fn(plain)
    actual = framejit.compile(fn, backend=backend)(given)
    assert torch.equal(expected, actual) and torch.equal(plain, given)
    assert framejit.counters()["breaks"] == 0


# An operation that reads what it writes: eager refuses where both are dense, and
# otherwise goes by the order of the elements.
VIEWS = {
    "transposed": lambda x: (x, x.t()),
    "rows moved up": lambda x: (x[:3], x[1:]),
    "rows moved down": lambda x: (x[1:], x[:3]),
    "other rows": lambda x: (x[:2], x[2:]),
    "the same": lambda x: (x, x[:]),
    "columns moved": lambda x: (x[:, :3], x[:, 1:]),
    "other columns": lambda x: (x[:, :2], x[:, 2:]),
    "flat": lambda x: (x.view(-1)[:8], x.view(-1)[4:12]),
    "one row for all": lambda x: (x, x[1:2].expand(4, 4)),
}
WRITES = {
    "copy_": lambda a, b: a.copy_(b),
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, b: a.mul_(b),
    "out": lambda a, b: torch.sub(b, 1, out=a),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_writes_what_it_reads(view, write, backend):
    def f(x):
        y = torch.relu(x) + x
        written, read = VIEWS[view](y)
        WRITES[write](written, read)
        return y * 2

    def outcome(call):
        try:
            return call(torch.linspace(-2, 2, 16).reshape(4, 4)).tolist()
        except RuntimeError as error:
            return str(error)

    compiled = framejit.compile(f, backend=backend)
    for _ in range(2):
        assert outcome(compiled) == outcome(f)


# ---- effects that a graph without writes would lose

_undeclared = torch.library.Library("framejit_undeclared", "DEF")
_undeclared.define("same(Tensor x) -> Tensor")
_undeclared.impl("same", lambda x: x, "CompositeExplicitAutograd")
_undeclared.impl("same", lambda x: torch.empty_like(x), "Meta")


@program(lambda: (torch.ones(3),))
def test_custom_operator_that_returns_its_own_input(x):
    y = x * 2
    z = torch.ops.framejit_undeclared.same(y)
    z.add_(1)
    return y, z


@program(lambda: (torch.ones(3),), graphs=None, breaks=None)
def test_unused_maximum_of_nothing(x):
    x.add_(1)
    x[:0].max()
    return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_moves_overlap_for_some_numbers(backend):
    def f(x, n):
        x[n:].copy_(x[:-n])
        return x

    compiled = framejit.compile(f, backend=backend)
    for n in (3, 4, 5, 2, 1, 3):
        outcomes = []
        for fn in (f, compiled):
            try:
                outcomes.append(fn(torch.arange(6.0), n).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
