// A library's override protocol inside a capture: classes, and modes that the
// program enters, which take calls of the library's functions over.
//
// The method that is asked is registered (OverrideProtocol in
// library/library.h). The tracer says whom the library would ask about a call;
// the asking is done here, by interpreting the method: first the innermost
// mode, then the classes, until one does not answer NotImplemented. Which modes
// the capture entered, and whether asking is switched off, is state of the
// capture (OverrideState). Without a registered protocol nobody is asked.
#pragma once

#include <unordered_map>
#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Who is asked, as the capture has it.
struct OverrideState {
  enum Level { kAsksAll, kAsksModes, kAsksNobody };
  int level = kAsksAll;
  std::vector<Ref> modes;  // entered here; innermost last
  // Where the capture left the state of the call; 0: it did not.
  size_t changed_at = 0;
  // Objects that changed the level -> the level before.
  std::unordered_map<PyObject*, int> before;
};

// Is there a mode, or one of the objects (or of the elements of a list or
// tuple) to be asked?
Result<bool> asks_override(CaptureState& state,
                           const std::vector<PyObject*>& objects);
// The same, but elements are not looked at.
Result<bool> has_override(CaptureState& state,
                          const std::vector<PyObject*>& objects);
bool is_override_mode_active(CaptureState& state);
// Also when asking is switched off.
Result<bool> is_overloaded(CaptureState& state, PyObject* object);
// The library asks the object, not its class: one that answers for itself, by
// code or by an attribute of its own, is asked as often as eager does only by
// eager. A break for those.
Status check_answers_itself(CaptureState& state, PyObject* object);
// Has the class a method of the program's own that the library asks?
bool asks_own_class(PyTypeObject* type);
// Guards what a class that the program derived from a tensor's would answer.
Status guard_overriding_class(CaptureState& state, PyTypeObject* type);

// Calls the method that the library would. Empty: it would not, the call means
// what it says.
Result<Ref> call_override(CaptureState& state, PyObject* callable,
                          const std::vector<PyObject*>& args,
                          PyObject* kwnames = nullptr);
// TensorTracer::operate, after asking.
Result<Ref> operate(CaptureState& state, PyObject* function,
                    std::vector<PyObject*> operands);
// A special method of the tensor, in Python or C, where somebody is asked about
// it (len(), iter(), bool()). Empty: nobody is.
Result<Ref> call_tensor_special(CaptureState& state, PyObject* stand_in,
                                const char* name);
// Is the attribute the library's own, not one of a class of the program?
bool is_library_attribute(PyTypeObject* type, PyObject* name);

// ---- what rows of the library do to the state
void push_override_mode(CaptureState& state, PyObject* mode);
Ref pop_override_mode(CaptureState& state);  // there is one
// Until switch_overrides_back() with the same object. Never asks more.
void switch_overrides_off(CaptureState& state, PyObject* by,
                          OverrideState::Level level);
bool switch_overrides_back(CaptureState& state, PyObject* by);  // false: not by
// For the extent of a call.
class WithoutOverridingClasses {
 public:
  explicit WithoutOverridingClasses(CaptureState& state);
  ~WithoutOverridingClasses();

 private:
  OverrideState& overrides_;
  int before_;
};

}  // namespace framejit::bytecode
