"""What guards say of a call, machine code can tell: whose predicates reject the
very objects they were compiled for would compile one at each call, and be given
up after some, which is logged. Here are modules that change themselves.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import framejit
from framejit import _C


class Rebinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        self.calls = 0

    def forward(self, x):
        self.kept = self.kept + x
        self.passing = x * 2
        self.calls += 1
        return self.kept + self.passing


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.names, self.order = set(), {"a"}, {}

    def forward(self, x):
        if not self.seen and "a" in self.names:
            x = x + len(self.order)
        if self.seen == set() and list(self.order) == []:
            x = x * 2
        return x


MODULES = {
    "rebinds": Rebinds,
    "counts": Counts,
    "spectral": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)),
    "weight": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(2, 2)),
    "batch": lambda: nn.BatchNorm1d(2),
    "old spectral": lambda: nn.utils.spectral_norm(nn.Linear(2, 2)),
    "lazy": lambda: nn.LazyLinear(2),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", MODULES)
def test_modules(kind, grad):
    torch.manual_seed(0)
    plain = MODULES[kind]()
    plain(torch.ones(2, 2))
    torch.manual_seed(0)
    compiled = MODULES[kind]()
    compiled(torch.ones(2, 2))
    f = framejit.compile(compiled)
    _C.clear_events()
    with torch.set_grad_enabled(grad):
        for call in range(24):
            x = torch.full((2, 2), float(call))
            torch.testing.assert_close(f(x), plain(x), atol=1e-3, rtol=1e-4)
    assert framejit.counters()["compiles"] <= 24
    assert not [text for _, text in _C.recent_events() if "machine code" in text]
