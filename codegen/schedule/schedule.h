// Schedule: a LoopGraph as steps to be run one after the other, and the memory
// they use.
//
// A step is a kernel or an extern call, on buffers. Only some buffers of the
// graph lie in memory: what kernels keep to themselves does not. Those that do
// share *allocations*: a kernel writes its result over an argument that it is
// the last to read, and an update over its base.
//
// What make_schedule() promises:
// - Run in order, the steps define every output (interpret() below says how),
//   with the layout that the graph's buffers have.
// - An input is written only where an output has it for its place: it holds
//   that output in the end. No step from the first such write on can fail.
// - Kernels are verified; no argument of a kernel that is written shares memory
//   with another one. Any number of threads may share a kernel's outer points.
// - When a Check fails the run has changed nothing but its own allocations and
//   what ordered extern calls do that had to come before it.
// - Ordered extern calls stay in their order; none is dropped or repeated.
// - Which sizes are symbols is of no matter: each extent, stride and byte count
//   is an expression in the symbols of the graph. An extent may be 0.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernels/kernel.h"
#include "codegen/loops/interpreter.h"
#include "codegen/loops/loops.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

enum class MemoryKind : uint8_t {
  kInput,   // the caller's tensor
  kOutput,  // made for this run, given to the caller
  kArena,   // a part of one block of memory that the run has
};

struct Allocation {
  MemoryKind kind = MemoryKind::kArena;
  // kInput: which of Schedule::inputs. kOutput: the first of its outputs.
  int number = -1;
  Expr bytes;
  Expr offset;  // kArena: in bytes
  // Between these steps, both included, it holds something.
  int first = 0, last = 0;
};

struct Step {
  // Of Schedule::kernels; -1: an extern call.
  int kernel = -1;
  // Of the kernel's arguments: whose first element they point to. Of a call:
  // its operands, which may be aliases.
  std::vector<BufferId> arguments;
  // What is written: by a kernel, an argument each; by a call, its results.
  std::vector<BufferId> results;
  // Of an update in place: what lies where its result comes. The elements that
  // are not written become the result's.
  BufferId base = kNoBuffer;
  int call = -1;  // of Schedule::calls
};

struct Schedule {
  // As in the graph, and copies that the schedule made. An alias is its base's
  // memory, seen with its own offset, sizes and strides.
  std::vector<Buffer> buffers;
  std::vector<int> allocation_of;  // of each buffer: -1 if it has no memory
  std::vector<Allocation> allocations;
  Expr arena_bytes;
  std::vector<BufferId> inputs, outputs;
  // Of each output: the input in whose memory it is made, or kNoBuffer.
  std::vector<BufferId> places;
  std::vector<Kernel> kernels;  // each once; steps may share one
  std::vector<Definition> calls;
  std::vector<Step> steps;

  // The step that writes to an input first; if none does, behind all steps.
  size_t first_write() const;
  // The number of a buffer's allocation, an alias's being its base's.
  int allocation(BufferId buffer) const {
    BufferId base = buffers[buffer].alias_of;
    return allocation_of[base == kNoBuffer ? buffer : base];
  }
};

Schedule make_schedule(const LoopGraph& graph, const TargetInfo& target);

// May it fail when it runs? (For want of memory, a call always may.)
bool can_fail(const Schedule& schedule, const Step& step);

// "": fine; otherwise what is wrong.
std::string verify(const Schedule& schedule);

// Runs all outer points of a kernel. False: a Check failed.
using KernelRun = std::function<bool(
    const Kernel& kernel, const int64_t* symbols, std::span<void* const>)>;

// Runs the steps; the parameters are those of interpret() for a LoopGraph.
// run: instead of the kernel interpreter, for a target that is tested.
std::string interpret(const Schedule& schedule, const int64_t* symbols,
                      std::span<const void* const> inputs,
                      std::span<void* const> outputs,
                      const ExternCall& call = {}, const KernelRun& run = {});

// Steps, memory, and the kernels' shape; with_bodies: and what they compute,
// which parses back to an equal schedule (but for names of buffers).
std::string print(const Schedule& schedule, bool with_bodies);
// Nothing: *error says what and where. What is parsed is not verified.
std::optional<Schedule> parse_schedule(const std::string& text,
                                       std::string* error);

// What the kernels read and write, an element once a kernel and argument; of
// one step, and of all.
int64_t bytes_moved(const Schedule& schedule, const Step& step,
                    const TargetInfo& target);
int64_t bytes_moved(const Schedule& schedule, const TargetInfo& target);

}  // namespace framejit::codegen
