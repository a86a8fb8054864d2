#include "graph/joint/value_numbers.h"

#include <algorithm>
#include <cstring>

#include "graph/passes/passes.h"

namespace framejit::graph {
namespace {

template <class T>
void append_bits(std::string* text, const T& value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  text->append(bytes, sizeof(T));
}

// Different arguments have different texts.
struct ArgText {
  const std::unordered_map<int, int>& numbers;
  std::string* text;
  bool* opaque;

  void operator()(const Arg& arg) const {
    append_bits(text, static_cast<char>(arg.value.index()));
    std::visit(*this, arg.value);
  }
  void operator()(const Arg::None&) const {}
  void operator()(Value* value) const {
    append_bits(text, numbers.at(value->id));
  }
  void operator()(bool value) const { append_bits(text, value); }
  void operator()(int64_t value) const { append_bits(text, value); }
  void operator()(double value) const { append_bits(text, value); }
  void operator()(const c10::complex<double>& value) const {
    append_bits(text, value);
  }
  void operator()(const std::string& value) const { add(value); }
  void operator()(const Expr& value) const { add(value.str()); }
  void operator()(c10::ScalarType value) const { append_bits(text, value); }
  void operator()(const c10::Device& value) const { add(value.str()); }
  void operator()(c10::Layout value) const { append_bits(text, value); }
  void operator()(c10::MemoryFormat value) const { append_bits(text, value); }
  // A constant that torch.tensor() made is another object in each trace.
  void operator()(const Ref&) const { *opaque = true; }
  void operator()(const Arg::List& list) const { add(list.items); }
  void operator()(const Arg::Tuple& tuple) const { add(tuple.items); }
  // Not at ATen level.
  void operator()(const Arg::Dict& dict) const { append_bits(text, &dict); }
  void operator()(const std::shared_ptr<Arg::Slice>& slice) const {
    append_bits(text, slice.get());
  }

  void add(const std::string& value) const {
    append_bits(text, value.size());
    *text += value;
  }
  void add(const std::vector<Arg>& items) const {
    append_bits(text, items.size());
    for (const Arg& item : items) (*this)(item);
  }
};

void mix(size_t* hash, size_t part) {
  *hash = (*hash ^ part) * 0x9E3779B97F4A7C15ull;
  *hash ^= *hash >> 31;
}

}  // namespace

ValueNumbers::ValueNumbers(const Graph& graph, size_t num_primals,
                           size_t num_user_outputs, const NumberedTexts* first)
    : first_(first),
      escaping_(escaping_values(graph, num_user_outputs)),
      texts_(std::make_shared<NumberedTexts>()) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const int id = graph.inputs[i]->id;
    numbers_[id] = i < num_primals ? id : own_number(id);
  }
  for (const auto& node : graph.block().nodes) {
    if (node->op == Opcode::kPlaceholder || node->op == Opcode::kOutput)
      continue;
    number(*node);
  }
  texts_->end = std::max(texts_->end, first ? first->end : 0);
}

// Of a value that no other trace has.
int ValueNumbers::own_number(int id) {
  const int number = first_ ? first_->end + id : id;
  texts_->end = std::max(texts_->end, number + 1);
  return number;
}

void ValueNumbers::number(const Node& node) {
  const bool forward = !node.is_backward;
  bool opaque = !node.aten || has_effect(node) || is_custom(node);
  std::string text;
  if (node.aten) append_bits(&text, &node.aten->schema());
  const ArgText append{numbers_, &text, &opaque};
  for (const Arg& arg : node.args) append(arg);
  if (forward) mix(&fingerprint_, std::hash<std::string>()(text));
  const bool alias = node.aten && node.aten->schema().name() == "aten::alias" &&
                     node.args.size() == 1 && node.args[0].is<Value*>();
  for (const auto& value : node.outputs) {
    const int id = value->id;
    if (forward) mix(&fingerprint_, static_cast<size_t>(id));
    if (alias) {
      numbers_[id] = numbers_.at(node.args[0].get<Value*>()->id);
      continue;
    }
    auto fresh = [&] {
      if (!forward) return own_number(id);
      texts_->end = std::max(texts_->end, id + 1);
      return id;
    };
    if (opaque || escaping_.contains(value.get())) {
      numbers_[id] = fresh();
      continue;
    }
    std::string key = text;
    append_bits(&key, value->index);
    auto known = texts_->numbers.find(key);
    if (known == texts_->numbers.end()) {
      int number = -1;
      if (first_ && !forward) {
        auto found = first_->numbers.find(key);
        if (found != first_->numbers.end()) number = found->second;
      }
      if (number < 0) number = fresh();
      known = texts_->numbers.emplace(std::move(key), number).first;
    }
    numbers_[id] = known->second;
  }
}

}  // namespace framejit::graph
