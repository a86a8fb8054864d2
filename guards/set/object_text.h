// Objects as short text for messages, without running user code: only the
// repr() of exact built-in constants is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "frame_hook/py_ref.h"

namespace framejit {

std::string object_text(PyObject* object);
// The characters of a str; "?" for anything else.
std::string string_text(PyObject* unicode);

// How messages name dtypes and devices, which are numbers down here. graph/
// gives the library's names at load; without them the numbers are shown.
struct TensorWords {
  std::string (*dtype)(int scalar_type);
  std::string (*device)(int type, int index);
  // What the dispatch keys of a tensor say in the program's words
  // ("x.is_conj(): expected False, got True"); "": nothing it could ask.
  std::string (*keys)(const std::string& name, uint64_t expected,
                      uint64_t actual) = nullptr;
};
void set_tensor_words(const TensorWords& words);
std::string dtype_text(int scalar_type);
std::string device_text(int type, int index);
std::string keys_text(const std::string& name, uint64_t expected,
                      uint64_t actual);

}  // namespace framejit
