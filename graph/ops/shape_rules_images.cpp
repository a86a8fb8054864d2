// Padding, resampling and windows of images: dims of space at the end.
#include <algorithm>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

// The sizes of the input, the last of which are given.
bool resized(ShapeCall& call, size_t given) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  std::vector<Expr> wanted = call.integers(given);
  if (wanted.empty() || sizes.size() <= wanted.size()) return false;
  std::copy(wanted.begin(), wanted.end(), sizes.end() - wanted.size());
  for (size_t i = 0; i < call.metas.size(); ++i) {
    if (!call.fresh(i, sizes)) return false;
  }
  return true;
}

// How many windows an image has, and how many places a window.
struct Windows {
  Expr count = Expr(1);
  int64_t places = 1;
};

// kernel_size, dilation, padding and stride are the arguments from `first` on.
bool count_windows(const ShapeCall& call, const std::vector<Expr>& image,
                   size_t first, Windows* windows) {
  std::vector<int64_t> kernel = call.constants(first),
                       dilation = call.constants(first + 1),
                       padding = call.constants(first + 2),
                       stride = call.constants(first + 3);
  for (size_t i = 0; i < image.size(); ++i) {
    int64_t size = list_item(kernel, i, 1), step = list_item(stride, i, 1);
    if (step < 1) return false;
    Expr count = window_count(image[i], size, step, list_item(padding, i, 0),
                              list_item(dilation, i, 1));
    if (!decide(expr_lt(0, count))) return false;
    windows->count = windows->count * count;
    windows->places *= size;
  }
  return true;
}

// Blocks of places become channels, or back.
bool shuffle(ShapeCall& call, bool to_places) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  Expr factor(call.constant(1));
  if (sizes.size() < 3 || decide(expr_le(factor, 0))) return false;
  Expr &channels = sizes[sizes.size() - 3], square = factor * factor;
  if (to_places) {
    if (!decide(expr_eq(mod(channels, square), 0))) return false;
    channels = floor_div(channels, square);
  } else {
    channels = channels * square;
  }
  for (size_t i = sizes.size() - 2; i < sizes.size(); ++i) {
    if (to_places) {
      sizes[i] = sizes[i] * factor;
      continue;
    }
    if (!decide(expr_eq(mod(sizes[i], factor), 0))) return false;
    sizes[i] = floor_div(sizes[i], factor);
  }
  return call.fresh(0, sizes);
}

}  // namespace

bool shape_pad(ShapeCall& call) {
  const SymbolicShape self = call.tensor(0);
  std::vector<Expr> sizes = self.sizes, pad = call.integers(1);
  if (pad.size() > 2 * sizes.size()) return false;
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    Expr& size = sizes[sizes.size() - 1 - i / 2];
    size = size + pad[i] + pad[i + 1];
    if (decide(expr_lt(size, 0))) return false;
  }
  // Where nothing is added it is a clone of a part, which lies as that does if
  // there are no gaps: dims of one element have the strides of the whole.
  const bool only_less =
      call.facts.name == "aten::constant_pad_nd" &&
      std::all_of(pad.begin(), pad.end(),
                  [](const Expr& count) { return decide(expr_le(count, 0)); });
  if (only_less && is_dense(sizes, self.strides)) {
    call.view(0, {sizes, self.strides, Expr(0)});
    return true;
  }
  return call.fresh(0, sizes);
}

bool shape_resized(ShapeCall& call) { return resized(call, 1); }
bool shape_resized_third(ShapeCall& call) { return resized(call, 2); }

bool shape_resized_backward(ShapeCall& call) {
  return call.fresh(0, call.integers(2));
}

// (self, kernel_size, dilation, padding, stride): channels x places, windows
bool shape_im2col(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.size() != 3 && sizes.size() != 4) return false;
  Windows windows;
  std::vector<Expr> image(sizes.end() - 2, sizes.end());
  if (!count_windows(call, image, 1, &windows)) return false;
  sizes.resize(sizes.size() - 2);
  sizes.back() = sizes.back() * Expr(windows.places);
  sizes.push_back(windows.count);
  return call.fresh_contiguous(0, sizes);
}

// (self, output_size, kernel_size, dilation, padding, stride)
bool shape_col2im(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes, image = call.integers(1);
  if (sizes.size() != 2 && sizes.size() != 3) return false;
  Windows windows;
  if (image.size() != 2 || !count_windows(call, image, 2, &windows))
    return false;
  Expr places(windows.places);
  Expr& channels = sizes[sizes.size() - 2];
  if (!decide(expr_eq(sizes.back(), windows.count)) ||
      !decide(expr_eq(mod(channels, places), 0)))
    return false;
  channels = floor_div(channels, places);
  sizes.pop_back();
  sizes.insert(sizes.end(), image.begin(), image.end());
  return call.fresh_contiguous(0, sizes);
}

bool shape_pixel_shuffle(ShapeCall& call) { return shuffle(call, true); }
bool shape_pixel_unshuffle(ShapeCall& call) { return shuffle(call, false); }

// (theta, size of the image): its places, each with as many numbers as dims
bool shape_affine_grid(ShapeCall& call) {
  std::vector<Expr> image = call.integers(1);
  if (image.size() < 4) return false;
  std::vector<Expr> sizes = {image[0]};
  sizes.insert(sizes.end(), image.begin() + 2, image.end());
  sizes.emplace_back(static_cast<int64_t>(image.size()) - 2);
  return call.fresh_contiguous(0, sizes);
}

// (input, grid): the grid has places, each of as many numbers as the image has
// dims.
bool shape_grid_sampler(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes, grid = call.tensor(1).sizes;
  if (sizes.size() != grid.size() || sizes.size() < 4) return false;
  if (!decide(expr_eq(sizes[0], grid[0]))) return false;
  std::copy(grid.begin() + 1, grid.end() - 1, sizes.begin() + 2);
  return call.fresh(0, sizes);
}

// (gradient, input, grid, modes ..., mask)
bool shape_grid_sampler_backward(ShapeCall& call) {
  auto mask = call.arguments[6].toBoolList();
  size_t next = 0;
  if (mask[0] && !call.fresh(next++, call.tensor(1).sizes)) return false;
  // The grid's gradient is made whether it is asked for or not.
  if (next < call.metas.size() && !call.fresh(next++, call.tensor(2).sizes))
    return false;
  return next == call.metas.size();
}

}  // namespace framejit::graph
