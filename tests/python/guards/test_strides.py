"""Arguments that are parts of larger memory, turned or repeated: over sizes that
change there are a few entries, and each call is as in eager, in values, layout,
what is a view of what, and what is written where."""

import random

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import BACKENDS, _run, assert_same, compare
from sweeps.strides import FAMILIES, IMAGE_PROGRAMS, PROGRAMS

# Sizes that were seen come again last.
SIZES = (5, 6, 7, 8, 1, 6, 8)
OWN_BACKENDS = ("aot_eager", "native")


def entries_of(compiled):
    return len(list(framejit.inspect(compiled)))


def visit(fn, make, grad=False, backend="aot_eager", dynamic=None, sizes=SIZES):
    """How many entries there are after a call of each size."""

    def program(x, memory):
        return fn(x)

    framejit.reset()
    compiled = framejit.compile(program, backend=backend, dynamic=dynamic)
    for number, n in enumerate(sizes):
        outcomes = []
        for f in (program, compiled):
            memory, x = make(n)
            if grad:
                x = x.detach().requires_grad_()
            outcomes.append(_run(f, (x, [memory]), grad, number))
        try:
            compare(*outcomes)
        except AssertionError as error:
            raise AssertionError(f"size {n}, call {number}: {error}") from error
    return entries_of(compiled)


# ---- every program on every family

ALL_PROGRAMS = PROGRAMS | IMAGE_PROGRAMS
# A graph has as many operators as there are rows.
BY_ROWS = ("unbind others", "split")
# A number for each size, all the same.
NUMBERS = {
    # Where the strides are equal, a result lies as its sizes say.
    ("steps", "overlapping"): 4,
    # The gradient of as_strided() takes the layout of its argument for numbers.
    ("as_strided grad", "expanded part"): 5,
    ("as_strided grad", "overlapping"): 5,
    ("as_strided grad", "overlapping more"): 5,
    ("as_strided grad", "windows"): 5,
    # That of a part without rows, and in channels_last.
    ("written in part", "batch of one"): 5,
    ("written in part", "one row of more"): 5,
    ("to channels_last", "cache"): 5,
}


def test_the_tables_name_programs_and_families():
    assert {name.removesuffix(" grad") for name, _ in NUMBERS} <= ALL_PROGRAMS.keys()
    assert {family for _, family in NUMBERS} <= FAMILIES.keys()


def changes_rows(family):
    return len({FAMILIES[family](n)[1].size(0) for n in (5, 6)}) == 2


def most_entries(name, family, grad):
    """Static, symbolic, and the size 1."""
    if name in BY_ROWS and changes_rows(family):
        return 5
    most = NUMBERS.get((name, family), 3)
    return NUMBERS.get((f"{name} grad", family), most) if grad else most


def families_of(name):
    images = name in IMAGE_PROGRAMS
    return [f for f in FAMILIES if not images or FAMILIES[f](5)[1].dim() == 4]


def check_families(name, families, grad, backend, dynamic):
    differing = []
    for family in families:
        try:
            entries = visit(
                ALL_PROGRAMS[name], FAMILIES[family], grad, backend, dynamic
            )
        except AssertionError as error:
            differing.append(f"{family}: {' '.join(str(error).split())[:300]}")
            continue
        if entries > most_entries(name, family, grad):
            differing.append(f"{family}: {entries} entries")
    assert not differing, "\n".join(differing)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL_PROGRAMS)
