#include "backend/layouts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>

#include "backend/aten_args.h"
#include "graph/joint/min_cut.h"
#include "graph/ops/alias_analysis.h"
#include "graph/ops/meta_inference.h"
#include "graph/ops/node_traits.h"

namespace framejit::backend {

using graph::Arg;
using graph::Graph;
using graph::MinCut;
using graph::Node;
using graph::Opcode;
using graph::TensorMeta;
using graph::Value;

namespace {

// What was measured: oneDNN 3.12, one thread of an AMD EPYC with AVX-512,
// float32, convolutions of 30 sizes alone (docs/benchmarks.md has some).
//
// A byte that a convolution reads or makes with channels first, beyond what it
// costs with channels last: 50 to 90 nanoseconds a kilobyte in most, 30 to 60
// depthwise, up to 280 where there are few channels.
constexpr double kReorderedByte = 0.06, kReorderedDepthwiseByte = 0.035;
// Of one pixel at a time, matrix products, which take either layout: from 40
// lost to 10 gained, but for strides.
constexpr double kPixelwiseByte = -0.03;
// The same of a backward, which also reorders for the gradient of the weights:
// 180 to 970, depthwise 140, matrix products from 106 lost to 17 gained.
constexpr double kBackwardByte = 0.18, kBackwardDepthwiseByte = 0.1,
                 kBackwardPixelwiseByte = -0.05;
// A byte of weights, which lie with channels first in the program, is copied
// at each call: 150 to 300 a kilobyte by ATen, by our kernel a third.
constexpr double kWeightByte = 0.12;
// A byte that is read along one layout and written along the other.
constexpr double kCopiedByte = 0.08;
// Beside that, libraries choose other code for each layout, and what is better
// by less than they differ is not known to be better: 2 % of the time at 110
// multiplications and additions a nanosecond (of a core).
constexpr double kUnsure = 0.02, kWorkPerNs = 55;

constexpr size_t kRank = 4;  // images: batch, channels, height, width

// convolution(input, weight, bias, stride, padding, dilation, transposed,
// output_padding, groups), convolution_backward(gradient, input, weight,
// bias_sizes, stride ... groups, mask)
bool is_backward(const Node& node) {
  return node.aten && node.args.size() == 11 &&
         node.aten->schema().name() == "aten::convolution_backward";
}
bool is_convolution(const Node& node) {
  return is_backward(node) ||
         (node.aten && node.args.size() == 9 &&
          node.aten->schema().name() == "aten::convolution");
}
size_t weight_of(const Node& node) { return is_backward(node) ? 2 : 1; }
size_t stride_of(const Node& node) { return is_backward(node) ? 4 : 3; }
size_t groups_of(const Node& node) { return is_backward(node) ? 9 : 8; }

Value* tensor_argument(const Node& node, size_t i) {
  return node.args[i].is<Value*>() ? node.args[i].get<Value*>() : nullptr;
}

// Dims in the order of memory: batch, height, width, channels.
std::vector<Expr> channels_last(const std::vector<Expr>& sizes) {
  const Expr row = sizes[3] * sizes[1];
  return {sizes[2] * row, Expr(1), row, sizes[1]};
}

// Of which elements the results are made depends on how the argument lies.
bool reads_strides(const Node& node) {
  const std::string& name = node.aten->operator_name().name;
  return name == "aten::view" || name == "aten::_unsafe_view" ||
         name == "aten::_reshape_alias" || name.starts_with("aten::as_strided");
}

class Layouts {
 public:
  Layouts(const Graph& graph, const LayoutRequest& request)
      : graph_(graph), request_(request), cut_(2) {}

  LayoutChoice run() {
    LayoutChoice out;
    for (const auto& node : graph_.block().nodes)
      if (is_convolution(*node)) ++convolutions_;
    if (convolutions_ == 0 && !has_last_inputs()) return out;
    for (const auto& node : graph_.block().nodes) add_vertices(*node);
    if (movable_ == 0) {
      out.reason = kStayChannelsFirst + why_not_;
      if (!has_last_inputs()) return out;
    }
    for (const auto& node : graph_.block().nodes) add_costs(*node);
    for (const auto& mutation : graph_.mutations) stays(mutation.value);
    const int64_t all = gain_, least = cut_.solve(kLast, kFirst);
    size_t chosen = 0;
    for (const auto& node : graph_.block().nodes)
      chosen += is_convolution(*node) && is_last(*node);
    if (chosen == 0 && !has_last_inputs()) {
      out.reason = kStayChannelsFirst + in_us(all) +
                   " would be gained, less than is lost where layouts meet";
      return out;
    }
    rewrite(&out);
    if (movable_ > 0)
      out.reason = std::to_string(chosen) + " of " +
                   std::to_string(convolutions_) +
                   " convolutions have channels last: " + in_us(all - least) +
                   " of " + in_us(all) + " gained";
    return out;
  }

