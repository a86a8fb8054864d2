#include "frame_hook/interjections.h"

#include <frameobject.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <tuple>
#include <utility>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/observers.h"
#include "frame_hook/python_text.h"

namespace framejit {

PyObject* run_handler(PyObject* self, PyObject* args, PyObject* kwargs);
int raise_first(void*);

// Code of the program runs in the middle of a compilation.
class AsProgram {
 public:
  explicit AsProgram(Interjections* compilation);
  ~AsProgram();
  AsProgram(const AsProgram&) = delete;
  AsProgram& operator=(const AsProgram&) = delete;

 private:
  PauseHook pause_;
  ObservedAgain observed_;
  Interjections* compilation_;
  void* state_ = nullptr;
};

namespace {

ProgramStateHooks program_state;
constinit thread_local Interjections* current = nullptr;

// What stands in for a handler of the program.
struct WrapperObject {
  PyObject ob_base;
  PyObject* own;
};

void deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_CLEAR(reinterpret_cast<WrapperObject*>(self)->own);
  type->tp_free(self);
}

PyTypeObject* wrapper_type() {
  static PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  if (type.tp_flags & Py_TPFLAGS_READY) return &type;
  type.tp_name = "framejit.SignalHandler";
  type.tp_basicsize = sizeof(WrapperObject);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_dealloc = deallocate;
  type.tp_call = run_handler;
  return PyType_Ready(&type) < 0 ? nullptr : &type;
}

Ref make_wrapper(PyObject* own) {
  PyTypeObject* type = wrapper_type();
  Ref wrapper = type ? Ref::steal(type->tp_alloc(type, 0)) : Ref();
  if (wrapper) {
    reinterpret_cast<WrapperObject*>(wrapper.get())->own = Py_NewRef(own);
  }
  return wrapper;
}

// signal.getsignal and signal.signal.
struct SignalModule {
  PyObject* get = nullptr;
  PyObject* set = nullptr;
  std::vector<std::pair<int, PyObject*>> numbers;
};

const SignalModule* signal_module() {
  static SignalModule* module = nullptr;
  if (module) return module;
  Ref found = Ref::steal(PyImport_ImportModule("_signal"));
  Ref get = found ? Ref::steal(PyObject_GetAttrString(found.get(), "getsignal"))
                  : Ref();
  Ref set =
      found ? Ref::steal(PyObject_GetAttrString(found.get(), "signal")) : Ref();
  if (!get || !set) return nullptr;
  auto made = std::make_unique<SignalModule>();
  made->get = get.release();
  made->set = set.release();
  for (int number = 1; number < NSIG; ++number) {
    Ref object = Ref::steal(PyLong_FromLong(number));
    if (object) made->numbers.emplace_back(number, object.release());
  }
  return module = made.release();
}

PyObject* number_object(int number) {
  for (const auto& [known, object] : signal_module()->numbers) {
    if (known == number) return object;
  }
  return nullptr;
}

// Null: C code's, or nobody's. No error is left.
Ref handler_of(PyObject* number) {
  Ref handler = Ref::steal(PyObject_CallOneArg(signal_module()->get, number));
  if (!handler) PyErr_Clear();
  bool is_callable = handler && !PyLong_Check(handler.get()) &&
                     handler.get() != Py_None &&
                     PyCallable_Check(handler.get());
  return is_callable ? std::move(handler) : Ref();
}

// What is done at C's level (siginterrupt(), handlers of libraries on top of
// Python's) stays. May run handlers that are due; false: one raised.
bool set_handler(int number, PyObject* handler) {
  struct sigaction action;
  bool known = sigaction(number, nullptr, &action) == 0;
  Ref done = Ref::steal(PyObject_CallFunctionObjArgs(
      signal_module()->set, number_object(number), handler, nullptr));
  if (known) sigaction(number, &action, nullptr);
  return static_cast<bool>(done);
}

// The pending error: exception and traceback.
std::pair<Ref, Ref> take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref held_type = Ref::steal(type);
  return {Ref::steal(value), Ref::steal(traceback)};
}

void restore_error(Ref exception, Ref traceback) {
  PyObject* type =
      Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())));
  PyErr_Restore(type, exception.release(), traceback.release());
}

}  // namespace

void set_program_state(const ProgramStateHooks& hooks) {
  program_state = hooks;
}

AsProgram::AsProgram(Interjections* compilation) : compilation_(compilation) {
  if (program_state.enter) state_ = program_state.enter();
  compilation_->collector_.give_back();
}

AsProgram::~AsProgram() {
  compilation_->collector_.take();
  if (program_state.leave) program_state.leave(state_);
}

