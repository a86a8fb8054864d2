// What a native predicate assumed beyond the structural facts, and how
// particular the next one may be.
//
// Each source that holds a dict or an instance is read in a form: by dict
// version (one compare proves everything about the dict, until any store; from
// CPython 3.12 on a watcher says it, see watchers.h), by slot (key and value
// pointers at a place in the key table: survives unrelated stores and fits
// every instance laid out alike), or generic (a C look-up: fits whatever is
// structurally equal). A pin records one such assumption, so that a predicate
// that failed can be asked which sources to read less particularly.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "guards/set/guard_set.h"

namespace framejit {

enum class Form : uint8_t { kVersion, kSlot, kGeneric };

struct SourceForm {
  Form form = Form::kVersion;
  uint8_t repeats = 0;  // failures of this form so far
};

struct Pin {
  enum class Kind : uint8_t {
    kType,             // a: type
    kDictVersion,      // a: version, b: the dict
    kInstanceVersion,  // the same of the instance dict
    kDictWatched,      // a: generation, b: the dict
    kInstanceWatched,
    kDictSlot,  // entry; a: table shape, b: key
    kInstanceSlot,
    kDictAbsent,  // entry: the hash slot that is empty; a: table shape
    kInstanceAbsent,
    kInstanceLayout,  // a: 0 nothing, 1 inline values, 2 dict
    kTypeVersion,     // a: version, b: the type (kept alive)
    kEquals,          // a: the object whose pointer was compared
    kStorage,         // a: the storage of the tensor
  };
  Kind kind;
  uint32_t source;
  int64_t entry = 0;
  uint64_t a = 0;
  uint64_t b = 0;
};

class ArmedPredicate : public Predicate {
 public:
  virtual const std::vector<Pin>& pins() const = 0;
  // What the set itself sees to need not be kept alive by the predicate.
  virtual void release_if(const std::function<bool(PyObject*)>& cared_for) = 0;
  // Something it watched has changed: it never holds again.
  virtual bool is_dead() const = 0;
};

// forms: by source id, may be shorter than the arena. Null: no emitter here, or
// the facts do not hold for these objects.
std::unique_ptr<ArmedPredicate> emit_armed(
    const GuardSet& set, PyObject* const* args, PyObject* function,
    const std::vector<SourceForm>& forms);

// Does the assumption hold for the value its source has now?
bool pin_holds(const Pin& pin, PyObject* value);
// The assumption named this very dict, which has changed: it never holds again.
bool pin_is_dead(const Pin& pin, PyObject* value);

}  // namespace framejit
