"""Numbers of NumPy in calls of torch: what they are, not only their value."""

from typing import Any

import numpy as np
import pytest
import torch

import framejit
from differential import assert_same

NUMBERS = {
    **{"float64": np.float64(1.5), "float32": np.float32(1.5), "half": np.float16(2)},
    **{"int64": np.int64(2), "int32": np.int32(2), "int8": np.int8(2)},
    **{"uint8": np.uint8(254), "bool": np.bool_(True), "complex": np.complex64(1 + 1j)},
    **{"array": np.array(2.5), "uint64": np.uint64(3)},
}
USES = """
torch.tensor(n)
torch.tensor(n, dtype=None)
torch.tensor(data=n)
torch.tensor(n, dtype=torch.float16)
torch.tensor(n, requires_grad=n.dtype.kind == "f").requires_grad
torch.tensor([n, n])
torch.tensor([1, n])
torch.tensor([1.0, n])
torch.tensor([[n], [x.shape[0]]])
torch.tensor((n,), device="cpu")
torch.as_tensor(n)
torch.as_tensor([n, 2])
torch.asarray(n)
torch.asarray([n, 2])
torch.tensor(n + 1)
torch.tensor(n * 2)
torch.tensor(-n)
torch.tensor(np.sqrt(n))
torch.tensor(np.mean([n, 3]))
torch.tensor([np.mean([n, 3]), 1])
torch.full((2,), n)
torch.scalar_tensor(n)
torch.where(x > 1, x, n)
x.new_tensor(n)
x.new_full((2,), n)
x.int() + n
n * x
n - x.int()
x**n
x.clamp(n)
x.masked_fill(x > 1, n)
torch.result_type(x, n)
"""


def outcome(function: Any, number: Any) -> Any:
    try:
        return function(torch.arange(3.0), number)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("use", USES.strip().splitlines())
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.filterwarnings("ignore")
def test_numbers(use: str, backend: str) -> None:
    namespace: dict[str, Any] = {"torch": torch, "np": np}
    exec(f"def f(x, n):\n    return x * 2, {use}", namespace)
    for name, number in NUMBERS.items():
        framejit.reset()
        compiled = framejit.compile(namespace["f"], backend=backend)
        expected = outcome(namespace["f"], number)
        for _ in range(2):
            assert_same(expected, outcome(compiled, number), f"{use} of {name}")


def test_default_dtype() -> None:
    """Beside NumPy's numbers, floats are what is the default at the call."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([0.1, np.int8(2)])

    compiled = framejit.compile(f, fullgraph=True)
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert_same(f(torch.ones(2)), compiled(torch.ones(2)))
    finally:
        torch.set_default_dtype(before)
