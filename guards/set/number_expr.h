// Numbers of the program as expressions, and back.
//
// operate_on_floats() is what Python's operators and math functions do to
// numbers of which one is a float or becomes one. The answer is an expression
// where float_ops.def has the operation. Comparisons and roundings to an int
// are decided at the hints, and the guards say when the decision holds. Each
// answer is compared with Python's own for the hints before it is believed.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "frame_hook/py_ref.h"
#include "guards/expr/expr.h"
#include "guards/set/guard_set.h"

namespace framejit {

// Expressions are over 64 bits, Python's integers are not: no symbol is larger
// than this, and sums and products are kept within it, so that one more step
// (the opposite, the sum of two) does not lead beyond.
constexpr int64_t kLargestInteger = int64_t{1} << 62;

// Of sizes, strides and offsets: bytes are computed of them, and sums of those.
constexpr int64_t kLargestExtent = int64_t{1} << 55;

// Guards that the value of `expr`, which is within the limit now, stays so:
// only where the program's own integers, or many sizes, could lead beyond.
void keep_within(int64_t limit, const Expr& expr, GuardSet* guards);
// The same for a size, stride or offset, which is not negative either:
// `new_zeros(length - n)` raises in eager for a longer n.
void keep_extent(const Expr& expr, GuardSet* guards);
// Numbers that are no size or stride of a tensor that came in?
bool uses_program_numbers(const Expr& expr, const GuardSet& guards);

// The Python int, bool or float. Null: a Python error is set.
PyObject* number_object(const Expr& expr, const int64_t* symbols);
// Of an int, bool or float; none for others and for ints beyond 64 bits.
std::optional<Expr> number_expr(PyObject* number);

// function: a callable of the operator or math module, `name` is its name. Null
// (for callers that may not hold the GIL): the answer is not compared.
// None: there is no expression for it (or Python raises); nothing was guarded.
// Otherwise the guards are in the set, and the result is a float expression, or
// a constant of the type of `*type`.
std::optional<Expr> operate_on_floats(std::string_view name, PyObject* function,
                                      const std::vector<Expr>& operands,
                                      GuardSet* guards, PyTypeObject** type);

// The value that earlier guards leave to a float expression, if only one.
std::optional<double> pinned_float(const Expr& expr, const GuardSet& guards);
// The value at the hints, with the guards that keep it.
double pin_float(const Expr& expr, GuardSet* guards);

}  // namespace framejit
