// The boxed fallback on DispatchKey::Fake: where an operation on trace tensors
// ends, and the only place that registers on that key.
//
// It infers the results on the companions (meta_inference.h), gives them
// symbolic sizes (shape_rules.h), and hands the operation to the active
// TraceSession. No C++ exception other than c10::Error leaves it: a Break is
// stored in the session first, because foreign code may swallow the exception.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace framejit::graph {

// Idempotent. Not ok: somebody else has a fallback on the key (the text says
// who needs what); tracing must then stay off.
bool register_fake_fallback(std::string* error);

// A Scalar[]: its items are numbers, symbolic ones among them.
bool is_list_of_numbers(const c10::IValue& value);

}  // namespace framejit::graph
