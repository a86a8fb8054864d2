// What the project knows of the operators of the running torch, for tests and
// for looking things up.
#pragma once

#include <set>
#include <string>

#include "guards/result.h"

namespace framejit {

// A list of dicts, one per operator of ATen.
Ref operator_report();
// As if each of these ("add.Tensor"; none named: of all) had once returned
// something else than its trace said.
void distrust_operators(const std::set<std::string>& names);

}  // namespace framejit
