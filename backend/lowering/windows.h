// Windows over the last dims of a tensor, as pools have them: output o of a dim
// sees the inputs o * stride - pad + tap * dilation, tap < kernel, of which
// some may lie outside.
#pragma once

#include <functional>
#include <vector>

#include "backend/lowering/node.h"

namespace framejit::backend {

// Of a window that is unrolled: it costs that many loads and much code.
constexpr int64_t kMaxUnrolled = 32;

struct Windows {
  std::vector<Expr> lead;             // sizes of the dims before
  std::vector<Expr> inputs, outputs;  // sizes of the dims that have windows
  std::vector<int64_t> kernel, stride, pad, dilation;
  bool ceil_mode = false;  // a window may begin where it does not fit

  int dims() const { return static_cast<int>(inputs.size()); }
  int lead_dims() const { return static_cast<int>(lead.size()); }
  int64_t taps() const;
  std::vector<Expr> input_sizes() const;
  std::vector<Expr> output_sizes() const;

  // ---- within loops over the outputs' elements (and `tap` loops, if
  // `tap_loops` is the first of them): an input, and whether it is one (empty:
  // always).
  struct Tap {
    std::vector<codegen::Index> indices;
    Term inside;
  };
  Tap tap(Elements& elements, const std::vector<int64_t>& taps) const;
  Tap tap_of_loops(Elements& elements, int tap_loops) const;
  // Does the window of dim have all its inputs, wherever it is?
  bool is_whole(int dim) const;
  // The number of an input among those of its plane.
  Term plane_number(Elements& elements,
                    const std::vector<codegen::Index>& inputs) const;
  // Calls f for each tap of a window, in order.
  void for_each_tap(
      const std::function<void(const std::vector<int64_t>&)>& f) const;

 private:
  bool may_be_low(int dim, int64_t tap) const;
  bool may_be_high(int dim, int64_t tap) const;
};

// A pool's windows: argument `input` is seen, and `kernel`, `kernel` + 1 ...
// are kernel, stride, padding and, if has_dilation, dilation, then ceil_mode.
Windows windows_of(const NodeLowering& node, size_t input, size_t kernel,
                   bool has_dilation, std::vector<Expr> outputs, int dims);
// Those of an adaptive pool, where all of them are alike.
Windows equal_windows(std::vector<Expr> inputs, std::vector<Expr> outputs,
                      int dims);

// Of each input: the sum over the windows that see it, where `inside`, of
// value(elements, indices of the output, indices of the input). Result 0 of the
// node.
using WindowValue = std::function<Term(
    Elements& elements, const std::vector<codegen::Index>& output,
    const std::vector<codegen::Index>& input, Term inside)>;
void set_sums_over_windows(NodeLowering& node, const Windows& windows,
                           const WindowValue& value);

}  // namespace framejit::backend
