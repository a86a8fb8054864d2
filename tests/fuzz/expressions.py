"""Random well-typed expressions.

A type is a name: ``M`` (matrix, n by n), ``R`` (vector of n), ``S`` (0-d), all
float32 tensors; ``I`` ``F`` ``B`` ``Z`` (int, float, bool, str); or a tuple:
``("list", t)``, ``("dict", t)`` with str keys, ``("set",)`` of ints,
``("tuple", t1, t2...)``, ``("fn", argument types, result)``, ``("obj",)``,
``("net",)``. Tensors of one call have one n, so most operations fit; the ones
that do not raise, which is compared like anything else.
"""

from __future__ import annotations

import random
import re
from typing import Any

Type = Any

TENSORS = ("M", "R", "S")
SCALARS = ("I", "F", "B", "Z")
KEYS = ("a", "b", "c", "k1")
SHORT: dict[str, Type] = {
    "L": "list",
    "D": "dict",
    "LI": ("list", "I"),
    "LM": ("list", "M"),
    "DI": ("dict", "I"),
    "DM": ("dict", "M"),
    "set": ("set",),
    "obj": ("obj",),
    "it": ("iter",),
    **{k: (k,) for k in ("iterM", "endless", "exc", "odict", "deque", "deep", "fin")},
    **{k: (k,) for k in ("lm", "dm", "tm", "held")},
    "fnI": ("fn", ("I",), "I"),
}
PLACE = re.compile(r"\$([A-Za-z]+)(\d?)\$")


