#!/usr/bin/env python3
"""Fits the polynomials of the kernels' transcendental functions.

    scripts/fit_coefficients.py > codegen/legalise/math_coefficients.h
    scripts/fit_coefficients.py --inverse-pi > codegen/scalar/inverse_pi.h
    scripts/fit_coefficients.py --erf-pieces > codegen/scalar/erf_pieces.h

Those of float32 minimise the largest weighted error over their interval (Lawson's
iteration on Chebyshev nodes). Coefficients are rounded to float32 one by one,
lowest order first, and the rest is fitted again to what remains, so that the
printed numbers are the best for the arithmetic that uses them. Those of float64
go through the Chebyshev nodes, which is near the best, and is found with 60 digits.
Needs numpy and mpmath; run by hand, its output is checked in.
"""

import sys

import mpmath as mp
import numpy as np

mp.mp.dps = 60
NODES = 500
ROUNDS = 80
ERROR_POINTS = 400


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


def interpolate(function, low, high, count, weight):
    """float64 c[0..count) for sum c[i] s**i through the Chebyshev nodes of
    [low, high], and the largest weighted error between them. `count` is even
    where the function has no value in the middle."""
    low, high = mp.mpf(low), mp.mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    angles = [mp.pi * (i + mp.mpf(1) / 2) / count for i in range(count)]
    nodes = [middle + half * mp.cos(angle) for angle in angles]
    matrix = mp.matrix(count, count)
    for i, s in enumerate(nodes):
        for j in range(count):
            matrix[i, j] = s**j
    target = mp.matrix([function(s) for s in nodes])
    solution = mp.lu_solve(matrix, target)
    coefficients = [float(c) for c in solution]
    error = mp.mpf(0)
    for i in range(ERROR_POINTS):
        s = low + (high - low) * (i + mp.mpf(1) / 3) / ERROR_POINTS
        value = mp.polyval([mp.mpf(c) for c in reversed(coefficients)], s)
        error = max(error, abs((value - function(s)) * weight(s)))
    return coefficients, float(error)


def show_double(name, comment, coefficients, error=None):
    print(f"// {comment}")
    if error is not None:
        print(f"// Largest weighted error {error:.2e}.")
    print(f"inline constexpr double {name}[] = {{")
    for c in coefficients:
        print(f"    {float(c)!r},")
    print("};\n")


def truncated(number, bits):
    """The number's first bits, and the rest."""
    scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(number, 2)))
    high = mp.floor(number * scale) / scale
    return [high, number - high]


def atanh_rest(t):
    """p in 2 atanh(s) = 2 s + s^3 p(t), t = s^2."""
    s = mp.sqrt(t)
    return (2 * mp.atanh(s) - 2 * s) / s**3


def erfcx_at(u):
    """exp(x^2) erfc(x) for u = (x - 2) / (x + 2)."""
    x = 2 * (1 + u) / (1 - u)
    return mp.erfc(x) * mp.exp(x * x)


