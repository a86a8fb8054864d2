// What the operations mean: every target is tested against this.
//
// An Element is the value of one element in 8 bytes, and its type says how to
// read them: integers extended to 64 bits, b8 as 0 or 1, floats as their own
// bits (f64: 64, f32: 32, f16 and bf16: 16) with zeros above. So it has one
// form only, and constants are kept so, too (ScalarNode::payload).
//
// Arithmetic is done in the type, rounded once; named functions of f32 are
// computed by libm in double and rounded. A float becomes an integer as x86
// truncates: what does not fit gives the smallest i32 (for i32 and the low
// bits of it for i8 and i16) or the smallest i64 (for i64, and u8). f64 and
// i64 become f16 and bf16 by way of f32.
// An integer divided by zero gives some value; nothing traps.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "codegen/scalar/body.h"

namespace framejit::codegen {

Element element_of(DType type, double value);  // converted as Cast does
Element element_of_integer(DType type, int64_t value);  // low bits; b8: != 0
double as_double(DType type, Element value);
int64_t as_integer(DType type, Element value);  // as Cast to i64 does

Element load_element(DType type, const void* memory);
void store_element(DType type, Element value, void* memory);

Element convert(DType from, DType to, Element value);  // Cast

// The value of an operation that is no leaf. `operand` is the operands' type
// (of Select: the last one's).
Element evaluate(ScalarOp op, DType type, DType operand,
                 const std::array<Element, 3>& in);

// Values of all nodes, in order. leaf: of each but constants. False: a Check
// failed (all values are there nevertheless).
bool evaluate(const Body& body,
              const std::function<Element(const ScalarNode&)>& leaf,
              std::vector<Element>* values);

// NaN of the type, or bits equal, or (for floats) both NaN.
bool same_element(DType type, Element a, Element b);
bool is_nan(DType type, Element value);

// Conversions of small floats, to nearest and ties to even.
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);
inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t float_to_bf16(float value);

}  // namespace framejit::codegen
