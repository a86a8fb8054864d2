// Passes over a LoopGraph before kernels are made of it. Each leaves the
// meaning as it is (split_reductions: but for the rounding of sums), keeps the
// numbers of buffers, and may add some behind them.
#pragma once

#include "codegen/loops/loops.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

// Definitions that nothing needs go. Inputs stay, Checks and what has an
// effect.
void remove_dead(LoopGraph* graph);

// A large reduction with few results becomes two: over blocks of what is
// reduced, which are independent, and over the blocks.
void split_reductions(LoopGraph* graph, const TargetInfo& target);

// A map that is cheaper to compute where it is read than to keep goes into the
// bodies of its readers.
void inline_maps(LoopGraph* graph, const TargetInfo& target);

// Checks come before calls with effects, unless they need them.
void order_effects(LoopGraph* graph);
// Which definition has to stay before which other one, because of effects.
std::vector<std::pair<int, int>> effect_order(const LoopGraph& graph);

// An update whose base is read afterwards, or is the caller's, or is not laid
// out like the result, gets a copy for its base. So each update can be done in
// place once the definitions before it that read its base have run.
void copy_bases(LoopGraph* graph);

// Of each loop of an update: does it write other elements at each turn,
// whatever the other loops do?
std::vector<char> independent_loops(const Definition& update);

// Who reads a buffer, its aliases included.
struct Reader {
  int definition;
  int access;  // -1: as an operand, or as the base of an update
};
std::vector<std::vector<Reader>> readers_of(const LoopGraph& graph);

// Of each buffer: has it to lie in memory, whoever computes it? Because it is
// an input or output, has aliases, or is read or written by other than loops.
std::vector<char> kept_in_memory(const LoopGraph& graph);

}  // namespace framejit::codegen