def test_strides_that_change_make_few_entries(name):
    check_families(name, families_of(name), False, "aot_eager", None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", OWN_BACKENDS)
@pytest.mark.parametrize("name", [n for n in ALL_PROGRAMS if "written" not in n])
def test_gradients_of_any_layout_make_few_entries(name, backend):
    part = slice(OWN_BACKENDS.index(backend), None, 2)
    check_families(name, families_of(name)[part], True, backend, True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ("eager", "native"))
@pytest.mark.parametrize("name", list(ALL_PROGRAMS)[::3])
def test_so_it_is_with_dynamic_from_the_start(name, backend):
    check_families(name, families_of(name)[::3], False, backend, True)


# ---- which strides are symbols


def test_a_layout_that_follows_from_sizes_is_guarded_as_such():
    framejit.reset()
    compiled = framejit.compile(lambda x: x + 1, dynamic=True)
    x = torch.ones(4, 6)
    for part, entries in (
        (x, 1),
        (torch.ones(3, 7), 1),
        (x.t(), 2),
        (torch.ones(3, 7).t(), 2),
        (x[:, :-1], 3),
        (torch.ones(3, 9)[:, 2:5], 3),
        (x[:3], 3),  # contiguous again
        (x[:1].expand(4, 6), 4),
        (torch.ones(5, 9)[:, 1:8:2], 5),  # the inner stride is no 1
        (torch.ones(7, 11)[::3, ::2], 5),
        (torch.ones(9, 13)[::2, ::3], 5),
        (torch.ones(5, 8)[:, ::2], 5),
        (torch.ones(5, 9)[:, ::3], 5),
    ):
        assert_same(compiled(part), part + 1)
        assert entries_of(compiled) == entries


def test_a_stride_of_one_element_is_as_in_eager():
    framejit.reset()

    def layout(x):
        return x.clone(), x.contiguous().stride(), x.stride(), x * 2

    compiled = framejit.compile(layout, dynamic=True)
    for n in (5, 6, 7, 8):
        x = torch.arange(3.0 * (n + 2)).view(3, n + 2)[1:2, :n]
        result, expected = compiled(x), layout(x)
        assert_same(result, expected)
        for a, b in zip((result[0], result[3]), (expected[0], expected[3])):
            assert a.stride() == b.stride()
    assert entries_of(compiled) == 1


def test_static_marks_keep_strides_numbers():
    framejit.reset()
    compiled = framejit.compile(lambda x: x * 2, dynamic=True)
    for n in (5, 6):
        x = torch.ones(4, n)[:, :3]
        framejit.mark_static(x)
        compiled(x)
    assert entries_of(compiled) == 2


def test_a_marked_dim_makes_the_strides_symbols():
    framejit.reset()
    compiled = framejit.compile(lambda x: x * 2)
    for n in (5, 6, 7):
        x = torch.ones(4, n + 1)[:, :n]
        framejit.mark_dynamic(x, 1)
        assert_same(compiled(x), x * 2)
    assert entries_of(compiled) == 1


def test_dynamic_false_compiles_each_stride():
    framejit.reset()
    compiled = framejit.compile(lambda x: x * 2, dynamic=False)
    for n in (5, 6, 7):
        compiled(torch.ones(4, n)[:, :3])
    assert entries_of(compiled) == 3


def test_parts_of_one_memory_are_told_apart():
    def both(x, y):
        x.add_(1)
        return x * y

    framejit.reset()
    compiled = framejit.compile(both)
    for n in (5, 6, 7, 8):
        results = []
        for f in (both, compiled):
            data = torch.arange(4.0 * n).view(4, n)
            results.append((f(data[:, :-1], data[:, 1:]), data))
        assert_same(*results)
        results = []
        for f in (both, compiled):
            a, b = (torch.arange(4.0 * n).view(4, n) + i for i in range(2))
            results.append((f(a[:, :-1], b[:, 1:]), a, b))
        assert_same(*results)


# ---- training on parts of batches


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width),
            torch.nn.GELU(),
            torch.nn.Linear(2 * width, width),
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(11, 8)
        self.places = torch.nn.Embedding(16, 8)
        self.blocks = torch.nn.Sequential(Block(8, 2), Block(8, 2))
        self.head = torch.nn.Linear(8, 11, bias=False)

    def forward(self, x, y):
        places = torch.arange(x.size(1))
        hidden = self.blocks(self.tokens(x) + self.places(places))
        logits = self.head(hidden)
        return F.cross_entropy(logits.view(-1, 11), y.reshape(-1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_language_model_trains_on_batches_of_many_lengths(backend):
    def run(compiles):
        torch.manual_seed(0)
        model = Gpt()
        step = model
        if compiles:
            framejit.reset()
            step = framejit.compile(model, backend=backend)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for length in (5, 9, 7, 8, 12, 6, 9):
            data = torch.randint(11, (3, length))
            loss = step(data[:, :-1], data[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        if compiles:
            entries = list(framejit.inspect(step))
            assert len(entries) == 2
            assert not any(entry.breaks for entry in entries)
        return losses, [p.detach() for p in model.parameters()]

    assert_same(run(True), run(False), exact={"rtol": 1e-4, "atol": 1e-5})


@pytest.mark.parametrize("backend", OWN_BACKENDS)
def test_a_cache_that_grows_in_a_larger_one(backend):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v) + k.sum(-2, keepdim=True)

    framejit.reset()
    compiled = framejit.compile(attend, backend=backend)
    for room in (16, 24):
        cache = torch.linspace(-1, 1, 2 * 2 * 3 * room * 4).view(2, 2, 3, room, 4)
        for n in (5, 6, 7, 8):
            q, k, v = cache[0, :, :, n : n + 1], cache[0, :, :, :n], cache[1, :, :, :n]
            assert_same(compiled(q, k, v), attend(q, k, v))
    assert entries_of(compiled) <= 3


# ---- random numbers in turned tensors

RANDOM = {
    "dropout": lambda x: F.dropout(x * 1, 0.5),
    "normal_": lambda x: torch.empty_like(x).normal_(1.0, 2.0),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 1),
    "random_": lambda x: torch.empty_like(x).random_(),
    "random_ to": lambda x: torch.empty_like(x).random_(9),
    "random_ from": lambda x: torch.empty_like(x).random_(3, 9),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "bernoulli_ by rows": lambda x: torch.empty_like(x).bernoulli_(x[:1].sigmoid()),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "cauchy_": lambda x: torch.empty_like(x).cauchy_(),
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.5),
    "log_normal_": lambda x: torch.empty_like(x).log_normal_(),
    "rand_like": lambda x: torch.rand_like(x),
    "randn_like": lambda x: torch.randn_like(x),
}
TURNED = {
    "contiguous": lambda n: torch.ones(n, 4),
    "transpose": lambda n: torch.ones(n, 4).t(),
    "permute": lambda n: torch.ones(3, n, 2).permute(2, 0, 1),
    "rows first": lambda n: torch.ones(n, 3, 4).transpose(0, 1),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("turned", TURNED)
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_of_any_size_are_eagers(name, turned, dynamic):
    def make(n):
        x = TURNED[turned](n)
        return x, x

    for backend in OWN_BACKENDS:
        assert visit(RANDOM[name], make, False, backend, dynamic) <= 3


def test_an_encoder_in_training_over_lengths():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    framejit.reset()
    compiled = framejit.compile(encoder)
    for n in (5, 6, 7, 8):
        x = torch.linspace(-1, 1, 3 * n * 8).view(3, n, 8)
        results = []
        for f in (encoder, compiled):
            torch.manual_seed(n)
            encoder.zero_grad()
            out = f(x)
            out.sum().backward()
            results.append([out, *(p.grad for p in encoder.parameters())])
        assert_same(*results, exact={"rtol": 1e-4, "atol": 1e-5})
    assert entries_of(compiled) <= 3


# ---- integers as indices


def _with_row(x, i):
    y = x.clone()
    y[i] = 5
    y[i, 1:] += 1
    y[..., i] = x[0, i]
    return y


def _with_new_dims(x, i):
    y = x.clone()
    y[None, i] = 5
    y[i, None, 1:] += x[None, 0, 1:]
    y[None, 1:, None, i] = x[None, 1:, None, 2]
    y[..., None, i] -= x[:, None, 1]
    y[None, i, i] = 7
    return y


INDEXED = {
    "row": lambda x, i: x[i] * 2,
    "view": lambda x, i: x[i],
    "column": lambda x, i: x[:, i] + 1,
    "last dim": lambda x, i: x[..., i],
    "both": lambda x, i: x[i, i] + x[i][i],
    "row and slice": lambda x, i: x[i, 1:-1],
    "slice and new dim": lambda x, i: x[None, 1:, None, i],
    "behind a new dim": lambda x, i: x[None, i],
    "before a new dim": lambda x, i: x[i, None],
    "between new dims": lambda x, i: x[None, i, None, 1:] + x[i, None, i],
    "number and new dim": lambda x, i: x[2, None, i] + x[None, i, 2],
    "ellipsis and new dim": lambda x, i: x[..., None, i] * x[None, ..., i],
    "ellipsis between": lambda x, i: x[i, ..., i],
    "number beside": lambda x, i: x[i, 2] - x[-1, i],
    "range": lambda x, i: x[i : i + 2],
    "of a vector": lambda x, i: x.diagonal()[i] * x,
    "beside a tensor": lambda x, i: x[i, torch.tensor([0, 1])],
    "computed": lambda x, i: x[i - 1] + x[2 * i % 4],
    "written": _with_row,
    "written behind a new dim": _with_new_dims,
    "in place": lambda x, i: (x[i].mul_(2), x.sum())[1],
    "set": lambda x, i: (x.__setitem__(i, 3.0), x + 1)[1],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", INDEXED)
def test_an_integer_that_changes_is_a_symbolic_index(name, backend, dynamic):
    fn = INDEXED[name]
    framejit.reset()
    compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
    in_range = (4, 2, 3, 5, 6, 4)
    for i in (*in_range, -2, -3, 0, 1, 8, -9, 3):
        outcomes = []
        for f in (fn, compiled):
            x = torch.arange(64.0).view(8, 8)
            outcomes.append(_run(f, (x, i), False, 0))
        compare(*outcomes)
        if i == in_range[-1] and name != "beside a tensor":
            # Static and symbolic; other graphs where a remainder is 0 and where
            # the range reaches the end. What is written through a view of a view
            # is at a number below the torch level.
            more = {"computed": 4, "range": 3, "written behind a new dim": 5}
            assert entries_of(compiled) <= more.get(name, 2)


def test_a_schedule_is_read_at_any_step():
    def noised(x, betas, t):
        alpha = (1 - betas).cumprod(0)[t]
        return x * alpha.sqrt() + (1 - alpha).sqrt()

    framejit.reset()
    compiled = framejit.compile(noised, fullgraph=True)
    betas = torch.linspace(0.01, 0.2, 50)
    for t in (49, 40, 30, 20, 10, 2, 1, 0, -1):
        x = torch.ones(3)
        assert_same(compiled(x, betas, t), noised(x, betas, t))
    assert entries_of(compiled) <= 5


# ---- layouts in any order


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", list(PROGRAMS)[1::2])
def test_calls_of_layouts_in_any_order_are_as_in_eager(name, dynamic):
    draw = random.Random(name)
    fn = PROGRAMS[name]

    def program(x, memory):
        return fn(x)

    framejit.reset()
    compiled = framejit.compile(
        program, backend="native", dynamic=dynamic, recompile_limit=64
    )
    matrices = [f for f in FAMILIES if FAMILIES[f](5)[1].dim() == 2]
    for number in range(40):
        family, n = draw.choice(matrices), draw.randint(1, 9)
        outcomes = []
        for f in (program, compiled):
            memory, x = FAMILIES[family](n)
            outcomes.append(_run(f, (x, [memory]), False, number))
        try:
            compare(*outcomes)
        except AssertionError as error:
            raise AssertionError(f"{family} of {n}, call {number}: {error}") from error


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_new_dims_before_an_index_have_eager_strides(backend):
    forms = [
        lambda x, i: x[None, i],
        lambda x, i: x[i, None],
        lambda x, i: x[i, None, i],
        lambda x, i: x[..., None, i],
        lambda x, i: x[1:, None, i],
        lambda x, i: x[None, i, None],
        lambda x, i: x[None, None, i],
        lambda x, i: x[2, None, i],
        lambda x, i: x[None, 2, None, i, None],
        lambda x, i: x[None, ..., i],
        lambda x, i: x[None, 1:, None, i, ..., None],
    ]
    for form in forms:
        compiled = framejit.compile(form, backend=backend)
        for i in (2, 3, 4):
            x = torch.randn(5, 6)
            expected, actual = form(x, i), compiled(x, i)
            assert torch.equal(expected, actual)
            assert expected.stride() == actual.stride()
