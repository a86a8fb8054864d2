// The nodes that use a value, in the order of their first use.
//
// A node that uses the value twice is one entry with a count, and is seen twice
// by those who iterate: one item a use. Adding and removing cost the same
// however many users there are (a placeholder may have 100,000): beyond a few
// entries a hash table says where each node stands, and an entry that goes
// leaves a gap, until half of them are gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace framejit::graph {

class Node;

class UseList {
 public:
  struct Entry {
    Node* node = nullptr;  // null: a gap
    uint32_t count = 0;
  };

  // One item a use.
  class iterator {
   public:
    using value_type = Node*;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    using pointer = Node* const*;
    using reference = Node*;
    iterator() = default;
    iterator(const Entry* at, const Entry* end) : at_(at), end_(end) { skip(); }
    Node* operator*() const { return at_->node; }
    iterator& operator++() {
      if (++turn_ >= at_->count) {
        ++at_;
        turn_ = 0;
        skip();
      }
      return *this;
    }
    iterator operator++(int) {
      iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const iterator& other) const {
      return at_ == other.at_ && turn_ == other.turn_;
    }

   private:
    void skip() {
      while (at_ != end_ && !at_->node) ++at_;
    }
    const Entry* at_ = nullptr;
    const Entry* end_ = nullptr;
    uint32_t turn_ = 0;
  };
  iterator begin() const {
    return {entries_.data(), entries_.data() + entries_.size()};
  }
  iterator end() const {
    const Entry* end = entries_.data() + entries_.size();
    return {end, end};
  }

  bool empty() const { return uses_ == 0; }
  size_t size() const { return uses_; }  // uses
  size_t num_users() const { return users_; }
  bool contains(const Node* node) const { return find(node) < entries_.size(); }
  // With gaps.
  const std::vector<Entry>& entries() const { return entries_; }
  // Differs after every change of which users there are.
  uint64_t changes() const { return changes_; }

  void push_back(Node* node) { add(node, 1); }
  void add(Node* node, uint32_t count);
  // One use of it, if there is one.
  void remove(Node* node) { remove(node, 1); }
  void remove(Node* node, uint32_t count);
  void clear();

 private:
  static constexpr size_t kFew = 12;
  static constexpr uint32_t kFree = 0, kGone = ~uint32_t{0};
  size_t find(const Node* node) const;  // entries_.size(): it is no user
  size_t slot_of(const Node* node) const;
  void close_gaps();

  std::vector<Entry> entries_;
  // Open addressing: 1 + the place of an entry, kFree, or kGone where one was.
  // Made when there are more than a few.
  std::vector<uint32_t> index_;
  uint32_t slots_taken_ = 0;
  uint32_t uses_ = 0, users_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace framejit::graph
