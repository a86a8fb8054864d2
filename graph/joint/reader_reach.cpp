#include "graph/joint/reader_reach.h"

#include <algorithm>
#include <utility>

namespace framejit::graph {

namespace {

// A set of bits for each of some rows.
class BitRows {
 public:
  BitRows(size_t rows, size_t bits)
      : words_((bits + 63) / 64), data_(rows * words_) {}
  void set(size_t row, size_t bit) {
    data_[row * words_ + bit / 64] |= uint64_t{1} << (bit % 64);
  }
  void add(size_t row, size_t other) {
    for (size_t i = 0; i < words_; ++i)
      data_[row * words_ + i] |= data_[other * words_ + i];
  }
  std::vector<uint64_t> row(size_t row) const {
    return {data_.begin() + static_cast<long>(row * words_),
            data_.begin() + static_cast<long>((row + 1) * words_)};
  }

 private:
  size_t words_;
  std::vector<uint64_t> data_;
};

void unite(std::vector<uint64_t>* set, const std::vector<uint64_t>& more) {
  set->resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) (*set)[i] |= more[i];
}

void intersect(std::vector<uint64_t>* set, const std::vector<uint64_t>& other) {
  for (size_t i = 0; i < set->size(); ++i) (*set)[i] &= other[i];
}

bool is_empty(const std::vector<uint64_t>& set) {
  return std::all_of(set.begin(), set.end(),
                     [](uint64_t word) { return word == 0; });
}

bool includes(const std::vector<uint64_t>& all,
              const std::vector<uint64_t>& some) {
  for (size_t i = 0; i < some.size(); ++i)
    if (some[i] & ~(i < all.size() ? all[i] : 0)) return false;
  return true;
}

}  // namespace

ReaderReach::ReaderReach(const Graph& joint, size_t num_primals,
                         size_t num_user_outputs) {
  const auto& nodes = joint.block().nodes;
  std::unordered_map<const Node*, size_t> row_of;
  for (const auto& node : nodes) row_of.emplace(node.get(), row_of.size());
  auto for_each_argument = [&](const Node& node, auto f) {
    for (const Arg& arg : node.args)
      for_each_value(arg, [&](const Value* value) {
        auto found = row_of.find(value->node);
        if (found != row_of.end()) f(found->second);
      });
  };

  BitRows tangents(nodes.size(), joint.inputs.size() - num_primals);
  for (size_t i = num_primals; i < joint.inputs.size(); ++i)
    tangents.set(row_of.at(joint.inputs[i]->node), i - num_primals);
  for (const auto& node : nodes) {
    const size_t row = row_of.at(node.get());
    for_each_argument(*node, [&](size_t read) { tangents.add(row, read); });
  }

  BitRows gradients(nodes.size(), joint.outputs.size() - num_user_outputs);
  for (size_t i = num_user_outputs; i < joint.outputs.size(); ++i)
    for_each_value(joint.outputs[i], [&](const Value* value) {
      gradients.set(row_of.at(value->node), i - num_user_outputs);
    });
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    if ((*at)->op == Opcode::kOutput) continue;
    const size_t row = row_of.at(at->get());
    for_each_argument(**at, [&](size_t read) { gradients.add(read, row); });
  }

  for (const auto& node : nodes) {
    if (node->derivative_of < 0) continue;
    Reach& reach = of_[node->derivative_of];
    const size_t row = row_of.at(node.get());
    unite(&reach.gradients, gradients.row(row));
    const Bits from = tangents.row(row);
    if (is_empty(from)) continue;  // computed of what was saved alone
    unite(&reach.tangents, from);
    if (!std::exchange(reach.has_tangents, true))
      reach.sure_tangents = from;
    else
      intersect(&reach.sure_tangents, from);
  }
}

bool ReaderReach::accompanies(int64_t other, int64_t reader) const {
  if (other == reader) return true;
  auto of_other = of_.find(other), of_reader = of_.find(reader);
  return of_other != of_.end() && of_reader != of_.end() &&
         includes(of_other->second.sure_tangents, of_reader->second.tangents) &&
         includes(of_other->second.gradients, of_reader->second.gradients);
}

}  // namespace framejit::graph