 private:
  // Vertices of the cut.
  static constexpr int kLast = 0, kFirst = 1;

  static std::string in_us(int64_t ns) {
    return std::to_string(ns / 1000) + "." + std::to_string(ns / 100 % 10) +
           " us";
  }

  bool has_last_inputs() const {
    return std::count(request_.last_inputs.begin(), request_.last_inputs.end(),
                      true) > 0;
  }

  int64_t seen(const Expr& expr) const {
    int64_t value = 0;
    return expr.try_evaluate(request_.hints.data(), &value) ? value : -1;
  }
  bool has_hints(const TensorMeta& meta) const {
    return std::all_of(meta.sizes.begin(), meta.sizes.end(),
                       [&](const Expr& size) {
                         return size.is_const() || !request_.hints.empty();
                       });
  }
  double bytes(const TensorMeta& meta) const {
    double out = static_cast<double>(c10::elementSize(meta.dtype));
    for (const Expr& size : meta.sizes)
      out *= static_cast<double>(std::max<int64_t>(seen(size), 1));
    return out;
  }

  // A batch of images, lying as eager's contiguous tensors do.
  bool is_batch(const Value& value) const {
    if (value.kind != Value::Kind::kTensor) return false;
    const TensorMeta& meta = value.meta;
    return meta.sizes.size() == kRank && meta.strides.size() == kRank &&
           meta.dtype == c10::ScalarType::Float && meta.device.is_cpu() &&
           !meta.is_conj && !meta.is_neg && graph::is_contiguous(meta) &&
           has_hints(meta);
  }
  // And of more than one channel or one pixel: both layouts are the same memory
  // there. (What a convolution makes has other strides along dims of size 1 all
  // the same.)
  bool is_image(const Value& value) const {
    const TensorMeta& meta = value.meta;
    return is_batch(value) && !meta.sizes[1].is_const(1) &&
           !(meta.sizes[2].is_const(1) && meta.sizes[3].is_const(1));
  }

  // Does it give channels last where its input has that? torch is asked.
  bool keeps_channels_last(const Node& node) const {
    RegisterIndex registers;
    std::vector<c10::IValue> values;
    for (size_t i = 0; i < 3; ++i) {
      const Value* value = tensor_argument(node, i);
      if (!value) continue;
      std::vector<int64_t> sizes, strides;
      for (const Expr& size : value->meta.sizes) sizes.push_back(seen(size));
      const bool is_last = value->meta.sizes.size() == kRank;
      for (const Expr& stride :
           is_last ? channels_last(value->meta.sizes) : value->meta.strides)
        strides.push_back(seen(stride));
      registers[value] = static_cast<int>(values.size());
      values.emplace_back(at::empty_strided(
          sizes, strides,
          at::TensorOptions(value->meta.dtype).device(c10::DeviceType::Meta)));
    }
    auto args = make_aten_args(node.aten->schema(), node.args, registers);
    if (!args.ok()) return false;
    graph::Stack stack;
    for (const AtenArg& arg : args.value())
      stack.push_back(
          build_aten_arg(arg, values.data(), request_.hints.data()));
    try {
      graph::infer_meta(graph::facts_of(*node.aten), &stack);
    } catch (const c10::Error&) {
      return false;
    }
    if (stack.size() != node.outputs.size()) return false;
    for (size_t i = 0; i < stack.size(); ++i) {
      if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
      const at::Tensor result = stack[i].toTensor();
      const std::vector<Expr>& sizes = node.outputs[i]->meta.sizes;
      if (sizes.size() != kRank) continue;
      const std::vector<Expr> wanted = channels_last(sizes);
      for (size_t dim = 0; dim < kRank; ++dim)
        if (result.size(static_cast<int64_t>(dim)) != 1 &&
            result.stride(static_cast<int64_t>(dim)) != seen(wanted[dim]))
          return false;
    }
    return true;
  }

