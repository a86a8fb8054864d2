// Polynomials of the expansions of functions, lowest order first. Printed
// by scripts/fit_coefficients.py; do not edit by hand.
#pragma once

namespace framejit::codegen::coefficients {

// ln 2: 33 bits, and the rest.
inline constexpr double kLn2Wide[] = {
    0.6931471804855391,
    7.440617110012397e-11,
};

// 1 / ln 2.
inline constexpr double kLog2E[] = {
    1.4426950408889634,
};

// 1 / ln 2, 1 / ln 10.
inline constexpr double kLogScale[] = {
    1.4426950408889634,
    0.4342944819032518,
};

// pi / 2 in three parts.
inline constexpr double kHalfPi[] = {
    1.5707963267948966,
    6.123233995736766e-17,
    -1.4973849048591698e-33,
};

// 2 / pi.
inline constexpr double kTwoOverPi[] = {
    0.6366197723675814,
};

// exp(r) = 1 + r + r^2 p(r), |r| <= ln 2 / 2.
// Largest weighted error 7.31e-14.
inline constexpr double kExpWide[] = {
    0.49999999999951383,   0.16666666666662247,   0.04166666679362806,
    0.008333333344872034,  0.0013888837087667207, 0.00019841222761353435,
    2.486920416652337e-05, 2.761877702984587e-06,
};

// exp(r) = 1 + r + r^2 p(r), |r| <= ln 2 / 2.
// Largest weighted error 1.68e-17.
inline constexpr double kExpDouble[] = {
    0.5000000000000001,     0.16666666666666669,   0.04166666666662064,
    0.008333333333329793,   0.0013888888918939168, 0.00019841269864380513,
    2.4801518641395993e-05, 2.75572664186123e-06,  2.7621338669142925e-07,
    2.510134692835034e-08,
};

// 2 atanh(s) = 2 s + s^3 p(s^2), |s| <= 1/5.
// Largest weighted error 7.10e-13.
inline constexpr double kLogWide[] = {
    0.6666666667038262,  0.3999999544935974,  0.28572317535932035,
    0.22161715391031578, 0.19845788869071163,
};

// 2 atanh(s) = 2 s + s^3 p(s^2), |s| <= 1/5.
// Largest weighted error 6.09e-17.
inline constexpr double kLogDouble[] = {
    0.6666666666666697,  0.39999999999261193, 0.28571428860603176,
    0.2222217985830343,  0.18184765030031377, 0.1527995858265992,
    0.15152183483505943,
};

// sin(x) = x + x s p(s), s = x^2, |x| <= pi / 4.
// Largest weighted error 1.76e-14.
inline constexpr double kSinWide[] = {
    -0.16666666666663857,   0.00833333333106116,     -0.00019841266899437373,
    2.7555985625195323e-06, -2.4805145406349193e-08,
};

// sin(x) = x + x s p(s), s = x^2, |x| <= pi / 4.
// Largest weighted error 2.01e-17.
inline constexpr double kSinDouble[] = {
    -0.16666666666666666,   0.008333333333330925,    -0.00019841269836722418,
    2.7557316083816333e-06, -2.5051127944010316e-08, 1.5917848524580534e-10,
};

// cos(x) = 1 - s / 2 + s^2 p(s), s = x^2, |x| <= pi / 4.
// Largest weighted error 9.90e-16.
inline constexpr double kCosWide[] = {
    0.04166666666666466,    -0.0013888888887264425, 2.4801585198441197e-05,
    -2.755636590225506e-07, 2.0700249467278027e-09,
};

// cos(x) = 1 - s / 2 + s^2 p(s), s = x^2, |x| <= pi / 4.
// Largest weighted error 1.17e-18.
inline constexpr double kCosDouble[] = {
    0.041666666666666664,   -0.0013888888888887382, 2.480158729874307e-05,
    -2.755731726000882e-07, 2.0876143827990713e-09, -1.138245677791886e-11,
};

// asin(x) = x + x s p(s), s = x^2, |x| <= 1/2.
// Largest weighted error 2.13e-13.
inline constexpr double kAsinWide[] = {
    0.16666666666738927,  0.07499999953258109,   0.04464290663642178,
    0.030379939464233664, 0.02241251693759331,   0.016901761114264686,
    0.016868812733886247, 0.0010549947185556606, 0.028360144064053388,
};

// atan(x) = x + x s p(s), s = x^2, |x| <= sqrt 2 - 1.
// Largest weighted error 1.02e-13.
inline constexpr double kAtanWide[] = {
    -0.33333333333265697,  0.19999999949530603,  -0.1428570807660834,
    0.11110818413340547,   -0.09084078141415657, 0.07604579484969129,
    -0.060262983874122905, 0.03293875786179489,
};

// sinh(x) = x + x s p(s), s = x^2, |x| <= 1.
// Largest weighted error 2.64e-13.
inline constexpr double kSinhWide[] = {
    0.1666666666670003,    0.008333333316818068,  0.00019841282916079858,
    2.755369855978718e-06, 2.546078424486798e-08,
};

// erf(x) = x p(s), s = x^2, |x| <= 1.
// Largest weighted error 9.83e-13.
inline constexpr double kErfWide[] = {
    1.128379167094602,      -0.37612638888570554,    0.11283791283985897,
    -0.026866131086676088,  0.005223774341061169,    -0.0008542428395878306,
    0.00011953913518578232, -1.3891990743992962e-05, 1.0543415361565017e-06,
};

// exp(x^2) erfc(x) = p((x - 2) / (x + 2)), 1 <= x <= 10.6.
// Largest weighted error 2.17e-11.
inline constexpr double kErfcWide[] = {
    0.2553956763106123,     -0.4271858474085965,    0.24165819423683327,
    -0.07897858169208057,   0.003732891663279387,   0.006997486281949787,
    -0.0008471221375669858, -0.000982375953778843,  4.352125451723923e-05,
    0.0001774712369040721,  2.5209517862085617e-05, -3.6822673658343634e-05,
};

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

}  // namespace framejit::codegen::coefficients