PyObject* run_handler(PyObject* self, PyObject* args, PyObject* kwargs) {
  Ref own = Ref::borrow(reinterpret_cast<WrapperObject*>(self)->own);
  Interjections* compilation = current;
  if (!compilation) return PyObject_Call(own.get(), args, kwargs);
  PyObject* result = nullptr;
  try {
    AsProgram scope(compilation);
    result = PyObject_Call(own.get(), args, kwargs);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  if (result || !compilation->keep_error()) return result;
  return Py_NewRef(Py_None);
}

Interjections::Interjections() : outer_(current) {
  current = this;
  if (!internals::can_handle_signals()) return;
  began_in_ = PyEval_GetFrame();
  if (!outer_) {
    ErrorGuard keep;
    watch_handlers();
  }
}

Interjections::~Interjections() {
  if (!ended_ && end() == End::kRaised) PyErr_WriteUnraisable(Py_None);
}

void Interjections::watch_handlers() {
  const SignalModule* module = signal_module();
  if (!module) return PyErr_Clear();
  for (const auto& [number, object] : module->numbers) {
    Ref own = handler_of(object);
    if (!own) continue;
    Ref wrapper = make_wrapper(own.get());
    bool watched = wrapper && set_handler(number, wrapper.get());
    if (!watched && PyErr_Occurred()) {
      // It was due before we began.
      std::tie(exception_, traceback_) = take_error();
      watched = wrapper && set_handler(number, wrapper.get());
      PyErr_Clear();
    }
    if (watched) {
      handlers_.push_back({number, std::move(own), std::move(wrapper)});
    }
  }
}

void Interjections::unwatch_handlers() {
  for (Handler& handler : handlers_) {
    // Each attempt runs what is due, through our wrappers as long as they are
    // there.
    for (int attempt = 0; attempt < 8; ++attempt) {
      Ref now = handler_of(number_object(handler.signal));
      if (now.get() != handler.wrapper.get()) break;  // set by the program
      if (set_handler(handler.signal, handler.own.get())) break;
      auto [exception, traceback] = take_error();
      if (!exception_) {
        exception_ = std::move(exception);
        traceback_ = std::move(traceback);
      }
    }
  }
  handlers_.clear();
}

Interjections::End Interjections::end() {
  ended_ = true;
  {
    ErrorGuard keep;
    unwatch_handlers();
    current = outer_;
    collector_.give_back();
  }
  if (!exception_) return End::kQuiet;
  PyErr_Clear();
  if (outer_) {
    if (!outer_->exception_) {
      outer_->exception_ = std::move(exception_);
      outer_->traceback_ = std::move(traceback_);
    }
    return End::kInterrupted;
  }
  restore_error(std::move(exception_), std::move(traceback_));
  return raise_in_next_code() ? End::kInterrupted : End::kRaised;
}

bool Interjections::is_importing() const {
  for (Ref at = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
       at && at.get() != reinterpret_cast<PyObject*>(began_in_);) {
    auto* frame = reinterpret_cast<PyFrameObject*>(at.get());
    Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    PyObject* file = reinterpret_cast<PyCodeObject*>(code.get())->co_filename;
    if (text_of(file) == "<frozen importlib._bootstrap>") return true;
    at = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
  }
  return false;
}

bool Interjections::keep_error() {
  auto [exception, traceback] = take_error();
  if (!exception_) {
    exception_ = exception;
    traceback_ = traceback;
  }
  if (is_importing()) return true;
  restore_error(std::move(exception), std::move(traceback));
  return false;
}

bool interrupted() { return current && current->exception_; }

void look_for_signals() {
  if (current && PyErr_CheckSignals() < 0) PyErr_Clear();
}

bool do_pending_work(PyThreadState* thread) {
  if (!internals::has_pending_work(thread)) return true;
  if (PyErr_CheckSignals() < 0 || Py_MakePendingCalls() < 0) {
    if (!current) return raise_in_next_code();
    PyErr_Clear();  // kept by the compilation
  }
  if (internals::has_pending_work(thread)) {
    Py_BEGIN_ALLOW_THREADS;
    Py_END_ALLOW_THREADS;
  }
  return true;
}

// ---- exceptions of handlers

namespace {

struct Waiting {
  Ref exception;
  Ref traceback;
};
std::vector<Waiting>& waiting() {
  static auto* list = new std::vector<Waiting>;
  return *list;
}

// Is code running whose exceptions are only reported, or that closes what the
// program has opened?
bool in_cleanup() {
  for (Ref at = Ref::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
       at;) {
    auto* frame = reinterpret_cast<PyFrameObject*>(at.get());
    Ref code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    PyObject* name = reinterpret_cast<PyCodeObject*>(code.get())->co_name;
    for (const char* cleanup : {"__del__", "__exit__", "__aexit__"}) {
      if (PyUnicode_CompareWithASCIIString(name, cleanup) == 0) return true;
    }
    at = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
  }
  return false;
}

// The code that a handler runs when it is called; null: C code.
Ref code_of(PyObject* callable) {
  Ref at = Ref::borrow(callable);
  for (int depth = 0; at && depth < 8; ++depth) {
    if (PyFunction_Check(at.get()))
      return Ref::borrow(PyFunction_GET_CODE(at.get()));
    if (PyMethod_Check(at.get())) {
      at = Ref::borrow(PyMethod_GET_FUNCTION(at.get()));
      continue;
    }
    PyObject* next = nullptr;
    for (const char* name : {"__wrapped__", "func", "__func__"}) {
      if ((next = PyObject_GetAttrString(at.get(), name))) break;
      PyErr_Clear();
    }
    if (!next) {
      next = PyObject_GetAttrString(
          reinterpret_cast<PyObject*>(Py_TYPE(at.get())), "__call__");
    }
    at = Ref::steal(next);
  }
  PyErr_Clear();
  return Ref();
}

std::vector<Ref> handler_codes() {
  std::vector<Ref> codes;
  if (!signal_module()) return codes;
  for (const auto& [number, object] : signal_module()->numbers) {
    Ref handler = handler_of(object);
    Ref code = handler ? code_of(handler.get()) : Ref();
    if (code) codes.push_back(std::move(code));
  }
  return codes;
}

bool traceback_has(PyObject* exception, const std::vector<Ref>& codes) {
  Ref traceback = Ref::steal(PyException_GetTraceback(exception));
  if (!traceback || !PyTraceBack_Check(traceback.get())) return false;
  for (auto* at = reinterpret_cast<PyTracebackObject*>(traceback.get()); at;
       at = at->tb_next) {
    Ref code =
        Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at->tb_frame)));
    if (std::any_of(codes.begin(), codes.end(), [&](const Ref& handler) {
          return handler.get() == code.get();
        })) {
      return true;
    }
  }
  return false;
}

}  // namespace

