// The structural truth of single guards, shared by the reference evaluator, the
// emitter (which calls it for guards that have no native form) and the
// explanation of failures.
#pragma once

#include <vector>

#include "guards/set/guard_set.h"

namespace framejit {

// The values of the sources of one set for one call; each path is followed
// once. Empty Ref: the path does not exist.
class SourceValues {
 public:
  SourceValues(const GuardSet& set, PyObject* const* args, PyObject* function);
  PyObject* get(const Source* source);  // borrowed from this object
  bool get_int(const Source* source, int64_t* out);

 private:
  const GuardSet& set_;
  PyObject* const* args_;
  PyObject* function_;
  std::vector<Ref> values_;
  std::vector<uint8_t> known_;
};

// Symbol values; a value that cannot be read has available[i] false.
struct SymbolValues {
  std::vector<int64_t> values;
  std::vector<bool> available;
};
SymbolValues read_symbols(const GuardSet& set, SourceValues& sources);

// Does one guard hold?
bool holds(const GuardSet& set, const Guard& guard, SourceValues& sources,
           const SymbolValues& symbols);
// The same for the guards that look at one object and no symbols.
bool holds_for(const Guard& guard, PyObject* value);
bool tensor_matches(const TensorSpec& spec, PyObject* value,
                    const SymbolValues& symbols);
// Same type and value, deep, for the kinds listed at Equals.
bool constant_equal(PyObject* a, PyObject* b);
// The whole MRO of a class as a TypeAttrIs guard: its name is "__mro__", the
// expected value a tuple of the classes' addresses (which it does not own).
Ref mro_addresses(PyTypeObject* type);
bool is_mro_guard(const Guard& guard);
// An object whose attribute `token` is abc.get_cache_token(): a GetSet source
// that changes when a class is registered with an abstract one. Null: none.
PyObject* abc_registry();
// len() of a container of a known C kind; -1: none.
Py_ssize_t container_length(PyObject* object);
// Some step of the path makes an object that nothing else may keep alive.
bool is_temporary(const Source* source);

}  // namespace framejit