class Scope:
    """The names a program can use at one place, and what it may do there."""

    def __init__(self, rng: random.Random, allow_breaks: bool) -> None:
        self.rng = rng
        self.allow_breaks = allow_breaks
        self.has_break = False
        self.vars: list[dict[str, Type]] = [{}]
        self.counter = 0
        self.pure = 0  # > 0: expressions without effects

    # -- names

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def names(self, wanted: Type) -> list[str]:
        return [
            name
            for level in self.vars
            for name, found in level.items()
            if found == wanted
        ]

    def all_names(self) -> dict[str, Type]:
        merged: dict[str, Type] = {}
        for level in self.vars:
            merged.update(level)
        return merged

    def declare(self, name: str, kind: Type) -> None:
        self.vars[-1][name] = kind

    def places(self, wanted: Type) -> list[str]:
        """Names, and attributes of objects, that hold a value of the type."""
        found = self.names(wanted)
        for obj in self.names(("obj",)):
            if wanted == "I":
                found += [f"{obj}.n"]
            elif wanted == "S":
                found += [f"{obj}.x"]
            elif wanted == ("list", "M"):
                found += [f"{obj}.items"]
            elif wanted == ("dict", "I"):
                found += [f"{obj}.table"]
        for net in self.names(("net",)):
            if wanted == "I":
                found += [f"{net}.n"]
            elif wanted == ("list", "I"):
                found += [f"{net}.history"]
        return found

    # -- chance

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, items: Any) -> Any:
        return self.rng.choice(list(items))

    def breaks(self, p: float) -> bool:
        """Whether to put something here that ends the graph."""
        if self.allow_breaks and self.chance(p):
            self.has_break = True
            return True
        return False

    # -- expressions

    def fill(self, text: str, depth: int, kind: Type = None) -> str:
        """Puts expressions in place of ``$I$`` (of this depth) or ``$I0$``."""

        def one(found: re.Match[str]) -> str:
            name, level = found[1], int(found[2]) if found[2] else depth
            if name == "small":
                return self.small_float()
            if name == "key":
                return self.key()
            if name == "iter":
                return self.iterable(kind[1], level)
            if name == "comp":
                return self.comprehension(kind[1], level + 1, kind[0] == "dict")
            if name == "item":
                return self.expr(kind[1], level)
            if name in ("Litem", "Ditem"):
                return self.expr((SHORT[name[0]], kind[1]), level)
            if name == "kind":
                return self.expr(kind, level)
            return self.expr(SHORT.get(name, name), level)

        return PLACE.sub(one, text)

    def expr(self, kind: Type, depth: int = 2) -> str:
        places = self.places(kind)
        if places and (depth <= 0 or self.chance(0.35)):
            return self.pick(places)
        if isinstance(kind, tuple):
            text = getattr(self, "expr_" + kind[0])(kind, depth)
            return self.fill(text, depth - 1, kind)
        if self.chance(0.06) and not self.pure:
            return f"effect({self.expr(kind, depth - 1)})"
        if depth > 0 and not self.pure and self.breaks(0.02):
            return f"opaque({self.expr(kind, depth - 1)})"
        if self.chance(0.07) and depth > 0:
            a, b = self.expr(kind, depth - 1), self.expr(kind, depth - 1)
            return f"({a} if {self.expr('B', depth - 1)} else {b})"
        fns = [n for n, t in self.all_names().items() if t[0] == "fn" and t[2] == kind]
        if fns and depth > 0 and not self.pure and self.chance(0.3):
            return self.call(self.pick(fns), depth)
        lists = self.places(("list", kind))
        if lists and depth > 0 and self.chance(0.2):
            name, index = self.pick(lists), self.pick(["0", "-1", "$I0$"])
            if self.chance(0.15):
                return self.fill(f"{name}[{index}]", 0)
            if index == "$I0$":
                index += f" % len({name} or [0])"
            return self.fill(f"({name} or [{self.expr(kind, 0)}])[{index}]", 0)
        dicts = self.places(("dict", kind))
        if dicts and depth > 0 and self.chance(0.15):
            name = self.pick(dicts)
            if self.chance(0.85):
                default = self.expr(kind, depth - 1)
                return f"{name}.get({self.key()}, {default})"
            return f"{name}[{self.key()}]"
        tuples = [
            (n, i)
            for n, t in self.all_names().items()
            if t[0] == "tuple"
            for i, item in enumerate(t[1:])
            if item == kind
        ]
        if tuples and self.chance(0.2):
            name, i = self.pick(tuples)
            return f"{name}[{i}]"
        text = getattr(self, "expr_" + kind)(depth)
        return self.fill(text, depth - 1)

    def key(self) -> str:
        if self.chance(0.15):
            return self.expr("Z", 0)
        return repr(self.pick(KEYS))

    def call(self, name: str, depth: int) -> str:
        kind = self.all_names()[name]
        args = [self.expr(t, depth - 1) for t in kind[1]]
        if args and self.chance(0.15):
            return f"{name}(*[{', '.join(args)}])"
        return f"{name}({', '.join(args)})"

    def expr_fn(self, kind: Type, depth: int) -> str:
        names = [f"v{self.counter}_{i}" for i in range(len(kind[1]))]
        self.vars.append(dict(zip(names, kind[1], strict=True)))
        body = self.expr(kind[2], depth - 1)
        self.vars.pop()
        return f"(lambda {', '.join(names)}: {body})"

    def expr_obj(self, kind: Type, depth: int) -> str:
        made = f"({self.expr('I', depth - 1)}, {self.expr('S', depth - 1)})"
        return self.pick(["Box", "Box", "ChildBox", "SlotBox", "Box.make"]) + made

    def expr_net(self, kind: Type, depth: int) -> str:
        names = self.names(("net",))
        return self.pick(names) if names else "NET"

    # tensors

    def unary(self, a: str) -> str:
        return self.pick(
            [
                f"{a}.sin()",
                f"{a}.cos()",
                f"torch.tanh({a})",
                f"torch.relu({a})",
                f"{a}.sigmoid()",
                f"(-{a})",
                f"{a}.abs()",
                f"abs({a})",
                f"{a}.clamp(min=$small$)",
                f"torch.clamp({a}, $small$, max=1.5)",
                f"F.gelu({a})",
                f"F.softplus({a})",
                f"{a}.square()",
                f"({a} * $I1$)",
                f"({a} + $F1$)",
                f"($I0$ - {a})",
                f"({a} / 2)",
                f"{a}.clone()",
                f"{a}.detach()",
                f"{a}.contiguous()",
                f"{a}.masked_fill({a} > 0, $small$)",
                f"torch.where({a} > $small$, {a}, 0.5)",
                f"{a}.to(torch.float64).float()",
                f"torch.zeros_like({a})",
                f"F.dropout({a}, 0.5, training=$B0$)",
                f"{a}.add($small$, alpha=2)",
                f"({a} > $small$).float()",
                f"{a}.nan_to_num()",
                f"({a}.int() + 1).float()",
                f"{a}.type(torch.float32)",
                f"getattr({a}, {self.pick(['sin', 'neg', 'exp'])!r})()",
                f"operator.neg({a})",
                f"{a}.requires_grad_(False)" if self.chance(0.1) else f"{a}.exp()",
                f"twice(torch.sin)({a})",
                f"functools.partial(torch.mul, other=2)({a})",
            ]
        )

    def binary(self, a: str, b: str) -> str:
        form = self.pick(
            ["({} + {})", "({} - {})", "({} * {})", "torch.add({}, {})"]
            + ["({} / ({}.abs() + 1))", "torch.where({0} > {1}, {0}, {1})"]
            + ["torch.maximum({}, {})", "torch.lerp({0}, {1} * 1, 0.5)"]
            + ["operator.mul({}, {})", "{}.sub({}, alpha=2)"]
        )
        return form.format(a, b)

    def expr_M(self, depth: int) -> str:
        d = depth - 1
        if depth <= 0:
            base = self.pick(self.names("M") or ["torch.ones(2, 2)"])
            return base
        roll = self.rng.random()
        if roll < 0.4:
            return self.unary(self.expr("M", d))
        if roll < 0.7:
            other = self.pick(["M", "M", "R", "S"])
            return self.binary(self.expr("M", d), self.expr(other, d))
        a = self.expr("M", d)
        options = [
            f"{a}.t()",
            f"{a}.T",
            f"({a} @ $M$)",
            f"{a}.softmax(-1)",
            f"{a}.cumsum({self.pick([0, 1, -1])})",
            f"{a}.flip(0)",
            f"{a}.roll($I0$, 1)",
            f"torch.cat([{a}, $M$], {self.pick([0, -2])})[:{a}.size(0)]",
            f"{a}.view(-1).view({a}.shape)",
            f"{a}.reshape(*{a}.shape[::-1])",
            f"{a}.reshape(-1, {a}.shape[0])",
            f"{a}.unsqueeze(0).squeeze(0)",
            f"{a}[:]",
            f"{a}[:, torch.arange({a}.size(1))]",
            f"{a}.permute(1, 0)",
            f"torch.eye({a}.size(0))",
            f"torch.ones({a}.size(0), {a}.shape[1])",
            f"{a}.new_zeros({a}.shape)",
            f"$R$.unsqueeze(1).expand({a}.size(0), {a}.size(0))",
            f"torch.stack([$R$ for _ in range({a}.size(0))])",
            # Rows of equal numbers: what rounding leaves is divided by sqrt(eps).
            f"F.layer_norm({a}, {a}.shape[1:], eps=0.1)",
            f"F.linear({a}, $M$)",
            f"{a}.split(1)[0].expand_as({a})",
            f"torch.tril({a})",
            f"{a}.sum(0, keepdim=True).expand({a}.size(0), -1)",
            f"{a}.index_select(0, torch.arange({a}.size(0)))",
            f"{a}[{a}.argmax(dim=1)]",
            f"torch.rand_like({a})" if self.chance(0.3) else f"{a}.transpose(0, 1)",
            f"{a}.sort(dim=0).values",
            f"torch.einsum('ij,jk->ik', {a}, {a})",
            f"[{a}, $M$][$I0$ % 2]",
            f"(lambda q, *r, s=1: q * s)({a}, 1, s=$I0$)",
            f"functools.reduce(operator.add, [{a}, $M$])",
            f"sum([{a}, $S$])",
        ]
        if lists := self.places(("list", "M")):
            options += [f"sum({self.pick(lists)}, {a})", f"{self.pick(lists)}[0]"] * 2
        if not self.pure:
            for obj in self.names(("obj",)):
                options += [f"{obj}({a})", f"{obj}({a}, scale=$I0$)"] * 2
            for net in self.names(("net",)):
                options += [f"{net}({a})", f"{net}({a}, skip=$B0$)"] * 3
        return self.pick(options)

    def expr_R(self, depth: int) -> str:
        d = depth - 1
        names = self.names("R")
        if depth <= 0:
            if names:
                return self.pick(names)
            mats = self.names("M")
            return f"{self.pick(mats)}[0]" if mats else "torch.ones(2)"
        roll = self.rng.random()
        if roll < 0.3:
            return self.unary(self.expr("R", d))
        if roll < 0.5:
            return self.binary(self.expr("R", d), self.expr(self.pick("RS"), d))
        m = self.expr("M", d)
        return self.pick(
            [
                f"{m}.sum({self.pick([0, 1])})",
                f"{m}.mean(dim=-1)",
                f"{m}[0]",
                f"{m}[-1]",
                f"{m}[:, 0]",
                f"{m}[$I0$ % {m}.size(0)]",
                f"{m}.diagonal()",
                f"{m}.max(0).values",
                f"{m}.max(dim=1)[0]",
                f"torch.arange({m}.size(0)).float()",
                f"{m}.argmax(1).float()",
                f"({m} @ $R$)",
                f"{m}.unbind(0)[0]",
                f"torch.stack([$S$] * {m}.size(0))",
                f"{m}.amax((0,))",
                f"{m}.reshape(-1)[:{m}.size(0)]",
                f"{m}.norm(dim=0)",
            ]
        )

    def expr_S(self, depth: int) -> str:
        d = depth - 1
        names = self.names("S")
        if depth <= 0:
            return self.pick(names) if names else "torch.tensor(0.5)"
        roll = self.rng.random()
        if roll < 0.25:
            return self.unary(self.expr("S", d))
        if roll < 0.45:
            return self.binary(self.expr("S", d), self.expr("S", d))
        return self.pick(
            [
                "$M$.sum()",
                "$M$.mean()",
                "$R$.sum()",
                "$R$[0]",
                "$R$.dot($R$)",
                "$M$.norm()",
                f"$M$[0, {self.pick([0, -1])}]",
                "torch.tensor($F$)",
                "torch.full((), $F$)",
                "$M$.max()",
                "$M$.std()",
                "F.mse_loss($M$, $M$)",
            ]
        )

    # scalars

    def small_float(self) -> str:
        return self.pick(["0.0", "0.5", "-0.25", "1e-3", "2.0"])

    def expr_I(self, depth: int) -> str:
        d = depth - 1
        if depth <= 0 or self.chance(0.2):
            return str(self.pick([0, 1, 2, 3, 5, -1, -2, 7]))
        options = [
            f"($I$ {self.pick('+-*+-')} $I$)",
            f"($I$ {self.pick(['%', '//'])} {self.pick([2, 3, 4])})",
            "($I$ % 7 * $I0$)",
            "abs($I$)",
            "-$I0$",
            "min($I$, $I$)",
            "max([$I$, $I0$])",
            "int($B$)",
            "int($small$ * $I0$)",
            "len($Z$)",
            f"($I$ {self.pick('&|^')} $I$)",
            f"($I$ % 5 {self.pick(['<<', '>>'])} {self.pick([0, 1, 2])})",
            f"divmod($I$, 3)[{self.pick([0, 1])}]",
            "($I0$ % 4) ** 2",
            "sum($LI$)",
            "len($LI$)",
            "sum(v * v % 1009 for v in $LI0$)",
            "math.floor($F$)",
            "round($F$)",
            "operator.sub($I$, $I$)",
            "($I$ or $I0$)",
            "(not $I0$) + 1",
            "Box.plus($I$, $I$)",
            "len($set$)",
            "int(str($I0$))",
            "functools.reduce(lambda p, q: p * 2 + q, $LI0$, 1)",
            "next(iter($LI$), -1)",
            "max($LI0$, default=0, key=lambda v: -v)",
        ]
        for m in self.names("M")[:3]:
            options += [f"{m}.size(0)", f"{m}.shape[1]", f"{m}.numel()", f"{m}.dim()"]
            options += [f"len({m})", f"{m}.shape.numel()", f"{m}.stride(0)"]
        for name in self.names(("iter",)):
            options += [f"next({name}, -1)"] * 3
        for net in self.names(("net",))[:1]:
            options += [f"{net}.gain", f"len({net}.layers)"]
        for obj in self.names(("obj",))[:2]:
            options += [
                f"getattr({obj}, 'dyn_q', 0)",
                f"len(getattr({obj}, 'kind', ''))",
            ]
            options += [f"getattr({obj}, 'n', 0)", f"getattr({obj}, 'extra', -1)"]
            options += [f"len({obj}.items)", f"getattr({obj}, 'double', 3)"]
        for name in self.places(("list", "M"))[:2] + self.places(("dict", "M"))[:2]:
            options += [f"len({name})"]
        if self.breaks(0.01) and self.names("M"):
            return f"int({self.pick(self.names('M'))}.sum().item() > 0)"
        return self.pick(options)

    def expr_F(self, depth: int) -> str:
        d = depth - 1
        if depth <= 0 or self.chance(0.3):
            return self.small_float()
        if self.breaks(0.02):
            return "$S$.item()"
        return self.pick(
            [
                f"($F$ {self.pick('+-*')} $F$)",
                "($I$ * $small$)",
                "float($I$)",
                "($I$ / 4)",
                "math.sqrt(abs($I$))",
                "round($F$, 2)",
                "max($F$, $I$ * 1.0)",
                f"float('{self.pick(['1.5', '-2', '1e2'])}')",
                "math.tanh($F$)",
            ]
        )

    def expr_B(self, depth: int) -> str:
        d = depth - 1
        if depth <= 0:
            return self.pick(["True", "False"])
        if self.breaks(0.02):
            return "bool($S$ > 0)"
        compare = self.pick(["<", "<=", "==", "!=", ">", ">="])
        options = [
            f"($I$ {compare} $I$)",
            f"($F$ {compare} $F$)",
            f"($Z$ {compare} $Z$)",
            "(0 <= $I$ < 4)",
            "(not $B$)",
            f"($B$ {self.pick(['and', 'or'])} $B$)",
            "($I$ in $LI$)",
            "($I$ in $set$)",
            "($Z$ in $Z$)",
            "($Z$ not in $DI$)",
            f"isinstance(${self.pick('IFZS')}$,"
            f" {self.pick(['int', '(str, float)', 'bool', 'torch.Tensor'])})",
            "any(v > 1 for v in $LI$)",
            "all($LI$)",
            f"bool(${self.pick(['I', 'Z', 'LI', 'DI'])}$)",
            f"torch.is_tensor(${self.pick('IM')}$)",
            "$M0$.requires_grad",
            "torch.is_grad_enabled()",
            "$M0$.is_contiguous()",
            "($Z$ is None)",
            f"callable(${self.pick(['I', 'fnI'])}$)",
            "($M0$.shape == $M0$.shape)",
            "(type($I$) is int)",
            "$Z$.startswith('a')",
        ]
        for obj in self.names(("obj",))[:2]:
            options += [f"hasattr({obj}, 'extra')", f"isinstance({obj}, ChildBox)"]
            options += [f"({obj} is {self.pick(self.names(('obj',)))})"]
            options += [f"({obj} == {self.pick(self.names(('obj',)))})"]
        for net in self.names(("net",))[:2]:
            options += [f"{net}.training"]
        mats = self.names("M")
        if len(mats) > 1:
            options += [f"({self.pick(mats)} is {self.pick(mats)})"]
        return self.pick(options)

    def expr_Z(self, depth: int) -> str:
        d = depth - 1
        if depth <= 0 or self.chance(0.25):
            return repr(self.pick(["", "a", "b", "abc", "k1", "x y"]))
        return self.pick(
            [
                "f'{$I0$}-{$I0$:03d}'",
                f"($Z$ + {self.pick(['a', 'q'])!r})",
                "str($I$)",
                "$Z$.upper()",
                "$Z$[$I0$:]",
                "','.join(str(v) for v in $LI$)",
                f"type(${self.pick(['I', 'M', 'F', 'LI'])}0$).__name__",
                "('%d/%s' % ($I$, $Z$))",
                "repr($LI$)",
                "'{}:{x}'.format($I$, x=$Z$)",
                "f'{$F0$:.2f}'",
                "str($M0$.shape)",
                "($Z$ or 'none')",
                "$Z$.replace('a', 'zz')[:12]",
                "str($M0$.dtype)",
                "('a' * ($I$ % 4))",
                "repr($Z$)",
            ]
        )

    # containers

    def iterable(self, kind: Type, depth: int) -> str:
        """Something to iterate over that gives values of the type."""
        options = ["$Litem$[:4]"]
        if kind == "I":
            options += [
                "range($I$ % 4)",
                "range($I0$ % 5, 5)",
                f"range({self.pick([3, 4])}, 0, -1)",
                "reversed($LI$[:3])",
                "sorted($set$)[:4]",
                "map(lambda v: v + 1, $LI0$[:3])",
                "filter(None, $LI0$[:4])",
                "itertools.chain($LI0$[:2], (7, 8))",
                "itertools.islice(itertools.count($I0$), 3)",
                "(v - 1 for v in range($I0$ % 4))",
            ]
        if kind == "I":
            options += self.names(("iter",)) * 3
        if kind == "R":
            options += ["$M$", "$M$.unbind(0)[:3]"]
        if kind == "Z":
            options += ["list($DI0$)[:4]", "('a', 'bc')"]
            options += ["$Z$[:3]"]
        return self.fill(self.pick(options), depth, ("list", kind))

    def comprehension(self, kind: Type, depth: int, key: bool = False) -> str:
        source = self.pick(["I", "I", kind if isinstance(kind, str) else "I"])
        name = self.fresh("c")
        over = self.iterable(source, depth - 1)
        self.vars.append({name: source})
        body = self.expr(kind, depth - 1)
        condition = ""
        if self.chance(0.3):
            condition = f" if {self.expr('B', depth - 1)}"
        self.vars.pop()
        if key:
            body = (
                f"str({name})[:3]: {body}"
                if source != "I"
                else f"f'k{{{name}}}': {body}"
            )
            if source in TENSORS:
                body = body.replace(f"str({name})[:3]", repr(self.pick(KEYS)), 1)
        return f"{body} for {name} in {over}{condition}"

    def expr_list(self, kind: Type, depth: int) -> str:
        item = kind[1]
        d = depth - 1
        if depth <= 0:
            return f"[{', '.join(self.expr(item, 0) for _ in range(self.rng.randint(1, 3)))}]"
        places = self.places(kind)
        options = [
            f"[{', '.join(self.expr(item, d) for _ in range(self.rng.randint(0, 3)))}]",
            "[$comp$]",
            f"([$item$] * {self.pick([0, 1, 2])})",
            "list($iter$)",
        ]
        if item == "I":
            options += [
                "sorted([$I$, $I$, 2])",
                "list($M0$.shape)",
                "[*range($I$ % 4), $I$]",
            ]
        if places:
            a = self.pick(places)
            options += [f"{a}[{self.pick([':2', '1:', ':', '::-1'])}]", f"list({a})"]
            options += [f"({a} + [$item$])", f"[*{a}, $item$]"]
            options += [f"list(reversed({a}))", f"{a}.copy()"]
        if item in TENSORS and not self.pure:
            options += ["list(map(lambda v: v * 2, $kind0$))"]
        return self.pick(options)

    def expr_dict(self, kind: Type, depth: int) -> str:
        item = kind[1]
        d = depth - 1
        pairs = ", ".join(
            f"{self.key()}: $item$" for _ in range(self.rng.randint(1, 3))
        )
        if depth <= 0:
            return f"{{{pairs}}}"
        options = [f"{{{pairs}}}", "dict(a=$item$)"]
        options += ["{$comp$}"]
        options += ["dict(zip(('a', 'c'), $Litem$))"]
        if places := self.places(kind):
            a = self.pick(places)
            options += [f"{{**{a}, {pairs}}}", f"dict({a})", f"({a} | {{{pairs}}})"]
            options += [f"collections.OrderedDict({a})", f"{a}.copy()"]
        return self.pick(options)

    def expr_set(self, kind: Type, depth: int) -> str:
        d = depth - 1
        items = ", ".join(self.expr("I", d) for _ in range(self.rng.randint(1, 3)))
        if depth <= 0:
            return f"{{{items}}}"
        return self.pick(
            [
                f"{{{items}}}",
                "set($LI$)",
                f"{{{self.comprehension('I', depth)}}}",
                f"($kind$ | {{{items}}})",
                f"($kind$ - {{{items}}})",
                "frozenset($LI$)",
            ]
        )

    def expr_tuple(self, kind: Type, depth: int) -> str:
        items = [self.expr(t, depth - 1) for t in kind[1:]]
        if len(items) == 2 and self.chance(0.2):
            return f"Pair({items[0]}, {items[1]})"
        return f"({', '.join(items)},)"

    def expr_iter(self, kind: Type, depth: int) -> str:
        # Over copies: a loop must not lengthen what it runs over.
        return self.pick(
            [
                "iter($LI$[:4])",
                "reversed($LI$[:4])",
                "map(lambda v: v * 2, $LI$[:3])",
                "filter(None, $LI$[:4])",
                "itertools.chain($LI$[:2], (5, 6))",
                "(v + 1 for v in $LI$[:3])",
                "itertools.islice(itertools.count($I$), 4)",
            ]
        )

    # what dimensions pass as arguments, made here where there is none

    def expr_iterM(self, kind: Type, depth: int) -> str:
        return "iter($LM$[:2])"

    def expr_endless(self, kind: Type, depth: int) -> str:
        return "itertools.count($I$)"

    def expr_exc(self, kind: Type, depth: int) -> str:
        return self.pick(["ValueError($Z$)", "UserError($Z$, $I$)", "KeyError($I$)"])

    def expr_odict(self, kind: Type, depth: int) -> str:
        return "collections.OrderedDict($DI$)"

    def expr_deque(self, kind: Type, depth: int) -> str:
        return "collections.deque($LI$)"

    def expr_deep(self, kind: Type, depth: int) -> str:
        return self.pick(["nested(3)", "Node.ring(2)", "cyclic_list($I$)"])

    def expr_held(self, kind: Type, depth: int) -> str:
        return "frozenset([OBJ, 1])"

    def expr_fin(self, kind: Type, depth: int) -> str:
        return "Final($I$)"

    def expr_lm(self, kind: Type, depth: int) -> str:
        return "$LI$.append"

    def expr_dm(self, kind: Type, depth: int) -> str:
        return "$DI$.get"

    def expr_tm(self, kind: Type, depth: int) -> str:
        return "$M$.add"

    # -- types

    def some_type(self) -> Type:
        roll = self.rng.random()
        if roll < 0.4:
            return self.pick(["M", "M", "M", "R", "S"])
        if roll < 0.65:
            return self.pick(["I", "I", "F", "B", "Z"])
        if roll < 0.78:
            return ("list", self.pick(["I", "I", "M", "M", "R", "Z"]))
        if roll < 0.88:
            return ("dict", self.pick(["I", "M"]))
        if roll < 0.91:
            return ("set",)
        if roll < 0.935:
            return ("obj",)
        if roll < 0.95:
            return ("iter",)
        if roll < 0.96:
            return ("fn", self.pick([("M",), ("I",), ("M", "I")]), self.pick("MIMS"))
        parts = [self.pick(["M", "I", "R", "Z"]) for _ in range(self.rng.randint(2, 3))]
        return ("tuple", *parts)
