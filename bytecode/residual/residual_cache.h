// What residual.cpp keeps: a copy of the user's code to derive from, and the
// code derived so far.
//
// Ownership, without a cycle: the user's code object owns the generated code
// (GeneratedCodes), generated code owns this cache, and the cache knows
// generated code only weakly. The cache copies what it needs of the user's
// code, so resume code outlives it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bytecode/code/stack_effects.h"
#include "bytecode/residual/residual.h"

namespace framejit::bytecode {

struct GeneratedCodes;

// See left_loops.h.
struct LeftLoop {
  size_t budget = 0;
  size_t generation = 0;  // of what framejit.reset() forgets
};

class ResidualCache {
 public:
  // False when the code cannot be derived from; `why_not` says why.
  explicit ResidualCache(PyCodeObject* code);

  Assembly body;
  CodeParts parts;
  int num_base = 0;  // locals and cells: slots that keep their number
  int num_frees = 0;
  int resume_index = 0;                          // of the first RESUME
  FunctionRows rows;                             // of the user's code
  const char* why_not = nullptr;                 // the whole code has no breaks
  AbstractFrames frames;                         // before each instruction
  std::unordered_map<int, LeftLoop> left_loops;  // by header
  GeneratedCodes* owner = nullptr;  // of the user's code, while it lives
  std::unordered_map<std::string, PyObject*> codes;  // weak

  int num_slots() const { return num_base + num_frees; }
  // Instruction whose opcode is at a code unit; -1.
  int index_at(int unit) const;
  const char* why_not_at(int index) const;
};

// What is known about a generated code object.
struct DerivedCode {
  std::shared_ptr<ResidualCache> origin;
  std::string key;  // in origin->codes
  bool is_residual = false;
  int active_handlers = 0;         // when it begins
  int num_locals = 0;              // its co_nlocals: frees come behind
  std::vector<int> original_unit;  // per code unit; -1: not of the user's code
  std::vector<ResidualArg> args;   // residual only, in slots of the origin
  std::vector<Ref> resume_codes;   // residual only
  // Resume only: parameters that may be unbound_marker(), and the unit behind
  // the code that looks.
  std::vector<int> maybe_unbound;
  int checked_unit = 0;
  ~DerivedCode() {
    if (origin) origin->codes.erase(key);
  }
};

// In the user's code object: what its residual code is made from, and what was
// made.
struct GeneratedCodes {
  std::shared_ptr<ResidualCache> cache;
  std::vector<Ref> codes;
  ~GeneratedCodes() {
    if (cache) cache->owner = nullptr;
  }
};

// In a generated code object: where it comes from. Null: it is the user's.
struct Derivation {
  std::unique_ptr<DerivedCode> from;
};
const DerivedCode* derivation_of(PyObject* code);

// A place in the user's code, found from the user's or from resume code.
struct Place {
  std::shared_ptr<ResidualCache> cache;
  const DerivedCode* derived = nullptr;  // null: the user's own code
  int index = -1;
  const char* why_not = nullptr;
};
Place find_place(PyObject* code, int offset);

// The shape of a frame in terms of the origin: slots and code units.
struct OriginFrame {
  std::vector<uint8_t> slots;  // SlotMask; both behind a loop only
  std::vector<StackItem> stack;
  int active_handlers = 0;
};

struct Generated {
  Ref code;
  std::unique_ptr<DerivedCode> info;
};

// residual_build.cpp. Resume: enter the body at `index`, line of `from`.
Result<Generated> build_resume(const ResidualCache& cache, int index, int from,
                               const OriginFrame& frame);
struct Exit {
  Successor successor;
  OriginFrame frame;
  Ref resume;  // code object
};
Result<Generated> build_residual(const ResidualCache& cache, int index,
                                 const OriginFrame& frame,
                                 const std::vector<Exit>& exits);
// The same for all of a loop, from its header on.
Result<Generated> build_loop_residual(const ResidualCache& cache, int header,
                                      const OriginFrame& frame,
                                      const std::vector<Exit>& exits);
// The frame on each way out of the instruction, or of the loop. A Break when
// not static.
Result<std::vector<Exit>> exits_of(const ResidualCache& cache, int index,
                                   const OriginFrame& frame);
Result<std::vector<Exit>> exits_of_loop(const ResidualCache& cache, int header,
                                        const OriginFrame& frame);

}  // namespace framejit::bytecode