  // What it would gain, of nothing else changed; below 0: it would lose.
  int64_t gain_of(const Node& node) const {
    const bool backward = is_backward(node);
    // Of a backward: the gradient for what the forward made.
    const Value *input = tensor_argument(node, backward ? 1 : 0),
                *weight = tensor_argument(node, weight_of(node)),
                *out =
                    backward ? tensor_argument(node, 0) : node.outputs[0].get();
    const Arg& count = node.args[groups_of(node)];
    const int64_t groups = count.is<int64_t>() ? count.get<int64_t>() : 1;
    const int64_t height = seen(weight->meta.sizes[2]),
                  width = seen(weight->meta.sizes[3]);
    auto is_one = [&](size_t i) {
      return std::all_of(
          node.args[i].get<Arg::List>().items.begin(),
          node.args[i].get<Arg::List>().items.end(), [](const Arg& item) {
            return item.is<int64_t>() && item.get<int64_t>() == 1;
          });
    };
    const double moved = bytes(input->meta) + bytes(out->meta);
    const bool is_pixelwise = height == 1 && width == 1;
    double saved = 0;
    if (groups == 1) {
      const bool is_product = is_pixelwise && is_one(stride_of(node));
      saved = moved *
              (backward ? (is_product ? kBackwardPixelwiseByte : kBackwardByte)
                        : (is_product ? kPixelwiseByte : kReorderedByte));
    } else if (seen(input->meta.sizes[1]) == groups) {
      saved =
          moved * (backward ? kBackwardDepthwiseByte : kReorderedDepthwiseByte);
    }
    const double weights = is_pixelwise ? 0 : bytes(weight->meta);
    const double pixels =
        bytes(out->meta) /
        static_cast<double>(c10::elementSize(out->meta.dtype));
    const double work = (backward ? 2 : 1) * pixels *
                        static_cast<double>(height * width) *
                        static_cast<double>(seen(input->meta.sizes[1])) /
                        static_cast<double>(groups);
    return static_cast<int64_t>(saved - kWeightByte * weights -
                                kUnsure * work / kWorkPerNs);
  }

  void add_vertices(const Node& node) {
    if (node.op == Opcode::kPlaceholder && !node.outputs.empty()) {
      const Value* value = node.outputs[0].get();
      const auto at =
          std::find(graph_.inputs.begin(), graph_.inputs.end(), value) -
          graph_.inputs.begin();
      if (static_cast<size_t>(at) >= request_.last_inputs.size() ||
          !request_.last_inputs[at])
        return;
      vertex_[value] = cut_.add_vertex();
      cut_.add_edge(kLast, vertex_[value], MinCut::kInfinite);
      return;
    }
    if (request_.only_inputs) return;
    if (node.op != Opcode::kCallFunction || !node.aten) return;
    if (is_convolution(node)) {
      if (const char* why = refusal(node)) {
        if (why_not_.empty()) why_not_ = why;
        return;
      }
      const int own = convolution_[&node] = cut_.add_vertex();
      for (const auto& value : node.outputs)
        if (is_batch(*value)) vertex_[value.get()] = own;
      ++movable_;
      return;
    }
    if (!request_.loops.contains(&node) || graph::is_view(node)) return;
    for (const auto& value : node.outputs)
      if (is_image(*value)) vertex_[value.get()] = cut_.add_vertex();
  }

  // Null: it can have channels last.
  const char* refusal(const Node& node) const {
    const Value* weight = tensor_argument(node, weight_of(node));
    if (!weight) return "no tensors";
    for (size_t i = 0; i < weight_of(node); ++i) {
      const Value* input = tensor_argument(node, i);
      if (!input || input->meta.dtype != c10::ScalarType::Float ||
          input->meta.sizes.size() != kRank || !has_hints(input->meta))
        return "not of float32 images that lie contiguously";
    }
    if (!is_backward(node) && !is_image(*node.outputs[0]))
      return "not of float32 images that lie contiguously";
    if (weight->meta.sizes.size() != kRank ||
        weight->meta.dtype != c10::ScalarType::Float ||
        !graph::is_contiguous(weight->meta) || !has_hints(weight->meta))
      return "weights that do not lie contiguously";
    // oneDNN 3.12 writes beyond the gradient of such a weight, if there are few
    // channels and two threads: eager crashes on channels last, too.
    if (is_backward(node) && weight->meta.sizes[2].is_const(1) &&
        weight->meta.sizes[3].is_const(1) && has_steps(node))
      return "the library that torch takes is wrong of a 1x1 convolution in "
             "steps";
    if (!keeps_channels_last(node))
      return "the library that torch takes gives no channels last";
    return nullptr;
  }

  static bool has_steps(const Node& node) {
    const Arg& stride = node.args[stride_of(node)];
    if (!stride.is<Arg::List>()) return true;
    const auto& items = stride.get<Arg::List>().items;
    return std::any_of(items.begin(), items.end(), [](const Arg& item) {
      return !item.is<int64_t>() || item.get<int64_t>() != 1;
    });
  }