def doubles():
    half = mp.log(2) / 2 * mp.mpf("1.01")
    show_double("kLn2Wide", "ln 2: 33 bits, and the rest.", truncated(mp.log(2), 33))
    show_double("kLog2E", "1 / ln 2.", [1 / mp.log(2)])
    show_double("kLogScale", "1 / ln 2, 1 / ln 10.", [1 / mp.log(2), 1 / mp.log(10)])
    first = mp.mpf(float(mp.pi / 2))
    second = mp.mpf(float(mp.pi / 2 - first))
    show_double(
        "kHalfPi",
        "pi / 2 in three parts.",
        [first, second, mp.pi / 2 - first - second],
    )
    show_double("kTwoOverPi", "2 / pi.", [2 / mp.pi])
    for name, count in (("kExpWide", 8), ("kExpDouble", 12)):
        show_double(
            name,
            "exp(r) = 1 + r + r^2 p(r), |r| <= ln 2 / 2.",
            *interpolate(
                lambda r: (mp.expm1(r) - r) / r**2,
                -half,
                half,
                count,
                lambda r: r**2 / mp.exp(r),
            ),
        )
    for name, count in (("kLogWide", 5), ("kLogDouble", 9)):
        show_double(
            name,
            "2 atanh(s) = 2 s + s^3 p(s^2), |s| <= 1/5.",
            *interpolate(
                atanh_rest,
                mp.mpf("1e-9"),
                mp.mpf("0.0408"),
                count,
                lambda t: mp.sqrt(t) ** 3 / (2 * mp.atanh(mp.sqrt(t))),
            ),
        )
    quarter = (mp.pi / 4 * mp.mpf("1.001")) ** 2
    tiny = mp.mpf("1e-9")
    for name, count in (("kSinWide", 5), ("kSinDouble", 7)):
        show_double(
            name,
            "sin(x) = x + x s p(s), s = x^2, |x| <= pi / 4.",
            *interpolate(odd_series(mp.sin), tiny, quarter, count, odd_weight(mp.sin)),
        )
    for name, count in (("kCosWide", 5), ("kCosDouble", 6)):
        show_double(
            name,
            "cos(x) = 1 - s / 2 + s^2 p(s), s = x^2, |x| <= pi / 4.",
            *interpolate(
                lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2,
                tiny,
                quarter,
                count,
                lambda t: t**2 / mp.cos(mp.sqrt(t)),
            ),
        )
    show_double(
        "kAsinWide",
        "asin(x) = x + x s p(s), s = x^2, |x| <= 1/2.",
        *interpolate(
            odd_series(mp.asin), tiny, mp.mpf("0.2501"), 9, odd_weight(mp.asin)
        ),
    )
    show_double(
        "kAtanWide",
        "atan(x) = x + x s p(s), s = x^2, |x| <= sqrt 2 - 1.",
        *interpolate(
            odd_series(mp.atan),
            tiny,
            (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.001"),
            8,
            odd_weight(mp.atan),
        ),
    )
    show_double(
        "kSinhWide",
        "sinh(x) = x + x s p(s), s = x^2, |x| <= 1.",
        *interpolate(odd_series(mp.sinh), tiny, mp.mpf("1.01"), 5, odd_weight(mp.sinh)),
    )
    show_double(
        "kErfWide",
        "erf(x) = x p(s), s = x^2, |x| <= 1.",
        *interpolate(
            lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s),
            tiny,
            mp.mpf("1.01"),
            9,
            lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)),
        ),
    )
    show_double(
        "kErfcWide",
        "exp(x^2) erfc(x) = p((x - 2) / (x + 2)), 1 <= x <= 10.6.",
        *interpolate(
            erfcx_at,
            mp.mpf(-1) / 3 - mp.mpf("0.001"),
            mp.mpf("8.6") / mp.mpf("12.6"),
            12,
            lambda u: 1 / erfcx_at(u),
        ),
    )


def log_gamma_of_middle(u):
    """log(gamma(z)) / ((z - 1) (z - 2)) for u = z - 1.5."""
    z = u + mp.mpf("1.5")
    return mp.loggamma(z) / ((z - 1) * (z - 2))


def stirling_rest(t):
    """y times what Stirling's formula for log(gamma(y)) lacks, t = 1 / y^2."""
    y = 1 / mp.sqrt(t)
    formula = (y - mp.mpf("0.5")) * mp.log(y) - y + mp.log(2 * mp.pi) / 2
    return (mp.loggamma(y) - formula) * y


def scaled_erfc(u):
    """(1 + 2 x) exp(x^2) erfc(x) - 1.25, which is small, for u = (x - 4) / (x + 4)."""
    x = 4 * (1 + u) / (1 - u)
    return (1 + 2 * x) * mp.erfc(x) * mp.exp(x * x) - mp.mpf("1.25")


