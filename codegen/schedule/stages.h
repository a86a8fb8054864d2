// Changes to the stages of a kernel that leave its meaning as it is.
#pragma once

#include <functional>

#include "codegen/kernels/kernel.h"

namespace framejit::codegen {

// Nodes that neither stores, reductions, rows nor Checks need, and loads that
// no node names.
void remove_dead_nodes(Stage* stage);

// Each node through `change`, which may give it another payload, or make a leaf
// of it.
void rewrite_leaves(Stage* stage,
                    const std::function<void(ScalarNode*)>& change);

// Of each node: does its value depend on the loop?
std::vector<char> depends_on(const Stage& stage, size_t loop);

// What does not depend on the inner loops of a stage is computed once a point,
// by a stage before it.
void hoist_invariants(Kernel* kernel);

// Would that be worth it for the last of all loops, were it an inner one?
bool has_invariants(const Kernel& kernel, const Stage& stage, int loop);

}  // namespace framejit::codegen
