// Operators on lists: the rows of lists.def. A node is lowered as one call of
// the row's operator for each item.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstring>
#include <unordered_map>

#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using graph::Arg;
using graph::Node;
using graph::Value;

namespace {

struct ListRow {
  const char* name;
  const char* of;
  const char* arguments;
};
const ListRow kListRows[] = {
#define FJ_LIST(name, of, arguments) {name, of, arguments},
#include "backend/lowering/lists.def"
#undef FJ_LIST
};

// "add.Tensor", of ATen.
c10::OperatorHandle operator_named(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload =
      dot == std::string::npos ? "" : name.substr(dot + 1);
  auto found = c10::Dispatcher::singleton().findSchema(
      {"aten::" + name.substr(0, dot), overload});
  require(found.has_value(), "an operator that torch does not have");
  return *found;
}

const std::vector<Arg>& list_argument(const Node& node, size_t i,
                                      size_t items) {
  require(i < node.args.size(), "a list that is not given");
  const Arg& arg = node.args[i];
  require(arg.is<Arg::List>() || arg.is<Arg::Tuple>(), "no list");
  const auto& list = arg.is<Arg::List>() ? arg.get<Arg::List>().items
                                         : arg.get<Arg::Tuple>().items;
  require(list.size() == items, "lists of other lengths");
  return list;
}

// The call that makes result `item`.
std::unique_ptr<Node> call_of_item(const NodeLowering& lists,
                                   const ListRow& row, size_t item) {
  const Node& node = lists.node();
  const size_t items = node.outputs.size();
  auto call = std::make_unique<Node>();
  call->aten = operator_named(row.of);
  for (size_t i = 0; row.arguments[i]; ++i) {
    if (row.arguments[i] == 'l') {
      call->args.push_back(list_argument(node, i, items)[item]);
    } else if (row.arguments[i] == '=') {
      call->args.push_back(lists.arg(i));
    } else {
      require(!lists.has(i), "an argument of another value");
    }
  }
  auto result = std::make_unique<Value>();
  result->node = call.get();
  result->meta = node.outputs[item]->meta;
  // So that the row sees what is read of it.
  result->users = node.outputs[item]->users;
  call->outputs.push_back(std::move(result));
  return call;
}

void lower_list(const ListRow& row, NodeLowering& lists) {
  const size_t known = std::strlen(row.arguments);
  const size_t count = lists.node().aten->schema().arguments().size();
  for (size_t i = known; i < count; ++i)
    require(!lists.has(i), "an argument of another value");
  for (size_t item = 0; item < lists.node().outputs.size(); ++item) {
    const std::unique_ptr<Node> call = call_of_item(lists, row, item);
    NodeLowering one(*call, lists);
    require(lower_node(row.of, one), "no row");
    require(one.results()[0].has_value(), "a result that is not computed");
    lists.set(item, *one.results()[0]);
  }
}

// (self, tensor1, tensor2, scalars), whose numbers lie in a tensor.
using Scaled = Term (*)(Term a, Term number, Term b, Term c);

void lower_scaled_lists(NodeLowering& node, Scaled value) {
  const auto a = node.tensors(0), b = node.tensors(1), c = node.tensors(2);
  const TensorView numbers = node.tensor(3);
  const size_t items = node.node().outputs.size();
  require(a.size() == items && b.size() == items && c.size() == items,
          "lists of other lengths");
  require(numbers.rank() == 1 &&
              numbers.sizes[0].is_const(static_cast<int64_t>(items)) &&
              graph::is_contiguous(node.meta_of(3)),
          "numbers for other lists");
  for (size_t i = 0; i < items; ++i) {
    const codegen::DType type = compute_type(node.out_type(i));
    for (const TensorView& view : {a[i], b[i], c[i]})
      require(view.type == node.out_type(i), "tensors of different types");
    require(codegen::is_float(type) && codegen::is_float(numbers.type),
            "numbers of another type");
    Elements elements(node, node.out(i).sizes);
    auto x = [&](const TensorView& view) {
      return cast(type, elements.load_broadcast(view));
    };
    // As eager takes them out of the tensor, and rounds them then.
    Term number = cast(
        type, elements.load(numbers, {elements.at(static_cast<int64_t>(i))}));
    Term result = value(x(a[i]), number, x(b[i]), x(c[i]));
    node.set_map(i, std::move(elements), result);
  }
}

}  // namespace

void lower_foreach_addcmul(NodeLowering& node) {
  lower_scaled_lists(node, &add_product);
}

void lower_foreach_addcdiv(NodeLowering& node) {
  lower_scaled_lists(node, [](Term a, Term number, Term b, Term c) {
    return a + number * b / c;
  });
}

bool lower_on_lists(const std::string& name, NodeLowering& node) {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string, const ListRow*>;
    for (const ListRow& row : kListRows) (*out)[row.name] = &row;
    return out;
  }();
  auto found = rows->find(name);
  if (found == rows->end()) return false;
  lower_list(*found->second, node);
  return true;
}

}  // namespace framejit::backend
