"""Outputs of a call that lead to different inputs: which of them a backward comes
through, whose hooks run and what is captured there is decided by what is asked for."""

from __future__ import annotations

import itertools
import threading

import pytest
import torch

import framejit
from differential import assert_same

COMPILED = ["aot_eager", "native"]


def middle_first(a, b, c):
    h = a.exp()
    return h, h * c, a * 2


def middle_last(a, b, c):
    h = a.exp()
    return h * c, h, b * 2


def two_middles(a, b, c):
    h, k = a * 2, b * c
    return h * k, h, k


PROGRAMS = {
    "overlapping": lambda a, b, c: (a * b, b * c, c + c),
    "middle first": middle_first,
    "middle last": middle_last,
    "apart": lambda a, b, c: (a.exp(), b.exp(), c.exp()),
    "two middles": two_middles,
    "an input": lambda a, b, c: (a * b, c, c * 2),
    "detached": lambda a, b, c: (a.detach() * b, a * 2, b * c.detach()),
    "zeros": lambda a, b, c: (a.sign() + b, b.exp(), c * 0),
}


def some_of(count, sizes):
    return itertools.chain.from_iterable(
        itertools.combinations(range(count), size) for size in sizes
    )


def gradients(function, hooked, hooked_leaf, asked):
    a, b, c = (torch.full((2,), v, requires_grad=True) for v in (0.2, 0.3, 0.7))
    outputs = function(a, b, c)
    seen = set()

    def hook(place):
        def run(gradient):
            seen.add(place)
            return gradient * (place + 2)

        return run

    for place in hooked:
        if outputs[place].grad_fn is not None:
            outputs[place].register_hook(hook(place))
            outputs[place].retain_grad()
    if hooked_leaf is not None:
        (a, b, c)[hooked_leaf].register_hook(lambda gradient: gradient * 7)
    loss = sum((t * t.detach()).sum() * (i + 1) for i, t in enumerate(outputs))
    inputs = [[*outputs, a, b, c][i] for i in asked]
    try:
        found = torch.autograd.grad(loss, inputs, allow_unused=True)
    except RuntimeError as error:
        return str(error), seen
    kept = [outputs[i].grad for i in hooked if outputs[i].grad_fn is not None]
    return found, seen, kept


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_asked_for_decides(name, backend):
    program = PROGRAMS[name]
    compiled = framejit.compile(program, backend=backend)
    for hooked in some_of(3, (0, 1, 2)):
        for hooked_leaf in (None, 1) if len(hooked) < 2 else (None,):
            for asked in some_of(6, (1, 2) if len(hooked) < 2 else (2,)):
                uses = (hooked, hooked_leaf, asked)
                assert_same(gradients(program, *uses), gradients(compiled, *uses))


def leaves(count=3):
    torch.manual_seed(1)
    return [torch.rand(2, requires_grad=True) for _ in range(count)]


@pytest.mark.parametrize("backend", COMPILED)
def test_hooks_beside_what_is_asked_for(backend):
    def run(function):
        a, b = leaves(2)
        y, z = function(a, b)
        seen = []
        z.register_hook(lambda gradient: seen.append("hook of z"))
        z.retain_grad()
        loss = y.sum() + z.sum()
        torch.autograd.grad(loss, [a], retain_graph=True)
        loss.backward(inputs=[a])
        return seen, z.grad, a.grad, b.grad

    def program(a, b):
        return a * 2, b * 3

    assert_same(run(program), run(framejit.compile(program, backend=backend)))


@pytest.mark.parametrize("backend", COMPILED)
def test_outputs_one_after_the_other(backend):
    """What one backward freed, another does not need, or it raises."""

    def run(function, keeps, turns):
        a, b, c = leaves()
        outputs = function(a, b, c)
        found = []
        for turn in turns:
            loss = sum(outputs[i].sum() for i in turn)
            try:
                loss.backward(retain_graph=keeps)
            except RuntimeError as error:
                return [*found, str(error)[:40]]
            found.append(
                [None if t.grad is None else t.grad.clone() for t in (a, b, c)]
            )
        return found

    for program in (PROGRAMS["overlapping"], two_middles, PROGRAMS["apart"]):
        compiled = framejit.compile(program, backend=backend)
        for keeps in (False, True):
            for turns in itertools.permutations([(0,), (1,), (2,)]):
                uses = (keeps, turns)
                assert_same(run(program, *uses), run(compiled, *uses))
            for turns in ([(0, 1), (2,)], [(1, 2), (0,)], [(0, 1, 2), (1,)]):
                uses = (keeps, turns)
                assert_same(run(program, *uses), run(compiled, *uses))


@pytest.mark.parametrize("backend", COMPILED)
def test_differentiated_twice(backend):
    def run(function):
        a, b, c = leaves()
        y, z, w = function(a, b, c)
        loss = (y * z).sum() + w.exp().sum()
        first = torch.autograd.grad(loss, [a, c], create_graph=True)
        penalty = sum((g * g).sum() for g in first)
        return first, torch.autograd.grad(penalty, [a, b, c], allow_unused=True)

    for program in (PROGRAMS["overlapping"], middle_first, two_middles):
        assert_same(run(program), run(framejit.compile(program, backend=backend)))


@pytest.mark.parametrize("backend", COMPILED)
def test_a_history_that_several_threads_made(backend):
    """What another thread computes of an output is of any age to the engine: an
    output's gradient may come when those of other outputs have gone on."""

    def run(function, first):
        a, b, c = leaves()
        outputs = function(a, b, c)
        parts = [None] * 3

        def use(place):
            parts[place] = outputs[place].sin().exp().sum()

        for place in (0, 1, 2):
            if place in first:
                use(place)
            else:
                thread = threading.Thread(target=use, args=(place,))
                thread.start()
                thread.join()
        order = []
        for name, leaf in zip("abc", (a, b, c), strict=True):
            leaf.register_hook(lambda gradient, name=name: order.append(name))
        loss = parts[0] + parts[1] + parts[2]
        loss.backward()
        again = None
        try:
            outputs[1].sum().backward()
        except RuntimeError as error:
            again = str(error)[:40]
        return sorted(order), a.grad, b.grad, c.grad, again

    for program in (PROGRAMS["overlapping"], middle_first, two_middles):
        compiled = framejit.compile(program, backend=backend)
        for first in some_of(3, (0, 1, 2)):
            assert_same(run(program, first), run(compiled, first))


@pytest.mark.parametrize("backend", COMPILED)
def test_long_histories_die(backend):
    """Of thousands of calls: no native stack is used for each."""

    def program(a, b):
        return a * b, b * 2

    compiled = framejit.compile(program, backend=backend)
    a, b = leaves(2)
    y, z = compiled(a, b)
    for _ in range(20_000):
        y, z = compiled(y, z)
    del y, z
