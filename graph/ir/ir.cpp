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

// Values become None.
void forget_values(Arg& arg) {
  if (arg.is<Value*>()) {
    arg = Arg();
  } else if (auto* list = std::get_if<Arg::List>(&arg.value)) {
    for (Arg& item : list->items) forget_values(item);
  } else if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value)) {
    for (Arg& item : tuple->items) forget_values(item);
  } else if (auto* dict = std::get_if<Arg::Dict>(&arg.value)) {
    for (auto& [key, item] : dict->items) forget_values(item);
  } else if (auto* slice =
                 std::get_if<std::shared_ptr<Arg::Slice>>(&arg.value)) {
    unshare_slices(arg);
    for (Arg* part : {&(*slice)->start, &(*slice)->stop, &(*slice)->step})
      forget_values(*part);
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
  for_each_use(node, [&](Value*& value) { value->users.remove(&node); });
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
  auto& nodes = block_.nodes;
  Node* output = output_node(block_);
  return insert(output ? output->position : nodes.end(), std::move(node));
}

Node* Graph::insert_before(Node* before, std::unique_ptr<Node> node) {
  return insert(before->position, std::move(node));
}

Node* Graph::insert(Block::Nodes::iterator before, std::unique_ptr<Node> node) {
  Node* raw = node.get();
  raw->block = &block_;
  raw->position = block_.nodes.insert(before, std::move(node));
  number(raw);
  for (Arg& arg : raw->args) unshare_slices(arg);
  for (auto& [name, arg] : raw->kwargs) unshare_slices(arg);
  add_uses(*raw);
  return raw;
}

std::unique_ptr<Node> Graph::detach(Node* node) {
  remove_uses(*node);
  for (Arg& arg : node->args) forget_values(arg);
  for (auto& [name, arg] : node->kwargs) forget_values(arg);
  if (node->op == Opcode::kPlaceholder && !inputs.empty())
    std::erase_if(inputs, [&](Value* input) { return input->node == node; });
  std::unique_ptr<Node> owned = std::move(*node->position);
  block_.nodes.erase(node->position);
  node->block = nullptr;
  return owned;
}

void Graph::move(Node* node, Block::Nodes::iterator before) {
  if (before == node->position) return;
  block_.nodes.splice(before, block_.nodes, node->position);
  number(node);
}

void Graph::set_arguments(Node* node, std::vector<Arg> args,
                          std::vector<std::pair<std::string, Arg>> kwargs) {
  remove_uses(*node);
  // The old ones go when all is done: what they hold may run code.
  std::swap(node->args, args);
  std::swap(node->kwargs, kwargs);
  add_uses(*node);
  node->drop_python_arguments();
}

void Graph::replace_input(Node* user, Value* from, Value* to) {
  remove_uses(*user);
  for_each_use(*user, [&](Value*& value) {
    if (value == from) value = to;
    value->users.push_back(user);
  });
  user->drop_python_arguments();
}

void Graph::replace_all_inputs(Value* from, Value* to) {
  if (from == to) {
    // Each becomes the last one in turn, so the order is what it was; it is the
    // other inputs that may see another.
    UseList users = from->users;
    for (const UseList::Entry& entry : users.entries())
      if (entry.node) replace_input(entry.node, from, to);
    return;
  }
  UseList users = std::move(from->users);
  from->users.clear();
  // Where `to` has no users, the list becomes its own as it is. (Who iterates
  // over either must see that it has changed.)
  bool moves = to->users.empty() && to->users.changes() != users.changes();
  // What goes may run code, which finds all done.
  std::vector<Ref> dropped;
  for (const UseList::Entry& entry : users.entries()) {
    Node* user = entry.node;
    if (!user) continue;
    bool has_others = false;
    for_each_use(*user, [&](Value*& value) {
      if (value == from) {
        value = to;
      } else {
        value->users.remove(user);
        has_others = true;
      }
    });
    if (has_others || !moves) {
      for_each_use(*user, [&](Value*& value) {
        if (value != to || !moves) value->users.push_back(user);
      });
    }
    for (Ref* stale : {&user->python_args, &user->python_kwargs})
      if (*stale) dropped.push_back(std::move(*stale));
  }
  if (moves) to->users = std::move(users);
}

// Room for 20 insertions between two neighbours before a new count is due.
constexpr int64_t kOrderStep = int64_t{1} << 20;

void Graph::number(Node* node) {
  auto next = std::next(node->position);
  bool is_first = node->position == block_.nodes.begin();
  int64_t low = is_first ? 0 : (*std::prev(node->position))->order;
  if (next == block_.nodes.end()) {
    node->order = low + kOrderStep;
    return;
  }
  int64_t high = (*next)->order;
  if (is_first) low = high - 2 * kOrderStep;
  node->order = low + (high - low) / 2;
  if (node->order <= low || node->order >= high) is_numbered_ = false;
}

bool Graph::is_before(const Node* a, const Node* b) {
  if (!is_numbered_) {
    int64_t next = 0;
    for (auto& node : block_.nodes) node->order = next += kOrderStep;
    is_numbered_ = true;
  }
  return a->order < b->order;
}

void Graph::update_interface() {
  inputs.clear();
  outputs.clear();
  for (auto& node : block_.nodes) {
    if (node->op == Opcode::kPlaceholder)
      inputs.push_back(node->outputs.at(0).get());
    else if (node->op == Opcode::kOutput)
      outputs = node->args;
  }
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
  node->drop_python_arguments();
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
  UseList users = from->users;
  from->users.clear();
  for (const UseList::Entry& entry : users.entries()) {
    if (!entry.node) continue;
    for_each_use(*entry.node, [&](Value*& value) {
      if (value != from) return;
      value = to;
      to->users.push_back(entry.node);
    });
    entry.node->drop_python_arguments();
    if (entry.node->op == Opcode::kOutput) outputs = entry.node->args;
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
    made->type = node->type;
    made->meta = node->meta;
    copy->block_.nodes.push_back(std::move(made));
    Node* placed = copy->block_.nodes.back().get();
    placed->position = std::prev(copy->block_.nodes.end());
    copy->number(placed);
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
