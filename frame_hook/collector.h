// CPython's garbage collector, off for a scope.
//
// Finalizers that run in the middle of our work would see, and change, what is
// half done. The switch is the process's, so what one thread turned off,
// another finds off and leaves alone: one scope owes it to the program to turn
// it on again. The child of a fork() lacks the threads of others, whose scopes
// never end there: it is turned on for them.
#pragma once

namespace framejit {

class CollectorOff {
 public:
  CollectorOff() { take(); }
  ~CollectorOff() { give_back(); }
  CollectorOff(const CollectorOff&) = delete;
  CollectorOff& operator=(const CollectorOff&) = delete;

  // Around code of the program in the middle of the scope, which may turn it
  // off, or on.
  void give_back();
  void take();

 private:
  bool owes_ = false;
};

}  // namespace framejit
