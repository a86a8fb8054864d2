"""Calls of builtins with one argument too many, or of another kind: as eager has it."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import math
import operator
import warnings

import pytest
import torch

import framejit

NAMES = {
    "collections": collections,
    "functools": functools,
    "itertools": itertools,
    "math": math,
    "operator": operator,
    "logger": logging.getLogger("refused arguments"),
    "warnings": warnings,
    "OD": collections.OrderedDict,
}
CALLS = [
    "{'a': 1}.pop('a')",
    "{'a': 1}.get('a')",
    "{'a': 1}.setdefault('a')",
    "{'a': 1}.update({})",
    "OD(a=1).pop('a')",
    "OD(a=1).pop(key='a')",
    "OD(a=1).move_to_end('a')",
    "collections.Counter('aab').pop('a')",
    "given.pop('a')",
    "given.get('a')",
    "[3, 1].sort()",
    "[3, 1].index(1)",
    "[3, 1].pop()",
    "[3, 1].append(1)",
    "sorted([3, 1])",
    "max([3, 1])",
    "max(3, 1)",
    "min('b')",
    "sum([1, 2])",
    "all([1])",
    "any([1])",
    "len([1])",
    "abs(-1)",
    "divmod(7, 2)",
    "enumerate([1])",
    "zip([1], [2])",
    "map(abs, [1])",
    "filter(None, [1])",
    "reversed([1])",
    "range(3)",
    "round(2.5)",
    "pow(2, 3)",
    "isinstance(1, int)",
    "getattr(1, 'real')",
    "hasattr(1, 'real')",
    "callable(len)",
    "iter([1])",
    "next(iter([1]))",
    "bool(1)",
    "int('1')",
    "float('1')",
    "str(1)",
    "repr(1)",
    "list((1,))",
    "tuple([1])",
    "set([1])",
    "frozenset([1])",
    "dict([(1, 2)])",
    "slice(1)",
    "(1,).__format__('')",
    "format(1, '')",
    "(1, 2).index(1)",
    "(1, 2).count(1)",
    "'a'.join(['b'])",
    "'ab'.split('a')",
    "'ab'.replace('a', 'b')",
    "'ab'.startswith('a')",
    "{1}.add(2)",
    "{1}.union({2})",
    "math.sqrt(4.0)",
    "math.prod([2, 3])",
    "math.isclose(1.0, 1.0)",
    "operator.add(1, 2)",
    "operator.getitem([1], 0)",
    "operator.itemgetter(0)([1])",
    "functools.reduce(operator.add, [1, 2])",
    "functools.partial(max, 1)(2)",
    "itertools.chain([1], [2])",
    "itertools.chain.from_iterable([[1]])",
    "itertools.islice([1, 2], 1)",
    "itertools.product([1], [2])",
    "itertools.accumulate([1, 2])",
    "itertools.groupby('aab')",
    "itertools.groupby('aab', len)",
    "itertools.repeat(1, 2)",
    "itertools.compress('ab', [1, 0])",
    "itertools.pairwise([1, 2])",
    "itertools.starmap(max, [(1, 2)])",
    "itertools.takewhile(bool, [1, 0])",
    "itertools.dropwhile(bool, [1, 0])",
    "itertools.filterfalse(bool, [1, 0])",
    "itertools.zip_longest([1], [2])",
    "itertools.combinations([1, 2], 2)",
    "itertools.tee([1])",
    "collections.deque([1])",
    "collections.deque([1]).append(2)",
    "collections.deque([1]).pop()",
    "logger.debug('text')",
    "logger.isEnabledFor(10)",
]
EXTRAS = [
    "",
    "3",
    "None",
    "'b'",
    "2, 3",
    "1, 2, 3",
    "y=1",
    "key=None",
    "default=3",
    "reverse=True",
    "start=1",
    "initial=1",
    "strict=True",
    "level=1",
]


def listed(value):
    """What it is, with the items of iterators."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return kind, value.tolist()
    if hasattr(value, "__next__"):
        items = []
        try:
            for item in itertools.islice(value, 4):
                items.append(listed(item))
        except Exception as error:
            items.append(type(error).__name__)
        return kind, items
    if isinstance(value, (list, tuple)):
        return kind, [listed(item) for item in value]
    return kind, repr(value)


def with_extra(call, extra):
    if not extra:
        return call
    head = call[:-1]
    return head + ("" if head.endswith("(") else ", ") + extra + ")"


def outcome(function):
    given = {"a": 1, "b": 2}
    try:
        result, moved = function(torch.ones(2), given)
    except Exception as error:
        return type(error).__name__, given
    return listed(result), moved.tolist(), given


@pytest.mark.parametrize("call", CALLS)
def test_one_argument_more(call):
    for extra in EXTRAS:
        source = (
            "def program(x, given):\n"
            "    x = x * 2\n"
            f"    return {with_extra(call, extra)}, x + 1\n"
        )
        scope = dict(NAMES)
        try:
            exec(source, scope)
        except SyntaxError:
            continue
        program = scope["program"]
        want = outcome(program)
        compiled = framejit.compile(program)
        for _ in range(2):
            assert outcome(compiled) == want, with_extra(call, extra)


def test_functions_made_here_are_no_keys():
    def program(x, given):
        made = lambda: 0  # noqa: E731
        given.setdefault(made, x)
        return made in given, given.get(lambda: 1), (lambda: 2) in given, len(given)

    compiled = framejit.compile(program)
    for _ in range(2):
        x = torch.ones(2)
        assert compiled(x, {"a": 1}) == program(x, {"a": 1}) == (True, None, False, 2)


class HasSlot:
    __slots__ = ("own",)


class HasBoth(HasSlot):
    @property
    def read_only(self):
        return 7


@pytest.mark.parametrize("way", ["item", "update", "setattr", "delete"])
@pytest.mark.parametrize("name", ["own", "read_only", "other"])
def test_a_dict_beside_slots(name, way):
    """`o.__dict__[name]` is no slot and no property of that name."""

    def program(o, x):
        if way == "item":
            o.__dict__[name] = 5
        elif way == "update":
            o.__dict__.update({name: 5})
        elif way == "setattr":
            vars(o)[name] = x
        else:
            o.__dict__[name] = 1
            del o.__dict__[name]
        return x + 1

    def run(function):
        o = HasBoth()
        o.__dict__["first"] = 1
        function(o, torch.ones(2))
        slot = getattr(o, "own", "empty") if name == "own" else None
        return sorted(o.__dict__), plain(o.__dict__.get(name)), slot

    def plain(value):
        return value.tolist() if isinstance(value, torch.Tensor) else value

    compiled = framejit.compile(program)
    for _ in range(2):
        assert run(compiled) == run(program)


@pytest.mark.parametrize("dynamic", [None, True])
def test_items_by_their_methods(dynamic):
    """As many entries as `x[a:b]` and `x[a:b] = v` have."""

    def reads(x, a, b):
        return x.__getitem__(slice(a, b)) + torch.Tensor.__getitem__(x, a)

    def writes(x, a, b):
        x.__setitem__(slice(a, b), 0.0)
        x.__setitem__((slice(b, b + 1),), x[a] + 1)
        return x

    for program in (reads, writes):
        compiled = framejit.compile(program, dynamic=dynamic, fullgraph=True)
        for at in range(2, 9):
            x, y = torch.arange(16.0), torch.arange(16.0)
            assert torch.equal(compiled(x, at, at + 3), program(y, at, at + 3))
            assert torch.equal(x, y)
        assert len(framejit.inspect(compiled)) <= 2