def log_gamma():
    show_double(
        "kLogOfPi",
        "log pi, log(2 pi) / 2.",
        [mp.log(mp.pi), mp.log(2 * mp.pi) / 2],
    )
    show_double(
        "kLogGamma",
        "log(gamma(z)) = (z - 1) (z - 2) p(z - 1.5), 0.5 <= z <= 2.5.",
        *interpolate(
            log_gamma_of_middle,
            mp.mpf("-1.001"),
            mp.mpf("1.001"),
            22,
            lambda u: 1 / log_gamma_of_middle(u),
        ),
    )
    show_double(
        "kStirling",
        "log(gamma(y)) = (y - 1/2) log(y) - y + log(2 pi) / 2 + p(1 / y^2) / y,\n"
        "// y >= 7.5.",
        *interpolate(
            stirling_rest,
            mp.mpf("1e-6"),
            mp.mpf("0.0178"),
            7,
            lambda t: 1 / stirling_rest(t),
        ),
    )


def accurate_doubles():
    """Those of functions of float64, and constants in two parts."""
    half, tiny = mp.mpf("0.505"), mp.mpf("1e-9")
    ln2, ln10 = mp.log(2), mp.log(10)
    for name, number in (("kLog2EParts", 1 / ln2), ("kLog10EParts", 1 / ln10)):
        first = mp.mpf(float(number))
        which = "ln 2" if number > 1 else "ln 10"
        show_double(name, f"1 / {which} in two parts.", [first, number - first])
    show_double(
        "kLog10Of2", "log10 2: 40 bits, and the rest.", truncated(ln2 / ln10, 40)
    )
    third = mp.mpf(2) / 3
    first = mp.mpf(float(third))
    show_double("kTwoThirds", "2 / 3 in two parts.", [first, third - first])
    show_double(
        "kLogRest",
        "2 atanh(s) = 2 s + s^3 (2/3 + t p(t)), t = s^2, |s| <= 1/5.",
        *interpolate(
            lambda t: (atanh_rest(t) - third) / t,
            mp.mpf("1e-9"),
            mp.mpf("0.0408"),
            10,
            lambda t: mp.sqrt(t) ** 5 / (2 * mp.atanh(mp.sqrt(t))),
        ),
    )
    show_double(
        "kExpm1Double",
        "exp(x) = 1 + x + x^2 p(x), |x| <= 0.4.",
        *interpolate(
            lambda x: (mp.expm1(x) - x) / x**2,
            mp.mpf("-0.4001"),
            mp.mpf("0.4001"),
            12,
            lambda x: x**2 / mp.expm1(x),
        ),
    )
    show_double(
        "kExp2Double",
        "2^r = 1 + r p(r), |r| <= 1/2.",
        *interpolate(
            lambda r: (mp.mpf(2) ** r - 1) / r,
            -half,
            half,
            14,
            lambda r: r / mp.mpf(2) ** r,
        ),
    )
    for name, function, most, count, domain in (
        ("kTanhDouble", mp.tanh, mp.mpf("0.5002"), 12, "1/2"),
        ("kSinhDouble", mp.sinh, mp.mpf("1.01"), 8, "1"),
        ("kAsinDouble", mp.asin, mp.mpf("0.5002"), 14, "1/2"),
        ("kAtanDouble", mp.atan, (mp.sqrt(2) - 1) * mp.mpf("1.0005"), 13, "sqrt 2 - 1"),
    ):
        what = name[1:-6].lower()
        show_double(
            name,
            f"{what}(x) = x + x s p(s), s = x^2, |x| <= {domain}.",
            *interpolate(
                odd_series(function), tiny, most**2, count, odd_weight(function)
            ),
        )
    show_double(
        "kErfDouble",
        "erf(x) = x + x p(s), s = x^2, |x| <= 3/4.",
        *interpolate(
            lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1,
            tiny,
            mp.mpf("0.564"),
            12,
            lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)),
        ),
    )
    show_double(
        "kErfcDouble",
        "(1 + 2 x) exp(x^2) erfc(x) = 1.25 + p((x - 4) / (x + 4)), 0.7 <= x <= 27.5.",
        *interpolate(
            scaled_erfc,
            mp.mpf("-3.3") / mp.mpf("4.7"),
            mp.mpf("23.5") / mp.mpf("31.5"),
            24,
            lambda u: 1 / (scaled_erfc(u) + mp.mpf("1.25")),
        ),
    )


