// Unique names of nodes, by the rules of torch.fx.
//
// A candidate becomes an identifier; a trailing `_<digits>` is a number of its
// own, so `add`, `add` and `add_1` are `add`, `add_1` and `add_2`. Names of
// keywords, of builtins and of what generated code imports are not given away.
// A name stays taken when its node goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace framejit::graph {

class Names {
 public:
  // `may_be_reserved`: it is for the very object that has the reserved name.
  std::string create(std::string_view candidate, bool may_be_reserved = false);

  // For names that are made from one candidate again and again.
  struct Series {
    std::string candidate, base;
    int64_t* last = nullptr;
    bool is_taken = false;  // what is left is to count on
  };
  Series series(std::string_view candidate);
  std::string next(Series& series);

 private:
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int64_t> last_number_;
};

void reserve_name(std::string name);
bool is_reserved_name(const std::string& name);

// "relu" of torch.nn.functional.relu: what the name of a node is made from.
std::string snake_case(std::string_view text);

}  // namespace framejit::graph
