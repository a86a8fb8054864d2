// What a LoopGraph means: every schedule and every target is tested against
// this, and this against the library whose operators were lowered.
//
// Definitions run one after the other, element by element; evaluate() is the
// arithmetic. Floats are put together in long double and rounded once at the
// end (each prefix of a scan, each element of an update), so this is the more
// exact side of a comparison. Integers wrap in their type.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

// Calls definition.callee: the first elements of its operands and results,
// which lie as their buffers' strides say. False: it failed.
using ExternCall = std::function<bool(const Definition& definition,
                                      std::span<void* const> operands,
                                      std::span<void* const> results)>;

// symbols: values as for Expr::evaluate(). inputs: first elements of the input
// definitions' buffers, in their order; outputs: of graph.outputs, written last
// with the buffers' strides. "": done; otherwise why not (a Check failed, an
// extern call failed, a size has no value), and no output was written. Throws
// InternalError for what verify() cannot see: an index out of range.
std::string interpret(const LoopGraph& graph, const int64_t* symbols,
                      std::span<const void* const> inputs,
                      std::span<void* const> outputs,
                      const ExternCall& call = {});

}  // namespace framejit::codegen
