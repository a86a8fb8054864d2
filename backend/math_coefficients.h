// Polynomials of kernel_math.cpp, lowest order first. Printed by
// scripts/fit_coefficients.py; do not edit by hand.
#pragma once

namespace framejit::backend::coefficients {

// ln 2 in two parts.
inline constexpr float kLn2[] = {
    0.6931471824645996f,
    -1.9046542121259336e-09f,
};

// pi in three parts.
inline constexpr float kPi[] = {
    3.1415927410125732f,
    -8.742277657347586e-08f,
    -3.4302490200117637e-15f,
};

// 1 / ln 2, 1 / pi, 1 / sqrt 2, sqrt(2 / pi), 1 / sqrt(2 pi).
inline constexpr float kInverses[] = {
    1.4426950216293335f, 0.31830987334251404f, 0.7071067690849304f,
    0.7978845834732056f, 0.3989422917366028f,
};

// exp(r) = 1 + r + r^2 p(r), |r| <= ln 2 / 2.
// Largest weighted error 3.37e-09.
inline constexpr float kExp[] = {
    0.4999999403953552f,  0.16666516661643982f,   0.04166828468441963f,
    0.00836925022304058f, 0.0013820468448102474f,
};

// log(1 + f) = f - f^2 / 2 + f^3 p(f), -1/3 <= f <= 1/3.
// Largest weighted error 8.78e-10.
inline constexpr float kLog[] = {
    0.3333333432674408f,   -0.24999825656414032f, 0.19999679923057556f,
    -0.16679368913173676f, 0.14302784204483032f,  -0.12198327481746674f,
    0.10768614709377289f,  -0.12835197150707245f, 0.11962641775608063f,
};

// tanh(x) = x + x s p(s), s = x^2, |x| <= 0.625.
// Largest weighted error 4.52e-09.
inline constexpr float kTanh[] = {
    -0.3333328068256378f, 0.1333140879869461f,    -0.053736913949251175f,
    0.02062981016933918f, -0.005694424267858267f,
};

// sin(x) = x + x s p(s), s = x^2, |x| <= pi / 2.
// Largest weighted error 6.20e-09.
inline constexpr float kSin[] = {
    -0.16666659712791443f,
    0.008333069272339344f,
    -0.00019809773948509246f,
    2.606081807243754e-06f,
};

// erf(x) = x + x p(s), s = x^2, |x| < 0.928.
// Largest weighted error 1.71e-08.
inline constexpr float kErfSmall[] = {
    0.12837915122509003f,   -0.37612491846084595f, 0.1128176599740982f,
    -0.026764269918203354f, 0.004989276640117168f, -0.0005969376652501523f,
};

// erf(t) = 1 - exp(-(t + t p(t))), 0.928 <= t <= 4.
// Largest weighted error 2.05e-10.
inline constexpr float kErfLarge[] = {
    0.12855544686317444f,     0.6356082558631897f,    0.10529552400112152f,
    -0.022708531469106674f,   0.002951286965981126f,  -5.719422551919706e-05f,
    -4.4095377234043553e-05f, 4.816804448637413e-06f,
};

}  // namespace framejit::backend::coefficients
