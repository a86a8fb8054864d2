// Loops around a large call, as generation loops are: `for ...: model(tokens)`.
//
// In whole-script mode nobody asked for the function with the loop. Unrolled,
// its graph is as long as the loop; what it calls gives a graph that serves
// each turn. So when the frame calls the same function of the same object again
// and again, it is left to CPython. A loop over different layers is none of
// these.
#pragma once

#include <Python.h>

#include <map>
#include <utility>

namespace framejit::bytecode {

class RepeatedCalls {
 public:
  // A call that took so many instructions; `self`: its first argument, or null
  // for one that is new in every turn. Has it been made too often?
  bool add(PyObject* function, PyObject* self, size_t instructions) {
    if (instructions < kLarge) return false;
    return ++counts_[{function, self}] >= kOften;
  }

 private:
  static constexpr size_t kLarge = 150;
  static constexpr int kOften = 4;
  std::map<std::pair<PyObject*, PyObject*>, int> counts_;
};

}  // namespace framejit::bytecode
