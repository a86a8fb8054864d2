// Graph, Node and Value: construction, use lists, edits.
#include "graph/ir/ir.h"

#include <algorithm>
#include <unordered_map>

namespace framejit::graph {

namespace {

// Calls f for every Leaf in the tree.
template <class Leaf = Value*, class ArgT, class F>
void walk(ArgT& arg, const F& f) {
  std::visit(
      [&](auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Leaf>) {
          f(value);
        } else if constexpr (std::is_same_v<T, Arg::List> ||
                             std::is_same_v<T, Arg::Tuple>) {
          for (auto& item : value.items) walk<Leaf>(item, f);
        } else if constexpr (std::is_same_v<T, Arg::Dict>) {
          for (auto& [key, item] : value.items) {
            walk<Leaf>(key, f);
            walk<Leaf>(item, f);
          }
        } else if constexpr (std::is_same_v<T, std::shared_ptr<Arg::Slice>>) {
          if (!value) return;
          walk<Leaf>(value->start, f);
          walk<Leaf>(value->stop, f);
          walk<Leaf>(value->step, f);
        }
      },
      arg.value);
}

// Slices are shared by copied Args; before an edit each tree gets its own.
void unshare_slices(Arg& arg) {
  if (auto* list = std::get_if<Arg::List>(&arg.value)) {
    for (Arg& item : list->items) unshare_slices(item);
  } else if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value)) {
    for (Arg& item : tuple->items) unshare_slices(item);
  } else if (auto* dict = std::get_if<Arg::Dict>(&arg.value)) {
    for (auto& [key, item] : dict->items) {
      unshare_slices(key);
      unshare_slices(item);
    }
  } else if (auto* slice =
                 std::get_if<std::shared_ptr<Arg::Slice>>(&arg.value)) {
    if (!*slice) return;
    if (slice->use_count() > 1) *slice = std::make_shared<Arg::Slice>(**slice);
    unshare_slices((*slice)->start);
    unshare_slices((*slice)->stop);
    unshare_slices((*slice)->step);
  }
}

template <class F>
void for_each_use(Node& node, const F& f) {
  for (Arg& arg : node.args) walk(arg, f);
  for (auto& [name, arg] : node.kwargs) walk(arg, f);
}

void add_uses(Node& node) {
  for_each_use(node, [&](Value*& value) { value->users.push_back(&node); });
}

void remove_uses(Node& node) {
  for_each_use(node, [&](Value*& value) {
    auto& users = value->users;
    auto found = std::find(users.begin(), users.end(), &node);
    if (found != users.end()) users.erase(found);
  });
}

Node* output_node(Block& block) {
  if (block.nodes.empty()) return nullptr;
  Node* last = block.nodes.back().get();
  return last->op == Opcode::kOutput ? last : nullptr;
}

}  // namespace

void for_each_value(Arg& arg, const std::function<void(Value*&)>& f) {
  unshare_slices(arg);
  walk(arg, f);
}

void for_each_value(const Arg& arg, const std::function<void(Value*)>& f) {
  walk(arg, [&](Value* const& value) { f(value); });
}

Value* Graph::add_output(Node* node, Value::Kind kind) {
  auto value = std::make_unique<Value>();
  value->node = node;
  value->index = static_cast<int>(node->outputs.size());
  value->id = next_id_++;
  value->kind = kind;
  node->outputs.push_back(std::move(value));
  return node->outputs.back().get();
}

void Graph::set_id(Value* value, int id) {
  value->id = id;
  next_id_ = std::max(next_id_, id + 1);
}

Value* Graph::add_input(std::string name, TensorMeta meta) {
  auto node = std::make_unique<Node>();
  node->op = Opcode::kPlaceholder;
  // Placeholders stay together at the front: the place is behind a known one.
  Node* before = nullptr;
  auto& nodes = block_.nodes;
  if (!nodes.empty() && nodes.back()->op != Opcode::kPlaceholder) {
    auto at = inputs.empty() ? nodes.begin() : inputs.back()->node->position;
    while ((*at)->op == Opcode::kPlaceholder) ++at;
    before = at->get();
  }
  Node* placed =
      before ? insert_before(before, std::move(node)) : append(std::move(node));
  Value* value = add_output(placed);
  value->name = std::move(name);
  value->meta = std::move(meta);
  inputs.push_back(value);
  return value;
}

Value* Graph::add_symbol_input(std::string name, Expr symbol) {
  Value* value = add_input(std::move(name), TensorMeta{});
  value->kind = Value::Kind::kInt;
  value->expr = std::move(symbol);
  return value;
}

Node* Graph::append(std::unique_ptr<Node> node) {
  if (Node* output = output_node(block_))
    return insert_before(output, std::move(node));
  Node* raw = node.get();
  raw->block = &block_;
  block_.nodes.push_back(std::move(node));
  raw->position = std::prev(block_.nodes.end());
  for (Arg& arg : raw->args) unshare_slices(arg);
  for (auto& [name, arg] : raw->kwargs) unshare_slices(arg);
  add_uses(*raw);
  return raw;
}

