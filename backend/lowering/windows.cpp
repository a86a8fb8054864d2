#include "backend/lowering/windows.h"

#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Index;

namespace {

// Taps in one body: beyond, it is a loop, or ATen's.
constexpr int64_t kMaxClasses = 16;
constexpr int64_t kMaxTaps = 64;

Term both(Term a, Term b) { return a && b ? a & b : a ? a : b; }

// Of an argument that gives one number for all dims, or one for each.
std::vector<int64_t> numbers_of(const NodeLowering& node, size_t i, int dims) {
  std::vector<int64_t> out;
  for (const Expr& item : node.integers(i)) {
    require(item.is_const(), "a symbolic window");
    out.push_back(item.constant());
  }
  if (out.size() == 1) out.assign(dims, out[0]);
  return out;
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

std::vector<Expr> joined(std::vector<Expr> a, const std::vector<Expr>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

Windows windows_of(const NodeLowering& node, size_t input, size_t kernel,
                   bool has_dilation, std::vector<Expr> outputs, int dims) {
  Windows out;
  const std::vector<Expr> sizes = node.tensor(input).sizes;
  const auto lead = static_cast<std::ptrdiff_t>(sizes.size()) - dims;
  require((lead == 1 || lead == 2) && outputs.size() == sizes.size(),
          "a pool of other dims");
  out.lead.assign(sizes.begin(), sizes.begin() + lead);
  out.inputs.assign(sizes.begin() + lead, sizes.end());
  out.outputs.assign(outputs.begin() + lead, outputs.end());
  out.kernel = numbers_of(node, kernel, dims);
  out.stride = numbers_of(node, kernel + 1, dims);
  if (out.stride.empty()) out.stride = out.kernel;
  out.pad = numbers_of(node, kernel + 2, dims);
  out.dilation = has_dilation ? numbers_of(node, kernel + 3, dims)
                              : std::vector<int64_t>(dims, 1);
  out.ceil_mode = node.flag(kernel + (has_dilation ? 4 : 3));
  for (const auto* list : {&out.kernel, &out.stride, &out.pad, &out.dilation})
    require(list->size() == static_cast<size_t>(dims),
            "a window of other dims");
  for (int i = 0; i < dims; ++i)
    require(out.kernel[i] > 0 && out.stride[i] > 0 && out.dilation[i] > 0 &&
                out.pad[i] >= 0 && out.pad[i] * 2 <= out.kernel[i],
            "a window that is none");
  return out;
}

Windows equal_windows(std::vector<Expr> inputs, std::vector<Expr> outputs,
                      int dims) {
  Windows out;
  const auto lead = static_cast<std::ptrdiff_t>(inputs.size()) - dims;
  require((lead == 1 || lead == 2) && inputs.size() == outputs.size(),
          "a pool of other dims");
  out.lead.assign(inputs.begin(), inputs.begin() + lead);
  out.inputs.assign(inputs.begin() + lead, inputs.end());
  out.outputs.assign(outputs.begin() + lead, outputs.end());
  for (int i = 0; i < dims; ++i) {
    require(out.inputs[i].is_const() && out.outputs[i].is_const() &&
                out.outputs[i].constant() > 0 && out.inputs[i].constant() > 0 &&
                out.inputs[i].constant() % out.outputs[i].constant() == 0,
            "windows of different sizes");
    out.kernel.push_back(out.inputs[i].constant() / out.outputs[i].constant());
    out.pad.push_back(0);
    out.dilation.push_back(1);
  }
  out.stride = out.kernel;
  return out;
}

int64_t Windows::taps() const {
  int64_t out = 1;
  for (int64_t size : kernel) out *= size;
  return out;
}

std::vector<Expr> Windows::input_sizes() const { return joined(lead, inputs); }
std::vector<Expr> Windows::output_sizes() const {
  return joined(lead, outputs);
}

bool Windows::may_be_low(int dim, int64_t tap) const {
  return tap * dilation[dim] < pad[dim];
}

bool Windows::may_be_high(int dim, int64_t tap) const {
  if (inputs[dim].is_const() && outputs[dim].is_const())
    return (outputs[dim].constant() - 1) * stride[dim] - pad[dim] +
               tap * dilation[dim] >=
           inputs[dim].constant();
  return ceil_mode || pad[dim] > (kernel[dim] - 1 - tap) * dilation[dim];
}

bool Windows::is_whole(int dim) const {
  for (int64_t tap = 0; tap < kernel[dim]; ++tap)
    if (may_be_low(dim, tap) || may_be_high(dim, tap)) return false;
  return true;
}

Windows::Tap Windows::tap(Elements& elements,
                          const std::vector<int64_t>& taps) const {
  Tap out;
  out.indices = elements.at_loops(0, lead_dims());
  for (int dim = 0; dim < dims(); ++dim) {
    const int64_t offset = taps[dim] * dilation[dim] - pad[dim];
    Index place = elements.at_loop(lead_dims() + dim, stride[dim], offset);
    Term at = elements.value_of(place);
    if (may_be_low(dim, taps[dim])) out.inside = both(out.inside, at >= 0);
    if (may_be_high(dim, taps[dim]))
      out.inside = both(out.inside, at < elements.number(inputs[dim]));
    out.indices.push_back(std::move(place));
  }
  return out;
}

Windows::Tap Windows::tap_of_loops(Elements& elements, int tap_loops) const {
  Tap out;
  out.indices = elements.at_loops(0, lead_dims());
  for (int dim = 0; dim < dims(); ++dim) {
    Index place = elements.at_loop(lead_dims() + dim, stride[dim], -pad[dim]);
    place.coefficients[tap_loops + dim] = dilation[dim];
    if (!is_whole(dim)) {
      Term at = elements.value_of(place);
      out.inside =
          both(both(out.inside, at >= 0), at < elements.number(inputs[dim]));
    }
    out.indices.push_back(std::move(place));
  }
  return out;
}

Term Windows::plane_number(Elements& elements,
                           const std::vector<Index>& inputs_at) const {
  Term out;
  for (int dim = 0; dim < dims(); ++dim) {
    Term at = elements.value_of(inputs_at[lead_dims() + dim]);
    out = out ? out * elements.number(inputs[dim]) + at : at;
  }
  return out;
}

void Windows::for_each_tap(
    const std::function<void(const std::vector<int64_t>&)>& f) const {
  std::vector<int64_t> at(dims(), 0);
  while (true) {
    f(at);
    int dim = dims() - 1;
    while (dim >= 0 && ++at[dim] == kernel[dim]) at[dim--] = 0;
    if (dim < 0) return;
  }
}

// ---- sums over windows

namespace {

// The inputs first[d] + i * stride[d], which are seen by the same taps.
class InputClass {
 public:
  InputClass(const Windows& windows, std::vector<int64_t> first)
      : windows_(windows), first_(std::move(first)) {}

  std::vector<Expr> loops() const {
    std::vector<Expr> out = windows_.lead;
    for (int dim = 0; dim < windows_.dims(); ++dim) {
      const int64_t step = windows_.stride[dim];
      if (step == 1) {
        out.push_back(windows_.inputs[dim]);
        continue;
      }
      const int64_t size = windows_.inputs[dim].constant();
      out.push_back(
          std::max<int64_t>(0, (size - first_[dim] + step - 1) / step));
    }
    return out;
  }

  std::vector<Index> inputs(Elements& elements) const {
    std::vector<Index> out = elements.at_loops(0, windows_.lead_dims());
    for (int dim = 0; dim < windows_.dims(); ++dim)
      out.push_back(elements.at_loop(windows_.lead_dims() + dim,
                                     windows_.stride[dim], first_[dim]));
    return out;
  }

  // The outputs that see the element, in order.
  Term sum(Elements& elements, const WindowValue& value) const {
    Term out;
    const std::vector<Index> input = inputs(elements);
    const Windows& w = windows_;
    w.for_each_tap([&](const std::vector<int64_t>& taps) {
      std::vector<Index> output = elements.at_loops(0, w.lead_dims());
      Term inside;
      for (int dim = 0; dim < w.dims(); ++dim) {
        // Later taps belong to earlier outputs.
        const int64_t tap = w.kernel[dim] - 1 - taps[dim];
        const int64_t distance =
            first_[dim] + w.pad[dim] - tap * w.dilation[dim];
        if (distance % w.stride[dim] != 0) return;
        const int64_t offset = floor_div(distance, w.stride[dim]);
        Index place = elements.at_loop(w.lead_dims() + dim, 1, offset);
        Term at = elements.value_of(place);
        const Expr& extent = elements.loops()[w.lead_dims() + dim];
        if (offset < 0) inside = both(inside, at >= 0);
        if (!extent.is_const() || !w.outputs[dim].is_const() ||
            extent.constant() - 1 + offset >= w.outputs[dim].constant())
          inside = both(inside, at < elements.number(w.outputs[dim]));
        output.push_back(std::move(place));
      }
      Term part = value(elements, output, input, inside);
      out = out ? out + part : part;
    });
    return out;
  }

 private:
  const Windows& windows_;
  std::vector<int64_t> first_;
};

}  // namespace

void set_sums_over_windows(NodeLowering& node, const Windows& windows,
                           const WindowValue& value) {
  int64_t classes = 1, taps = 1;
  for (int dim = 0; dim < windows.dims(); ++dim) {
    const int64_t stride = windows.stride[dim];
    require(stride == 1 || windows.inputs[dim].is_const(), "a symbolic plane");
    classes *= stride;
    taps *= (windows.kernel[dim] + stride - 1) / stride;
  }
  require(classes <= kMaxClasses && taps <= kMaxTaps, "a large window");
  const codegen::DType type = compute_type(node.out_type());
  auto element = [&](Elements& elements, const InputClass& members) {
    Term sum = members.sum(elements, value);
    return sum ? sum : elements.constant(type, 0);
  };
  if (classes == 1) {
    InputClass all(windows, std::vector<int64_t>(windows.dims(), 0));
    Elements elements(node, all.loops());
    Term sum = element(elements, all);
    return node.set_map(0, std::move(elements), sum);
  }
  TensorView whole;
  whole.type = node.out_type();
  whole.sizes = node.out().sizes;
  Windows firsts = windows;  // a tap for each class
  firsts.kernel = windows.stride;
  firsts.for_each_tap([&](const std::vector<int64_t>& first) {
    InputClass members(windows, first);
    Elements elements(node, members.loops());
    for (const Expr& extent : elements.loops())
      if (extent.is_const(0)) return;
    Term sum = element(elements, members);
    const std::vector<Index> target = members.inputs(elements);
    whole = node.update(std::move(elements), whole, target, sum);
  });
  node.set(0, whole);
}

}  // namespace framejit::backend
