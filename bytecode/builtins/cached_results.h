// What functions with a functools.lru_cache return.
//
// A result that the cache holds is what the program would get: that the cache
// holds it is guarded, and with it the entry goes when the cache is cleared. A
// result that is not there yet is computed by interpreting the function. Either
// way the call is logged, and made on the cache itself after the graph, so that
// it counts and forgets as it does in the program.
//
// The program shares such an object with every other call of the function, but
// a capture makes one of its own. Nobody can tell as long as it is only read:
// it is remembered with its parts, which must be the same when the capture
// ends, and the planner refuses to let it outlive the capture. The notes are in
// the dict of cached calls, under an int for the object's address.
#pragma once

#include <unordered_map>
#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// A key that a cache of functools did not hold when an instruction broke: it
// will, once CPython has run the instruction, so the absence is guarded.
struct MissedKey {
  Ref cache;  // dict
  Ref key;
};

struct CachedResults {
  std::vector<MissedKey> missed_keys;
  Ref calls;  // dict: results of lru_cache functions in this capture
  // Bounded caches, and how many results they will be given, each of which may
  // make them forget another.
  std::unordered_map<PyObject*, Py_ssize_t> given;
};

// What the cache of a functools.lru_cache function holds for the arguments (and
// those by name behind them); guarded. Empty Ref: nothing, or nobody can tell.
Result<Ref> read_cached_result(CaptureState& state, PyObject* wrapper,
                               const std::vector<PyObject*>& given,
                               PyObject* names);
// The call will be made on the cache, too. `held`: it holds the result.
Status log_cached_call(CaptureState& state, PyObject* wrapper,
                       const std::vector<PyObject*>& args, PyObject* names,
                       bool held);
// Nothing was logged from `start` on but calls of caches, which the function
// beneath the outer one will make itself; they are taken back.
bool take_back_cached_calls(CaptureState& state, size_t start);
// What equal calls of one cache have in common; None: it keeps nothing.
Result<Ref> cached_call_key(PyObject* wrapper,
                            const std::vector<PyObject*>& args,
                            PyObject* names);
// Of the results that it will be given none will have been forgotten.
bool keeps_all_given(CaptureState& state, PyObject* wrapper);
// Results of functools.lru_cache functions that are objects. False: of a kind
// that changes unseen, a tensor say.
Result<bool> note_cached_result(CaptureState& state, PyObject* value);
bool is_cached_result(CaptureState& state, PyObject* object);
// All of them are as they were when they were made.
Result<bool> cached_results_unchanged(CaptureState& state);

}  // namespace framejit::bytecode