Node* Graph::insert_before(Node* before, std::unique_ptr<Node> node) {
  Node* raw = node.get();
  raw->block = &block_;
  raw->position = block_.nodes.insert(before->position, std::move(node));
  for (Arg& arg : raw->args) unshare_slices(arg);
  for (auto& [name, arg] : raw->kwargs) unshare_slices(arg);
  add_uses(*raw);
  return raw;
}

void Graph::set_outputs(std::vector<Arg> new_outputs) {
  for (Arg& arg : new_outputs) unshare_slices(arg);
  Node* node = output_node(block_);
  if (node) {
    remove_uses(*node);
  } else {
    auto made = std::make_unique<Node>();
    made->op = Opcode::kOutput;
    node = append(std::move(made));
  }
  node->args = new_outputs;
  outputs = std::move(new_outputs);
  add_uses(*node);
}

void Graph::erase(Node* node) {
  for (const auto& value : node->outputs)
    FJ_CHECK(value->users.empty(), "erase of a node that is still used");
  remove_uses(*node);
  if (node->op == Opcode::kPlaceholder) {
    std::erase_if(inputs, [&](Value* input) { return input->node == node; });
  }
  block_.nodes.erase(node->position);
}

void Graph::replace_all_uses(Value* from, Value* to) {
  if (from == to) return;
  std::vector<Node*> users = std::move(from->users);
  from->users.clear();
  for (Node* user : users) {
    bool changed = false;
    for_each_use(*user, [&](Value*& value) {
      if (value != from) return;
      value = to;
      changed = true;
      to->users.push_back(user);
    });
    // A node that uses the value twice is listed twice: the first visit
    // changed both uses.
    if (changed && user->op == Opcode::kOutput) outputs = user->args;
  }
  for (Mutation& mutation : mutations)
    if (mutation.value == from) mutation.value = to;
}

void Graph::rebuild_uses() {
  for (auto& node : block_.nodes)
    for (auto& value : node->outputs) value->users.clear();
  for (auto& node : block_.nodes) add_uses(*node);
}

size_t Graph::num_calls() const {
  return std::count_if(block_.nodes.begin(), block_.nodes.end(),
                       [](const std::unique_ptr<Node>& node) {
                         return node->op == Opcode::kCallFunction ||
                                node->op == Opcode::kCallMethod ||
                                node->op == Opcode::kCallModule;
                       });
}

std::unique_ptr<Graph> Graph::clone() const {
  auto copy = std::make_unique<Graph>();
  std::unordered_map<const Value*, Value*> map;
  auto translate = [&](Arg& arg) {
    unshare_slices(arg);
    walk(arg, [&](Value*& value) { value = map.at(value); });
  };
  for (const auto& node : block_.nodes) {
    auto made = std::make_unique<Node>();
    made->op = node->op;
    made->callable = node->callable;
    made->aten = node->aten;
    made->method = node->method;
    made->args = node->args;
    made->kwargs = node->kwargs;
    made->outputs_are_list = node->outputs_are_list;
    made->span = node->span;
    made->is_backward = node->is_backward;
    made->derivative_of = node->derivative_of;
    made->must_keep = node->must_keep;
    made->block = &copy->block_;
    for (Arg& arg : made->args) translate(arg);
    for (auto& [name, arg] : made->kwargs) translate(arg);
    for (const auto& value : node->outputs) {
      auto twin = std::make_unique<Value>(*value);
      twin->node = made.get();
      twin->users.clear();
      map[value.get()] = twin.get();
      made->outputs.push_back(std::move(twin));
    }
    copy->block_.nodes.push_back(std::move(made));
    Node* placed = copy->block_.nodes.back().get();
    placed->position = std::prev(copy->block_.nodes.end());
    if (placed->op == Opcode::kOutput) copy->outputs = placed->args;
  }
  for (Value* input : inputs) copy->inputs.push_back(map.at(input));
  for (Mutation mutation : mutations) {
    mutation.value = map.at(mutation.value);
    copy->mutations.push_back(mutation);
  }
  copy->keep_alive = keep_alive;
  copy->next_id_ = next_id_;
  copy->rebuild_uses();
  return copy;
}

void for_each_expr(const Arg& arg, const std::function<void(const Expr&)>& f) {
  walk<Expr>(arg, f);
}

void for_each_expr(const Value& value,
                   const std::function<void(const Expr&)>& f) {
  f(value.expr);
  for (const Expr& size : value.meta.sizes) f(size);
  for (const Expr& stride : value.meta.strides) f(stride);
  f(value.meta.storage_offset);
}

bool is_contiguous(const std::vector<Expr>& sizes,
                   const std::vector<Expr>& strides) {
  if (strides.size() != sizes.size()) return false;
  Expr expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim].is_const(1)) continue;
    if (strides[dim] != expected) return false;
    expected = expected * sizes[dim];
  }
  return true;
}

}  // namespace framejit::graph
