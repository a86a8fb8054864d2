// The text of a LoopGraph, which says everything and parses back: printed again
// it is the same, whatever order the nodes of a body had. loops.h has a sample.
//
// A scalar that is used once stands where it is used, others have a line:
//
//   %1 : f32[s0] = map (i0 < s0)
//     t0 = exp(%0[i0])
//     div(t0, add(t0, f32(1)))
//
// Leaves: i0 a loop, f32(0.5) a constant, number(s0*2) a Number, %0[...] a Load
// (when(t0, %0[...]) a load under a condition). A dim's index is a sum of
// terms: i0, i0*3, i0*(s0+1), 5, (s0-1), and @(scalar) for data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codegen/loops/loops.h"
#include "codegen/scalar/text_scanner.h"

namespace framejit::codegen {

std::string print(const LoopGraph& graph);
// "extern 0 sure": of a kExtern, up to its operands.
std::string call_text(const Definition& call);
// What follows the word "extern" in it.
void parse_call(TextScanner* scanner, Definition* call);
// Nothing: *error says what and where ("line 3: unknown operation foo"). What
// is parsed is not verified.
std::optional<LoopGraph> parse_loops(const std::string& text,
                                     std::string* error);

// Of the text: the same in every process and on every machine.
uint64_t stable_hash(const std::string& text);

}  // namespace framejit::codegen
