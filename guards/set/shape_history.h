// Automatic dynamic shapes: which sizes and numbers change from call to call.
//
// One history per code cache key. A miss compares the call with what the
// entries at hand expected, a capture records what it saw; a size, stride, int,
// float or length of a container seen with two values is dynamic from then on,
// which the next capture asks for by source text. (A size or stride of 0 or 1
// is specialised by the tracer, and a stride that follows from sizes is their
// expression.)
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "guards/set/dynamic_dims.h"
#include "guards/set/guard_set.h"

namespace framejit {

class ShapeHistory {
 public:
  // The call missed this entry: marks what differs from its guards. True when
  // something became dynamic.
  bool note_miss(const GuardSet& guards, PyObject* const* args,
                 PyObject* function, PyObject* code);
  // A capture with these guards was made for this call.
  bool observe(const GuardSet& guards, PyObject* const* args,
               PyObject* function, PyObject* code);

  // By source text.
  const std::unordered_map<std::string, DynamicDims>& dynamic_dims() const {
    return dynamic_dims_;
  }
  // Of ints, floats and lengths.
  const std::unordered_map<std::string, bool>& dynamic_numbers() const {
    return dynamic_numbers_;
  }

 private:
  // What of two calls, or of a call and a guard, has come to differ.
  bool mark(const std::string& text, const DynamicDims& changed);
  bool mark_number(const std::string& text);

  std::unordered_map<std::string, DynamicDims> dynamic_dims_;
  std::unordered_map<std::string, bool> dynamic_numbers_;
  struct Shape {
    std::vector<int64_t> sizes, strides;
  };
  std::unordered_map<std::string, Shape> seen_shapes_;
  // Of ints and floats (by their bits) apart: a change of type is no other
  // value.
  std::unordered_map<std::string, int64_t> seen_ints_, seen_floats_;
};

}  // namespace framejit
