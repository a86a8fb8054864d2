#include "bytecode/interpreter/interpreter.h"

#include "bytecode/builtins/cached_results.h"
#include "bytecode/interpreter/exceptions.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/remade_functions.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/program_code.h"
#include "frame_hook/progress.h"

namespace framejit::bytecode {

size_t g_inject_failure_at = 0;
size_t g_inject_break_at = 0;
void (*g_observe_instruction)(PyObject* code, int offset) = nullptr;

namespace {

// Instructions between two looks for signals.
constexpr size_t kSignalInterval = 32;

// The second micro-op of a super-instruction: no frame of CPython stops there.
bool is_second_half(const std::vector<MicroOp>& ops, size_t index) {
  return index > 0 && ops[index - 1].offset == ops[index].offset;
}

// Micro-ops that only move references: no location needed.
bool is_plain_move(MicroOpKind kind) {
  return kind <= MicroOpKind::kLoadClosure;
}

// Of what is interpreted in place of a library's function a program knows the
// call alone.
Span place_in_program(const Frame& frame) {
  const Frame* place = &frame;
  while (place->is_substitute && place->caller) place = place->caller;
  return {place->code, place->decoded->op(place->current).offset};
}

}  // namespace

const Names& names() {
  static const Names kNames = [] {
    Names made;
#define X(name)                                  \
  made.name = PyUnicode_InternFromString(#name); \
  FJ_CHECK(made.name);
    FJ_NAMES(X)
#undef X
    return made;
  }();
  return kNames;
}

MicroOpHandler micro_op_handler(MicroOpKind kind) {
  static constexpr MicroOpHandler kHandlers[] = {
#define FJ_MICRO(name) op_##name,
      FJ_MICRO_OPS(FJ_MICRO)
#undef FJ_MICRO
  };
  static_assert(sizeof kHandlers / sizeof kHandlers[0] ==
                size_t(MicroOpKind::kCount));
  return kHandlers[size_t(kind)];
}

Interpreter::Interpreter(const CaptureRequest& request, TensorTracer& tracer,
                         GuardSet& guards, const StopPoint& stop)
    : state(request, tracer, guards, *this),
      stop_(stop),
      held_arguments_(state, request),
      handle_(std::make_shared<Interpreter*>(this)) {
  tracer.set_stack([this] {
    std::vector<Span> stack = program_stack();
    if (stack.empty())  // nothing has run yet
      stack.push_back({Ref::borrow(PyFunction_GET_CODE(state.request.function)),
                       /*instruction=*/-1});
    return stack;
  });
  if (!request.notes_receivers) return;
  tracer.set_receivers([this] {
    std::vector<Ref> receivers;
    for (const Frame* f = frame; f; f = f->caller)
      if (!f->slots.empty() && f->slots[0])
        receivers.insert(receivers.begin(), f->slots[0]);
    return receivers;
  });
}

// Generators that outlive the capture find it gone.
Interpreter::~Interpreter() {
  *handle_ = nullptr;
  state.tracer.set_stack({});
  state.tracer.set_receivers({});
}

Span Interpreter::here() const {
  return frame ? place_in_program(*frame) : Span();
}

PythonFrame Interpreter::python_frame(int up) const {
  PythonFrame found;
  const Frame* at = frame;
  for (; at && up > 0; --up) {
    if (at->caller && at->caller->hidden != at->hidden) return found;
    at = at->caller;
  }
  found.known = true;
  if (!at) {
    found.beyond = up + 1;
    return found;
  }
  found.globals = at->globals.get();
  found.code = at->code_object();
  found.line = span_line(Span{at->code, at->decoded->op(at->current).offset});
  return found;
}

bool Interpreter::would_handle_failure() const {
  for (const Frame* at = frame; at; at = at->caller) {
    if (has_handler(*at)) return true;
  }
  return false;
}

Result<Ref> Interpreter::after_native(PyObject* new_reference) {
  Ref result = Ref::steal(new_reference);
  if (pending_break_) {
    PyErr_Clear();
    Break brk = std::move(*pending_break_);
    pending_break_.reset();
    return brk;
  }
  return state.after_native(result.release());
}

void Interpreter::post_break(Break brk) {
  if (!pending_break_) pending_break_ = std::move(brk);
  PyErr_SetNone(capture_break_type());
}

namespace {

// In a resume function that began in an except block: an exception raised and
// caught meanwhile would get a __context__ that the capture does not know.
bool in_handler_of_thread(const Frame* frame) {
  for (; frame; frame = frame->caller) {
    if (frame->thread_handlers > 0) return true;
  }
  return false;
}

// What is caught has been given what is handled as its __context__.
Status check_context(Interpreter& interp) {
  if (handled_exception()) return ok_status();
  FJ_TRY(bool outside, is_handled_outside(interp.state));
  if (!outside) return ok_status();
  return interp.make_break(BreakReason::kUnsupportedException,
                           "raised while a caller handles another exception");
}

}  // namespace

namespace {

// How many items on top of the stack the op may look at: not those that it
// moves, stores in a variable, calls, returns or asks for their truth.
size_t items_looked_at(const MicroOp& op) {
  switch (op.op) {
    case MicroOpKind::kNop:
    case MicroOpKind::kPop:
    case MicroOpKind::kCopy:
    case MicroOpKind::kSwap:
    case MicroOpKind::kPushNull:
    case MicroOpKind::kLoadConst:
    case MicroOpKind::kLoadFast:
    case MicroOpKind::kLoadFastCheck:
    case MicroOpKind::kStoreFast:
    case MicroOpKind::kDeleteFast:
    case MicroOpKind::kLoadFastAndClear:
    case MicroOpKind::kMakeCell:
    case MicroOpKind::kLoadClosure:
    case MicroOpKind::kLoadDeref:
    case MicroOpKind::kStoreDeref:
    case MicroOpKind::kDeleteDeref:
    case MicroOpKind::kCopyFreeVars:
    case MicroOpKind::kLoadGlobal:
    case MicroOpKind::kToBool:
    case MicroOpKind::kJump:
    case MicroOpKind::kPopJump:
    case MicroOpKind::kJumpOrPop:
    case MicroOpKind::kReturn:
    case MicroOpKind::kReturnConst:
    case MicroOpKind::kCall:
    case MicroOpKind::kCallKw:
    case MicroOpKind::kResume:
      return 0;
    case MicroOpKind::kLoadAttr:
    case MicroOpKind::kLoadMethod:
    case MicroOpKind::kUnary:
    case MicroOpKind::kGetIter:
    case MicroOpKind::kForIter:
      return 1;
    case MicroOpKind::kBinary:
    case MicroOpKind::kCompare:
    case MicroOpKind::kIs:
    case MicroOpKind::kContains:
    case MicroOpKind::kSubscr:
    case MicroOpKind::kDeleteSubscr:
    case MicroOpKind::kStoreAttr:
      return 2;
    case MicroOpKind::kStoreSubscr:
      return 3;
    case MicroOpKind::kBuildTuple:
    case MicroOpKind::kBuildList:
    case MicroOpKind::kBuildSet:
      return static_cast<size_t>(op.arg);
    case MicroOpKind::kBuildMap:
      return 2 * static_cast<size_t>(op.arg);
    default:
      return SIZE_MAX;
  }
}

void pin_remade_operands(CaptureState& state, const Frame& frame,
                         const MicroOp& op) {
  const std::vector<Ref>& stack = frame.stack;
  size_t count = std::min(items_looked_at(op), stack.size());
  for (size_t i = stack.size() - count; i < stack.size(); ++i)
    pin_remade(state, stack[i].get());
}

}  // namespace

class Interpreter::FrameScope {
 public:
  FrameScope(Interpreter& interpreter, Frame& frame)
      : interpreter_(interpreter) {
    frame.caller = interpreter.frame;
    frame.hidden = interpreter.hidden_;
    interpreter.frame = &frame;
    ++interpreter.depth;
  }
  ~FrameScope() {
    Frame* frame = interpreter_.frame;
    interpreter_.frame = frame->caller;
    frame->caller = nullptr;
    --interpreter_.depth;
  }

 private:
  Interpreter& interpreter_;
};

namespace {

// What stands for a function of the program is that, for who reads of it.
bool is_of_framejit(const Frame& frame) {
  constexpr std::string_view kOwn = "framejit._";
  PyObject* name = PyDict_GetItemString(frame.globals.get(), "__name__");
  const char* text =
      name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) PyErr_Clear();
  return text && std::string_view(text).starts_with(kOwn) &&
         !stands_for_other(frame.code.get());
}

}  // namespace

Status Interpreter::prepare_frame(Frame& frame, PyObject* function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  frame.function = Ref::borrow(function);
  frame.code = Ref::borrow(object->func_code);
  FJ_TRY(frame.decoded, decode(frame.code.get()));
  frame.globals = Ref::borrow(object->func_globals);
  frame.builtins = Ref::borrow(object->func_builtins);
  frame.is_substitute = is_of_framejit(frame);
  frame.source = function_source(function);
  frame.slots.resize(frame.decoded->num_slots());
  frame.stack.reserve(frame.code_object()->co_stacksize + 1);
  find_left_loops(frame);
  SourceArena& sources = state.guards.sources();
  // A function made in the capture shares the dicts of the frame it is in.
  if (frame.source && !state.is_input(frame.globals.get())) {
    state.register_input(frame.globals.get(),
                         sources.make(SourceKind::kGlobals, frame.source));
  }
  if (frame.source && !state.is_input(frame.builtins.get())) {
    state.register_input(frame.builtins.get(),
                         sources.make(SourceKind::kBuiltins, frame.source));
  }
  return ok_status();
}

std::vector<Span> Interpreter::program_stack() const {
  std::vector<Span> stack;
  for (const Frame* f = frame; f; f = f->caller) {
    const MicroOp& op = f->decoded->op(f->current);
    if (!f->is_substitute || f->outermost)
      stack.insert(stack.begin(), Span{f->code, op.offset});
  }
  return stack;
}

// A break is described by the deepest frame that reports it.
void Interpreter::note_break(Break* brk) {
  if (break_depth_ >= depth) return;
  break_depth_ = depth;
  break_stack_ = program_stack();
  if (!brk->span.code) brk->span = here();
}

Result<Flow> Interpreter::step(Frame& frame) {
  const std::vector<MicroOp>& ops = frame.decoded->ops();
  FJ_CHECK(frame.pc < ops.size(), "ran off the end of the code");
  frame.current = frame.pc++;
  const MicroOp& op = ops[frame.current];
  ++instructions_;
  if (g_inject_failure_at && instructions_ == g_inject_failure_at) {
    throw InternalError(__FILE__, __LINE__, "injected failure");
  }
  if (instructions_ > state.request.max_instructions) return out_of_budget();
  if (!CaptureCallbackScope::keep_hook()) {
    return make_break(BreakReason::kThreadState,
                      "another thread took the frame hook off");
  }
  if (instructions_ % kSignalInterval == 0) look_for_signals();
  if (g_observe_instruction) g_observe_instruction(frame.code.get(), op.offset);
  if (frame.outermost) {
    ++ordinal_;
    calls_before_ = inlined_calls;
    if (g_inject_break_at && ordinal_ >= g_inject_break_at &&
        !is_second_half(ops, frame.current)) {
      return make_break(BreakReason::kUserBreak, "injected");
    }
    if (ordinal_ == stop_.ordinal) {
      stopped_ = stop_.offset < 0 || op.offset == stop_.offset;
      if (stopped_) {
        for (const MissedKey& missed : stop_.missed_keys) {
          state.guard(GuardKind::kNoKey,
                      state.guards.sources().constant(missed.cache.get()),
                      missed.key.get());
        }
        return *stop_.brk;
      }
      // Not the program that was captured before.
      return make_break(BreakReason::kBreakNotResumable,
                        "the program took another path when captured again");
    }
  }
  if (!frame.left_loops.empty()) [[unlikely]] {
    if (std::optional<Break> brk = break_at_left_loop(frame)) return *brk;
  }
  if (!is_plain_move(op.op)) {
    const Span span = place_in_program(frame);
    // For guards of the tracer's, which knows no frames.
    state.guards.set_span(span);
    state.tracer.set_location(span);
    note_progress(CompilePhase::kCapture, instructions_);
  }
  if (has_remade(state)) [[unlikely]]
    pin_remade_operands(state, frame, op);
  Result<Flow> flow = micro_op_handler(op.op)(*this, frame, op);
  if (interrupted()) {
    if (flow.is_raised()) PyErr_Clear();
    return make_break(BreakReason::kInterrupted);
  }
  if (state.guards.sources().has_long_path()) {
    PyErr_Clear();
    return too_deep(state, "objects of the arguments");
  }
  // Foreign code may have swallowed the exception or raised another.
  if (pending_break_ || state.has_native_break())
    return after_native(nullptr).forward<Flow>();
  if (auto brk = state.tracer.pending_break()) {
    PyErr_Clear();
    return std::move(*brk);
  }
  if (frame.pc <= frame.current) note_turn(frame);
  if (frame.outermost && flow.ok() && flow.value() == Flow::kNext) {
    FJ_CHECK_OK(held_arguments_.check(frame));
  }
  return flow;
}

Status Interpreter::check_depth() {
  if (low_for_call()) return too_deep(state, "calls");
  // A program's own RecursionError comes from CPython, at CPython's depth.
  constexpr int kMargin = 50;
  if (depth + kMargin < internals::python_calls_left(PyThreadState_Get())) {
    return ok_status();
  }
  return too_deep(state, "calls");
}

Result<Interpreter::Exit> Interpreter::run(Frame& frame, Ref thrown) {
  FJ_CHECK_OK(check_depth());
  FrameScope scope(*this, frame);
  if (thrown) {
    // Raised where the frame is suspended.
    if (frame.pc > 0) frame.current = frame.pc - 1;
    FJ_CHECK_OK(check_may_raise(*this, thrown.get()));
    FJ_CHECK_OK(add_traceback_line(frame, thrown.get()));
    if (frame.decoded->op(frame.current).handler >= 0)
      FJ_CHECK_OK(check_context(*this));
    if (!enter_handler(frame, thrown)) {
      restore_raised(std::move(thrown));
      return Result<Exit>::raised();
    }
  }
  while (true) {
    Result<Flow> flow = step(frame);
    if (flow.ok()) {
      break_depth_ = -1;
      if (flow.value() == Flow::kNext) continue;
      if (flow.value() == Flow::kGenerator) return Exit{Flow::kGenerator, {}};
      return Exit{flow.value(), frame.pop()};
    }
    if (flow.broke()) {
      note_break(&flow.brk());
      return flow.take_break();
    }
    Ref exception = take_raised();
    FJ_CHECK(exception, "a raised result without an exception");
    if (is_raised_over_foreign(state, frame, exception.get())) {
      Break brk = make_break(
          BreakReason::kLeafRaised,
          std::string(Py_TYPE(exception.get())->tp_name) + " over a tensor");
      note_break(&brk);
      return brk;
    }
    if (in_handler_of_thread(&frame)) {
      Break brk = make_break(BreakReason::kBreakInHandler,
                             "raises after a break in the handler");
      note_break(&brk);
      return brk;
    }
    const MicroOp& op = frame.decoded->op(frame.current);
    bool again = op.op == MicroOpKind::kReraise ||
                 (op.op == MicroOpKind::kRaise && op.arg == 0);
    if (!again || !frame.outermost) {
      Status mine = check_may_raise(*this, exception.get());
      if (!mine.ok()) {
        Break brk = mine.take_break();
        note_break(&brk);
        return brk;
      }
    }
    if (!again) FJ_CHECK_OK(add_traceback_line(frame, exception.get()));
    Status known = op.handler >= 0 ? check_context(*this) : ok_status();
    if (known.broke()) {
      Break brk = known.take_break();
      note_break(&brk);
      return brk;
    }
    FJ_CHECK_OK(std::move(known));
    if (!enter_handler(frame, exception)) {
      restore_raised(std::move(exception));
      return Result<Exit>::raised();
    }
    if (!frame.outermost) continue;
    // The stack of what raised is gone: a break is before that instruction.
    if (pending_break_ || state.has_native_break()) {
      Result<Ref> posted = after_native(nullptr);
      FJ_CHECK(posted.broke(), "a posted break");
      note_break(&posted.brk());
      return posted.take_break();
    }
    Status held = held_arguments_.check(frame);
    if (held.broke()) {
      Break brk = held.take_break();
      note_break(&brk);
      return brk;
    }
    FJ_CHECK_OK(std::move(held));
  }
}

bool enter_handler(Frame& frame, const Ref& exception) {
  const MicroOp& op = frame.decoded->op(frame.current);
  if (op.handler < 0) return false;
  const Handler& handler = frame.decoded->handlers()[op.handler];
  FJ_CHECK(frame.stack.size() >= size_t(handler.depth), "handler depth");
  frame.drop(frame.stack.size() - handler.depth);
  if (handler.lasti) {
    Ref lasti = Ref::steal(PyLong_FromLong(op.offset / 2));
    FJ_CHECK(lasti);
    frame.push(std::move(lasti));
  }
  frame.push(exception);
  frame.pc = handler.target;
  return true;
}

}  // namespace framejit::bytecode
