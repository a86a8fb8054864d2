#include "graph/ops/trust.h"

#include "graph/ops/op_facts.h"

namespace framejit::graph {

void TrustedOperator::surprise(bool certain) const {
  Trust less = trust_ == Trust::kInference || !certain ? Trust::kRehearsal
                                                       : Trust::kNobody;
  // Entries that were made before it was trusted less do not count twice.
  Trust now = facts_->trust.load();
  while (now < less && !facts_->trust.compare_exchange_weak(now, less)) {
  }
}

const std::string& TrustedOperator::name() const { return facts_->name; }

TrustedOperator trusted_operator(const c10::OperatorHandle& op) {
  OpFacts& facts = facts_of(op);
  return {facts, facts.trust.load()};
}

}  // namespace framejit::graph
