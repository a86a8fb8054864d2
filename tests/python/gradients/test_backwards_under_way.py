"""Backwards through one call that are under way at the same time: recursive ones, by the
dozen, of other threads, ones that raise."""

import threading

import pytest
import torch

import framejit
from differential import assert_same


def in_parts(a, b, c):
    q = a.exp()
    u = a * c
    v = (b + b).exp()
    w = u.sin() * v
    return q, u, v, w


def as_one(a, b, c):
    u = a * c * b
    w = u.sin() * a * c * b
    return w * 2, u, u * 3, w


def leaves(count=3):
    return [torch.tensor([0.3, 0.5, 0.7], requires_grad=True) for _ in range(count)]


def recursive(f, turns, mode):
    a, b, c = leaves()
    q, u, v, w = f(a, b, c)
    inside = False

    def asks():
        for i in range(turns):
            if mode == "raises":
                with pytest.raises(KeyError):
                    ones = torch.ones(3)
                    torch.autograd.grad((w, q), a, (ones, ones), retain_graph=True)
            else:
                torch.autograd.grad(w, u, torch.eye(3)[i % 3], retain_graph=True)

    def hook(gradient):
        nonlocal inside
        if inside and mode == "raises":
            raise KeyError
        if inside:
            return
        inside = True
        if mode == "thread":
            thread = threading.Thread(target=asks)
            thread.start()
            thread.join()
        else:
            asks()
        inside = False

    q.register_hook(hook)
    torch.autograd.backward((w.sum(), q.sum()), retain_graph=True)
    return [t.grad for t in (a, b, c)]


@pytest.mark.parametrize("turns", [1, 9, 64, 130])
@pytest.mark.parametrize("mode", ["asks", "raises", "thread"])
@pytest.mark.parametrize("fn", [in_parts, as_one], ids=lambda fn: fn.__name__)
def test_recursive_backwards(fn, mode, turns):
    compiled = framejit.compile(fn)
    compiled(*leaves())
    assert_same(recursive(compiled, turns, mode), recursive(fn, turns, mode))


def test_what_they_computed_is_let_go():
    compiled = framejit.compile(in_parts)
    a, b, c = leaves()
    q, u, v, w = compiled(a, b, c)
    kept = []
    for _ in range(20):
        gradient = torch.ones(3)
        torch.autograd.grad(w, u, gradient, retain_graph=True)
        kept.append(
            torch.multiprocessing.reductions.StorageWeakRef(gradient.untyped_storage())
        )
    del gradient
    assert sum(not each.expired() for each in kept) <= 2


def test_threads_with_an_output_each():
    def fn(a, b, c):
        return a.exp().sin(), b.exp().cos(), c.exp().tanh()

    compiled = framejit.compile(fn)
    compiled(*leaves())
    failed = []
    for _ in range(150):
        inputs = leaves()
        outputs = compiled(*inputs)
        barrier = threading.Barrier(3)

        def work(output, barrier=barrier):
            barrier.wait()
            try:
                output.sum().backward()
            except RuntimeError as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(o,)) for o in outputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        plain = leaves()
        for output in fn(*plain):
            output.sum().backward()
        assert_same([t.grad for t in inputs], [t.grad for t in plain])
    assert not failed


@pytest.mark.parametrize("grad_dtype", [torch.float32, None])
@pytest.mark.parametrize("within", [False, True])
def test_leaves_with_a_grad_dtype(within, grad_dtype):
    def fn(w, x):
        loss = (w * x).sin().sum()
        if within:
            loss.backward()
        return loss

    def run(function, own):
        w = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
        if own:
            w.grad_dtype = grad_dtype
        loss = function(w, torch.tensor([0.1, 0.2]))
        if not within:
            loss.backward()
        return w.grad.dtype, w.grad.float()

    compiled = framejit.compile(fn)
    for own in (True, False, True, True):
        assert_same(run(compiled, own), run(fn, own))
