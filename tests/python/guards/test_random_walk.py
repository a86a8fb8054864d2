"""Random walks: a program over modules, objects, containers and functions, and
changes to what it reads, by the routes Python has.

Two equal worlds are changed alike, one is for the compiled function. After each
change both must give, change and raise the same. A second call compiles nothing,
nor does the first one after a change was undone.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_guards_sound import describe
from torch import nn

import framejit
from framejit import _C

# ---- a world


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out + 1 if func is torch.Tensor.mul else out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.register_buffer("scale", torch.tensor([2.0]))
        self.flag = True

    def forward(self, x):
        x = self.linear(x)
        for layer in self.layers:
            x = layer(x)
        return x * self.scale if self.flag else -x


def make_world(seed: int) -> dict[str, Any]:
    class Base:
        base = 2.0

        def method(self, x, gain=1.0, *, by=2.0):
            return x * by * gain

        def over(self):
            return 1.0

    class Other(Base):
        k = 8.0

        def over(self):
            return 30.0

    class C(Base):
        own = 1.25

        @property
        def prop(self):
            return self.k + 1

        def over(self):
            return super().over() + 1

        def __len__(self):
            return 2

    @dataclasses.dataclass
    class Point:
        k: float = 2.0

    captured = 1.0

    def helper(x, a=1.0, *, b=2.0):
        return x * a + b + captured

    torch.manual_seed(seed)
    module = types.ModuleType("walked")
    exec("K = 2.0\ndef scale(x):\n    return x * K\n", module.__dict__)
    o = C()
    o.k, o.inner = 3.0, C()
    o.inner.k = 4.0
    return dict(
        C=C, Base=Base, Other=Other, o=o, point=Point(), helper=helper, module=module,
        items=[1.0, 2.0, 3.0], table={"a": 1.0, "b": 2.0}, names={1, 2}, number=3.0,
        count=2, net=Net(), t=torch.tensor([1.0, 2.0, 3.0]), nest={"p": [1.0, {"q": 2.0}]},
        order=collections.OrderedDict(a=1.0, b=2.0), x=torch.arange(6.0).reshape(2, 3),
    )  # fmt: skip


READS = """
x * o.k
x + getattr(o, 'extra', 1.0)
x * (2 if hasattr(o, 'extra') else 3)
o.method(x)
o.method(x, by=3.0)
x * o.prop
x + len(o)
x * (2 if o else 3)
x * o.over()
x * o.base + C.own
x + o.inner.k
x + len(vars(o))
x * (2 if isinstance(o, Base) else 3)
x + len(type(o).__mro__)
x + len(C.__name__)
x * (2 if callable(o) else 3)
x * point.k
helper(x)
helper(x, b=4.0) * getattr(helper, 'gain', 3.0)
module.scale(x)
x * module.K + getattr(module, 'Z', 2.0)
x + sum(items)
x * items[0] + items[-1]
x * (2 if 9.0 in items else 3)
x + max(items)
x * table['a']
x + table.get('z', 1.0)
x + sum(table.values())
x + len(list(table)[0])
x + len(names)
x * (2 if 1 in names else 3)
x + list(order.values())[0]
x * nest['p'][1]['q'] + len(nest['p'])
x * number
x * 2 if number > 2 else x * 3
x + count
x.repeat(count, 1)
net(x)
net.linear(x)
x + net.training
x + len(list(net.parameters()))
x + sum(p.requires_grad for p in net.parameters())
x * net.scale
x * t
t.dtype, t.stride(), t.requires_grad, x + 1
getattr(t, 'tag', 1.0) + x
x.mul(2), x.is_contiguous(), type(x).__name__
x.sum(), x.view(-1)
x + torch.ones(3), torch.is_grad_enabled(), torch.get_default_dtype()
x.T @ x
torch.relu(x) + abs(-3)
""".strip().splitlines()

# ---- changes: each gives how to undo it


Undo = Callable[[], Any] | None
World = dict[str, Any]
VALUES = (1.0, 2.0, 5, True, None, float("nan"), -0.0, "a", 10**20, 0, 1)


def attribute(r: random.Random) -> Callable[[World], Undo]:
    owner, name = r.choice(
        [("o", "k"), ("o", "extra"), ("o", "method"), ("o", "unused"), ("point", "k")]
        + [("module", "K"), ("module", "Z"), ("net", "flag"), ("helper", "gain")]
    )
    value, route = (
        r.choice(VALUES),
        r.choice(["setattr", "dict", "del", "deldict", "new"]),
    )

    def change(w: World) -> Undo:
        obj = w[owner]
        saved = dict(vars(obj))
        if route == "setattr":
            setattr(obj, name, value)
        elif route == "dict":
            vars(obj)[name] = value
        elif route == "del":
            delattr(obj, name)
        elif route == "deldict":
            vars(obj).pop(name, None)
        else:
            obj.__dict__ = {**dict(reversed(saved.items())), name: value}
        return lambda: (vars(obj).clear(), vars(obj).update(saved))

    return change


def class_attribute(r: random.Random) -> Callable[[World], Undo]:
    methods = {
        "__len__": lambda self: 6,
        "__bool__": lambda self: False,
        "__call__": lambda self: 1,
        "__getattr__": lambda self, name: 4.5,
        "method": lambda self, x, by=1.5: x * 7 * by,
        "over": lambda self: 60.0,
        "prop": property(lambda self: 10.5),
        "extra": 3.5,
        "own": 9.5,
        "base": 8.5,
        "k": 7.5,
        "unused": 1,
        "__name__": "Renamed",
    }
    name, owner = r.choice(list(methods)), r.choice(["C", "Base"])
    delete = r.random() < 0.3

    def change(w: World) -> Undo:
        cls = w[owner]
        had, old = name in vars(cls), getattr(cls, name, None)
        old = vars(cls).get(name, old)
        if delete:
            delattr(cls, name)
            return lambda: setattr(cls, name, old)
        setattr(cls, name, methods[name])
        if had or name == "__name__":
            return lambda: setattr(cls, name, old)
        return lambda: delattr(cls, name)

    return change


def other_class(r: random.Random) -> Callable[[World], Undo]:
    bases = r.random() < 0.5

    def change(w: World) -> Undo:
        if bases:
            w["C"].__bases__ = (w["Other"],)
            return lambda: setattr(w["C"], "__bases__", (w["Base"],))
        w["o"].__class__ = w["Other"]
        return lambda: setattr(w["o"], "__class__", w["C"])

    return change


def function(r: random.Random) -> Callable[[World], Undo]:
    part, value = (
        r.choice(["__defaults__", "__kwdefaults__", "item", "cell", "__code__"]),
        r.random(),
    )

    def other(x, a=1.0, *, b=2.0):
        return x * 50 + captured

    captured = 0.0

    def change(w: World) -> Undo:
        helper = w["helper"]
        if part == "cell":
            cell = helper.__closure__[0]
            old = cell.cell_contents
            cell.cell_contents = value
            return lambda: setattr(cell, "cell_contents", old)
        if part == "item":
            old = helper.__kwdefaults__["b"]
            helper.__kwdefaults__["b"] = value
            return lambda: helper.__kwdefaults__.update(b=old)
        old = getattr(helper, part)
        new = {"__defaults__": (value,), "__kwdefaults__": {"b": value}}.get(
            part, other.__code__
        )
        setattr(helper, part, new)
        return lambda: setattr(helper, part, old)

    return change


def container(r: random.Random) -> Callable[[World], Undo]:
    name = r.choice(["items", "table", "names", "order", "nest"])
    action, value = r.randrange(6), r.choice([4.0, 9.0, 2, True])

    def change(w: World) -> Undo:
        held = w[name]
        saved = copy.deepcopy(held)
        if isinstance(held, list):
            (
                lambda: held.append(value),
                lambda: held.pop(),
                lambda: held.reverse(),
                lambda: held.__setitem__(0, value),
                lambda: held.insert(0, value),
                lambda: held.clear(),
            )[action]()
            return lambda: held.__setitem__(slice(None), saved)
        if isinstance(held, set):
            held.symmetric_difference_update({action % 3})
        elif name == "nest":
            held["p"][1]["q"] = value
            held["p"] = held["p"] + [1] * (action % 2)
        else:
            (
                lambda: held.__setitem__("a", value),
                lambda: held.__setitem__("z", value),
                lambda: held.__setitem__("a", held.pop("a")),
                lambda: held.pop("b"),
                lambda: held.update({f"g{n}": n for n in range(20)}),
                lambda: held.clear(),
            )[action]()
        return lambda: (held.clear(), held.update(saved))

    return change


def rebind(r: random.Random) -> Callable[[World], Undo]:
    name = r.choice(["number", "count", "x", "t", "items", "table", "o", "net"])
    value, variant = r.choice(VALUES), r.randrange(12)

    def change(w: World) -> Undo:
        old = w[name]
        if isinstance(old, torch.Tensor):
            w[name] = (
                lambda t: t.double(),
                lambda t: t + 1j,
                lambda t: (t + 1j).conj(),
                lambda t: t.detach().clone().requires_grad_(),
                lambda t: nn.Parameter(t.detach().clone()),
                lambda t: t.clone().as_subclass(Loud),
                lambda t: t.to_sparse(),
                lambda t: t.to("meta"),
                lambda t: t.t().contiguous().t(),
                lambda t: t[:1],
                lambda t: torch.cat([t, t]),
                lambda t: t > 1,
            )[variant](old)
        elif isinstance(old, (list, dict)):
            w[name] = copy.copy(old)
        elif name in ("o", "net"):
            w[name] = copy.copy(old)
        else:
            w[name] = value
        return lambda: w.__setitem__(name, old)

    return change


def _tag(t: torch.Tensor) -> Undo:
    t.tag = 5.0  # type: ignore[attr-defined]
    return lambda: t.__dict__.pop("tag")


def _data(t: torch.Tensor, new: torch.Tensor) -> Undo:
    old = t.data
    t.data = new
    return lambda: setattr(t, "data", old)


def tensor(r: random.Random) -> Callable[[World], Undo]:
    name, action = r.choice(["t", "x", "weight", "scale"]), r.randrange(7)

    def change(w: World) -> Undo:
        net = w["net"]
        t = {"weight": net.linear.weight, "scale": net.scale}.get(name, w.get(name))
        with torch.no_grad():
            return (
                lambda: t.requires_grad_(not t.requires_grad) and None,
                lambda: _data(t, t.data.double()),
                lambda: _data(t, torch.ones(3, 2).t()),
                lambda: t.set_(torch.arange(6.0).reshape(2, 3)) and None,
                lambda: t.mul_(2).sum() and None,
                lambda: _tag(t),
                lambda: torch.utils.swap_tensors(t, torch.ones(2, 3) * 7),
            )[action]()

    return change


def module(r: random.Random) -> Callable[[World], Undo]:
    action = r.randrange(9)

    def change(w: World) -> Undo:
        net: Any = w["net"]
        linear = net.linear
        old = linear._parameters["bias"]

        def hook(*args: Any) -> Any:
            return args[2] * 10 if len(args) == 3 else (args[1][0] * 10,)

        return (
            lambda: net.eval() and net.train,
            lambda: net.double() and net.float,
            lambda: net.requires_grad_(False) and (lambda: net.requires_grad_(True)),
            lambda: linear.register_forward_hook(hook).remove,
            lambda: linear.register_forward_pre_hook(hook).remove,
            lambda: nn.modules.module.register_module_forward_hook(hook).remove,
            lambda: (
                setattr(linear, "bias", None) or (lambda: setattr(linear, "bias", old))
            ),
            lambda: setattr(net, "scale", torch.tensor([4.0])),
            lambda: net.layers.append(nn.Tanh()) and net.layers._modules.popitem,
        )[action]()

    return change


class _Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 10 if func is torch.Tensor.mul else out


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


AMBIENT: list[Callable[[], Any]] = [
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    _Mode,
    _default_dtype,
    lambda: torch.device("meta"),
]
CHANGES = [attribute] * 3 + [class_attribute] * 2 + [container] * 3 + [rebind] * 3
CHANGES += [other_class, function, function, tensor, tensor, module, module]

# ---- the walk


def make_function(reads: list[str], names: list[str], where: str) -> Callable[..., Any]:
    """The names as arguments, globals or items of one argument."""
    head = {
        "arguments": f"def f({', '.join(names)}):\n",
        "globals": "def f(x):\n",
        "items": "def f(w):\n" + "".join(f"    {n} = w['{n}']\n" for n in names),
    }[where]
    lines = "".join(f"    out.append(({read}))\n" for read in reads)
    space: dict[str, Any] = {"torch": torch}
    exec(head + "    out = []\n" + lines + "    return out\n", space)
    return space["f"]  # type: ignore[no-any-return]


def call(
    f: Callable[..., Any], globals_of: Any, w: World, names: list[str], where: str
) -> Any:
    if where == "globals":
        for name in names:
            if globals_of.get(name, globals_of) is not w[name]:
                globals_of[name] = w[name]
    args = {"arguments": [w[n] for n in names], "globals": [w["x"]], "items": [w]}[
        where
    ]
    try:
        result = f(*args)
    except Exception as error:
        return type(error).__name__, str(error)
    with torch._C.DisableTorchFunctionSubclass():
        return describe(result)


class Walk:
    def __init__(self, seed: int, backend: str, form: str) -> None:
        self.r = random.Random(seed)
        self.where = self.r.choice(["arguments", "globals", "items"])
        reads = self.r.sample(READS, self.r.choice([1, 2, 4]))
        text = " ".join(reads)
        known = make_world(seed)
        self.names = [n for n in known if n == "x" or n in text]
        _C.set_first_guard_form(form)
        self.worlds = known, make_world(seed)
        plain = make_function(reads, self.names, self.where)
        other = make_function(reads, self.names, self.where)
        self.plain, self.globals = plain, (plain.__globals__, other.__globals__)
        self.compiled = framejit.compile(other, backend=backend)
        self.broke = False
        self.history = [text, self.where]

    def compare(self, quiet: bool) -> None:
        arguments = (self.names, self.where)
        expected = call(self.plain, self.globals[0], self.worlds[0], *arguments)
        _C.clear_events()
        got = call(self.compiled, self.globals[1], self.worlds[1], *arguments)
        counts = _C.counters()
        # A break is not guarded: the rest of the frame may be compiled later.
        self.broke = self.broke or counts["breaks"] > 0
        assert got == expected, self.history
        if quiet and not self.broke:
            assert counts["compiles"] == 0, (self.history, _C.recent_events())

    def step(self) -> None:
        r = self.r
        if r.random() < 0.12:
            mode = r.choice(AMBIENT)
            self.history.append(str(mode))
            with mode():
                self.compare(quiet=False)
                self.compare(quiet=True)
            self.compare(quiet=True)
            return
        kind, seed = r.choice(CHANGES), r.randrange(1 << 30)
        self.history.append(f"{kind.__name__} {seed}")
        undo: list[Undo] = []
        for world in self.worlds:
            torch.manual_seed(seed)
            try:
                undo.append(kind(random.Random(seed))(world))
            except Exception:
                undo.append(None)
        self.compare(quiet=False)
        self.compare(quiet=True)
        if undo[0] and undo[1] and r.random() < 0.7:
            for back in undo:
                try:
                    back()  # type: ignore[misc]
                except Exception:
                    return  # an earlier change is in the way
            self.history.append("undone")
            self.compare(quiet=True)


@pytest.fixture(autouse=True)
def checked():
    _C.set_option("verify", "1")
    limit = _C.option_text("recompile_limit")
    _C.set_option("recompile_limit", "1000")
    yield
    _C.set_option("verify", "0")
    _C.set_option("recompile_limit", limit)
    _C.set_first_guard_form("version")
    nn.modules.module._global_forward_hooks.clear()


@pytest.mark.parametrize("seed", range(60))
def test_walk(seed):
    form = ("version", "slot", "generic")[seed % 3]
    walk = Walk(seed, ("eager", "eager", "aot_eager", "native")[seed % 4], form)
    walk.compare(quiet=False)
    walk.compare(quiet=True)
    for _ in range(30):
        walk.step()
