"""Puts one random program together, as source text.

A program is a module: globals, ``f`` (the function under test), ``make_args``
(the arguments of call number i: sizes, values and requires_grad change from
call to call) and ``between`` (what the caller changes between two calls:
globals, attributes, training mode). `generate` depends on the seed alone, and on
the dimensions (dimensions.py) that are wanted.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection

from fuzz import dimensions
from fuzz.expressions import Type
from fuzz.statements import Writer

CALLS = 5


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    source: str
    has_break: bool  # something in it is meant to end a graph


def argument(w: Writer, kind: Type) -> str:
    """The expression of make_args for one parameter; n, g and call are known."""
    if kind == "M":
        if w.chance(0.04):
            dtypes = [w.pick(["float32", "float64", "int64"]) for _ in range(CALLS)]
            return f"torch.randn(n, n).to(getattr(torch, {dtypes}[call]))"
        return w.pick(
            ["torch.randn(n, n, requires_grad=g)"] * 3
            + ["torch.randn(n, n)"] * 3
            + ["torch.randn(n, n).t()", "torch.randn(n + 1, n)[1:]"]
        )
    if kind == "R":
        return w.pick(["torch.randn(n)", "torch.randn(n, requires_grad=g)"])
    if kind == "S":
        return w.pick(["torch.randn(())", "torch.tensor(0.5, requires_grad=g)"])
    if kind == "I":
        values = [w.rng.randint(-2, 6) for _ in range(CALLS)]
        if w.chance(0.08):  # equal, and not the same
            return f"{[w.pick([1, True, 1.0, 0, False, 2]) for _ in values]}[call]"
        if w.chance(0.5):
            values[1] = values[0]
        return f"{values}[call]"
    if kind == "F":
        return f"{[w.pick([0.5, 1.5, -2.0, 0.0]) for _ in range(CALLS)]}[call]"
    if kind == "B":
        return f"{[w.chance(0.5) for _ in range(CALLS)]}[call]"
    if kind == "Z":
        return f"{[w.pick(['a', 'a', 'abc', '']) for _ in range(CALLS)]}[call]"
    if kind == ("obj",):
        cls = w.pick(["Box", "Box", "ChildBox", "SlotBox"])
        return f"{cls}({argument(w, 'I')}, {argument(w, 'S')}, [torch.ones(n, n)])"
    if kind[0] == "list":
        length = w.pick(["2", "2", "3", "[2, 2, 3, 1, 0][call]"])
        return f"[{argument(w, kind[1])} for _ in range({length})]"
    if kind[0] == "dict":
        pairs = f"'a': {argument(w, kind[1])}, 'b': {argument(w, kind[1])}"
        more = f", **({{'c': {argument(w, kind[1])}}} if call > 2 else {{}})"
        return f"{{{pairs}{more if w.chance(0.3) else ''}}}"
    if kind[0] == "tuple":
        return f"({', '.join(argument(w, t) for t in kind[1:])},)"
    raise AssertionError(kind)


def parameters(w: Writer) -> dict[str, Type]:
    kinds: list[Type] = ["M"]
    choices: list[Type] = ["M", "M", "I", "I", "R", "S", "F", "B", "Z", ("obj",)]
    choices += [("list", "M"), ("list", "I"), ("dict", "M"), ("dict", "I")]
    choices += [("tuple", "M", "I")]
    kinds += [w.pick(choices) for _ in range(w.rng.randint(1, 4))]
    return {f"a{i}": kind for i, kind in enumerate(kinds)}


GLOBALS: dict[str, Type] = {
    "G_INT": "I",
    "G_STR": "Z",
    "G_TENSOR": "S",
    "G_LIST": ("list", "I"),
    "G_DICT": ("dict", "I"),
    "OBJ": ("obj",),
    "NET": ("net",),
}

CHANGES = (
    "G_INT += 1",
    "G_LIST.append(call)",
    "G_DICT['c'] = call",
    "G_DICT.pop('a', None)",
    "G_TENSOR = torch.tensor(float(call))",
    "G_STR += 'a'",
    "OBJ.n = call",
    "OBJ.x = torch.tensor(1.5 + call)",
    "OBJ.items = []",
    "OBJ.extra = call",
    "OBJ = ChildBox(call, torch.ones(()))",
    "NET.train(call % 2 == 0)",
    "NET.weight.requires_grad_(call % 2 == 0)",
    "NET.act = torch.nn.Sigmoid()",
    "NET.layers.append(torch.nn.Tanh())",
    "NET.n = 0",
    "Box.kind = 'other'",
    "F_CELL(call)",
    "F_CELL(call)",
    "G_TENSOR.add_(1)",
    "OBJ.x.mul_(2)",
    "OBJ.late = 1",
    "OBJ.__dict__.pop('extra', None)",
    "Box.plus = staticmethod(lambda a, b: a - b)",
    "Box.double = property(lambda self: self.n + 1)",
    "Box.extra = 5",
    "NET = Net(1.5)",
    "NET = copy.deepcopy(NET)",
    "NET.weight.data.mul_(2)",
    "NET.weight = torch.nn.Parameter(torch.tensor([2.0, 2.0]).sum())",
    "NET.register_forward_hook(hook)",
    "NET.layers[0] = torch.nn.Identity()",
    "NET.drop.p = 0.5",
    "NET.history.append(call)",
    "G_DICT = dict(reversed(G_DICT.items()))",
    "G_LIST = list(G_LIST)",
    "G_LIST[:1] = [call]",
    "G_INT = bool(G_INT)",
    "G_INT = float(G_INT)",
    "effect = lambda value, tag='e': value",
    "OBJ.items = [torch.ones(2, 2)]",
    "OBJ.table['a'] = 9",
)


UNSHOWN = ("fn", "net", "iter", "iterM", "endless", "lm", "dm", "tm", "held")


def result(w: Writer) -> str:
    """What f returns: most of what it made, so that mistakes are seen."""
    names = [
        n
        for level in w.vars[:2]
        for n, t in level.items()
        if t[0] not in UNSHOWN and n not in GLOBALS
    ]
    w.rng.shuffle(names)
    chosen = names[: w.rng.randint(1, 6)]
    if w.chance(0.15):
        return w.expr("M", 2)
    if w.chance(0.15):
        return f"{{{', '.join(f'{n!r}: {n}' for n in chosen)}}}"
    if w.chance(0.1):
        return f"[{', '.join(chosen)}]"
    return f"({w.expr('M', 2)}, {', '.join(chosen)},)"


def generate(
    seed: int, size: int = 12, wanted: Collection[str] = dimensions.NAMES
) -> Program:
    rng = random.Random(seed)
    w = Writer(rng, allow_breaks=rng.random() < 0.4)
    params = parameters(w)
    used = [n for n in GLOBALS if w.chance(0.25)]
    sizes = w.pick([[3, 3, 3, 3, 3], [3, 3, 4, 2, 5], [2, 4, 4, 1, 3], [3, 2, 3, 2, 1]])
    grads = [w.chance(0.35) for _ in range(CALLS)]
    lines = ["G_INT = 2", "G_STR = 'g'", "G_TENSOR = torch.tensor(0.75)"]
    lines += ["G_LIST = [1, 2]", "G_DICT = {'a': 1, 'b': 2}"]
    lines += ["OBJ = Box(2, torch.tensor(0.5))", "NET = Net(0.5)"]
    lines += ["", "", "def make_args(call):"]
    lines += [f"    n = {sizes}[call]", f"    g = {grads}[call]"]
    lines += [f"    {n} = {argument(w, t)}" for n, t in params.items()]
    plan = dimensions.plan(seed, wanted, CALLS, params)
    lines += [f"    {n} = {value}" for n, value in plan.values.items()]
    if w.chance(0.12):
        same = [n for n, t in params.items() if t == "M"]
        if len(same) > 1:
            alias = w.pick([same[0], f"{same[0]}.t()", f"{same[0]}.detach()"])
            lines += [f"    {same[1]} = {alias}"]
    lines += [f"    {text}" for text in plan.changed]
    lines += [f"    return {', '.join(params)},", "", "", "def between(call):"]
    changes = [c for c in w.rng.sample(CHANGES, 6) if w.chance(0.6)]
    lines += ["    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect"]
    if plan.between:
        lines += ["    global EXC, SHARED, Box, ChildBox"]
    lines += [
        f"    if call {w.pick(['== 1', '== 2', '> 1', '>= 1'])}: {change}"
        for change in changes
    ]
    lines += [f"    if call == {plan.number() % CALLS}: {c}" for c in plan.between]
    if plan.around:
        lines += ["", "", "def around(call):", *(f"    {c}" for c in plan.around)]
        lines += ["    return contextlib.nullcontext()"]
    if w.chance(0.1):
        modes = [w.chance(0.5) for _ in range(CALLS)]
        lines += ["", "", "def around(call):"]
        lines += [f"    return torch.set_grad_enabled({modes}[call])"]
    lines += ["", ""]
    kept = w.chance(0.1)
    w.vars = [{n: GLOBALS[n] for n in used}, dict(params)]
    w.begin(size)
    w.own = [set(params)]
    if kept:  # a default that lives from call to call
        w.vars[1]["kept"] = ("list", "I")
    cell = w.chance(0.15)
    if cell:
        w.indent = 2
        w.vars[0]["cell"] = "I"
    writable = [n for n in used if n in ("G_INT", "G_STR") and w.chance(0.5)]
    if writable:
        w.line(f"global {', '.join(writable)}")
        w.own[-1] |= set(writable)
    w.vars.append({})
    w.result = [None]
    while w.budget > 0:
        if plan.pieces and plan.chance(0.4):
            w.piece(plan.pieces.pop())
        w.statement()
    for text in plan.pieces:
        w.piece(text)
    # Blocks are closed here: what is left in scope was always assigned.
    w.vars[1].update(w.vars.pop())
    w.line(f"return {result(w)}")
    defaults = [*params, "kept=[1]"] if kept else list(params)
    if cell:
        lines += ["def outer():", "    cell = 3", ""]
        lines += ["    def set_cell(value):", "        nonlocal cell"]
        lines += ["        cell = value", ""]
        lines += [f"    def f({', '.join(defaults)}):", *w.lines]
        lines += ["", "    return f, set_cell", "", "", "f, F_CELL = outer()"]
    else:
        lines += [f"def f({', '.join(defaults)}):", *w.lines]
        lines += ["", "", "def F_CELL(value):", "    pass"]
    source = "\n".join(lines) + "\n"
    if settings := dimensions.allowed(plan.settings, source):
        source = f"SETTINGS = {settings}\n{source}"
    return Program(seed, source, w.has_break)
