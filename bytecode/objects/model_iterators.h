// Iterators of ours: lazy map, filter and chain, user iterators, iteration by
// __getitem__ and iter(function, sentinel), as iterators that C code can hold.
// Their next item is made by the interpreter.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

enum class IteratorKind : uint8_t {
  kMap,
  kFilter,
  kUser,
  kKeys,      // kUser for C code that hashes the items
  kSequence,  // function: the object
  kReversed,  // the same, from the last to the first
  kCallable,
  kChain  // function: the iterator of the parts; the source: of the one it is
          // at
};
Result<Ref> make_iterator(CaptureState& state, IteratorKind kind,
                          PyObject* function, std::vector<Ref> iterators);
Result<Ref> make_reversed_sequence(CaptureState& state, PyObject* object,
                                   Py_ssize_t size);
struct ModelIterator;
ModelIterator* as_model_iterator(PyObject* object);  // null: is none
IteratorKind model_iterator_kind(const ModelIterator* iterator);
PyObject* model_iterator_function(const ModelIterator* iterator);
const std::vector<Ref>& model_iterator_sources(const ModelIterator* iterator);
// kSequence, kReversed: the next index; -1 when exhausted (kCallable, kChain,
// too).
Py_ssize_t model_iterator_index(const ModelIterator* iterator);
Result<Ref> model_iterator_next(CaptureState& state, ModelIterator* iterator);

// What C code may iterate instead of `object` (shadow, or an iterator that
// comes back into the interpreter).
Result<Ref> native_iterable(CaptureState& state, PyObject* object);
// For C code that makes a tuple or list of it: that asks the object how long it
// is, once it has its iterator.
Result<Ref> sized_iterable(CaptureState& state, PyObject* object);

}  // namespace framejit::bytecode
