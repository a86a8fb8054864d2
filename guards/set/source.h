// Source: where a value comes from, as a path from the arguments of the call.
//
// "inputs['x'].weight" is Tensor attribute <- dict item <- argument 0. One type
// serves guards (evaluate the path), the emitter (compile the path), gathering
// of graph inputs, reconstruction in residual code, and messages. Nodes are
// immutable and interned in a SourceArena, so identity is structural equality
// and a guard set is a tree over them. Evaluating a path never runs user code.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit {

enum class SourceKind : uint8_t {
#define FJ_ROOT(name, ...) k##name,
#define FJ_STEP(name, ...) k##name,
#define FJ_NUMBER(name, ...) k##name,
#include "guards/set/source_kinds.def"
#undef FJ_ROOT
#undef FJ_STEP
#undef FJ_NUMBER
  kCount,
};

class Source {
 public:
  SourceKind kind;
  const Source* base;  // null for roots
  Ref key;             // attribute or key object, or the constant
  int64_t index;
  uint32_t id;  // position in the arena: parents before children
  int depth;    // steps from the root
};

class SourceArena {
 public:
  SourceArena() = default;
  SourceArena(const SourceArena&) = delete;
  // Interned: equal paths give the same pointer. Keys compare by identity, or
  // by value for exact str and int.
  const Source* make(SourceKind kind, const Source* base = nullptr,
                     PyObject* key = nullptr, int64_t index = 0);
  const Source* arg(int index) {
    return make(SourceKind::kArg, nullptr, nullptr, index);
  }
  const Source* function() { return make(SourceKind::kFunction); }
  const Source* constant(PyObject* object) {
    return make(SourceKind::kConst, nullptr, object);
  }
  size_t size() const { return nodes_.size(); }
  const Source* at(size_t id) const { return &nodes_[id]; }
  // A path has more than kMaxPathDepth steps.
  bool has_long_path() const { return has_long_path_; }

 private:
  bool has_long_path_ = false;
  std::deque<Source> nodes_;
  std::unordered_multimap<size_t, uint32_t> index_;
};

// Follows the path. New reference (borrow + incref), or empty Ref when a step
// does not exist or has the wrong type (no error set). Size/stride/value kinds
// are read with evaluate_int.
Ref evaluate_source(const Source* source, PyObject* const* args,
                    PyObject* function);
bool evaluate_source_int(const Source* source, PyObject* const* args,
                         PyObject* function, int64_t* out);

// One step of a path, from the value of its base. Same results.
Ref evaluate_step(const Source* source, PyObject* base);
bool evaluate_int_step(const Source* source, PyObject* base, int64_t* out);
// What a ContextValue source gives for a variable without a value or default.
PyObject* no_context_value();
// Kinds whose value is an int64, not an object.
bool is_int_source(SourceKind kind);

// Objects of this type stand for facts that lie on no path through the program
// (bytecode/objects/fact_object.h): texts show the key alone.
void set_fact_type(PyTypeObject* type);
// In the user's words: parameter names come from the code object.
// "inputs['x']", "self.layers[0].weight", "G['scale']", "x.size(0)".
std::string source_text(const Source* source, PyObject* code);

}  // namespace framejit
