"""What Python can ask a tensor without getting a tensor: every attribute and
argument-less method of torch.Tensor, asked of tensors of many kinds in turn.

The answers become constants of a capture, so each must be guarded or break.
"""

import contextlib
import warnings

import numpy as np
import pytest
import torch

import framejit

# Addresses and counts of this very object, and what a caller may not count on.
PRIVATE = {
    *("__class__", "__dict__", "__dir__", "__format__", "__hash__", "__init__"),
    *("__reduce__", "__repr__", "__sizeof__", "__str__", "__del__"),
    *("_cdata", "_typed_storage", "_use_count", "const_data_ptr", "data_ptr"),
    *("storage", "untyped_storage"),
}


def make_variants():
    retains = torch.ones(2, 3, requires_grad=True) * 1
    retains.retain_grad()
    hooked = torch.ones(2, 3, requires_grad=True)
    hooked.register_hook(lambda grad: grad)
    filled = torch.ones(2, 3, requires_grad=True)
    filled.sum().backward()
    written = torch.ones(2, 3)
    written.add_(1)
    written.add_(1)
    with torch.inference_mode():
        inference = torch.ones(2, 3)
    return {
        "plain": torch.ones(2, 3),
        "view": torch.ones(2, 2, 3)[1],
        "view of all": torch.ones(2, 3).view(2, 3),
        "expanded": torch.ones(1, 3).expand(2, 3),
        "transposed": torch.ones(3, 2).t(),
        "requires grad": torch.ones(2, 3, requires_grad=True),
        "no leaf": torch.ones(2, 3, requires_grad=True) * 1,
        "retains grad": retains,
        "one of unbind": torch.ones(2, 2, 3, requires_grad=True).unbind()[1],
        "inference": inference,
        "shared": torch.ones(2, 3).share_memory_(),
        "parameter": torch.nn.Parameter(torch.ones(2, 3)),
        "written": written,
        "with offset": torch.ones(9)[3:].view(2, 3),
        "double": torch.ones(2, 3, dtype=torch.double),
        "complex": torch.ones(2, 3, dtype=torch.cfloat),
        "conjugate": torch.ones(2, 3, dtype=torch.cfloat).conj(),
        "negative": torch.ones(2, 3, dtype=torch.cfloat).conj().imag,
        "int": torch.ones(2, 3, dtype=torch.int),
        "with hook": hooked,
        "with grad": filled,
        "meta": torch.ones(2, 3, device="meta"),
        "big": torch.ones(4, 5),
        "set": torch.ones(2, 3).set_(torch.ones(2, 3)),
        "of numpy": torch.from_numpy(np.ones((2, 3), "float32")),
        "channels last": torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last),
        "with gaps": torch.ones(4, 6)[::2, ::2],
    }


def is_plain(value):
    if isinstance(value, tuple):
        return all(is_plain(item) for item in value)
    kinds = (int, float, str, type(None), torch.dtype, torch.device, torch.layout)
    return isinstance(value, kinds)


def questions():
    forms = [
        form
        for name in dir(torch.Tensor)
        if name not in PRIVATE
        for form in (name, f"{name}()")
    ]
    variants = make_variants().values()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [form for form in forms if any(is_asked(form, x) for x in variants)]


def is_asked(form, x):
    with contextlib.suppress(Exception):
        return is_plain(eval(f"x.{form}", {"x": x}))
    return False


def answer(fn, x):
    try:
        return repr(fn(x)[1])
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", questions())
def test_answer_is_guarded(form):
    names: dict = {}
    exec(f"def fn(x):\n    y = x + 1\n    return y, x.{form}", names)
    fn = names["fn"]
    compiled = framejit.compile(fn, backend="eager")
    kinds = list(make_variants())
    for kind in kinds + kinds[::-1]:
        expected = answer(fn, make_variants()[kind])
        if not expected.startswith(("<", "tensor", "functools", "OrderedDict")):
            assert answer(compiled, make_variants()[kind]) == expected, kind


def test_there_are_questions():
    assert len(questions()) > 60
