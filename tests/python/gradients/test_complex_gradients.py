"""Gradients of complex numbers are compiled: saved numbers that formulas conjugate, and
spectra of which a part is doubled in place."""

from __future__ import annotations

import pytest
import torch

import framejit

NUMBERS = {
    "product": lambda z: z * 2j,
    "number first": lambda z: (1 + 2j) * z,
    "quotient": lambda z: z / (1 - 3j),
    "number over it": lambda z: (2 + 1j) / z,
    "two": lambda z: (z * 2j) * (z * (1 - 1j)),
    "power": lambda z: z ** (1 + 0.5j),
    "difference": lambda z: torch.sub(z, z.conj(), alpha=2j),
    "no dims": lambda z: z.sum() * 2j,
    "imaginary": lambda z: (z * 3j).imag * (z * 2j).real,
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_complex_numbers(name, dynamic, dtype):
    def fn(z):
        return NUMBERS[name](z).abs().sum()

    framejit.reset()
    compiled = framejit.compile(fn, dynamic=dynamic)
    for size in (4, 4, 5, 6):
        z = torch.randn(size, dtype=dtype, requires_grad=True)
        expected = torch.autograd.grad(fn(z), z)
        torch.testing.assert_close(torch.autograd.grad(compiled(z), z), expected)
    assert {e.fallback_reason for e in framejit.inspect(compiled)} == {""}


SPECTRA = {
    "and back": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.size(-1)),
    "filtered": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.size(-1)),
    "along": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), x.size(0), dim=0),
    "of images": lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape),
    "longer": lambda x: torch.fft.irfft(torch.fft.rfft(x, n=16), n=16),
    "hermitian": lambda x: torch.fft.hfft(torch.fft.ihfft(x), n=x.size(-1)),
}


@pytest.mark.parametrize("sizes", [(3, 8), (3, 7), (4, 2)])
@pytest.mark.parametrize("name", SPECTRA)
def test_spectra(name, sizes):
    def fn(x):
        return SPECTRA[name](x).relu()

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(2):
        x = torch.randn(sizes, requires_grad=True)
        y = compiled(x)
        expected = torch.autograd.grad(fn(x).exp().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(y.exp().sum(), x), expected)
    assert {e.fallback_reason for e in framejit.inspect(compiled)} == {""}