  // The value whose layout decides how this one lies: its own, or that of what
  // it is a view of. Null: it lies as it does in eager.
  const Value* decider(const Value* value) const {
    while (value) {
      if (vertex_.contains(value)) return value;
      const Node* node = value->node;
      if (node->op != Opcode::kCallFunction || !node->aten ||
          !graph::is_view(*node))
        return nullptr;
      const auto bases = graph::aliased_arguments(*node);
      if (bases.size() != 1) return nullptr;
      value = bases[0];
    }
    return nullptr;
  }

  int64_t copy_of(const Value* value) const {
    return static_cast<int64_t>(kCopiedByte * bytes(value->meta)) + 1;
  }

  // One of two values that lie differently costs so much.
  void differ(int a, int b, int64_t cost) {
    cut_.add_edge(a, b, cost);
    cut_.add_edge(b, a, cost);
  }

  // Read by what wants eager's layout: a copy, where it has another. (Not of a
  // view of memory with gaps.)
  void stays(const Value* value) {
    const Value* base = decider(value);
    if (!base) return;
    cut_.add_edge(vertex_.at(base), kFirst,
                  base == value ? copy_of(value) : MinCut::kInfinite);
  }

  void add_costs(const Node& node) {
    if (node.op == Opcode::kOutput) {
      for (size_t i = 0; i < graph_.outputs.size(); ++i)
        graph::for_each_value(graph_.outputs[i], [&](const Value* value) {
          if (!is_free(i, value)) stays(value);
        });
      return;
    }
    if (node.op != Opcode::kCallFunction || !node.aten) return;
    if (convolution_.contains(&node)) return add_convolution(node);
    const bool is_loop = request_.loops.contains(&node);
    for (const Arg& arg : node.args)
      graph::for_each_value(arg, [&](const Value* value) {
        if (!is_loop || reads_strides(node)) return stays(value);
        const Value* base = decider(value);
        if (!base) return add_reader_of_fixed(node, value);
        if (graph::is_view(node)) return;
        for (const auto& out : node.outputs)
          if (vertex_.contains(out.get()))
            differ(vertex_.at(base), vertex_.at(out.get()), copy_of(value));
          else if (out->meta.sizes.size() == kRank && is_like(*out, *base))
            cut_.add_edge(vertex_.at(base), kFirst, copy_of(value));
      });
  }

  // As many elements: they are written in the order that it has.
  static bool is_like(const Value& a, const Value& b) {
    return a.kind == Value::Kind::kTensor && a.meta.sizes == b.meta.sizes;
  }

  // Of images that stay as they are (arguments, results of calls).
  void add_reader_of_fixed(const Node& node, const Value* value) {
    if (value->kind != Value::Kind::kTensor || !is_image(*value)) return;
    for (const auto& out : node.outputs)
      if (vertex_.contains(out.get()))
        cut_.add_edge(vertex_.at(out.get()), kFirst, copy_of(value));
  }

  // An output that may lie either way, and is no other one, and no input.
  bool is_free(size_t output, const Value* value) const {
    if (output < request_.first_free_output || !vertex_.contains(value) ||
        value->node->op == Opcode::kPlaceholder)
      return false;
    bool free = true;
    for (size_t i = 0; i < request_.first_free_output; ++i)
      graph::for_each_value(graph_.outputs[i],
                            [&](const Value* seen) { free &= seen != value; });
    return free &&
           std::none_of(graph_.mutations.begin(), graph_.mutations.end(),
                        [&](const auto& one) { return one.value == value; });
  }

  void add_convolution(const Node& node) {
    const int own = convolution_.at(&node);
    const int64_t gain = gain_of(node);
    gain_ += std::max<int64_t>(gain, 0);
    if (gain > 0) cut_.add_edge(kLast, own, gain);
    if (gain < 0) cut_.add_edge(own, kFirst, -gain);
    for (size_t i = 0; i < weight_of(node); ++i) {
      const Value* input = tensor_argument(node, i);
      const Value* base = decider(input);
      if (base == input)
        differ(own, vertex_.at(base), copy_of(input));
      else
        cut_.add_edge(own, kFirst, copy_of(input));
      if (base && base != input)
        cut_.add_edge(vertex_.at(base), own, MinCut::kInfinite);
    }
    for (size_t i = weight_of(node); i < 3; ++i)
      if (const Value* other = tensor_argument(node, i)) stays(other);
  }

