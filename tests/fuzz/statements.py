"""Random statements over the expressions; a `Writer` writes one function body."""

from __future__ import annotations

import re

from fuzz.expressions import KEYS, SHORT, TENSORS, Scope, Type
from fuzz.idioms import IDIOMS

EXCEPTIONS = ("ValueError", "KeyError", "UserError", "ChildError", "RuntimeError")


class Writer(Scope):
    """Writes statements as lines, keeping track of what each name holds."""

    def begin(self, budget: int) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.budget = budget
        self.loops = 0  # loops around this place, in this function
        self.depth = 0  # blocks around this place
        self.function = 0  # functions around this place
        self.result: list[Type] = []  # what a return must give, per function
        self.own: list[set[str]] = [set()]  # names each function may assign
        self.handlers = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + self.fill(text, 2))

    def block(self, budget: int, new: dict[str, Type] | None = None) -> None:
        """An indented block; what it declares ends with it."""
        self.indent += 1
        self.depth += 1
        self.vars.append(dict(new or {}))
        self.own[-1] |= set(new or {})
        before = len(self.lines)
        for _ in range(max(1, budget)):
            self.statement()
        if len(self.lines) == before:
            self.line("pass")
        self.vars.pop()
        self.depth -= 1
        self.indent -= 1

    def small(self) -> int:
        return self.rng.randint(1, 3)

    def assignable(self, kind: Type) -> list[str]:
        names = [n for n in self.names(kind) if n in self.own[-1]]
        return names + [p for p in self.places(kind) if "." in p]

    def statement(self) -> None:
        self.budget -= 1
        if self.breaks(0.06):
            self.line(
                self.pick(
                    ["framejit.graph_break()"] * 2
                    + [f"print({self.expr('I')}, {self.expr('Z')}, file=OUT)"]
                    + [f"{self.fresh('n')} = {self.expr('S')}.item()"]
                    + [f"OUT.write({self.expr('Z')})"]
                )
            )
            return
        table = [
            (14, self.assign),
            (9, self.augment),
            (6, self.tensor_write),
            (5, self.list_write),
            (4, self.dict_write),
            (3, self.object_write),
            (4, self.unpack),
            (4, self.log),
            (2, self.alias),
        ]
        if self.depth < 3 and self.budget > 0:
            table += [
                (7, self.branch),
                (6, self.for_loop),
                (3, self.while_loop),
                (6, self.try_block),
                (4, self.with_block),
                (1, self.match_block),
            ]
            if self.function < 2 and self.loops < 1:
                table += [(4, self.closure), (2, self.generator)]
            if self.depth < 2 and self.budget > 2:
                table += [(11, self.idiom)]
        if self.loops:
            table += [(2, self.jump)]
        if self.depth and self.function < 2:
            table += [(1, self.leave), (1, self.raise_something)]
        if self.depth == 0:
            table += [(1, self.check)]
            if self.function == 0:
                table += [(1, self.delete)]
        weights = [w for w, _ in table]
        self.rng.choices([f for _, f in table], weights)[0]()

    # -- simple statements

    def assign(self) -> None:
        kind = self.some_type()
        value = self.expr(kind, 3)
        names = self.assignable(kind)
        if names and self.chance(0.5):
            name = self.pick(names)
        else:
            name = self.fresh({"M": "x", "R": "r", "S": "s"}.get(kind, "v"))
        if self.chance(0.05) and "." not in name:
            self.line(f"if ({name} := {value}) is None: pass")
        elif self.chance(0.05):
            other = self.fresh("w")
            self.line(f"{other} = {name} = {value}")
            self.declare(other, kind)
            self.own[-1].add(other)
        else:
            self.line(f"{name} = {value}")
        if "." not in name and not any(name in level for level in self.vars):
            self.declare(name, kind)
            self.own[-1].add(name)

    def augment(self) -> None:
        kind = self.pick(["I", "I", "M", "M", "R", "S", "Z", "F", ("list", "M")])
        kind = self.pick([kind, kind, ("list", "I"), ("set",)])
        names = self.assignable(kind)
        if not names:
            return self.assign()
        name = self.pick(names)
        if kind == "I":
            value = f"{self.pick(['+', '-', '*', '//', '%', '|'])}= $I1$"
            if value[0] in "/%" and self.chance(0.9):
                value = f"{value.split()[0]} 3"
            if value[0] == "*":
                value += " % 5"
        elif kind in TENSORS and name[0] == "a" and self.chance(0.6):
            return self.assign()
        elif kind in TENSORS:
            other = kind if self.chance(0.6) else self.pick(["S", "I", "F"])
            value = f"{self.pick(['+', '-', '*'])}= {self.expr(other, 2)}"
        elif kind == "Z":
            value = "+= $Z1$[:3]"
        elif kind == "F":
            value = f"{self.pick('+-*')}= $F1$"
        elif kind == ("set",):
            value = f"{self.pick('|-&^')}= {self.expr(kind, 1)}"
        else:
            value = f"+= {self.expr(kind, 1)}[:2]"
        self.line(f"{name} {value}")

    def tensor_write(self) -> None:
        kind = self.pick(["M", "M", "M", "R", "S"])
        names = self.places(kind)
        if not names:
            return self.assign()
        x = self.pick(names)
        if self.chance(0.7 if x[0] == "a" else 0.2):
            # Mostly not into a leaf that requires grad.
            x2 = self.fresh({"M": "x", "R": "r", "S": "s"}[kind])
            self.line(f"{x2} = {x} {self.pick(['* 1', '+ 0', '* 2'])}")
            self.declare(x2, kind)
            self.own[-1].add(x2)
            x = x2
        options = [
            f"{x}.add_({self.expr(self.pick([kind, 'S', 'I', 'F']), 2)})",
            f"{x}.mul_({self.expr(self.pick([kind, 'S', 'F']), 1)})",
            f"{x}.{self.pick(['sin_', 'zero_', 'neg_', 'relu_', 'sigmoid_'])}()",
            f"{x}.copy_({self.expr(kind, 2)})",
            f"{x}.clamp_(max=$small$)",
            f"{x}.fill_($F1$)",
            f"{x} += $F1$" if x in self.own[-1] else f"{x}.detach_()",
            f"F.relu({x}, inplace=True)",
            f"torch.add({x}, 1, out={x})" if self.chance(0.2) else f"{x}.exp_()",
        ]
        if kind == "M":
            options += [
                f"{x}[0] = {self.expr(self.pick(['R', 'F', 'S']), 2)}",
                f"{x}[:, $I0$ % {x}.size(1)] = $F1$",
                f"{x}[0].add_($R1$)",
                f"{x}.t().mul_($M1$)",
                f"{x}[1:].zero_()",
                f"{x}[{x} > 0] = $small$",
                f"{x}.view(-1)[0] = $F1$",
                f"{x}[0, 0] += $F1$",
                f"{x}.masked_fill_({x} < 0, $small$)",
                f"{x}.diagonal().fill_($small$)",
                f"{x}.unbind(0)[0].mul_(2)"
                if self.chance(0.2)
                else f"{x}[..., 0] *= 2",
            ]
        if self.chance(0.2) and kind == "M":
            r = self.fresh("r")
            view = self.pick([f"{x}[0]", f"{x}[:, 0]", f"{x}.diagonal()"])
            self.line(f"{r} = {view}")
            self.declare(r, "R")
            self.own[-1].add(r)
        text = self.pick(options)
        if self.chance(0.1):
            self.line("with torch.no_grad():")
            self.line(f"    {text}")
        else:
            self.line(text)

    def list_write(self) -> None:
        item = self.pick(["I", "I", "M", "R", "Z"])
        names = self.places(("list", item))
        if not names:
            return self.assign()
        a = self.pick(names)
        self.line(
            self.pick(
                [
                    f"{a}.append({self.expr(item, 2)})",
                    f"{a}.append({self.expr(item, 1)})",
                    f"{a}.extend({self.expr(('list', item), 1)}[:2])",
                    f"{a}.insert({self.pick([0, 1, -1])}, {self.expr(item, 1)})",
                    f"{a}.pop()" if self.chance(0.3) else f"if {a}: {a}.pop()",
                    f"if {a}: {a}[{self.pick([0, -1])}] = {self.expr(item, 2)}",
                    f"{a}[:1] = [{self.expr(item, 1)}]",
                    f"{a}.reverse()",
                    f"del {a}[:{self.pick([1, 2])}]",
                    f"{a}.clear()",
                    f"{a}[$I0$] = {self.expr(item, 1)}"
                    if self.chance(0.2)
                    else f"len({a})",
                    f"{a}.sort()" if item in ("I", "Z") else f"{a}.reverse()",
                    f"{a}.sort(key=lambda v: -v)"
                    if item == "I"
                    else f"{a} += []"
                    if a in self.own[-1]
                    else f"{a}.extend(())",
                ]
            )
        )

    def dict_write(self) -> None:
        item = self.pick(["I", "M"])
        names = self.places(("dict", item))
        if not names:
            return self.assign()
        d = self.pick(names)
        k = self.key()
        self.line(
            self.pick(
                [
                    f"{d}[{k}] = {self.expr(item, 2)}",
                    f"{d}[{k}] = {self.expr(item, 1)}",
                    f"{d}.pop({k}, None)",
                    f"{d}.update({self.expr(('dict', item), 1)})",
                    f"{d}.setdefault({k}, {self.expr(item, 1)})",
                    f"if {k} in {d}: del {d}[{k}]",
                    f"if {k} in {d}: {d}[{k}] = {d}[{k}] + $I1$",
                    f"{d}[{k}] = {d}.get({k}, 1) * 2",
                    f"{d}[{k}] += 1" if self.chance(0.3) else f"len({d})",
                    f"{d}.clear()"
                    if self.chance(0.3)
                    else f"{d}['z'] = {self.expr(item, 0)}",
                    f"{d}.pop({k})" if self.chance(0.2) else f"{d}.get({k})",
                    f"if {d}: {d}.popitem()",
                ]
            )
        )

    def object_write(self) -> None:
        names = self.names(("obj",))
        nets = self.names(("net",))
        if nets and (not names or self.chance(0.3)):
            net = self.pick(nets)
            self.line(
                self.pick(
                    [
                        f"{net}.n += 1",
                        f"{net}.history.append($I1$)",
                        f"{net}.calls.add_(1)",
                        f"{net}.history = [$I1$]",
                        f"{net}.extra = $I1$",
                        f"{net}.{self.pick(['eval', 'train'])}()"
                        if self.chance(0.4)
                        else f"{net}.calls = {net}.calls + 1",
                    ]
                )
            )
            return
        if not names:
            return self.assign()
        o = self.pick(names)
        self.line(
            self.pick(
                [
                    f"{o}.n = $I2$",
                    f"{o}.n += 1",
                    f"{o}.x = $S1$",
                    f"{o}.x += $F0$",
                    f"{o}.items.append($M1$)",
                    f"{o}.double = $I1$",
                    f"{o}.push($M1$)",
                    f"setattr({o}, {self.pick(['n', 'extra'])!r}, $I1$)",
                    f"if hasattr({o}, 'extra'): del {o}.extra",
                    f"{o} += $I1$"
                    if o in self.own[-1]
                    else f"{o}.table[{self.key()}] = $I1$",
                    f"{o}.table[{self.key()}] = $I1$",
                    f"{o}.__dict__['extra'] = $I1$",
                    f"{o}.late = $I0$",
                ]
            )
        )

    def unpack(self) -> None:
        roll = self.rng.random()
        if roll < 0.3:
            kinds = [self.pick(["I", "M", "Z"]) for _ in range(2)]
            names = [self.fresh("u") for _ in kinds]
            values = ", ".join(self.expr(k, 2) for k in kinds)
            self.line(f"{', '.join(names)} = {values}")
        elif roll < 0.5:
            kinds = ["I", ("list", "I")]
            names = [self.fresh("u") for _ in kinds]
            self.line(f"{names[0]}, *{names[1]} = $LI2$")
        elif roll < 0.6:
            kinds = ["I", "I"]
            names = [self.fresh("u") for _ in kinds]
            self.line(f"{names[0]}, {names[1]} = $M1$.shape")
        elif roll < 0.7:
            kinds = ["R"]
            names = [self.fresh("u")]
            self.line(f"{names[0]}, *_ = $M1$")
        else:
            kind = self.pick(["I", "M", "Z"])
            names = [n for n in self.names(kind) if n in self.own[-1]]
            if len(names) < 2:
                return self.assign()
            a, b = self.rng.sample(names, 2)
            self.line(f"{a}, {b} = {b}, {a}")
            return
        for name, kind in zip(names, kinds, strict=True):
            self.declare(name, kind)
            self.own[-1].add(name)

    def log(self) -> None:
        if self.chance(0.5):
            kind = self.pick(["I", "Z", "B"])
            self.line(f"LOG.append(({self.pick(KEYS)!r}, {self.expr(kind, 2)}))")
        else:
            self.line(f"effect({self.expr(self.pick(['I', 'Z', 'M']), 2)}, 't')")

    def alias(self) -> None:
        items = [
            (n, t)
            for n, t in self.all_names().items()
            if t in (("obj",), "M") or t[0] in ("list", "dict")
        ]
        if not items:
            return self.assign()
        name, kind = self.pick(items)
        new = self.fresh("y")
        self.line(f"{new} = {name}")
        self.declare(new, kind)
        self.own[-1].add(new)

    def check(self) -> None:
        self.line("assert $B2$ or True, 'never'")

    def delete(self) -> None:
        names = [n for n in self.vars[-1] if self.vars[-1][n][0] not in ("fn", "net")]
        if not names:
            return self.assign()
        name = self.pick(names)
        self.line(f"del {name}")
        del self.vars[-1][name]
        self.own[-1].discard(name)

    def jump(self) -> None:
        self.line(f"if $B2$: {self.pick(['break', 'continue'])}")

    def leave(self) -> None:
        kind = self.result[-1] if self.result else None
        if kind is None:
            return self.assign()
        self.line("if $B1$:")
        self.line(f"    return {self.expr(kind, 1)}")

    def raise_something(self) -> None:
        error = self.pick(EXCEPTIONS)
        argument = self.expr(self.pick(["I", "Z"]), 1)
        self.line("if $B2$:")
        cause = self.pick(["", "", "", " from None", " from KeyError('k')"])
        self.line(f"    raise {error}({argument}){cause}")

    # -- blocks

    def condition(self) -> str:
        if self.breaks(0.08):
            # Not at 0 and 1, where what is equal in exact arithmetic lies:
            # rounding would decide (the deviation of nine times a third).
            return self.pick([f"{self.expr('S')} > 0.003", "$M1$.sum() < 1.003"])
        return self.expr("B", 2)

    def branch(self) -> None:
        self.line(f"if {self.condition()}:")
        self.block(self.small())
        if self.chance(0.2):
            self.line(f"elif {self.condition()}:")
            self.block(1)
        if self.chance(0.5):
            self.line("else:")
            self.block(self.small())

    def for_loop(self) -> None:
        kind = self.pick(["I", "I", "I", "M", "R", "Z"])
        name = self.fresh("i")
        over = self.iterable(kind, 1)
        new: dict[str, Type] = {name: kind}
        roll = self.rng.random()
        if roll < 0.15:
            index = self.fresh("i")
            new[index] = "I"
            self.line(f"for {index}, {name} in enumerate({over}):")
        elif roll < 0.25:
            index = self.fresh("i")
            new[index] = "I"
            self.line(f"for {name}, {index} in zip({over}, {self.iterable('I', 1)}):")
        elif roll < 0.35 and (dicts := self.places(("dict", "I"))):
            index = self.fresh("i")
            new = {name: "Z", index: "I"}
            wrap = self.pick(["list({})", "tuple({})", "sorted({})"])
            items = wrap.format(f"{self.pick(dicts)}.items()")
            self.line(f"for {name}, {index} in {items}:")
        else:
            self.line(f"for {name} in {over}:")
        self.loops += 1
        self.block(self.small(), new)
        self.loops -= 1
        if self.chance(0.2):
            self.line("else:")
            self.block(1)

    def while_loop(self) -> None:
        name = self.fresh("k")
        self.line(f"{name} = 0")
        limit = self.pick(["2", "3", "$I0$ % 4"])
        self.line(f"while {name} < {limit}:")
        self.line(f"    {name} += 1")
        self.loops += 1
        # The counter can be read, not assigned.
        self.block(self.small())
        self.loops -= 1
        if self.chance(0.2):
            self.line("else:")
            self.block(1)

    def try_block(self) -> None:
        self.line("try:")
        loops = self.loops
        self.block(self.small())
        finally_only = self.chance(0.2)
        if not finally_only:
            kinds = self.rng.sample(
                ["ValueError", "KeyError", "IndexError", "UserError", "RuntimeError"]
                + ["(TypeError, IndexError)", "Exception", "LookupError"],
                self.rng.randint(1, 2),
            )
            for kind in kinds:
                name = self.fresh("e")
                if self.chance(0.5):
                    self.line(f"except {kind} as {name}:")
                    self.indent += 1
                    self.line(f"LOG.append((type({name}).__name__, str({name})[:30]))")
                    self.indent -= 1
                else:
                    self.line(f"except {kind}:")
                self.handlers += 1
                self.block(1)
                if self.chance(0.15):
                    self.indent += 1
                    error = self.pick(["", " ValueError('again')"])
                    self.line(f"if $B1$: raise{error}")
                    self.indent -= 1
                self.handlers -= 1
            if self.chance(0.2):
                self.line("else:")
                self.block(1)
        if finally_only or self.chance(0.25):
            self.line("finally:")
            self.loops = 0  # a jump out of finally swallows, and warns
            result, self.result = self.result, []
            self.block(1)
            self.result = result
            self.loops = loops

    def with_block(self) -> None:
        name = self.fresh("m")
        manager = self.pick(
            [
                "torch.no_grad()",
                "torch.enable_grad()",
                "torch.set_grad_enabled($B1$)",
                f"Manager({name!r})",
                f"Manager({name!r}, (ValueError, KeyError))",
                f"section({name!r})",
                "contextlib.nullcontext()",
                "contextlib.suppress(KeyError, IndexError)",
                f"Manager({name!r}), section('s')",
            ]
        )
        self.line(f"with {manager}:")
        self.block(self.small())

    def match_block(self) -> None:
        kind = self.pick(["I", ("list", "I"), "Z", ("dict", "I"), ("obj",)])
        self.line(f"match {self.expr(kind, 1)}:")
        self.indent += 1
        name = self.fresh("g")
        cases = {
            "I": ["case 0 | 1:", f"case {name} if {name} > 2:"],
            "Z": ["case 'a':", f"case str({name}):"],
            ("list", "I"): ["case []:", f"case [{name}, *_]:"],
            ("dict", "I"): [f"case {{'a': {name}}}:", "case {}:"],
            ("obj",): [f"case ChildBox(n={name}):", "case Box():"],
        }[kind]
        for case in cases:
            new: dict[str, Type] = {}
            if name in case:
                new[name] = "Z" if kind == "Z" else "I"
            self.line(case)
            self.block(1, new)
        if self.chance(0.5):
            self.line("case _:")
            self.block(1)
        self.indent -= 1

    # -- templates (idioms.py)

    def kinds_of(self, text: str, names: dict[str, str]) -> dict[str, Type]:
        """``a:I b:LM`` as names of the program with their types."""
        found = {}
        for part in text.split():
            name, kind = part.split(":")
            found[names.get(name, name)] = SHORT.get(kind, kind)
        return found

    def idiom(self) -> None:
        weights = [w for w, _ in IDIOMS]
        self.budget -= 2
        self.piece(self.rng.choices([t for _, t in IDIOMS], weights)[0])

    def piece(self, text: str) -> None:
        outer = self.indent
        names: dict[str, str] = {}
        for line in text.strip("\n").split("\n"):
            body = line.strip()
            self.indent = outer + (len(line) - len(line.lstrip())) // 4
            for name in re.findall(r"%(\w+)%", body):
                if name not in names:
                    names[name] = self.fresh(name + "_")
            if body.startswith("<"):
                self.insert(body, names)
                continue
            if body.startswith("->"):
                for name, kind in self.kinds_of(body[2:], names).items():
                    self.declare(name, kind)
                    self.own[-1].add(name)
                continue
            body = re.sub(r"%(\w+)%", lambda found: names[found[1]], body)
            self.line(body)
        self.indent = outer

    def insert(self, body: str, names: dict[str, str]) -> None:
        """A ``<block ...>`` or ``<body ...>`` line."""
        what, _, kinds = body.strip("<>").partition(" ")
        new = self.kinds_of(kinds, names)
        self.indent -= 1
        if what == "block":
            self.block(1, new)
        else:
            loops, self.loops = self.loops, 0
            result, own = self.result, self.own
            # No return of another type, no assignment outside.
            self.result, self.own = [None], [*own, set(new)]
            self.function += 1
            self.block(1, new)
            self.function -= 1
            self.result, self.own, self.loops = result, own, loops
        self.indent += 1

    # -- functions

    def function_body(self, new: dict[str, Type], result: Type, budget: int) -> None:
        """The body of a nested function: its names, and what it returns."""
        loops, self.loops = self.loops, 0
        depth, self.depth = self.depth, 1
        outer = [n for n in self.own[-1] if "." not in n and not n.startswith("G_")]
        outer.sort()  # a set has no order of its own
        self.function += 1
        self.result.append(result)
        self.own.append(set(new))
        self.indent += 1
        self.vars.append(dict(new))
        visible = self.all_names()
        chosen = [n for n in outer if n in visible and self.chance(0.15)][:2]
        if chosen:
            self.line(f"nonlocal {', '.join(chosen)}")
            self.own[-1] |= set(chosen)
        for _ in range(budget):
            self.statement()
        self.line(f"return {self.expr(result, 2)}")
        self.vars.pop()
        self.indent -= 1
        self.own.pop()
        self.result.pop()
        self.function -= 1
        self.loops, self.depth = loops, depth

    def closure(self) -> None:
        name = self.fresh("fn")
        kinds = [self.pick(["M", "M", "I", "S"]) for _ in range(self.rng.randint(0, 2))]
        names = [self.fresh("p") for _ in kinds]
        result = self.pick(["M", "M", "I", "S"])
        extra = ""
        if self.chance(0.25):
            extra = f"{', ' if names else ''}q{self.counter}=$I1$"
        elif self.chance(0.2):
            extra = f"{', ' if names else ''}*rest, key=2, **more"
        if self.chance(0.12):
            self.line(self.pick(["@twice", "@logged"]))
        self.line(f"def {name}({', '.join(names)}{extra}):")
        self.function_body(dict(zip(names, kinds, strict=True)), result, self.small())
        self.declare(name, ("fn", tuple(kinds), result))

    def generator(self) -> None:
        name = self.fresh("gen")
        item = self.pick(["I", "M"])
        p = self.fresh("p")
        self.line(f"def {name}({p}):")
        self.indent += 1
        self.vars.append({p: item})
        form = self.pick(["plain", "loop", "from", "try"])
        if form == "plain":
            self.line(f"yield {p}")
            self.line(f"yield {self.expr(item, 2)}")
        elif form == "loop":
            i = self.fresh("i")
            self.line(f"for {i} in range(3):")
            self.line(f"    yield {self.expr(item, 2)}")
            self.line("    if $B1$: return")
        elif form == "from":
            self.line(f"yield from [{p}, {self.expr(item, 1)}]")
            self.line(f"yield {self.expr(item, 1)}")
        else:
            self.line("try:")
            self.line(f"    yield {p}")
            self.line(f"    yield {self.expr(item, 1)}")
            self.line("finally:")
            self.line("    LOG.append(('closed', $I1$))")
        self.vars.pop()
        self.indent -= 1
        argument = self.expr(item, 1)
        new = self.fresh("v")
        roll = self.rng.random()
        if roll < 0.3:
            self.line(f"{new} = list({name}({argument}))")
            self.declare(new, ("list", item))
        elif roll < 0.5:
            self.line(f"{new} = next({name}({argument}))")
            self.declare(new, item)
        elif roll < 0.65:
            self.line(f"{new} = sum({name}({argument}))")
            self.declare(new, item)
        else:
            i = self.fresh("i")
            self.line(f"for {i} in {name}({argument}):")
            self.loops += 1
            self.block(self.small(), {i: item})
            self.loops -= 1
            return
        self.own[-1].add(new)
