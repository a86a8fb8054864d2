// What arithmetic and memory cost, in rough units: one vector instruction, and
// one byte. Only choices depend on it.
#pragma once

#include "codegen/loops/loops.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

int op_cost(ScalarOp op, DType type);
// Of all nodes.
int body_cost(const Body& body);

bool has_check(const Body& body);
std::vector<ScalarId> checks_of(const Body& body);

// How many elements of its buffer an access reads at most, over these loops.
int64_t elements_read(const LoopGraph& graph, const Access& access,
                      const std::vector<Expr>& loops, const TargetInfo& target);

// Do elements that lie side by side in memory belong to other loops than the
// inner ones, along which the access moves, too?
bool walks_columns(const LoopGraph& graph, const Access& access,
                   const std::vector<char>& is_inner);

// The loop that an index is, with nothing added; -1: it is something else.
int pure_loop(const Index& index);
// offset 0, one coefficient.
Index loop_index(int loop, size_t loops);

}  // namespace framejit::codegen
