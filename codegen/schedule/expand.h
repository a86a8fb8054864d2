// Puts the bodies of definitions into one body over other loops.
//
// An element of a definition is asked for at an index map: what each of its
// loops is, in the loops of the new body. Its nodes are emitted there, and what
// they load is asked of `resolve`, at the composed map: it answers with a value
// of the new body, be that a Load, a row value, or another definition expanded.
// Equal loads and equal elements are one node.
#pragma once

#include <functional>
#include <unordered_map>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

// Numbers of a graph or kernel, each once.
class NumberTable {
 public:
  explicit NumberTable(std::vector<Expr>* numbers);
  int add(const Expr& number);

 private:
  struct Hash {
    size_t operator()(const Expr& e) const { return e.hash(); }
  };
  std::vector<Expr>* numbers_;
  std::unordered_map<Expr, int, Hash> known_;
};

struct AccessHash {
  size_t operator()(const Access& access) const;
};

class Expander {
 public:
  // What an access of the new body is worth.
  using Resolve = std::function<ScalarId(const Access&)>;

  // from: the numbers that Number leaves of definitions name.
  Expander(const LoopGraph& graph, const std::vector<Expr>& from, size_t loops,
           NumberTable* numbers)
      : graph_(graph), from_(from), loops_(loops), numbers_(numbers) {}
  void set_resolve(Resolve resolve) { resolve_ = std::move(resolve); }

  // The value of `root` of the definition, where its loops are `map`. Only done
  // where `when` is true: loads and Checks are put under it.
  ScalarId expand(const Definition& definition, const std::vector<Index>& map,
                  ScalarId when, ScalarId root);
  // Several roots at once, so that they share what they have in common.
  void expand(const Definition& definition, const std::vector<Index>& map,
              ScalarId when, std::vector<ScalarId*> roots);
  // An access that is made by the new body.
  ScalarId load(const Access& access);
  // An element of a map, which is under the access's condition (0 elsewhere).
  ScalarId element(const Definition& map, const Access& access);

  Index compose(const Index& index, const std::vector<Index>& map,
                const std::vector<ScalarId>& values);

  Body& body() { return body_; }
  std::vector<Access>& accesses() { return accesses_; }
  ScalarId number(const Expr& value);

 private:
  ScalarId index_value(const Index& index);
  ScalarId scaled(ScalarId value, const Expr& factor);
  ScalarId sum(ScalarId a, ScalarId b);  // of i64; either may be missing

  const LoopGraph& graph_;
  const std::vector<Expr>& from_;
  size_t loops_;
  NumberTable* numbers_;
  Resolve resolve_;
  Body body_;
  std::vector<Access> accesses_;
  std::unordered_map<Access, int, AccessHash> known_;
  std::unordered_map<Access, ScalarId, AccessHash> elements_;
};

}  // namespace framejit::codegen