  bool is_last(const Value* value) const {
    auto found = vertex_.find(value);
    return found != vertex_.end() && cut_.source_side()[found->second];
  }

  bool is_last(const Node& convolution) const {
    auto found = convolution_.find(&convolution);
    return found != convolution_.end() && cut_.source_side()[found->second];
  }

  // ---- the graph with the layouts

  void rewrite(LayoutChoice* out) {
    out->graph = graph_.clone();
    Graph& copy = *out->graph;
    std::unordered_map<const Value*, Value*> made;
    std::unordered_map<const Value*, const Value*> was;
    std::unordered_map<const Node*, const Node*> origins;
    auto at = copy.block().nodes.begin();
    for (const auto& node : graph_.block().nodes) {
      Node* twin = (at++)->get();
      origins[twin] = node.get();
      for (size_t i = 0; i < node->outputs.size(); ++i) {
        made[node->outputs[i].get()] = twin->outputs[i].get();
        was[twin->outputs[i].get()] = node->outputs[i].get();
      }
    }
    for (const auto& [value, vertex] : vertex_)
      if (is_last(value))
        made.at(value)->meta.strides = channels_last(value->meta.sizes);
    std::map<std::pair<const Value*, bool>, Value*> clones;
    auto in_layout = [&](Value*& value, bool last, Node* before) {
      const Value* old = was.at(value);
      if (old->kind != Value::Kind::kTensor) return;
      if (last == is_last(old)) return;
      Value*& twin = clones[{old, last}];
      if (!twin) twin = add_clone(copy, value, *old, last, before);
      value = twin;
    };
    for (const auto& node : graph_.block().nodes) {
      Node* twin = node->outputs.empty()
                       ? nullptr
                       : made.at(node->outputs[0].get())->node;
      if (!twin || node->op != Opcode::kCallFunction) continue;
      if (is_convolution(*node) && is_last(*node)) {
        const size_t w = weight_of(*node);
        for (size_t i = 0; i < w; ++i)
          in_layout(std::get<Value*>(twin->args[i].value), true, twin);
        const TensorMeta& weight = tensor_argument(*node, w)->meta;
        if (!weight.sizes[1].is_const(1) &&
            !(weight.sizes[2].is_const(1) && weight.sizes[3].is_const(1)))
          in_layout(std::get<Value*>(twin->args[w].value), true, twin);
      } else if (node->aten && (!request_.loops.contains(node.get()) ||
                                reads_strides(*node))) {
        for (Arg& arg : twin->args)
          graph::for_each_value(
              arg, [&](Value*& value) { in_layout(value, false, twin); });
      }
    }
    Node* end = copy.block().nodes.back().get();
    std::vector<Arg> outputs = copy.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      out->last_outputs.push_back(false);
      graph::for_each_value(outputs[i], [&](Value*& value) {
        if (!is_free(i, was.at(value)))
          in_layout(value, false, end);
        else
          out->last_outputs.back() = is_last(was.at(value));
      });
    }
    for (auto& mutation : copy.mutations) in_layout(mutation.value, false, end);
    copy.set_outputs(std::move(outputs));
    copy.rebuild_uses();
    for (const auto& node : copy.block().nodes) {
      auto found = origins.find(node.get());
      out->origins.push_back(found == origins.end() ? nullptr : found->second);
    }
  }

  static Value* add_clone(Graph& graph, Value* value, const Value& old,
                          bool last, Node* before) {
    static const c10::OperatorHandle clone =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    auto node = std::make_unique<Node>();
    node->aten = clone;
    node->args = {value, last ? c10::MemoryFormat::ChannelsLast
                              : c10::MemoryFormat::Contiguous};
    node->span = value->node->span;
    Value* out = graph.add_output(graph.insert_before(before, std::move(node)));
    out->meta = old.meta;
    out->meta.storage_offset = 0;
    out->meta.requires_grad = false;
    out->meta.strides = last ? channels_last(old.meta.sizes) : old.meta.strides;
    return out;
  }

  const Graph& graph_;
  const LayoutRequest& request_;
  MinCut cut_;
  std::unordered_map<const Value*, int> vertex_;
  std::unordered_map<const Node*, int> convolution_;
  size_t convolutions_ = 0, movable_ = 0;
  int64_t gain_ = 0;
  std::string why_not_;
};

}  // namespace

bool has_convolution(const Graph& graph) {
  const auto& nodes = graph.block().nodes;
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const auto& node) { return is_convolution(*node); });
}

LayoutChoice choose_layouts(const Graph& graph, const LayoutRequest& request) {
  return Layouts(graph, request).run();
}

}  // namespace framejit::backend
