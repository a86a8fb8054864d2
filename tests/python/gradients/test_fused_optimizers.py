"""Operators that write to lists of tensors: fused optimizers and their kin."""

import copy
import itertools

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same
from framejit import _C

numbers = itertools.count()


def failures():
    return [text for _, text in _C.recent_events() if "failed" in text]


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {}),
    "adam_amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {}),
}


def whole_step(model, optimizer, compiled):
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return compiled(step)


def update_alone(model, optimizer, compiled):
    update = compiled(lambda: optimizer.step())

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        update()
        return loss

    return step


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make_step", [whole_step, update_alone])
@pytest.mark.parametrize("parameters", [1, 4])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_fused_step_is_eagers(name, parameters, make_step, backend):
    kind, options = OPTIMIZERS[name]
    bias = parameters > 1
    layers = [torch.nn.Linear(4, 4, bias=bias) for _ in range(1 + bias)]
    model = torch.nn.Sequential(*layers)
    mirror = copy.deepcopy(model)
    assert len(list(model.parameters())) == parameters
    optimizer, expected = (
        kind(m.parameters(), lr=0.01, fused=True, **options) for m in (model, mirror)
    )
    framejit.reset()
    step = make_step(
        model, optimizer, lambda f: framejit.compile(f, backend=backend, fullgraph=True)
    )
    eager = make_step(mirror, expected, lambda f: f)
    _C.clear_events()
    for _ in range(4):
        x = torch.randn(3, 4)
        assert_same(step(x), eager(x))
        for p, q in zip(model.parameters(), mirror.parameters(), strict=True):
            assert_same(p, q)
            assert_same(p.grad, q.grad)
            assert p.grad._version == q.grad._version
            assert_same(optimizer.state[p], expected.state[q])
    assert not failures()
    assert framejit.counters()["fallbacks"] == 0
    told = [text for _, text in _C.recent_events()]
    assert not [text for text in told if "INTERNAL ASSERT" in text]


# Which of the lists that an update writes to share memory with which.
SHARED = {
    "none": lambda a, b, c, d: ([a], [b], [c], [d]),
    "moments": lambda a, b, c, d: ([a], [b], [c], [c]),
    "gradient and parameter": lambda a, b, c, d: ([a], [a], [c], [d]),
    "parts of one": lambda a, b, c, d: ([a[:2]], [b[:2]], [c[:2]], [c[1:3]]),
    "two of one list": lambda a, b, c, d: ([a, a], [b, d], [c, c], [d, d]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SHARED)
def test_updates_of_what_shares_memory(case, backend):
    def update(a, b, c, d, step):
        tensors = [t * 2 for t in (a, b, c, d)]
        lists = SHARED[case](*tensors)
        torch._fused_adam_(
            *lists,
            [],
            [step + 1 for _ in lists[0]],
            lr=0.1,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        return tensors

    framejit.reset()
    compiled = framejit.compile(update, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            given = [torch.rand(4) + 0.5 for _ in range(4)]
            step = torch.tensor(3.0)
            assert_same(compiled(*given, step), update(*given, step))
    assert case != "none" or framejit.counters()["fallbacks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [1.0, float("inf")])
def test_scaled_gradients(bad, backend):
    def unscale(a, b, scale):
        found = torch.zeros(1)
        grads = [a * 2, b * 3]
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        return grads[0] + 1, grads[1], found

    framejit.reset()
    compiled = framejit.compile(unscale, backend=backend, fullgraph=True)
    _C.clear_events()
    for _ in range(3):
        given = torch.randn(3), torch.full((2,), bad), torch.tensor([0.5])
        assert_same(compiled(*given), unscale(*given))
    assert not failures()


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_of_which_some_are_lists(backend):
    name = f"framejit_lists::op{next(numbers)}"
    torch.library.define(name, "(Tensor x) -> (Tensor, Tensor[], Tensor[], Tensor)")

    def kernel(x):
        return x * 2, [x + 1], [], x.sum()

    torch.library.impl(name, "CPU", kernel)
    torch.library.register_fake(name, kernel)
    space, _, short = name.partition("::")

    def f(x):
        op = getattr(getattr(torch.ops, space), short)
        a, (b,), none, c = op(x * 3)
        return a * b + c, len(none)

    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    _C.clear_events()
    for _ in range(3):
        x = torch.randn(3)
        assert_same(compiled(x), f(x))
    assert not failures()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_list_of_another_length_than_declared(backend):
    name = f"framejit_lists::op{next(numbers)}"
    torch.library.define(name, "(Tensor x) -> Tensor[]")
    torch.library.impl(name, "CPU", lambda x: [x + 1, x + 2, x + 3])
    torch.library.register_fake(name, lambda x: [x + 1, x + 2])
    space, _, short = name.partition("::")

    def f(x):
        return sum(getattr(getattr(torch.ops, space), short)(x * 3)) * 2

    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    x = torch.randn(3)
    for _ in range(4):
        assert_same(compiled(x), f(x))
    _C.clear_events()
    for _ in range(4):
        assert_same(compiled(x), f(x))
    assert not failures()


# ---- every operator that writes to lists and gives nothing back


def writes_lists(schema):
    return not schema.returns and any(
        a.alias_info is not None
        and a.alias_info.is_write
        and str(a.type) == "List[Tensor]"
        for a in schema.arguments
    )


WRITERS = sorted(
    {
        (s.name.removeprefix("aten::"), s.overload_name): s
        for s in torch._C._jit_get_all_schemas()
        if s.name.startswith("aten::_") and s.name.endswith("_") and writes_lists(s)
    }.items()
)
FOREACH = {key: s for key, s in WRITERS if key[0].startswith("_foreach_")}
BY_TYPE = {
    "List[Tensor]": lambda: [torch.rand(2, 3) + 0.5, torch.rand(4) + 0.5],
    "Tensor": lambda: torch.tensor(0.5),
    "number": lambda: 2,
    "List[number]": lambda: [2, 3],
    "float": lambda: 0.5,
    "int": lambda: 2,
    "bool": lambda: False,
}


def test_every_writer_of_lists_is_known():
    others = {name for (name, _), _ in WRITERS if not name.startswith("_foreach_")}
    assert others == {
        "_amp_foreach_non_finite_check_and_unscale_",
        "_fused_adagrad_",
        "_fused_adam_",
        "_fused_adamw_",
        "_fused_sgd_",
    }
    assert len(FOREACH) > 50


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key", FOREACH, ids=".".join)
def test_foreach_in_place(key, backend):
    schema = FOREACH[key]
    op = getattr(getattr(torch.ops.aten, key[0]), key[1] or "default")
    given = [
        BY_TYPE[str(a.type)]() for a in schema.arguments if not a.has_default_value()
    ]
    if key == ("_foreach_addcmul_", "Tensor") or key == ("_foreach_addcdiv_", "Tensor"):
        given[-1] = torch.tensor([0.5, 2.0])  # a number each

    def f(lists):
        op(*lists)
        return lists[0][0] + 1

    mirror = copy.deepcopy(given)
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    _C.clear_events()
    for _ in range(2):
        assert_same(compiled(given), f(mirror))
        assert_same(given, mirror)
    assert not failures()
