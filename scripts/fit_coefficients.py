#!/usr/bin/env python3
"""Fits the polynomials of the kernels' transcendental functions.

    scripts/fit_coefficients.py > backend/math_coefficients.h

Each polynomial minimises the largest weighted error over its interval (Lawson's
iteration on Chebyshev nodes). Coefficients are rounded to float32 one by one,
lowest order first, and the rest is fitted again to what remains, so that the
printed numbers are the best for the arithmetic that uses them. References are
computed with 40 digits. Needs numpy and mpmath; run by hand, its output is
checked in.
"""

import mpmath as mp
import numpy as np

mp.mp.dps = 40
NODES = 500
ROUNDS = 80


def fit(function, low, high, count, weight):
    """float32 c[0..count) for sum c[i] s**i ~ function(s) on [low, high]."""
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(
        np.pi * (np.arange(NODES) + 0.5) / NODES
    )
    target = np.array([float(function(mp.mpf(s))) for s in nodes])
    weights = np.array([float(weight(mp.mpf(s))) for s in nodes])
    fixed = []
    for done in range(count):
        rest = target - sum(c * nodes**i for i, c in enumerate(fixed))
        basis = np.vander(nodes, count - done, increasing=True)
        basis = basis * (nodes**done)[:, None]
        lawson = np.ones(NODES)
        for _ in range(ROUNDS):
            scale = weights * np.sqrt(lawson)
            solution = np.linalg.lstsq(
                basis * scale[:, None], rest * scale, rcond=None
            )[0]
            error = np.abs((basis @ solution - rest) * weights)
            lawson = lawson * (error + 1e-30)
            lawson /= lawson.sum()
        fixed.append(float(np.float32(solution[0])))
    value = sum(c * nodes**i for i, c in enumerate(fixed))
    return fixed, np.max(np.abs((value - target) * weights))


def literal(number):
    text = repr(float(np.float32(number)))
    return text + "f"


def show(name, comment, coefficients, error=None):
    print(f"// {comment}")
    if error is not None:
        print(f"// Largest weighted error {error:.2e}.")
    print(f"inline constexpr float {name}[] = {{")
    for c in coefficients:
        print(f"    {literal(c)},")
    print("};\n")


def split(number, parts):
    """float32 parts whose sum is `number`, largest first."""
    result = []
    for _ in range(parts):
        part = float(np.float32(float(number)))
        result.append(part)
        number = number - mp.mpf(part)
    return result


def odd_series(function):
    """p in function(x) = x + x * s * p(s), s = x * x."""
    return lambda s: (function(mp.sqrt(s)) / mp.sqrt(s) - 1) / s


def odd_weight(function):
    return lambda s: s * mp.sqrt(s) / function(mp.sqrt(s))


def main():
    print(
        "// Polynomials of kernel_math.cpp, lowest order first. Printed by\n"
        "// scripts/fit_coefficients.py; do not edit by hand.\n"
        "#pragma once\n\nnamespace framejit::backend::coefficients {\n"
    )
    show("kLn2", "ln 2 in two parts.", split(mp.log(2), 2))
    show("kPi", "pi in three parts.", split(mp.pi, 3))
    show(
        "kInverses",
        "1 / ln 2, 1 / pi, 1 / sqrt 2, sqrt(2 / pi), 1 / sqrt(2 pi).",
        [
            1 / mp.log(2),
            1 / mp.pi,
            1 / mp.sqrt(2),
            mp.sqrt(2 / mp.pi),
            1 / mp.sqrt(2 * mp.pi),
        ],
    )

    half = float(mp.log(2) / 2) * 1.01
    # The nodes avoid 0, where the quotient has no digits.
    show(
        "kExp",
        "exp(r) = 1 + r + r^2 p(r), |r| <= ln 2 / 2.",
        *fit(
            lambda r: (mp.expm1(r) - r) / r**2,
            -half,
            half,
            5,
            lambda r: r**2 / mp.exp(r),
        ),
    )
    show(
        "kLog",
        "log(1 + f) = f - f^2 / 2 + f^3 p(f), -1/3 <= f <= 1/3.",
        *fit(
            lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
            -0.3335,
            0.3335,
            9,
            lambda f: abs(f**3 / mp.log1p(f)),
        ),
    )
    show(
        "kTanh",
        "tanh(x) = x + x s p(s), s = x^2, |x| <= 0.625.",
        *fit(odd_series(mp.tanh), 1e-6, 0.6251**2, 5, odd_weight(mp.tanh)),
    )
    show(
        "kSin",
        "sin(x) = x + x s p(s), s = x^2, |x| <= pi / 2.",
        *fit(
            odd_series(mp.sin),
            1e-6,
            float((mp.pi / 2) ** 2) * 1.001,
            4,
            odd_weight(mp.sin),
        ),
    )

    limit = 0.928
    show(
        "kErfSmall",
        "erf(x) = x + x p(s), s = x^2, |x| < 0.928.",
        *fit(
            lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1,
            1e-6,
            limit**2,
            6,
            lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)),
        ),
    )
    show(
        "kErfLarge",
        "erf(t) = 1 - exp(-(t + t p(t))), 0.928 <= t <= 4.",
        *fit(
            lambda t: -mp.log(mp.erfc(t)) / t - 1,
            limit - 0.001,
            4.0,
            8,
            lambda t: t * mp.erfc(t) / mp.erf(t),
        ),
    )
    print("}  // namespace framejit::backend::coefficients")


if __name__ == "__main__":
    main()
