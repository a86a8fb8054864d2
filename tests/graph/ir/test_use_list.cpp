// UseList: order, counts, gaps and the hash table, against a plain list.
#include "graph/ir/use_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/ir/ir.h"

namespace framejit::graph {
namespace {

struct Model {
  std::vector<std::pair<Node*, uint32_t>> users;

  auto find(Node* node) {
    return std::find_if(users.begin(), users.end(),
                        [&](const auto& user) { return user.first == node; });
  }
  void add(Node* node) {
    if (auto at = find(node); at != users.end())
      ++at->second;
    else
      users.emplace_back(node, 1);
  }
  void remove(Node* node) {
    auto at = find(node);
    if (at != users.end() && --at->second == 0) users.erase(at);
  }
};

void expect_same(const UseList& list, const Model& model) {
  std::vector<Node*> uses, expected;
  for (Node* node : list) uses.push_back(node);
  for (const auto& [node, count] : model.users)
    expected.insert(expected.end(), count, node);
  EXPECT_EQ(uses, expected);
  EXPECT_EQ(list.size(), expected.size());
  EXPECT_EQ(list.num_users(), model.users.size());
  EXPECT_EQ(list.empty(), expected.empty());
}

TEST(UseList, IsWhatAPlainListIs) {
  std::mt19937 random(0);
  for (int size : {3, 12, 14, 40, 500}) {
    std::vector<Node> nodes(size);
    UseList list;
    Model model;
    // Mostly more and more users, then mostly fewer, and so on.
    for (int turn = 0; turn < 8 * size; ++turn) {
      Node* node = &nodes[random() % size];
      bool grows = turn / size % 2 == 0;
      if (random() % 4 != 0 ? grows : !grows) {
        list.push_back(node);
        model.add(node);
      } else {
        list.remove(node);
        model.remove(node);
      }
      EXPECT_EQ(list.contains(node), model.find(node) != model.users.end());
      if (turn % 7 == 0) expect_same(list, model);
    }
    UseList copy = list;
    expect_same(copy, model);
    copy.push_back(&nodes[0]);
    expect_same(list, model);
    list.clear();
    expect_same(list, Model());
  }
}

TEST(UseList, SaysWhenItsUsersChange) {
  std::vector<Node> nodes(2);
  UseList list;
  list.push_back(&nodes[0]);
  uint64_t before = list.changes();
  list.push_back(&nodes[0]);  // the same user once more
  EXPECT_EQ(list.changes(), before);
  list.remove(&nodes[1]);
  EXPECT_EQ(list.changes(), before);
  list.push_back(&nodes[1]);
  EXPECT_NE(list.changes(), before);
}

}  // namespace
}  // namespace framejit::graph
