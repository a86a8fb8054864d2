// Tensors that go on beyond their borders: reflected, or with the last element
// again. Forward and backward.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

enum class Border : uint8_t { kReflect, kReplicate };

// What is added before and behind each of the last dims.
struct Pads {
  int lead = 0;
  std::vector<int64_t> before, behind;
  std::vector<Expr> inputs;  // sizes, of all dims

  int dims() const { return static_cast<int>(before.size()); }
};

Pads pads_of(const NodeLowering& node, size_t argument,
             const std::vector<Expr>& inputs, Border border) {
  Pads out;
  out.inputs = inputs;
  const auto given = node.integers(argument);
  const int dims = static_cast<int>(given.size() / 2);
  out.lead = static_cast<int>(inputs.size()) - dims;
  require(dims >= 1 && (out.lead == 1 || out.lead == 2), "pads of other dims");
  for (int dim = dims - 1; dim >= 0; --dim) {
    for (const Expr& pad : {given[2 * dim], given[2 * dim + 1]})
      require(pad.is_const() && pad.constant() >= 0, "pads that may take away");
    out.before.push_back(given[2 * dim].constant());
    out.behind.push_back(given[2 * dim + 1].constant());
  }
  for (int dim = 0; dim < dims; ++dim) {
    const Expr& size = inputs[out.lead + dim];
    if (!size.is_const()) continue;
    require(size.constant() > 0, "nothing to go on from");
    if (border == Border::kReflect)
      require(out.before[dim] < size.constant() &&
                  out.behind[dim] < size.constant(),
              "more than there is to reflect");
  }
  return out;
}

// Outputs of a dim that lie side by side, and the inputs they show:
// output first + i shows input start + i * step.
struct Segment {
  Expr first, length;
  Expr start;
  int step = 1;
};

std::vector<Segment> segments(const NodeLowering& node, const Pads& pads,
                              int dim, Border border) {
  const Expr size = pads.inputs[pads.lead + dim];
  const int64_t before = pads.before[dim], behind = pads.behind[dim];
  const bool reflects = border == Border::kReflect;
  if (!size.is_const())
    node.ensure(expr_lt(reflects ? std::max(before, behind) : 0, size),
                "more than there is to show again");
  const int step = reflects ? -1 : 0;
  std::vector<Segment> out = {{before, size, 0}};
  if (before > 0) out.push_back({0, before, reflects ? before : 0, step});
  if (behind > 0)
    out.push_back({size + before, behind, size - (reflects ? 2 : 1), step});
  return out;
}

// Each segment of rows and columns is a copy of its own: the inside of whole
// rows, and what is beside it, without asking of each element where it lies.
void set_padded(NodeLowering& node, Border border) {
  // (self, padding)
  const TensorView view = node.tensor(0);
  require(view.type != DType::kBool, "a border of bools");
  const Pads pads = pads_of(node, 1, view.sizes, border);
  std::vector<std::vector<Segment>> each;
  for (int dim = 0; dim < pads.dims(); ++dim)
    each.push_back(segments(node, pads, dim, border));
  TensorView whole;  // nothing yet
  whole.type = node.out_type();
  whole.sizes = node.out().sizes;
  std::vector<const Segment*> chosen;
  const std::function<void(int)> put = [&](int dim) {
    if (dim < pads.dims()) {
      for (const Segment& segment : each[dim]) {
        chosen.push_back(&segment);
        put(dim + 1);
        chosen.pop_back();
      }
      return;
    }
    auto sizes =
        std::vector<Expr>(view.sizes.begin(), view.sizes.begin() + pads.lead);
    for (const Segment* segment : chosen) sizes.push_back(segment->length);
    Elements elements(node, sizes);
    auto source = elements.at_loops(0, pads.lead), target = source;
    for (int i = 0; i < pads.dims(); ++i) {
      const Segment& segment = *chosen[i];
      source.push_back(
          elements.at_loop(pads.lead + i, segment.step, segment.start));
      target.push_back(elements.at_loop(pads.lead + i, 1, segment.first));
    }
    Term value = elements.load(view, source);
    whole = node.update(std::move(elements), whole, target, value);
  };
  put(0);
  node.set(0, whole);
}

// ---- backward

