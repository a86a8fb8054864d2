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

bool is_convolution(const Node& node) {
  return node.aten && node.args.size() == 9 &&
         node.aten->schema().name() == "aten::convolution";
}

// Its input, or its weight.
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
    if (convolutions_ == 0) return out;
    for (const auto& node : graph_.block().nodes) add_vertices(*node);
    if (movable_ == 0) {
      out.reason = "convolutions stay channels first: " + why_not_;
      return out;
    }
    for (const auto& node : graph_.block().nodes) add_costs(*node);
    for (const auto& mutation : graph_.mutations) stays(mutation.value);
    const int64_t all = gain_, least = cut_.solve(kLast, kFirst);
    size_t chosen = 0;
    for (const auto& node : graph_.block().nodes)
      chosen += is_convolution(*node) && is_last(node->outputs[0].get());
    if (chosen == 0) {
      out.reason = "convolutions stay channels first: " + in_us(all) +
                   " would be gained, less than is lost where layouts meet";
      return out;
    }
    rewrite(&out);
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

  // A batch of images, lying as eager's contiguous tensors do. (Where there is
  // one channel or one pixel, both layouts are the same memory.)
  bool is_image(const Value& value) const {
    if (value.kind != Value::Kind::kTensor) return false;
    const TensorMeta& meta = value.meta;
    return meta.sizes.size() == kRank && meta.strides.size() == kRank &&
           meta.dtype == c10::ScalarType::Float && meta.device.is_cpu() &&
           !meta.is_conj && !meta.is_neg && graph::is_contiguous(meta) &&
           has_hints(meta) && !meta.sizes[1].is_const(1) &&
           !(meta.sizes[2].is_const(1) && meta.sizes[3].is_const(1));
  }

  // Does it give channels last where its input has that? torch is asked.
  bool keeps_channels_last(const Node& node) const {
    std::vector<at::Tensor> tensors;
    RegisterIndex registers;
    std::vector<c10::IValue> values;
    for (size_t i = 0; i < 3; ++i) {
      const Value* value = tensor_argument(node, i);
      if (!value) continue;
      std::vector<int64_t> sizes, strides;
      for (const Expr& size : value->meta.sizes) sizes.push_back(seen(size));
      const bool is_last = i < 2 && value->meta.sizes.size() == kRank;
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
    if (stack.size() != 1 || !stack[0].isTensor()) return false;
    const at::Tensor result = stack[0].toTensor();
    const std::vector<Expr> wanted = channels_last(node.outputs[0]->meta.sizes);
    for (size_t dim = 0; dim < kRank; ++dim)
      if (result.size(static_cast<int64_t>(dim)) != 1 &&
          result.stride(static_cast<int64_t>(dim)) != seen(wanted[dim]))
        return false;
    return true;
  }

  // What it would gain, of nothing else changed; below 0: it would lose.
  int64_t gain_of(const Node& node) const {
    const Value *input = tensor_argument(node, 0),
                *weight = tensor_argument(node, 1),
                *out = node.outputs[0].get();
    const int64_t groups =
        node.args[8].is<int64_t>() ? node.args[8].get<int64_t>() : 1;
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
      saved =
          (is_pixelwise && is_one(3) ? kPixelwiseByte : kReorderedByte) * moved;
    } else if (seen(input->meta.sizes[1]) == groups) {
      saved = kReorderedDepthwiseByte * moved;
    }
    const double weights = is_pixelwise ? 0 : bytes(weight->meta);
    const double pixels =
        bytes(out->meta) /
        static_cast<double>(c10::elementSize(out->meta.dtype));
    const double work = pixels * static_cast<double>(height * width) *
                        static_cast<double>(seen(input->meta.sizes[1])) /
                        static_cast<double>(groups);
    return static_cast<int64_t>(saved - kWeightByte * weights -
                                kUnsure * work / kWorkPerNs);
  }

  void add_vertices(const Node& node) {
    if (node.op != Opcode::kCallFunction || !node.aten) return;
    if (is_convolution(node)) {
      if (const char* why = refusal(node)) {
        if (why_not_.empty()) why_not_ = why;
        return;
      }
      vertex_[node.outputs[0].get()] = cut_.add_vertex();
      ++movable_;
      return;
    }
    if (!request_.loops.contains(&node) || graph::is_view(node)) return;
    for (const auto& value : node.outputs)
      if (is_image(*value)) vertex_[value.get()] = cut_.add_vertex();
  }

  // Null: it can have channels last.
  const char* refusal(const Node& node) const {
    const Value *input = tensor_argument(node, 0),
                *weight = tensor_argument(node, 1);
    if (!input || !weight || node.outputs.size() != 1) return "no tensors";
    if (!is_image(*node.outputs[0]) ||
        input->meta.dtype != c10::ScalarType::Float ||
        input->meta.sizes.size() != kRank || !has_hints(input->meta))
      return "not of float32 images that lie contiguously";
    if (weight->meta.sizes.size() != kRank ||
        weight->meta.dtype != c10::ScalarType::Float ||
        !graph::is_contiguous(weight->meta) || !has_hints(weight->meta))
      return "weights that do not lie contiguously";
    if (!keeps_channels_last(node))
      return "the library that torch takes gives no channels last";
    return nullptr;
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
      for (const Arg& arg : graph_.outputs)
        graph::for_each_value(arg, [&](const Value* value) { stays(value); });
      return;
    }
    if (node.op != Opcode::kCallFunction || !node.aten) return;
    if (is_convolution(node) && vertex_.contains(node.outputs[0].get()))
      return add_convolution(node);
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

  void add_convolution(const Node& node) {
    const int own = vertex_.at(node.outputs[0].get());
    const int64_t gain = gain_of(node);
    gain_ += std::max<int64_t>(gain, 0);
    if (gain > 0) cut_.add_edge(kLast, own, gain);
    if (gain < 0) cut_.add_edge(own, kFirst, -gain);
    const Value* input = tensor_argument(node, 0);
    const Value* base = decider(input);
    if (base == input)
      differ(own, vertex_.at(base), copy_of(input));
    else
      cut_.add_edge(own, kFirst, copy_of(input));
    if (base && base != input)
      cut_.add_edge(vertex_.at(base), own, MinCut::kInfinite);
    for (size_t i : {1, 2})
      if (const Value* other = tensor_argument(node, i)) stays(other);
  }

  bool is_last(const Value* value) const {
    auto found = vertex_.find(value);
    return found != vertex_.end() && cut_.source_side()[found->second];
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
      if (is_convolution(*node) && is_last(node->outputs[0].get())) {
        in_layout(std::get<Value*>(twin->args[0].value), true, twin);
        const TensorMeta& weight = tensor_argument(*node, 1)->meta;
        if (!weight.sizes[1].is_const(1) &&
            !(weight.sizes[2].is_const(1) && weight.sizes[3].is_const(1)))
          in_layout(std::get<Value*>(twin->args[1].value), true, twin);
      } else if (node->aten && (!request_.loops.contains(node.get()) ||
                                reads_strides(*node))) {
        for (Arg& arg : twin->args)
          graph::for_each_value(
              arg, [&](Value*& value) { in_layout(value, false, twin); });
      }
    }
    Node* end = copy.block().nodes.back().get();
    std::vector<Arg> outputs = copy.outputs;
    for (Arg& arg : outputs)
      graph::for_each_value(
          arg, [&](Value*& value) { in_layout(value, false, end); });
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
