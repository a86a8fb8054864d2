"""What a random program is beside its statements: a row per dimension.

A dimension is drawn for some programs, with random numbers of its own: the same
seed makes the same program whatever else is switched off, and with all of them
off the programs are those of the statements alone. It may change arguments, add
kinds of parameters, pieces of code (templates as in idioms.py), what the caller
does between and around calls, and SETTINGS that the runner reads: they are part
of the program's text, so that a saved program runs as it ran.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Collection
from typing import Any

from fuzz import pieces
from fuzz.expressions import Type


class Plan:
    """A program before its body is written."""

    def __init__(self, rng: random.Random, calls: int, params: dict[str, Type]) -> None:
        self.rng = rng
        self.calls = calls
        self.params = params  # with the kind of each
        self.values: dict[str, str] = {}  # of parameters that a dimension adds
        self.changed: list[str] = []  # statements behind all arguments
        self.between: list[str] = []
        self.around: list[str] = []  # the body of around(call)
        self.settings: dict[str, Any] = {}
        self.pieces: list[str] = []
        self.quiet = False  # nothing whose time shows

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, items: Collection[Any]) -> Any:
        return self.rng.choice(list(items))

    def some_calls(self) -> str:
        """A condition that holds for some calls."""
        return self.pick(
            ["True", "call == 1", "call > 1", "call < 2", "call % 2", "call == 3"]
        )

    def number(self) -> int:
        return self.rng.randint(0, 5)

    def each_call(self, items: Collection[Any]) -> str:
        chosen = [self.pick(items) for _ in range(self.calls)]
        return f"[{', '.join(map(str, chosen))}][call]"

    def of(self, *kinds: Type) -> list[str]:
        return [n for n, k in self.params.items() if k in kinds]

    def add(self, kind: Type, value: str) -> str:
        name = f"b{len(self.values)}"
        self.params[name] = kind
        self.values[name] = value
        return name

    def take(self, texts: Collection[str], most: int = 2) -> None:
        self.pieces += self.rng.sample(
            list(texts), min(len(texts), self.rng.randint(1, most))
        )


def _aliases(plan: Plan) -> None:
    same = [(a, b) for a in plan.params for b in plan.params if a < b]
    found = [f"{b} = {a}" for a, b in same if plan.params[a] == plan.params[b]]
    for a in plan.of("M"):
        views = [
            "{0}",
            "{0}.t()",
            "{0}.detach()",
            "{0}.data",
            "{0}[:]",
            "{0}.view_as({0})",
        ]
        views += [
            "of_other_owner({0}.detach())",
            "{0}.as_strided({0}.shape, (1, 1))",
        ]
        views += ["{0}.flip(0)", "{0}.expand(1, *{0}.shape)[0]"]
        found += [f"{b} = {plan.pick(views).format(a)}" for b in plan.of("M") if a != b]
        rows = ["{0}[0]", "{0}[:, 0]", "{0}.diagonal()", "{0}.detach().flatten()[:n]"]
        found += [f"{b} = {plan.pick(rows).format(a)}" for b in plan.of("R")]
        found += [f"{b} = {a}[0, 0]" for b in plan.of("S")]
        held = ["{0}.append({1})", "{0}[:] = [{1}, {1}]", "{0}[:1] = [{1}.detach()]"]
        for b in plan.of(("list", "M")):
            found.append(plan.pick(held).format(b, a))
        for b in plan.of(("obj",)):
            found += [f"{b}.items.append({a})", f"{b}.items[:] = [{a}.t(), {a}]"]
            found += [f"{b}.x = {a}[0, 0]"]
        given = "NET.weight.data = {0}.data{1}.to(NET.weight)"
        found += [given.format(a, "[:1, :1].reshape(1)")]
        # While a history of the sizes it has is held.
        part = plan.pick(["[:1, :1].reshape(1)", "[0, 0]", "[0]", "[:, :1]"])
        found += ["HELD.append(NET.weight * 1); " + given.format(a, part)]
        found += [f"NET.last = {a}.detach()", f"{a} = NET.weight.expand(n, n)"]
    for a in plan.of("S"):
        found += [f"{b}.x = {a}" for b in plan.of(("obj",))]
        found += [f"{a} = G_TENSOR", f"OBJ.x = {a}", f"{a} = OBJ.x.detach()"]
    for a in plan.of(("obj",)):
        found += [f"{a}.items = {b}" for b in plan.of(("list", "M"))]
        found += [f"{a}.table = {b}" for b in plan.of(("dict", "I"))]
        found += [f"{a} = OBJ", f"{a}.table = G_DICT", f"{a}.items = OBJ.items"]
        found += [f"{a}.items.append({a})", f"OBJ.child = {a}"]
    for a in plan.of(("list", "I")):
        found += [f"{a} = G_LIST", f"NET.history = {a}"]
        found += [f"{b} = iter({a})" for b in plan.of(("endless",))]
        found += [f"G_DICT['l'] = {a}"]
    for a in plan.of(("dict", "I")):
        found += [f"{a} = G_DICT", f"{a} = OBJ.table", f"{a} = OBJ.__dict__"]
        found += [f"{b} = iter({a}.values())" for b in plan.of(("endless",))]
    for a in plan.of("I"):
        found += [f"{a} = {b}" for b in plan.of("I") if a != b]
        found += [f"{a} = 1000 + call", f"G_INT = {a} = 10 ** 20 + call"]
    for text in plan.rng.sample(found, min(len(found), plan.rng.randint(1, 3))):
        plan.changed.append(f"if {plan.some_calls()}: {text}")
    plan.take(pieces.ALIASES, 1)


def _exceptions(plan: Plan) -> None:
    made = ["ValueError('v', call)", "UserError('u', call)", "KeyError('k')"]
    made += ["chained(ValueError('a'), KeyError('b'))", "raised(IndexError('i'))"]
    made += ["raised(chained(UserError('c', 1), ChildError('d')))", "EXC"]
    made += ["noted(TypeError('n'), 'note')", "StopIteration(call)"]
    for _ in range(plan.rng.randint(1, 2)):
        plan.add(("exc",), plan.pick(made))
    plan.take(pieces.EXCEPTIONS, 3)
    changes = ["EXC = raised(EXC)", "EXC.__cause__ = None", "EXC.args = (call,)"]
    changes += ["EXC.__suppress_context__ = True", "EXC = ValueError(call)"]
    changes += ["EXC.add_note('between')", "EXC.__context__ = KeyError(call)"]
    plan.between += [plan.pick(changes)]


def _iterators(plan: Plan) -> None:
    made = ["iter([1, 2, 3, call])", "iter((4, call, 5))", "iter(range(call + 2))"]
    made += ["itertools.chain([1], [call, 3])"]
    made += ["map(abs, [-1, call, 2, 3])", "iter({1: 0, 2: 0, call: 0})"]
    made += ["filter(None, [0, 1, call, 2])", "iter({3, 1, call})"]
    made += ["reversed([1, 2, call])"]
    made += ["itertools.islice(itertools.count(), call, 9)", "map(int, '12')"]
    made += ["itertools.accumulate([1, call, 3])", "iter(b'ab')"]
    made += ["itertools.repeat(call, 3)", "SHARED"]
    for _ in range(plan.rng.randint(1, 2)):
        name = plan.add(("iter",), plan.pick(made))
        if plan.chance(0.3):
            plan.changed.append(f"if {plan.some_calls()}: next({name}, 0)")
    if plan.chance(0.6):
        # Not for loops: they may never end, or run over what the loop appends to.
        endless = ["itertools.count(call)", "itertools.cycle([1, call])"]
        endless += ["counting(call)", "iter(G_LIST)", "reversed(G_LIST)"]
        endless += ["iter(OBJ.table.values())", "iter(G_DICT)"]
        plan.add(("endless",), plan.pick(endless))
    if plan.chance(0.4):
        plan.add(
            ("iterM",),
            plan.pick(
                ["iter([torch.randn(n, n) for _ in range(3)])"]
                + ["(torch.randn(n, n) for _ in range(2))"]
                + ["iter(torch.randn(3, n, n))", "map(torch.neg, torch.randn(3, n, n))"]
            ),
        )
    if plan.chance(0.3):
        plan.between.append("SHARED = iter([1, 2, 3, 4])")
    plan.take(pieces.ITERATORS, 3)


def _histories(plan: Plan) -> None:
    steps = [
        "add({})",
        "discard({})",
        "update(range({}))",
        "difference_update(range({}))",
    ]
    text = "set()"
    for _ in range(plan.rng.randint(0, 6)):
        text = f"done({text}, '{plan.pick(steps).format(plan.rng.choice([1, 3, 8, 9, 17, 33, 64]))}')"
    plan.add(("set",), text)
    plan.add(
        ("odict",),
        plan.pick(
            ["collections.OrderedDict(a=1, b=2, c=call)"]
            + ["done(collections.OrderedDict(a=1, b=2), 'move_to_end(\"a\")')"]
            + ["done({'a': 1, 'b': 2, 'c': 3}, 'pop(\"a\")')"]
            + ["collections.Counter('abcab')", "collections.defaultdict(int, a=call)"]
            + ["done({'a': 1, 'b': 2}, 'clear()')", "dict(b=1, a=call)"]
        ),
    )
    if plan.chance(0.5):
        plan.add(
            ("deque",),
            plan.pick(["collections.deque([1, 2, call], 3)", "collections.deque()"]),
        )
    plan.take(pieces.HISTORIES, 3)
    plan.between.append(
        plan.pick(
            ["cached(call)", "cached.cache_clear()", "cached(1)", "few(call)", "few(1)"]
        )
    )


def _methods(plan: Plan) -> None:
    lists = ["[1, call].append", "G_LIST.append", "OBJ.items.append"]
    dicts = ["{1: call}.get", "G_DICT.get", "dict(a=call).get", "OBJ.table.get"]
    tensors = ["torch.randn(n, n).add", "NET.weight.mul", "torch.randn(n, n).sub"]
    for kind, made in (("lm", lists), ("dm", dicts), ("tm", tensors)):
        plan.add((kind,), plan.pick(made))
    plan.take(pieces.METHODS, 3)


def _held(plan: Plan) -> None:
    made = ["frozenset([OBJ])", "frozenset([(OBJ, 1)])", "slice(OBJ, call)"]
    made += ["frozenset([frozenset([OBJ]), 2])", "Frozen([OBJ, 'a'])"]
    made += ["frozenset([G_TENSOR])", "frozenset([OBJ, NET.weight])"]
    value = plan.pick(made)
    if plan.chance(0.7):  # the same at each call
        value = f"OBJ.__dict__.setdefault('held', {value})"
    plan.add(("held",), value)
    changes = ["OBJ.n = call + 3", "OBJ.items.append(call)", "OBJ.__class__ = ChildBox"]
    changes += ["OBJ.__class__ = Box", "del OBJ.n", "OBJ.extra = call"]
    for change in plan.rng.sample(changes, plan.rng.randint(1, 3)):
        plan.between.append(change)
    plan.take(pieces.HELD, 3)


def _deep(plan: Plan) -> None:
    depth = plan.pick([3, 20, 120, 400, 3000])
    made = ["cyclic_list(call)", "Node.ring(3)", f"nested({depth})", "Node.tree(3)"]
    made += [f"nested_dict({min(depth, 400)})", f"Node.chain({depth})", "Node.ring(1)"]
    for _ in range(plan.rng.randint(1, 2)):
        plan.add(("deep",), plan.pick(made))
    plan.take(pieces.DEEP, 3)


def _stacks(plan: Plan) -> None:
    # 0 is the caller's own thread. Eager's own repr of a deep list overflows 128 K.
    sizes = [0, 0, 256 if plan.of(("deep",)) else 128, 256, 512, 1024, 4096]
    plan.settings["stack"] = [plan.pick(sizes) for _ in range(plan.calls)]


def _signals(plan: Plan) -> None:
    plan.settings["signals"] = [
        round(plan.rng.expovariate(1 / 0.01), 5) for _ in range(3)
    ]


def _collection(plan: Plan) -> None:
    plan.settings["gc"] = plan.rng.randint(1, 50)
    plan.quiet = True


def _finalizers(plan: Plan) -> None:
    if plan.quiet:  # when the collector comes is nobody's promise
        return
    made = ["Final(call)", "FinalTorch(call)", "Final(call, Final(2))", "watched(call)"]
    for _ in range(plan.rng.randint(0, 2)):
        plan.add(("fin",), plan.pick(made))
    plan.take(pieces.FINALIZERS, 3)


def _tangents(plan: Plan) -> None:
    plan.settings["gradients"] = plan.pick(
        ["each", "each", "some", "last", "backward", "twice"]
    )
    plan.settings["used"] = [plan.chance(0.5) for _ in range(5)]
    plan.take(pieces.LEAVES, 1)


def _double(plan: Plan) -> None:
    plan.settings["gradients"] = plan.pick(["double", "double", "penalty"])
    plan.take(pieces.LEAVES, 1)


def _batched(plan: Plan) -> None:
    plan.settings["gradients"] = "batched"


def _late(plan: Plan) -> None:
    plan.settings["gradients"] = plan.pick(["double", "double", "penalty"])
    plan.settings["late"] = True
    if plan.chance(0.5):
        plan.take(pieces.LEAVES, 1)


def _writes(plan: Plan) -> None:
    plan.take(pieces.WRITES, 3)


def _dtypes(plan: Plan) -> None:
    floats = ["torch.bfloat16", "torch.float16", "torch.float64", "torch.float32"]
    others = [
        "torch.int64",
        "torch.int32",
        "torch.uint8",
        "torch.bool",
        "torch.complex64",
    ]
    names = plan.of("M", "R", "S")
    for name in plan.rng.sample(names, min(len(names), plan.rng.randint(1, 2))):
        kinds = floats if plan.chance(0.7) else floats + others
        if plan.chance(0.3):
            plan.changed.append(f"{name} = {name}.to({plan.each_call(kinds)})")
        else:
            plan.changed.append(f"{name} = {name}.to({plan.pick(kinds)})")
    plan.take(pieces.DTYPES, 2)


def _modes(plan: Plan) -> None:
    modes = [
        "torch.inference_mode()",
        "torch.no_grad()",
        "torch.autocast('cpu', torch.bfloat16)",
        "Scaling(2.0)",
        "torch.device('cpu')",
        "torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t)",
        "torch.autograd.detect_anomaly(check_nan=False)",
        "default_dtype(torch.float64)",
        "deterministic()",
        "Counting()",
        "warnings.catch_warnings()",
        "Scaling(0.5), torch.no_grad()",
        "torch.set_grad_enabled(False), torch.enable_grad()",
    ]
    plan.around.append(f"if {plan.some_calls()}: return both({plan.pick(modes)})")
    if plan.chance(0.3):
        plan.around.append(f"if {plan.some_calls()}: return both({plan.pick(modes)})")


def _classes(plan: Plan) -> None:
    changes = [
        "OBJ.__class__ = ChildBox",
        "OBJ.__class__ = Box",
        "NET.__class__ = OtherNet",
        "NET.__class__ = Net",
        "torch.nn.utils.parametrize.register_parametrization(NET, 'weight', Doubling())",
        "torch.nn.utils.parametrize.remove_parametrizations(NET, 'weight')",
        "torch.nn.utils.prune.l1_unstructured(NET, 'weight', amount=1)",
        "torch.nn.utils.prune.remove(NET, 'weight')",
        "NET.to(torch.float64)",
        "NET.float()",
        "Box.__call__ = lambda self, x, scale=1: x + scale",
        "ChildBox.__bases__ = (OtherBox,)",
        "ChildBox.__bases__ = (Box,)",
        "Net.forward = OtherNet.forward",
        "NET.forward = MethodType(OtherNet.forward, NET)",
        "NET.act.__class__ = torch.nn.Sigmoid",
        "del ChildBox.__call__",
        "Box.__getattr__ = lambda self, name: 7",
        "Box.n = property(lambda self: 4, lambda self, v: None)",
        "del Box.n",
        "Box, ChildBox = ChildBox, Box",
    ]
    for change in plan.rng.sample(changes, plan.rng.randint(1, 4)):
        plan.between.append(change)
    plan.take(pieces.CLASSES, 1)


def _threads(plan: Plan) -> None:
    plan.settings["threads"] = plan.rng.randint(1, 2)


@dataclasses.dataclass(frozen=True)
class Dimension:
    name: str
    chance: float
    words: str
    plan: Callable[[Plan], None]


DIMENSIONS = (
    Dimension("collection", 0.1, "the collector's threshold is 1 to 50", _collection),
    Dimension(
        "exceptions",
        0.2,
        "exceptions of the caller: raised, caught, chained",
        _exceptions,
    ),
    Dimension(
        "iterators", 0.2, "iterators passed, and what is left in them", _iterators
    ),
    Dimension("histories", 0.2, "sets and ordered dicts with a history", _histories),
    Dimension("methods", 0.08, "methods of C, bound to what they change", _methods),
    Dimension("held", 0.08, "objects in frozensets and slices", _held),
    Dimension("deep", 0.15, "deep and cyclic objects", _deep),
    Dimension("finalizers", 0.15, "__del__ and weakref callbacks", _finalizers),
    Dimension("writes", 0.2, "out= and writes through views", _writes),
    Dimension("dtypes", 0.15, "mixtures of dtypes", _dtypes),
    Dimension("aliases", 0.3, "two arguments that share what they hold", _aliases),
    Dimension("classes", 0.12, "classes of objects and modules change", _classes),
    Dimension("modes", 0.12, "modes around the call", _modes),
    Dimension("tangents", 0.3, "only some results in the loss", _tangents),
    Dimension("double", 0.1, "gradients of gradients", _double),
    Dimension("batched", 0.04, "several gradients at once", _batched),
    Dimension(
        "late", 0.05, "arguments that the caller makes require grad after", _late
    ),
    Dimension("stacks", 0.08, "calls on threads with small stacks", _stacks),
    Dimension("signals", 0.06, "a handler raises during capture and compile", _signals),
    Dimension("threads", 0.05, "other threads call it meanwhile", _threads),
)
NAMES = tuple(d.name for d in DIMENSIONS)

# What other threads must not share with the caller's: random numbers and modes.
_SHARED = re.compile(r"rand|dropout|NET|warn|determin|default_dtype")
# An argument that draws them when the program asks for its next item.
_DRAWS_LATE = re.compile(r"\(torch\.rand\w*\([^()]*\) for ")


def plan(
    seed: int, wanted: Collection[str], calls: int, params: dict[str, Type]
) -> Plan:
    made = Plan(random.Random(), calls, params)
    for dimension in DIMENSIONS:
        rng = random.Random(f"{dimension.name} {seed}")
        if rng.random() < dimension.chance and dimension.name in wanted:
            made.rng = rng
            dimension.plan(made)
    return made


def allowed(settings: dict[str, Any], source: str) -> dict[str, Any]:
    """The settings that this program can have."""
    arguments, _, body = source.partition("def f(")
    shared = _SHARED.search(body) or _DRAWS_LATE.search(arguments)
    if "threads" in settings and shared:
        return {k: v for k, v in settings.items() if k != "threads"}
    return settings
