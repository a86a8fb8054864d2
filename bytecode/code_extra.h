// Data of this layer that belongs to a code object and dies with it.
//
// CPython gives each code object a few slots for others (PEP 523); this layer
// takes one of them, on first use, for all its data.
#pragma once

#include <memory>

#include "bytecode/decoder.h"

namespace framejit::bytecode {

class ResidualCache;  // residual.cpp

struct CodeExtra {
  CodeExtra();
  ~CodeExtra();
  std::unique_ptr<DecodedCode> decoded;
  std::shared_ptr<ResidualCache> residual;
};

// Null when CPython has no slot left or memory is short.
CodeExtra* code_extra(PyObject* code);

}  // namespace framejit::bytecode
