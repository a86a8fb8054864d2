// Tensors of numbers that follow each other, and tensors of whatever is there.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::DType;

void lower_arange(NodeLowering& node) {
  const std::string name = node.node().aten->operator_name().overload_name;
  const bool has_start = !name.empty();
  const DType type = node.out_type();
  Elements elements(node, node.out().sizes);
  if (codegen::is_float(type)) {
    // Of f32 in double, as eager's scalar code does, whose vectors begin at
    // rounded numbers.
    const DType wide =
        codegen::is_small_float(type) ? DType::kF32 : DType::kF64;
    auto number = [&](size_t i) { return node.wide_number(elements, i, wide); };
    Term value = cast(wide, elements.loop(0));
    if (name == "start_step") value = number(2) * value;
    if (has_start) value = number(0) + value;
    return node.set_map(0, std::move(elements),
                        cast(compute_type(type), value));
  }
  Expr start = has_start ? node.integer(0) : Expr(0);
  Expr step = name == "start_step" ? node.integer(2) : Expr(1);
  Term value = elements.value_of(elements.at_loop(0, step, start));
  value = cast(type, value);
  node.set_map(0, std::move(elements), value);
}

// From both ends to the middle.
void lower_linspace(NodeLowering& node) {
  // (start, end, steps)
  const DType type = node.out_type();
  require(type == DType::kF32 || type == DType::kF64,
          "steps that are rounded to another type");
  const Expr steps = node.integer(2);
  node.ensure(expr_lt(1, steps), "no step");
  Elements elements(node, node.out().sizes);
  Term start = node.number(elements, 0, type);
  Term end = node.number(elements, 1, type);
  Term place = elements.loop(0), last = elements.number(steps - 1);
  Term step = (end - start) / cast(type, last);
  Term value = select(place < elements.number(floor_div(steps, 2)),
                      fma(step, cast(type, place), start),
                      end - step * cast(type, last - place));
  node.set_map(0, std::move(elements), value);
}

namespace {

// What puts something into every element, whatever was there.
bool overwrites(const graph::Node& user, const graph::Value& value) {
  static constexpr std::string_view kNames[] = {
      "bernoulli",         "copy",   "exponential", "fill",
      "normal_functional", "random", "uniform",     "zero",
  };
  if (!user.aten || user.args.empty() || !user.args[0].is<graph::Value*>() ||
      user.args[0].get<graph::Value*>() != &value)
    return false;
  for (size_t i = 1; i < user.args.size(); ++i) {
    bool reads = false;
    graph::for_each_value(user.args[i], [&](const graph::Value* argument) {
      reads |= argument == &value;
    });
    if (reads) return false;
  }
  const auto& name = user.aten->operator_name();
  // Draws for each element the probability that is there.
  if (name.name == "aten::bernoulli" && name.overload_name.empty())
    return false;
  std::string_view text = name.name;
  if (!text.starts_with("aten::")) return false;
  text.remove_prefix(6);
  return std::find(std::begin(kNames), std::end(kNames), text) !=
         std::end(kNames);
}

}  // namespace

// Memory that is not read before it is written. What it holds where the program
// does read it is eager's to say (deterministic algorithms fill it).
void lower_empty(NodeLowering& node) {
  const graph::Value& value = *node.node().outputs[0];
  for (const graph::Node* user : value.users)
    require(overwrites(*user, value), "memory that is read");
  require(!value.users.empty() && graph::is_contiguous(node.out()),
          "memory in another order");
  for (const Expr& size : node.out().sizes)
    node.ensure(expr_lt(0, size), "no elements");
  // One element of it is made, so that there is a definition of all.
  TensorView nothing;
  nothing.type = node.out_type();
  nothing.sizes = node.out().sizes;
  Elements elements(node, {});
  std::vector<codegen::Index> first(nothing.sizes.size(), elements.at(0));
  Term zero = elements.constant(nothing.type, 0);
  node.set(0, node.update(std::move(elements), nothing, first, zero));
}

}  // namespace framejit::backend