int raise_first(void*) {
  if (waiting().empty()) return 0;
  if (in_cleanup()) {
    if (!internals::pending_calls_repeat(PyThreadState_Get())) {
      if (Py_AddPendingCall(raise_first, nullptr) == 0) return 0;
    } else if (BehindFrame::open_ > 0) {
      BehindFrame::asked_ = true;
      return 0;
    }
  }
  Waiting first = std::move(waiting().front());
  waiting().erase(waiting().begin());
  interruption_is_waiting = !waiting().empty();
  restore_error(std::move(first.exception), std::move(first.traceback));
  return current && current->keep_error() ? 0 : -1;
}

bool raised_by_handler(PyObject* exception) {
  if (!internals::can_handle_signals()) return false;
  ErrorGuard keep;
  // signal.default_int_handler is C code.
  if (PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt))
    return true;
  std::vector<Ref> codes = handler_codes();
  if (PyErr_Occurred()) PyErr_Clear();
  if (codes.empty()) return false;
  Ref at = Ref::borrow(exception);
  for (int depth = 0; at && depth < 16; ++depth) {
    if (traceback_has(at.get(), codes)) return true;
    Ref cause = Ref::steal(PyException_GetCause(at.get()));
    at =
        cause ? std::move(cause) : Ref::steal(PyException_GetContext(at.get()));
  }
  return false;
}

bool raise_in_next_code() {
  auto [exception, traceback] = take_error();
  if (!exception) return false;
  waiting().push_back({exception, traceback});
  interruption_is_waiting = true;
  if (Py_AddPendingCall(raise_first, nullptr) == 0) return true;
  waiting().pop_back();
  interruption_is_waiting = !waiting().empty();
  restore_error(std::move(exception), std::move(traceback));
  return false;
}

BehindFrame::~BehindFrame() {
  --open_;
  // The main thread's: it is the one that makes pending calls.
  if (!asked_ || !internals::can_handle_signals()) return;
  asked_ = Py_AddPendingCall(raise_first, nullptr) != 0;
}

void drop_error() {
  if (!PyErr_Occurred()) return;
  // A compilation has kept what its handlers raised.
  if (current || !internals::can_handle_signals()) return PyErr_Clear();
  auto [exception, traceback] = take_error();
  if (!exception) return;
  if (traceback) PyException_SetTraceback(exception.get(), traceback.get());
  // Without a traceback no Python code raised it, so no handler in Python.
  bool may_be = traceback || PyErr_GivenExceptionMatches(
                                 exception.get(), PyExc_KeyboardInterrupt);
  if (!may_be || !raised_by_handler(exception.get())) return;
  restore_error(std::move(exception), std::move(traceback));
  if (!raise_in_next_code()) PyErr_WriteUnraisable(Py_None);
}

}  // namespace framejit
