// Facts about nodes that passes and the partition share.
#pragma once

#include "graph/ir/ir.h"

namespace framejit::graph {

bool is_random(const Node& node);  // advances a generator
bool writes_arguments(const Node& node);
bool has_effect(const Node& node);  // may not be removed or merged
// Also the user's operations that may raise on the values they are given: eager
// does so whether or not the result is used.
bool must_run(const Node& node);
// Registered by a package: two calls may not be one, whatever their arguments.
bool is_custom(const Node& node);
// It may hold on to tensors that it is given.
bool may_keep_arguments(const Node& node);
bool is_view(const Node& node);
// Cheap enough to run again in the backward: elementwise, views, fills.
bool is_recomputable(const Node& node);

}  // namespace framejit::graph
