"""How often programs are compiled in which a float changes, and what runs then."""

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import assert_same

# One entry for the first value and one for all others.
SYMBOLS = {
    "x * p": lambda x, p: x * p,
    "add(alpha)": lambda x, p: x.add(x, alpha=p),
    "addmm(beta)": lambda x, p: torch.addmm(x[:, :3], x, x.t(), beta=p),
    "clamp": lambda x, p: x.clamp(-p, p),
    "full": lambda x, p: torch.full((3,), p),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": lambda x, p: F.softplus(x, beta=p),
    "threshold": lambda x, p: F.threshold(x, p, 0.0),
    "gumbel_softmax": lambda x, p: F.gumbel_softmax(x, tau=p),
}
# An entry a value.
NUMBERS = {
    "dropout": F.dropout,
    "label_smoothing": lambda x, p: F.cross_entropy(
        x, torch.tensor([1, 0, 2]), label_smoothing=p
    ),
    "smooth_l1_loss": lambda x, p: F.smooth_l1_loss(x, x * 0.5, beta=p),
    "huber_loss": lambda x, p: F.huber_loss(x, x * 0.5, delta=p),
    "margin": lambda x, p: F.triplet_margin_loss(x, x * 2, x * 3, margin=p),
    "layer_norm": lambda x, p: F.layer_norm(x, (6,), eps=p),
    "group_norm": lambda x, p: F.group_norm(x, 2, eps=p),
    "cosine_similarity": lambda x, p: F.cosine_similarity(x, x, eps=p),
    "normal": lambda x, p: x + torch.normal(0.0, p, (6,)),
    "uniform_": lambda x, p: x + torch.empty(6).uniform_(0, p),
    "attention": lambda x, p: F.scaled_dot_product_attention(
        x[None], x[None], x[None], scale=p
    ),
    "interpolate": lambda x, p: F.interpolate(
        x[None, None], scale_factor=1 + p, mode="bilinear"
    ),
}
# Two entries, of which the second runs at torch level if its gradient is wanted.
DECIDE = {
    "x ** p": lambda x, p: x.abs() ** p,
    "p ** x": lambda x, p: p**x,
    "norm": lambda x, p: x.norm(p),
    "lerp": lambda x, p: x.lerp(x * 2, p),
    "celu": F.celu,
}
VALUES = (0.1, 0.2, 0.3, 0.15)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("name", SYMBOLS | NUMBERS | DECIDE)
def test_a_float_that_changes_is_compiled_as_often_as_is_said(name, grad):
    fn = (SYMBOLS | NUMBERS | DECIDE)[name]
    compiled = framejit.compile(fn)
    x = torch.randn(3, 6, requires_grad=grad)
    for value in VALUES:
        results = []
        for call in (fn, compiled):
            torch.manual_seed(0)
            result = call(x, value)
            parts = [result]
            if result.requires_grad:
                parts += torch.autograd.grad(result.square().sum(), x)
            results.append(parts)
        assert_same(*results, exact={"rtol": 1e-4, "atol": 1e-4})
    entries = framejit.inspect(compiled)
    assert len(entries) == (len(VALUES) if name in NUMBERS else 2)
    falls_back = any(entry.fallback_reason for entry in entries)
    assert falls_back == (grad and name in DECIDE)


def test_a_float_that_decides_is_named_with_its_line():
    def f(x, p):
        y = x.abs()
        return y.lerp(x, p)

    compiled = framejit.compile(f)
    for value in VALUES:
        compiled(torch.ones(3, requires_grad=True), value)
    reasons = [entry.fallback_reason for entry in framejit.inspect(compiled)]
    (reason,) = filter(None, reasons)
    assert "asks for the value of a float that changes" in reason
    assert f":{f.__code__.co_firstlineno + 2} in " in reason


def test_what_a_float_decides_is_compiled_for_a_tensor():
    compiled = framejit.compile(lambda x, p: x.abs() ** p)
    for value in VALUES:
        compiled(torch.ones(3, requires_grad=True), torch.tensor(value))
    (entry,) = framejit.inspect(compiled)
    assert not entry.fallback_reason
