#include "bytecode/objects/compared_sequence.h"

#include <algorithm>

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/own_items.h"

namespace framejit::bytecode {

ComparedSequence::ComparedSequence(CaptureState& state, PyObject* sequence)
    : state_(state), sequence_(sequence) {
  if (PyTuple_Check(sequence)) return;
  live_ = Ref::borrow(live());
  items_ = own_items(live_.get());
  if (!items_) PyErr_Clear();
}

PyObject* ComparedSequence::live() const {
  const auto& states = state_.table<Containers>().states;
  auto entry = states.find(sequence_);
  if (entry == states.end() || !entry->second.shadow) return sequence_;
  return entry->second.shadow.get();
}

Result<bool> ComparedSequence::changed() const {
  if (!live_) return false;  // a tuple
  PyObject* now = live();
  if (now != live_.get()) {
    // Read meanwhile, and copied for it, or written.
    const ContainerState& state =
        state_.table<Containers>().states.at(sequence_);
    return state.written || state.replaced;
  }
  if (!items_) return true;
  Ref other = PyList_Check(now) ? Ref::borrow(now) : own_items(now);
  if (!other) return Result<bool>::raised();
  auto* before = reinterpret_cast<PyListObject*>(items_.get());
  auto* after = reinterpret_cast<PyListObject*>(other.get());
  return !std::equal(before->ob_item, before->ob_item + Py_SIZE(before),
                     after->ob_item, after->ob_item + Py_SIZE(after));
}

Status ComparedSequence::check() const {
  FJ_TRY(bool is_other, changed());
  if (!is_other) return ok_status();
  return state_.make_break(BreakReason::kUnsupportedWrite,
                           "a sequence that changes while it is compared");
}

}  // namespace framejit::bytecode
