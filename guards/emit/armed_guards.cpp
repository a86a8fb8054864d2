#include "guards/emit/armed_guards.h"

#include <algorithm>

#include "frame_hook/collector.h"
#include "frame_hook/event_log.h"
#include "frame_hook/options.h"
#include "frame_hook/perf_map.h"
#include "frame_hook/program_code.h"
#include "guards/set/evaluate.h"

namespace framejit {
namespace {

// How often a form may fail before a more general one is taken. A dict that
// was stored to once or twice is worth reading by version again.
constexpr uint8_t kVersionFailures = 2;
constexpr uint8_t kSlotFailures = 4;
// Failures that no pin explains before every source is read generically.
constexpr int kUnexplainedFailures = 3;
// So many of them: no predicate can tell what the guards say.
constexpr int kHopelessFailures = 16;
// A set that still fails natively after so many predicates is only evaluated.
constexpr uint64_t kMaxRearmed = 100;

Form first_form = Form::kVersion;

}  // namespace

ArmedGuards::ArmedGuards(std::unique_ptr<GuardSet> guards)
    : guards_(std::move(guards)) {
  FJ_CHECK(guards_, "an entry without guards");
}

void ArmedGuards::set_first_form(Form form) { first_form = form; }

size_t ArmedGuards::code_size() const {
  size_t size = 0;
  for (const auto& predicate : predicates_) size += predicate->code_size();
  return size;
}

std::vector<PredicateFn> ArmedGuards::predicate_functions() const {
  std::vector<PredicateFn> functions;
  for (const auto& predicate : predicates_)
    functions.push_back(predicate->function());
  return functions;
}

void ArmedGuards::hold_weakly(std::function<void()> on_death) {
  weak_ = std::make_unique<WeakObjects>(*guards_, std::move(on_death));
  for (const auto& predicate : predicates_) release_kept(*predicate);
}

void ArmedGuards::release_kept(ArmedPredicate& predicate) const {
  if (!weak_) return;
  predicate.release_if([&](PyObject* object) { return weak_->holds(object); });
}

bool ArmedGuards::arm(PyObject* const* args, PyObject* function) {
  forms_.resize(guards_->sources().size(), {first_form, 0});
  auto predicate = emit_armed(*guards_, args, function, forms_);
  if (!predicate) return false;
  release_kept(*predicate);
  if (options().perf_map)
    add_to_perf_map(
        reinterpret_cast<const void*>(predicate->function()),
        predicate->code_size(),
        "fj::guards " + describe_code(PyFunction_GET_CODE(function)));
  predicates_.insert(predicates_.begin(), std::move(predicate));
  if (predicates_.size() > kMaxPredicates) predicates_.pop_back();
  return true;
}

bool ArmedGuards::match_slow(PyObject* const* args, PyObject* function,
                             PyObject** objects, int64_t* symbols,
                             size_t* failed) {
  if (failed) *failed = kNoGuard;
  if (weak_ && weak_->dead()) return false;
  CollectorOff off;
  bool matches = false;
  try {
    matches = evaluate(*guards_, args, function, objects, symbols, failed);
  } catch (const InternalError&) {
    matches = false;
    if (failed) *failed = kNoGuard;
  }
  bool held = options().verify &&
              compare_with_reference(args, function, matches, objects, symbols);
  if (!matches || held) return matches;
  if (num_rearmed_ >= kMaxRearmed) return true;
  ErrorGuard keep_error;
  try {
    generalise(args, function);
    if (num_rearmed_ < kMaxRearmed && arm(args, function))
      ++num_rearmed_;
    else
      num_rearmed_ = kMaxRearmed;  // no native form: evaluate from now on
  } catch (const InternalError&) {
    num_rearmed_ = kMaxRearmed;
  }
  return true;
}

// With FRAMEJIT_VERIFY=1 every call comes here: a predicate that holds where
// the facts do not, or that gathers something else, is a bug.
bool ArmedGuards::compare_with_reference(PyObject* const* args,
                                         PyObject* function, bool matches,
                                         PyObject* const* objects,
                                         const int64_t* symbols) {
  std::vector<PyObject*> native_objects(guards_->gathered().size());
  std::vector<int64_t> native_symbols(guards_->symbols().size());
  bool held = false;
  for (const auto& predicate : predicates_) {
    if (!predicate->function()(args, function, native_objects.data(),
                               native_symbols.data()))
      continue;
    held = true;
    FJ_CHECK(matches, "a native predicate holds, its guards do not");
    FJ_CHECK(
        std::equal(native_objects.begin(), native_objects.end(), objects) &&
            std::equal(native_symbols.begin(), native_symbols.end(), symbols),
        "a native predicate gathers something else");
  }
  return held;
}

// Finds out why the predicates failed for these objects, for which the facts
// hold, and drops predicates that can never hold again.
void ArmedGuards::generalise(PyObject* const* args, PyObject* function) {
  if (predicates_.empty()) return;
  forms_.resize(guards_->sources().size(), {first_form, 0});
  SourceValues sources(*guards_, args, function);
  auto value = [&](const Pin& pin) {
    return sources.get(guards_->sources().at(pin.source));
  };
  bool explained = false;
  std::vector<bool> seen(forms_.size());
  for (const Pin& pin : predicates_.front()->pins()) {
    if (pin.kind == Pin::Kind::kEquals || pin_holds(pin, value(pin))) continue;
    explained = true;
    if (seen[pin.source]) continue;
    seen[pin.source] = true;
    SourceForm& form = forms_[pin.source];
    if (pin.kind == Pin::Kind::kTypeVersion) {
      if (++form.repeats >= kVersionFailures) form = {Form::kGeneric, 0};
      continue;
    }
    bool by_version = pin.kind == Pin::Kind::kDictVersion ||
                      pin.kind == Pin::Kind::kInstanceVersion ||
                      pin.kind == Pin::Kind::kDictWatched ||
                      pin.kind == Pin::Kind::kInstanceWatched;
    if (form.form == Form::kVersion) {
      // Another dict or instance will come again; the same one may settle.
      bool same_dict = by_version && pin_is_dead(pin, value(pin));
      if (same_dict && ++form.repeats < kVersionFailures) continue;
      if (!by_version && ++form.repeats < kSlotFailures) continue;
      form = {by_version ? Form::kSlot : Form::kGeneric, 0};
    } else if (form.form == Form::kSlot && ++form.repeats >= kSlotFailures) {
      form = {Form::kGeneric, 0};
    }
  }
  if (!explained && ++unexplained_ >= kUnexplainedFailures) {
    if (unexplained_ >= kHopelessFailures) {
      num_rearmed_ = kMaxRearmed;
      log_event(Channel::k_recompiles,
                "guards of " + describe_code(PyFunction_GET_CODE(function)) +
                    " hold that machine code cannot tell: they are evaluated "
                    "at each call");
    }
    for (SourceForm& form : forms_) form = {Form::kGeneric, 0};
  }
  std::erase_if(predicates_, [&](const auto& predicate) {
    return predicate->is_dead() ||
           std::any_of(
               predicate->pins().begin(), predicate->pins().end(),
               [&](const Pin& pin) { return pin_is_dead(pin, value(pin)); });
  });
}

}  // namespace framejit
