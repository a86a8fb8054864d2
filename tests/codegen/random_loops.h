// Random loop graphs and memory for them, from a seed: what the schedule and
// every target are compared with the interpreter on.
//
// The graphs are well-formed and their loads in range for the symbols that come
// with them. They have maps, reductions, scans, updates and aliases of all
// types; reads that are broadcast, strided, permuted, flipped, sliced,
// overlapping, gathered and conditional; symbolic sizes, 0 and 1 among them;
// inputs with gaps and permuted dims, and results, too.
//
// What a comparison may ask is worked out with the graph: a buffer is *exact*
// (every element has one right value: integers, arithmetic rounded once, never
// behind a named function or a float sum) or within an absolute tolerance.
// Values that are not exact are bounded and never decide anything.
#pragma once

#include <string>
#include <vector>

#include "codegen/loops/interpreter.h"
#include "codegen/loops/loops.h"

namespace framejit::codegen {

struct RandomLoopOptions {
  int inputs = 3;
  int definitions = 6;
  int body = 6;  // operations of one body, about
  bool externs = false;
  bool checks = true;  // some runs fail, then
  std::vector<DType> types = {
      DType::kBool, DType::kU8,  DType::kI8,   DType::kI16, DType::kI32,
      DType::kI64,  DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
};

struct RandomLoops {
  LoopGraph graph;
  std::vector<int64_t> symbols;
  // One an output: 0 for exact.
  std::vector<double> tolerance;
};

RandomLoops random_loops(uint64_t seed, const RandomLoopOptions& options = {});

// Memory of a buffer as its strides say: `first` is element 0.
struct BufferMemory {
  std::vector<char> bytes;
  char* first = nullptr;
};

// Numbers of every kind: small ones, limits, infinities, NaN, -0.0, denormals.
BufferMemory random_memory(const LoopGraph& graph, BufferId buffer,
                           const int64_t* symbols, uint64_t seed);
// The same memory with a pattern that no computation makes.
BufferMemory unwritten_memory(const LoopGraph& graph, BufferId buffer,
                              const int64_t* symbols);

// Inputs and outputs of one run.
struct RunMemory {
  std::vector<BufferMemory> inputs, outputs;
  std::vector<const void*> input_pointers() const;
  std::vector<void*> output_pointers();
};
RunMemory random_run(const RandomLoops& program, uint64_t seed);

// "": all outputs agree; otherwise the first element that does not. NaN agrees
// with NaN, 0.0 with -0.0. What lies between the elements must agree, too.
std::string compare_outputs(const RandomLoops& program,
                            const RunMemory& expected, const RunMemory& got);

// The callee of generated externs: each result is a copy of the first operand.
ExternCall copying_call(const RandomLoops& program);

}  // namespace framejit::codegen
