// WeakObjects: the classes, functions, modules and tensors (keys of dicts) that
// a frozen guard set compares by identity, held weakly.
//
// A guard that names an object must not keep it alive (a compiled function in a
// cycle would never be collected), and must never match another object that
// comes to lie at its address. So the set gives these references up, each
// object gets a weak reference, and the first death tells the owner, who drops
// the entry before the memory can be used again. Properties and their like are
// known by their functions (wrapped_functions.h). Objects of other types cannot
// be referenced weakly or own nothing of the user's: they stay strong.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "guards/set/guard_set.h"

namespace framejit {

// Objects that are held weakly: functions, modules, classes of the program and
// tensors.
bool can_be_weak(PyObject* object);

class WeakObjects {
 public:
  // `on_death` is called once, when the first of the objects dies; it may
  // destroy this.
  WeakObjects(GuardSet& set, std::function<void()> on_death);
  ~WeakObjects();
  WeakObjects(const WeakObjects&) = delete;
  WeakObjects& operator=(const WeakObjects&) = delete;

  bool dead() const { return state_ && state_->dead; }
  bool holds(PyObject* object) const { return references_.count(object) != 0; }
  size_t size() const { return references_.size(); }

 private:
  struct State {
    bool dead = false;
    std::function<void()> on_death;
  };
  static PyObject* object_died(PyObject* capsule, PyObject* reference);
  bool watch(PyObject* object);
  bool give_up_wrapper(const Guard& guard);

  std::shared_ptr<State> state_;
  Ref callback_;
  std::unordered_map<PyObject*, Ref> references_;  // object -> weak reference
  std::vector<const Ref*> given_up_;
  std::vector<Ref> wrappers_;  // while they are given up
};

}  // namespace framejit