def inverse_pi():
    mp.mp.prec = 400
    print(
        "// 1 / pi in binary, 32 bits a word from 2^-1 on. Printed by\n"
        "// scripts/fit_coefficients.py; do not edit by hand.\n"
        "#pragma once\n\n#include <cstdint>\n\nnamespace framejit::codegen {\n"
    )
    digits = int(mp.floor(mp.mpf(2) ** 256 / mp.pi))
    words = [f"0x{digits >> (32 * (7 - i)) & 0xFFFFFFFF:08x}" for i in range(8)]
    print("inline constexpr uint32_t kInversePi[] = {")
    for line in (words[:4], words[4:]):
        print("    " + ", ".join(line) + ",")
    print("};\n\n}  // namespace framejit::codegen")


# erf on 16 pieces of this width (in parts of 64), by their middles 0, 1 ... 15 widths.
PIECE = 17 / 64
PIECES = 16
DEGREE = 5


def erf_pieces():
    """Of each piece the slope, then c in erf(middle + r) = slope r + sum c[i] r**i,
    and the largest relative error. The slope is 1 in the first, which is odd, else 0.
    """
    columns, worst = [], 0.0
    reach = PIECE / 2
    odd, error = fit(
        lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1,
        1e-12,
        reach**2,
        (DEGREE + 1) // 2,
        lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)),
    )
    columns.append([1.0] + [c for term in odd for c in (0.0, term)])
    worst = max(worst, error)
    for piece in range(1, PIECES):
        middle = mp.mpf(piece * PIECE)
        terms, error = fit(
            lambda r, middle=middle: mp.erf(middle + r),
            -reach,
            reach,
            DEGREE + 1,
            lambda r, middle=middle: 1 / mp.erf(middle + r),
        )
        columns.append([0.0, *terms])
        worst = max(worst, error)
    return columns, worst


def print_erf_pieces():
    columns, error = erf_pieces()
    rows = list(zip(*columns, strict=True))
    print(
        "// erf in pieces, the middle of piece i being i widths:\n"
        "// erf(middle + r) = c[0] r + (c[1] + c[2] r + c[3] r^2 ...),\n"
        "// c[k] = kErfPieces[k][i]. Printed by scripts/fit_coefficients.py; do not\n"
        "// edit by hand.\n"
        f"// Largest relative error {error:.2e}.\n"
        "#pragma once\n\nnamespace framejit::codegen {\n\n"
        f"inline constexpr float kErfPieceWidth = {PIECE}f;\n\n"
        f"inline constexpr float kErfPieces[{len(rows)}][{len(columns)}] = {{"
    )
    for row in rows:
        print("    {" + ", ".join(literal(c) for c in row) + "},")
    print("};\n\n}  // namespace framejit::codegen")


def main():
    if "--inverse-pi" in sys.argv:
        inverse_pi()
        return
    if "--erf-pieces" in sys.argv:
        print_erf_pieces()
        return
    print(
        "// Polynomials of the expansions of functions, lowest order first. Printed\n"
        "// by scripts/fit_coefficients.py; do not edit by hand.\n"
        "#pragma once\n\nnamespace framejit::codegen::coefficients {\n"
    )
    doubles()
    accurate_doubles()
    log_gamma()
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
    print("}  // namespace framejit::codegen::coefficients")


if __name__ == "__main__":
    main()