// What both kinds of pads begin with: (grad, self, padding).
struct Backward {
  TensorView gradient;
  Pads pads;
  DType type;  // that sums are made in

  Backward(NodeLowering& node, Border border)
      : gradient(node.tensor(0)),
        pads(pads_of(node, 2, node.tensor(1).sizes, border)),
        type(compute_type(node.out_type())) {
    require(codegen::is_float(type), "no floats");
  }
};

struct Shows {
  Index output;
  Term when;  // empty: always
};

// What shows an element, in order: the reflection before, the element itself,
// the reflection behind.
std::vector<Shows> reflections(Elements& elements, const Pads& pads, int dim) {
  const int loop = pads.lead + dim;
  const int64_t before = pads.before[dim], behind = pads.behind[dim];
  const Expr last = pads.inputs[loop] - 1;
  Term at = elements.loop(loop);
  std::vector<Shows> out;
  if (before > 0)
    out.push_back({elements.at_loop(loop, -1, before),
                   (at >= 1) & (at <= static_cast<double>(before))});
  out.push_back({elements.at_loop(loop, 1, before), Term()});
  if (behind > 0)
    out.push_back({elements.at_loop(loop, -1, last * 2 + before),
                   (at < elements.number(last)) &
                       (at >= elements.number(last - behind))});
  return out;
}

// Of conditions that may be empty.
Term both(Term a, Term b) { return a && b ? a & b : a ? a : b; }

void set_reflected_backward(NodeLowering& node) {
  const Backward given(node, Border::kReflect);
  const Pads& pads = given.pads;
  Elements elements(node, node.out().sizes);
  std::vector<std::vector<Shows>> each;
  for (int dim = 0; dim < pads.dims(); ++dim)
    each.push_back(reflections(elements, pads, dim));
  auto indices = elements.at_loops(0, pads.lead);
  Term sum;
  const std::function<void(int, Term)> add = [&](int dim, Term when) {
    if (dim == pads.dims()) {
      Term part =
          cast(given.type, elements.load(given.gradient, indices, when));
      if (when) part = select(when, part, 0);
      sum = sum ? sum + part : part;
      return;
    }
    for (const Shows& shows : each[dim]) {
      indices.push_back(shows.output);
      add(dim + 1, both(when, shows.when));
      indices.pop_back();
    }
  };
  add(0, Term());
  node.set_map(0, std::move(elements), sum);
}

// The inputs that outputs show, where the last ones show themselves again.
std::vector<Index> shown_inputs(Elements& elements, const Pads& pads) {
  auto out = elements.at_loops(0, pads.lead);
  for (int dim = 0; dim < pads.dims(); ++dim) {
    const int loop = pads.lead + dim;
    if (pads.before[dim] == 0 && pads.behind[dim] == 0) {
      out.push_back(elements.at_loop(loop));
      continue;
    }
    Term at = elements.value_of(elements.at_loop(loop, 1, -pads.before[dim]));
    Term last = elements.number(pads.inputs[loop] - 1);
    out.push_back(elements.at_data(minimum(maximum(at, 0), last)));
  }
  return out;
}

void set_replicated_backward(NodeLowering& node) {
  const Backward given(node, Border::kReplicate);
  Elements zeros(node, node.out().sizes);
  Term zero = zeros.constant(given.type, 0);
  TensorView base = node.map(std::move(zeros), zero);
  Elements elements(node, given.gradient.sizes);
  Term value = cast(given.type, elements.load_broadcast(given.gradient));
  auto target = shown_inputs(elements, given.pads);
  TensorView sums =
      node.update(std::move(elements), base, target, value, Combiner::kSum);
  Elements result(node, node.out().sizes);
  Term element = result.load(sums, result.at_loops(0, sums.rank()));
  node.set_map(0, std::move(result), element);
}

}  // namespace

void lower_reflection_pad(NodeLowering& node) {
  set_padded(node, Border::kReflect);
}
void lower_replication_pad(NodeLowering& node) {
  set_padded(node, Border::kReplicate);
}
void lower_reflection_pad_backward(NodeLowering& node) {
  set_reflected_backward(node);
}
void lower_replication_pad_backward(NodeLowering& node) {
  set_replicated_backward(node);
}

}  // namespace framejit::backend
