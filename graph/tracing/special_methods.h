// The special methods of tensors' classes that a capture relied on.
//
// CPython looks the special method of an operator (`__add__`, `__len__`) up in
// the class. A capture runs torch's own on a stand-in and records what that
// does, so the entry holds as long as the class has that one, or still has
// none: the program may put another on a class of its own, a mixin of it, or
// torch.Tensor.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "frame_hook/py_ref.h"
#include "guards/result.h"

namespace framejit::graph {

class Recorder;

class SpecialMethods {
 public:
  // The class of the stand-in has torch's own method of that name, or none, and
  // will have; of a method in Python, so has it those which that calls. A break
  // where it is another already.
  Status guard(PyObject* stand_in, const std::string& name, Recorder& recorder);

  void clear() { guarded_.clear(); }

 private:
  std::set<std::pair<PyTypeObject*, std::string>> guarded_;
};

}  // namespace framejit::graph
