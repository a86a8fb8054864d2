// Passes over a LoopGraph before kernels are made of it. Each leaves the
// meaning as it is (those that split reductions: but for the rounding of sums),
// keeps the numbers of buffers, and may add some behind them.
#pragma once

#include "codegen/loops/loops.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

// Definitions that nothing needs go. Inputs stay, Checks and what has an
// effect.
void remove_dead(LoopGraph* graph);

// softmax_sum becomes a maximum and a sum of exponentials. Reading a row twice
// costs less than the second exponential of keeping both up to date; and what a
// row has computed once it need not compute again (keep_values.h).
void split_softmax(LoopGraph* graph);

// So do mean and squared distances of short rows (TargetInfo::short_row), where
// that is cheaper than keeping both up to date.
void split_welford(LoopGraph* graph, const TargetInfo& target);

// A large reduction with few results becomes two: over blocks of what is
// reduced, which are independent, and over the blocks.
void split_reductions(LoopGraph* graph, const TargetInfo& target);

// Views of what a map computes of one buffer are computed of views of that, so
// that they can go into their readers (TargetInfo::recomputes_views).
void recompute_views(LoopGraph* graph, const TargetInfo& target);

// A map that is cheaper to compute where it is read than to keep goes into the
// bodies of its readers.
void inline_maps(LoopGraph* graph, const TargetInfo& target);

// Checks come before calls with effects, unless they need them.
void order_effects(LoopGraph* graph);
// Which definition has to stay before which other one, because of effects.
std::vector<std::pair<int, int>> effect_order(const LoopGraph& graph);

// Which outputs are made in the place of an input (LoopGraph::places); the
// others lose theirs. Definitions come in an order in which that is right: what
// can fail before what writes to an input, and so who reads the input. (Updates
// lose their Checks to definitions of their own.)
void choose_places(LoopGraph* graph);
struct PlacedWrites {
  // Of each definition: the input in whose memory its result is made.
  std::vector<BufferId> place;
  // Nothing that can fail needs it: it may come behind all that can.
  std::vector<char> is_late;
};
PlacedWrites placed_writes(const LoopGraph& graph);

// An update whose base is read afterwards, or is the caller's, or is not laid
// out like the result, gets a copy for its base. So each update can be done in
// place once the definitions before it that read its base have run. The base of
// one that makes a placed output may be the input.
void copy_bases(LoopGraph* graph);

// The buffer is its root's memory, all of it, in another shape at most.
bool covers(const LoopGraph& graph, BufferId buffer);
// The result's elements are all written, each by one point.
bool writes_everything(const LoopGraph& graph, const Definition& update);
// The result lies as the base does, and what the update reads of it, it reads
// where it writes.
bool can_update_in_place(const LoopGraph& graph, const Definition& update);

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
