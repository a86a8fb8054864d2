#include "graph/ir/use_list.h"

#include <algorithm>

namespace framejit::graph {

namespace {

// Nodes lie 16 bytes apart at least.
size_t hash_of(const Node* node) {
  return (reinterpret_cast<size_t>(node) >> 4) * 0x9E3779B97F4A7C15ull >> 20;
}

}  // namespace

// Where the index has the node, or the free slot where it would be.
size_t UseList::slot_of(const Node* node) const {
  size_t mask = index_.size() - 1, slot = hash_of(node) & mask;
  while (index_[slot] != kFree) {
    uint32_t at = index_[slot];
    if (at != kGone && entries_[at - 1].node == node) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

size_t UseList::find(const Node* node) const {
  if (!index_.empty()) {
    uint32_t at = index_[slot_of(node)];
    return at == kFree ? entries_.size() : at - 1;
  }
  for (size_t i = entries_.size(); i-- > 0;)
    if (entries_[i].node == node) return i;
  return entries_.size();
}

void UseList::add(Node* node, uint32_t count) {
  uses_ += count;
  if (size_t at = find(node); at < entries_.size()) {
    entries_[at].count += count;
    return;
  }
  ++changes_;
  ++users_;
  entries_.push_back({node, count});
  if (index_.empty() ? entries_.size() > kFew
                     : 2 * ++slots_taken_ > index_.size()) {
    close_gaps();
  } else if (!index_.empty()) {
    index_[slot_of(node)] = entries_.size();
  }
}

void UseList::remove(Node* node, uint32_t count) {
  size_t slot = index_.empty() ? 0 : slot_of(node);
  if (!index_.empty() && index_[slot] == kFree) return;
  size_t at = index_.empty() ? find(node) : index_[slot] - 1;
  if (at == entries_.size()) return;
  Entry& entry = entries_[at];
  count = std::min(count, entry.count);
  uses_ -= count;
  entry.count -= count;
  if (entry.count) return;
  ++changes_;
  --users_;
  if (!index_.empty()) index_[slot] = kGone;
  entry.node = nullptr;
  while (!entries_.empty() && !entries_.back().node) entries_.pop_back();
  if (entries_.size() > 2 * kFew && entries_.size() > size_t{2} * users_)
    close_gaps();
}

// (Of one that was moved from, too.)
void UseList::clear() {
  uint64_t changes = changes_;
  *this = UseList();
  changes_ = changes + 1;
}

void UseList::close_gaps() {
  std::erase_if(entries_, [](const Entry& entry) { return !entry.node; });
  index_.clear();
  slots_taken_ = 0;
  if (entries_.size() <= kFew) return;
  size_t size = 64;
  while (size < 4 * entries_.size()) size *= 2;
  index_.resize(size, kFree);
  slots_taken_ = entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i)
    index_[slot_of(entries_[i].node)] = i + 1;
}

}  // namespace framejit::graph
