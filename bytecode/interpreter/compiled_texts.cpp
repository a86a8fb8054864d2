#include "bytecode/interpreter/compiled_texts.h"

#include "bytecode/objects/exceptions.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// The list that is in force: catch_warnings puts copies there. Empty: there is
// none that we know.
Ref filters_in_force() {
  Ref name = Ref::steal(PyUnicode_FromString("warnings"));
  Ref module = Ref::steal(name ? PyImport_GetModule(name.get()) : nullptr);
  PyObject* filters =
      module && PyModule_Check(module.get())
          ? PyDict_GetItemString(PyModule_GetDict(module.get()), "filters")
          : nullptr;
  return Ref::borrow(filters && PyList_CheckExact(filters) ? filters : nullptr);
}

// Warnings of any kind are errors, or nothing, meanwhile. (The compiler does
// not let other threads run.)
class WarningFilter {
 public:
  explicit WarningFilter(const char* action) {
    Ref filters = filters_in_force();
    if (!filters) return;
    filter_ = Ref::steal(
        Py_BuildValue("(sOOOi)", action, Py_None, PyExc_Warning, Py_None, 0));
    if (filter_ && PyList_Insert(filters.get(), 0, filter_.get()) == 0)
      filters_ = std::move(filters);
  }
  WarningFilter(const WarningFilter&) = delete;
  WarningFilter& operator=(const WarningFilter&) = delete;
  ~WarningFilter() {
    if (!filters_) return;
    ErrorGuard keep;
    PyObject* list = filters_.get();
    if (PyList_GET_SIZE(list) != 0 &&
        PyList_GET_ITEM(list, 0) == filter_.get() &&
        PyList_SetSlice(list, 0, 1, nullptr) < 0) {
      PyErr_Clear();
    }
  }
  bool is_set() const { return static_cast<bool>(filters_); }

 private:
  Ref filters_, filter_;
};

// What is raised, taken; its type and text.
struct Failure {
  Ref exception;
  std::string text;
};

Failure take_failure() {
  Failure failure{take_raised(), {}};
  Ref text = Ref::steal(PyObject_Repr(failure.exception.get()));
  if (!text) PyErr_Clear();
  failure.text = text ? text_of(text.get(), "") : "";
  return failure;
}

}  // namespace

Result<Ref> compile_without_warnings(CaptureState& state, PyObject* arguments) {
  PyObject* compile = library_object("builtins", "compile");
  if (!compile) return Result<Ref>::raised();
  PauseHook pause;
  auto warns = [&] {
    return state.make_break(BreakReason::kSideEffectCallee,
                            "the compiler warns of a text");
  };
  Failure strict;
  {
    WarningFilter filter("error");
    if (!filter.is_set()) {
      PyErr_Clear();
      return warns();
    }
    Ref code = Ref::steal(PyObject_CallObject(compile, arguments));
    if (code) return code;
    strict = take_failure();
  }
  // Did it fail for the warning?
  WarningFilter filter("ignore");
  Ref code = Ref::steal(PyObject_CallObject(compile, arguments));
  if (code) return warns();
  Failure failure = take_failure();
  if (failure.text != strict.text) return warns();
  restore_raised(std::move(failure.exception));
  return Result<Ref>::raised();
}

}  // namespace framejit::bytecode
