// Tables found by their type.
//
// A thing that lives long (a capture, a code object) carries data of many
// files. Each file has a struct of its own for it, in its own header, and asks
// the thing for that struct: it is made at the first request. So the thing
// knows none of them, and files know only the tables whose header they include.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace framejit {

class TableRegistry {
 public:
  TableRegistry() = default;
  TableRegistry(const TableRegistry&) = delete;
  TableRegistry& operator=(const TableRegistry&) = delete;
  // The tables made last go first.
  ~TableRegistry() {
    while (!order_.empty()) {
      size_t last = order_.back();
      order_.pop_back();
      // Its destructor may run any code, which may ask for the table.
      std::unique_ptr<Holder> dying = std::move(tables_[last]);
    }
  }

  template <class Table>
  Table& get() {
    size_t index = index_of<Table>();
    if (index >= tables_.size()) tables_.resize(index + 1);
    if (!tables_[index]) {
      tables_[index] = std::make_unique<HolderOf<Table>>();
      order_.push_back(index);
    }
    return static_cast<HolderOf<Table>&>(*tables_[index]).table;
  }
  // Null: nobody has asked for it.
  template <class Table>
  Table* find() const {
    size_t index = index_of<Table>();
    if (index >= tables_.size() || !tables_[index]) return nullptr;
    return &static_cast<HolderOf<Table>&>(*tables_[index]).table;
  }

 private:
  struct Holder {
    virtual ~Holder() = default;
  };
  template <class Table>
  struct HolderOf : Holder {
    Table table;
  };
  static size_t next_index() {
    static size_t next = 0;
    return next++;
  }
  template <class Table>
  static size_t index_of() {
    static const size_t index = next_index();
    return index;
  }

  std::vector<std::unique_ptr<Holder>> tables_;  // by index_of
  std::vector<size_t> order_;                    // as they were made
};

}  // namespace framejit
