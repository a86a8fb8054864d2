// Trust: how far is believed what inference says of an operator's results.
//
// At first as far as the op table says (op_table.h). Once a result was not what
// the trace said (backend/promise.h), eager's own kernel is asked at each
// capture: a rehearsal. When it was asked and the result was another all the
// same, nobody knows, and capture breaks before the operator. A reset forgets.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace framejit::graph {

struct OpFacts;

enum class Trust : uint8_t { kInference, kRehearsal, kNobody };

// An operator with the trust it had when a capture relied on it.
class TrustedOperator {
 public:
  TrustedOperator(OpFacts& facts, Trust trust)
      : facts_(&facts), trust_(trust) {}
  // A result was not as promised. certain: no other operator can be at fault.
  // Any thread, with the GIL or without.
  void surprise(bool certain) const;
  const std::string& name() const;

 private:
  OpFacts* facts_;
  Trust trust_;
};

TrustedOperator trusted_operator(const c10::OperatorHandle& op);  // needs GIL
void forget_surprises();  // of all operators; needs the GIL

}  // namespace framejit::graph
