"""Dicts of the program whose keys are made of sizes."""

import pytest
import torch

import framejit

KEYS = {
    "int": lambda x: x.size(0),
    "tuple": lambda x: (x.size(0), x.dtype),
    "tuple of all": lambda x: (x.size(0), "cpu", None, x.device, 2.5),
    "nested": lambda x: ((x.size(0), x.size(1)), x.dtype),
    "computed": lambda x: (x.size(0) * 2 + 1, x.size(0) / 2),
    "shape": lambda x: x.shape,
    "tuple of shape": lambda x: (tuple(x.shape), x.dtype),
}


class Cache(torch.nn.Module):
    def __init__(self, key):
        super().__init__()
        self.c = {}
        self.key = key
        self.misses = 0

    def forward(self, x):
        key = self.key(x)
        if key not in self.c:
            self.misses += 1
            self.c[key] = torch.arange(x.size(0)).float()[:, None] + len(self.c)
        return x + self.c[key]


def get(c, key, x):
    found = c.get(key)
    if found is None:
        found = c[key] = x.sum()
    return x * found


def setdefault(c, key, x):
    return x * c.setdefault(key, x.sum())


def pop(c, key, x):
    last = c.pop(key, None)
    c[key] = x.sum()
    return x if last is None else x + last


def delete(c, key, x):
    if key in c:
        del c[key]
        return x - 1
    c[key] = 1
    return x + 1


def fresh(c, key, x):
    table = {key: 2.0, (0, None): 3.0}
    seen = {key, key}
    c[key] = len(seen)
    return x * table[key] + len(table)


SIZES = [3 + i % 3 for i in range(12)]


@pytest.mark.parametrize("key", KEYS)
def test_a_cache_by_size_is_filled_and_read(key):
    plain, compiled = Cache(KEYS[key]), Cache(KEYS[key])
    run = framejit.compile(compiled, fullgraph=True, recompile_limit=32)
    for n in SIZES:
        x = torch.randn(n, 2)
        torch.testing.assert_close(run(x), plain(x))
    assert list(compiled.c) == list(plain.c)
    assert [[type(p) for p in k] for k in compiled.c if type(k) is tuple] == [
        [type(p) for p in k] for k in plain.c if type(k) is tuple
    ]
    assert compiled.misses == plain.misses == 3
    # Two a size, for filled in it is another one; and the first has no symbol.
    assert framejit.counters()["compiles"] <= 7
    assert framejit.counters()["breaks"] == 0


@pytest.mark.parametrize("way", [get, setdefault, pop, delete, fresh])
@pytest.mark.parametrize("key", KEYS)
def test_by_every_way_of_asking(key, way):
    caches = {}, {}

    def step(c, x):
        return way(c, KEYS[key](x), x)

    run = framejit.compile(step, recompile_limit=64)
    for n in SIZES:
        x = torch.randn(n, 2)
        torch.testing.assert_close(run(caches[1], x), step(caches[0], x))
        assert list(caches[1]) == list(caches[0])
    assert framejit.counters()["breaks"] == 0


def test_a_set_of_sizes():
    def step(seen, x):
        key = (x.size(0), x.dtype)
        if key in seen:
            return x * 2
        seen.add(key)
        return x * 3

    seen = set(), set()
    run = framejit.compile(step, recompile_limit=32)
    for n in SIZES:
        x = torch.randn(n)
        torch.testing.assert_close(run(seen[1], x), step(seen[0], x))
    assert seen[0] == seen[1]
