// A body as statements of CUDA C++: one a node, named as in a kernel's text
// (v3), with leaves and constants where they are used.
//
// Operations are what evaluate.h says, by operators of the language and the
// functions of prelude.h; nothing is contracted, reordered or expanded. Two
// differ by what they are: named functions are CUDA's own (their error is in
// CUDA's programming guide), and a float that does not fit an integer becomes
// what CUDA makes of it, which is what eager gives there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/scalar/body.h"

namespace framejit::codegen {

// The type of a value in a register, of an element in memory, and of a value
// where it is one or more words of 32 bits (to be shuffled).
const char* cuda_type(DType type);
const char* cuda_memory_type(DType type);
const char* cuda_word_type(DType type);

std::string cuda_constant(DType type, Element value);

// Why the body cannot be printed; empty: it can.
std::string cuda_refuses(const Body& body);

class CudaBody {
 public:
  // What a leaf other than Const and Load is, as an expression; a Load has its
  // statement, and is an expression only where `load` says so.
  using Leaf = std::function<std::string(const ScalarNode&)>;

  // kept: values that are used outside of the body, too, as they are. A
  // quotient that is only rounded to 16 bits need not be exact to 24.
  CudaBody(const Body& body, Leaf leaf, const std::vector<ScalarId>& kept = {});

  // All statements, each behind `indent`. With Checks in the body they say
  // `ok = ok && ...`.
  std::string statements(const std::string& indent) const;
  std::string name(ScalarId id) const;

 private:
  std::string value(ScalarId id) const;
  std::string cast(DType from, DType to, const std::string& x) const;

  const Body& body_;
  Leaf leaf_;
  std::vector<char> is_rounded_;  // of each node: to 16 bits, by all its users
};

}  // namespace framejit::codegen
