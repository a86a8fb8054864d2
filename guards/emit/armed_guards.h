// ArmedGuards: a frozen guard set with its native predicates.
//
// Every predicate covers the whole set; each was compiled for the objects of
// one call, whose pointers, versions and slots are its fast forms. When none of
// them holds, match_slow() asks the reference evaluator. If the facts do hold,
// a fast form was all that failed: the sources it belonged to are given a less
// particular form (forms only ever get more general, so this ends) and one more
// predicate is compiled; the oldest is dropped beyond kMaxPredicates.
#pragma once

#include <memory>
#include <vector>

#include "frame_hook/dispatch.h"
#include "guards/emit/emit_plan.h"
#include "guards/set/guard_set.h"
#include "guards/set/weak_objects.h"

namespace framejit {

class ArmedGuards {
 public:
  static constexpr size_t kMaxPredicates = 8;

  explicit ArmedGuards(std::unique_ptr<GuardSet> guards);

  // The form that sources are read in until it fails (tests).
  static void set_first_form(Form form);

  // Compiles a predicate for the objects of this call, for which the guards
  // hold. False: none could be made; match_slow() still decides.
  bool arm(PyObject* const* args, PyObject* function);
  // After every predicate failed. True: the facts hold, objects and symbols are
  // filled in, and the predicates may have changed. False: *failed is the first
  // guard that does not hold, or kNoGuard. Leaves no error set.
  static constexpr size_t kNoGuard = SIZE_MAX;
  bool match_slow(PyObject* const* args, PyObject* function, PyObject** objects,
                  int64_t* symbols, size_t* failed = nullptr);

  // From here on no class, function or module is kept alive by the guards;
  // `on_death` is called when the first one dies, and may destroy this.
  void hold_weakly(std::function<void()> on_death);

  const GuardSet& guards() const { return *guards_; }
  GuardSet& guards() { return *guards_; }
  size_t num_predicates() const { return predicates_.size(); }
  size_t code_size() const;
  // Most recent first.
  std::vector<PredicateFn> predicate_functions() const;
  bool dead() const { return weak_ && weak_->dead(); }
  uint64_t num_rearmed() const { return num_rearmed_; }

 private:
  void generalise(PyObject* const* args, PyObject* function);
  bool compare_with_reference(PyObject* const* args, PyObject* function,
                              bool matches, PyObject* const* objects,
                              const int64_t* symbols);

  void release_kept(ArmedPredicate& predicate) const;

  std::unique_ptr<GuardSet> guards_;
  std::unique_ptr<WeakObjects> weak_;  // goes before the set
  std::vector<std::unique_ptr<ArmedPredicate>> predicates_;
  std::vector<SourceForm> forms_;  // by source id
  uint64_t num_rearmed_ = 0;
  int unexplained_ = 0;
};

}  // namespace framejit
