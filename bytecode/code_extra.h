// Data of this layer that belongs to a code object and dies with it.
//
// CPython gives each code object a few slots for others (PEP 523); this layer
// takes one of them, on first use, for all its data.
#pragma once

#include <memory>
#include <vector>

#include "bytecode/decoder.h"

namespace framejit::bytecode {

class ResidualCache;  // residual_cache.h
struct DerivedCode;

struct CodeExtra {
  CodeExtra();
  ~CodeExtra();
  std::unique_ptr<DecodedCode> decoded;
  // Of a user's code: what its residual code is made from, and what was made.
  std::shared_ptr<ResidualCache> residual;
  std::vector<Ref> generated;
  // Of generated code: where it comes from.
  std::unique_ptr<DerivedCode> derived;
};

// Null when CPython has no slot left or memory is short.
CodeExtra* code_extra(PyObject* code);

}  // namespace framejit::bytecode
