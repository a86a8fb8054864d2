"""Which class of an MRO has an attribute is a fact of its own: what a look-up in a
subclass gives may be the same object after another class has got or lost one. Reads
and writes that depend on the owner (`super()`, class dicts, `del`, writes to a base,
classes made inside) see each change."""

from __future__ import annotations

import functools
import itertools
import random

import pytest
import torch

import framejit

SOURCE = """
class A:
    k = 1

class Other:
    k = 6

class Mid(A):
    pass

class B(Mid):
    def of_super(self):
        return super().k

    @classmethod
    def of_super_class(cls):
        return super().k

    @property
    def of_super_property(self):
        return super().k

    def mid_written(self, value):
        Mid.k = value
        return super().k

b = B()

def delete(of):
    if "k" in vars(of):
        del of.k

def tries(of):
    try:
        del of.k
    except AttributeError:
        return 7
    return 8

def incremented(of, name="k"):
    setattr(of, name, getattr(of, name) + 1)
"""
READS = {
    "super": "b.of_super()",
    "super_class": "B.of_super_class()",
    "super_property": "b.of_super_property",
    "super_object": "super(B, b).k",
    "super_of_classes": "super(B, B).k",
    "super_default": "getattr(super(Mid, b), 'k', 5)",
    "super_has": "(3 if hasattr(super(Mid, b), 'k') else 4)",
    "base_written": "(setattr(A, 'k', 4), B.k)[1]",
    "base_written_and_object": "(setattr(A, 'k', 4), b.k)[1]",
    "middle_written": "(setattr(Mid, 'k', 4), b.k + B.k * 100 + A.k * 1000)[1]",
    "base_counted": "(incremented(A), B.k)[1]",
    "own_counted": "(incremented(B), B.k + A.k * 100)[1]",
    "object_counted": "(incremented(A), setattr(b, 'n', b.k), b.n)[2]",
    "deleted": "(delete(B), B.k)[1]",
    "deleted_of_object": "(delete(Mid), b.k + b.of_super() * 100)[1]",
    "delete_tried": "tries(B)",
    "delete_of_middle_tried": "tries(Mid) + B.k * 10",
    "written_and_deleted": "(setattr(B, 'k', 4), B.k, delattr(B, 'k'), b.k)[3]",
    "dict_get": "B.__dict__.get('k', 50)",
    "dict_has": "(3 if 'k' in B.__dict__ else 5)",
    "vars_has": "(3 if 'k' in vars(Mid) else 5)",
    "dict_item": "vars(A)['k']",
    "made_inside": "type('Z', (B,), {})().k",
    "made_inside_read_on_class": "type('Z', (B,), {}).k + B.k * 100",
    "made_inside_with_its_own": "type('Z', (B,), {'k': 2})().k + b.k * 10",
    "super_written": "b.mid_written(4)",
    "plain": "b.k + B.k * 10",
}
CHANGES = {
    "numbers": [
        "A.k = {v}",
        "A.k = {v} / 2",
        "Mid.k = {v}",
        "B.k = {v}",
        "b.k = {v}",
        "delete(Mid)",
        "delete(B)",
        "delete(b)",
        "B.__bases__ = (A,)",
        "B.__bases__ = (Mid,)",
        "B.__bases__ = (Mid, Other)",
    ],
    # The same object in several classes.
    "same": [
        "A.k = 3",
        "Mid.k = 3",
        "B.k = 3",
        "Other.k = 3",
        "delete(Mid)",
        "delete(B)",
        "B.__bases__ = (A,)",
        "B.__bases__ = (Mid,)",
        "B.__bases__ = (Other, A)",
    ],
}


def outcomes(compiler, read, steps):
    names = {"torch": torch, "__name__": "classes"}
    exec(SOURCE, names)
    exec(f"def f(x):\n    return x * ({read})", names)
    fn, seen = compiler(names["f"]), []
    for changes in steps:
        for change in changes:
            exec(change, names)
        try:
            seen.append(fn(torch.ones(1)).item())
        except (AttributeError, KeyError, TypeError) as error:
            seen.append((type(error).__name__, str(error)))
    own = [{**vars(names[c])}.get("k") for c in ("A", "Mid", "B")]
    return seen, own


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("read", READS)
def test_changes_between_calls(read, changes, backend):
    choose = random.Random(f"{read} {changes}")
    for _ in range(25):
        steps = []
        for _ in range(6):
            count = choose.choice([0, 1, 1, 2])
            texts = choose.choices(CHANGES[changes], k=count)
            steps.append([text.format(v=choose.randrange(2, 9)) for text in texts])
        expected = outcomes(lambda f: f, READS[read], steps)
        framejit.reset()
        actual = outcomes(
            lambda f: framejit.compile(f, backend=backend), READS[read], steps
        )
        assert actual == expected, steps


def test_super_numbers_do_not_compile_each_time():
    class Base:
        scale = 1

    class Derived(Base):
        def run(self, x):
            return x * super().scale

    derived, compiles = Derived(), []
    fn = framejit.compile(lambda x: derived.run(x))
    for value in range(2, 12):
        Base.scale = value
        assert fn(torch.ones(1)).item() == value
        compiles.append(len(framejit.inspect(fn)))
    assert compiles[-1] <= 3


def test_writes_to_a_base_are_counted_once():
    class Counter:
        n = 0

        def __init__(self):
            Counter.n += 1
            self.id = self.n

    def program(x):
        return x * Counter().id

    fn = framejit.compile(program)
    seen = [fn(torch.ones(1)).item() for _ in range(10)]
    assert seen == [
        float(i) for i in itertools.takewhile(lambda i: i <= 10, itertools.count(1))
    ]


@pytest.mark.parametrize("kept", [None, 50.0])
@pytest.mark.parametrize("read", ["super", "explicit", "own"])
def test_cached_properties(read, kept):
    """What is in the instance's dict already is not computed again."""
    made = []

    class Base:
        @functools.cached_property
        def c(self):
            made.append(1)
            return self.n * 3.0

    class Derived(Base):
        n = 1

        def run(self, x):
            if read == "super":
                return x * super().c
            return x * (Base.c.__get__(self) if read == "explicit" else self.c)

    def outcomes(compiler):
        seen = []
        for _ in range(2):
            b = Derived()
            fn = compiler(lambda x, b=b: b.run(x))
            if kept:
                b.__dict__["c"] = kept
            for change in (None, None, 99.0, None, "delete"):
                if change == "delete":
                    del b.__dict__["c"]
                elif change:
                    b.__dict__["c"] = change
                seen.append((fn(torch.ones(1)).item(), dict(b.__dict__), len(made)))
            made.clear()
        return seen

    expected = outcomes(lambda f: f)
    assert outcomes(framejit.compile) == expected


def test_a_metaclass_that_changes():
    class Meta(type):
        def m(cls):
            return 1

        def __getattr__(cls, name):
            return 4

    class Other(Meta):
        def m(cls):
            return 2

        def __call__(cls):
            return 9

    class B(metaclass=Meta):
        pass

    reads = [
        lambda x: x * B.m(),
        lambda x: x * type(B()).m() if type(B) is Meta else x * 7,
        lambda x: x * (1 if type(B) is Meta else 2),
        lambda x: x * (5 if isinstance(B, Other) else 6),
        lambda x: x * (B() if type(B) is Other else 3),
        lambda x: x * B.absent,
    ]
    for read in reads:
        fn = framejit.compile(read)
        for meta in (Meta, Meta, Other, Other, Meta, Other):
            B.__class__ = meta
            assert fn(torch.ones(1)).item() == read(torch.ones(1)).item()
        B.__class__ = Meta
