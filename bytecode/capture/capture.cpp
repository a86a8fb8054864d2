// The driver of a capture: attempts, the break of the outermost frame, and the
// making of the outcome.
#include "bytecode/capture/capture.h"

#include <algorithm>

#include "bytecode/builtins/cached_results.h"
#include "bytecode/capture/reconstruct.h"
#include "bytecode/interpreter/calls.h"
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/moved_texts.h"
#include "bytecode/objects/unbuildable.h"
#include "bytecode/objects/write_log.h"
#include "bytecode/residual/left_loops.h"
#include "bytecode/residual/residual.h"
#include "frame_hook/collector.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

// begin() ... finish() or abandon(), whatever happens between.
class TracerScope {
 public:
  explicit TracerScope(TensorTracer& tracer) : tracer_(tracer) {}
  ~TracerScope() {
    if (!open_) return;
    ErrorGuard keep;
    tracer_.abandon();
  }
  Status begin(GuardSet* guards) {
    Status status = tracer_.begin(guards);
    open_ = status.ok();
    return status;
  }
  Result<std::unique_ptr<ForeignGraph>> finish(
      const std::vector<PyObject*>& outputs) {
    auto graph = tracer_.finish(outputs);
    // A failed finish is abandoned like any other failure.
    if (graph.ok()) open_ = false;
    return graph;
  }

 private:
  TensorTracer& tracer_;
  bool open_ = false;
};

// Found before the instruction changed anything: a jump on a tensor. Other
// instructions may have advanced an iterator or filled a container first.
bool breaks_without_effect(BreakReason reason, MicroOpKind kind) {
  return reason == BreakReason::kDataDependentBranch &&
         (kind == MicroOpKind::kPopJump || kind == MicroOpKind::kJumpOrPop ||
          kind == MicroOpKind::kToBool);
}

// Within the words of another break, which has the place.
std::string words_of(Break brk) {
  brk.span = {};
  return format_break(brk);
}

class Attempt {
 public:
  Attempt(const CaptureRequest& request, TensorTracer& tracer, StopPoint& stop)
      : request_(request),
        tracer_(tracer),
        stop_(stop),
        guards_(std::make_unique<GuardSet>()) {
    guards_->set_joins_equal_sizes(request.joins_equal_sizes);
  }

  // restart: nothing is returned; run another attempt with the stop point.
  Result<CaptureOutcome> run(bool* restart);

 private:
  Status bind_inputs(Frame& frame);
  void take_unbound(Frame& frame);
  Result<CaptureOutcome> finish_return(Ref value);
  Result<CaptureOutcome> finish_break(Frame& frame, Break brk,
                                      Extent extent = Extent::kInstruction);
  Result<CaptureOutcome> finish_at_loop(Frame& frame, Break brk, bool* restart);
  Result<CaptureOutcome> or_stop_earlier(Result<CaptureOutcome> outcome,
                                         bool* restart);
  static Break fail(Result<Plan> planned, const Break& brk);
  Status add_open_state(Plan* plan);
  Status finish_graph(Plan& plan);
  bool nothing_captured(const Plan& plan) const;
  bool nothing_done() const;
  bool is_only_loop(const Frame& frame, int header) const;

  const CaptureRequest& request_;
  TensorTracer& tracer_;
  StopPoint& stop_;
  std::unique_ptr<GuardSet> guards_;
  TracerScope scope_{tracer_};
  Interpreter* interpreter_ = nullptr;
  CaptureOutcome outcome_;
};

Status Attempt::bind_inputs(Frame& frame) {
  CaptureState& state = interpreter_->state;
  SourceArena& sources = guards_->sources();
  state.register_input(request_.function, sources.function());
  FJ_CHECK_OK(interpreter_->prepare_frame(frame, request_.function));
  FJ_CHECK(request_.num_args == size_t(frame.decoded->num_args()),
           "number of parameter slots");
  for (size_t i = 0; i < request_.num_args; ++i) {
    FJ_CHECK(request_.args[i], "an unbound parameter");
    // What nobody reads is no fact.
    frame.slots[i] = Ref::borrow(request_.args[i]);
    frame.unread.push_back(sources.arg(i));
  }
  frame.outermost = true;
  frame.thread_handlers = handlers_at_resume(frame.code.get());
  if (request_.is_resume) take_unbound(frame);
  return ok_status();
}

// What the code of a resume function does first of all.
void Attempt::take_unbound(Frame& frame) {
  SourceArena& sources = guards_->sources();
  MaybeUnbound maybe = maybe_unbound(frame.code.get());
  for (int slot : maybe.slots) {
    if (request_.args[slot] == unbound_marker()) {
      guards_->add(GuardKind::kIs, sources.arg(slot), unbound_marker());
      frame.slots[slot].reset();
      frame.forget_unread(slot);
    } else {
      Guard bound{GuardKind::kNotSameObject, sources.arg(slot)};
      bound.other = sources.constant(unbound_marker());
      guards_->add(std::move(bound));
    }
  }
  frame.pc = frame.decoded->index_at(maybe.checked_offset);
}

// Net changes of the thread's state that are still in force become steps: the
// code behind the graph expects them.
Status Attempt::add_open_state(Plan* plan) {
  for (auto& [callable, args] : tracer_.state_now()) {
    Step call;
    call.kind = Step::Kind::kCall;
    call.object = callable;
    for (const Ref& arg : args) {
      Step constant;
      constant.kind = Step::Kind::kConst;
      constant.object = arg;
      call.operands.push_back(plan->steps.size());
      plan->steps.push_back(std::move(constant));
    }
    plan->steps.push_back(std::move(call));
  }
  return ok_status();
}

Status Attempt::finish_graph(Plan& plan) {
  FJ_TRY(outcome_.graph, scope_.finish(plan.outputs));
  outcome_.num_outputs = plan.outputs.size();
  outcome_.steps = std::move(plan.steps);
  outcome_.replaces_values = plan.replaces_values;
  outcome_.instructions = interpreter_->instructions();
  outcome_.inlined_calls = interpreter_->inlined_calls;
  if (outcome_.graph && outcome_.graph->num_operations() == 0 &&
      plan.outputs.empty()) {
    outcome_.graph.reset();
  }
  return ok_status();
}

Result<CaptureOutcome> Attempt::finish_return(Ref value) {
  FJ_TRY(Plan plan, make_plan(interpreter_->state, {value.get()}));
  FJ_CHECK_OK(add_open_state(&plan));
  outcome_.result = plan.values[0];
  FJ_CHECK_OK(finish_graph(plan));
  // The interpreted program's last references go while origins still exist.
  value.reset();
  outcome_.guards = std::move(guards_);
  return std::move(outcome_);
}

// A frame in which nothing was done is better left to CPython: its callees are
// captured as frames of their own.
bool Attempt::nothing_captured(const Plan& plan) const {
  return nothing_done() && guards_->gathered().empty() && plan.outputs.empty();
}

bool Attempt::nothing_done() const {
  return interpreter_->inlined_calls == 0 &&
         interpreter_->state.table<WriteLog>().entries.empty();
}

// Behind a loop that is left to CPython the capture goes on; without anything
// to do there, or before it, the frame is as good as left, too.
bool Attempt::is_only_loop(const Frame& frame, int header) const {
  bool has_graph = outcome_.graph && outcome_.graph->num_operations() > 0;
  return nothing_done() && !has_graph &&
         !has_work_behind_loop(frame.code.get(), header);
}

// The live values of a broken frame cannot be rebuilt: both reasons count.
Break Attempt::fail(Result<Plan> planned, const Break& brk) {
  Break why{BreakReason::kEscapingObject, "", brk.span};
  if (planned.broke()) {
    why = planned.take_break();
  } else {
    take_raised();
  }
  why.detail += " (at the break " + words_of(brk) + ")";
  why.span = brk.span;
  return why;
}

namespace {

FrameState shape_of(const Frame& frame, int offset) {
  FrameState shape;
  for (const Ref& slot : frame.slots) shape.bound.push_back(bool(slot));
  std::vector<StackKind> kinds = stack_kinds_at(frame.code.get(), offset);
  for (size_t i = 0; i < frame.stack.size(); ++i) {
    StackKind kind = i < kinds.size() ? kinds[i] : StackKind::kValue;
    shape.stack.push_back(stack_item(kind, frame.stack[i].get()));
  }
  for (size_t position : frame.handlers) {
    shape.stack[position].kind = StackItemKind::kSavedException;
  }
  shape.active_handlers = int(frame.handlers.size()) + frame.thread_handlers;
  return shape;
}

// The exception that is handled in the block which saved the one at
// `position`: what the next block within it saved, or the current one.
PyObject* handled_since(const Frame& frame, int position, PyObject* current) {
  for (size_t i = 0; i + 1 < frame.handlers.size(); ++i) {
    if (frame.handlers[i] == size_t(position)) {
      return frame.stack[frame.handlers[i + 1]].get();
    }
  }
  return current;
}

// Until 3.13 a frame has one dict that locals() gives, and exec() writes to:
// behind a break another frame goes on, with another dict. Null: nobody could
// tell.
const char* why_locals_matter(const Frame& frame) {
  if (internals::kLocalsAreSnapshots) return nullptr;
  if (PyObject* dict = frame.locals.get()) {
    if (Py_REFCNT(dict) > 1) return "what locals() gave lives on";
    Py_ssize_t names = 0;
    for (int slot = 0; slot < frame.decoded->num_slots(); ++slot)
      names += PyDict_Contains(dict, frame.decoded->slot_name(slot)) == 1;
    if (names != PyDict_GET_SIZE(dict)) return "locals() has other names";
  }
  // It would write to the dict of a frame that ends here.
  PyObject* exec = library_object("builtins", "exec");
  for (const Ref& value : frame.stack)
    if (value.get() == exec) return "exec() may write to the variables";
  return nullptr;
}

}  // namespace

Result<CaptureOutcome> Attempt::finish_break(Frame& frame, Break brk,
                                             Extent extent) {
  // The loop has moved on: the breaking instruction is the current one.
  const MicroOp& op = frame.decoded->op(frame.current);
  const char* why = why_not_breakable(frame.code.get(), op.offset);
  if (!why) why = why_locals_matter(frame);
  if (why) {
    brk.detail = std::string(why) + ": " + words_of(brk);
    brk.reason = BreakReason::kBreakNotResumable;
    return brk;
  }
  FrameState shape = shape_of(frame, op.offset);
  FJ_TRY(ResidualCode residual,
         make_residual(frame.code.get(), op.offset, shape, extent));
  std::vector<PyObject*> values;
  Passed passed;
  Ref handled = handled_exception();
  for (const ResidualArg& arg : residual.args) {
    switch (arg.from) {
      case ResidualArg::From::kSlot:
        if (frame.is_unread(arg.index)) {
          passed[values.size()] = frame.unread[arg.index];
        }
        values.push_back(frame.slots[arg.index].get());
        break;
      case ResidualArg::From::kStack:
        if (shape.stack[arg.index].kind == StackItemKind::kSavedException) {
          values.push_back(handled_since(frame, arg.index, handled.get()));
        } else {
          values.push_back(frame.stack[arg.index].get());
        }
        break;
      case ResidualArg::From::kNothing:
        values.push_back(Py_None);
        break;
    }
    FJ_CHECK(values.back(), "a residual argument that is unbound");
  }
  Result<Plan> planned = make_plan(interpreter_->state, values, passed);
  if (!planned.ok()) return fail(std::move(planned), brk);
  Plan plan = planned.take();
  bool is_loop = extent == Extent::kLoop;
  if (!is_loop && nothing_captured(plan)) return brk;
  FJ_CHECK_OK(add_open_state(&plan));
  outcome_.residual_code = residual.code;
  outcome_.residual_args = plan.values;
  outcome_.resume_codes = residual.resume_codes;
  FJ_CHECK_OK(finish_graph(plan));
  if (is_loop && is_only_loop(frame, op.offset)) return brk;
  outcome_.breaks.push_back({std::move(brk), stop_.stack});
  outcome_.guards = std::move(guards_);
  return std::move(outcome_);
}

// A loop that is left to CPython; where no break is possible, the whole frame.
Result<CaptureOutcome> Attempt::finish_at_loop(Frame& frame, Break brk,
                                               bool* restart) {
  Result<CaptureOutcome> outcome =
      or_stop_earlier(finish_break(frame, brk, Extent::kLoop), restart);
  if (outcome.broke() && outcome.brk().reason != brk.reason) {
    const Break& why = outcome.brk();
    brk.detail += "; no break before it: " + words_of(why);
    return brk;
  }
  return outcome;
}

// A generator or class of this capture would have to outlive it: another
// attempt, that breaks before it is made.
Result<CaptureOutcome> Attempt::or_stop_earlier(Result<CaptureOutcome> outcome,
                                                bool* restart) {
  size_t made_at = interpreter_->state.table<Unbuildable>().stop_before;
  if (!outcome.broke() || made_at == 0 || made_at >= stop_.ordinal ||
      request_.fullgraph) {
    return outcome;
  }
  stop_.ordinal = made_at;
  stop_.offset = -1;
  stop_.stack.clear();
  stop_.brk = outcome.take_break();
  stop_.brk->span = {};
  *restart = true;
  return Result<CaptureOutcome>::raised();
}

namespace {

// A program's exception comes from what was guarded, but not these.
bool depends_on_guards(PyObject* exception) {
  return PyErr_GivenExceptionMatches(exception, PyExc_Exception) &&
         !PyErr_GivenExceptionMatches(exception, PyExc_RecursionError) &&
         !PyErr_GivenExceptionMatches(exception, PyExc_MemoryError);
}

}  // namespace

Result<CaptureOutcome> Attempt::run(bool* restart) {
  *restart = false;
  bool handled_outside = static_cast<bool>(handled_exception());
  _PyErr_StackItem handled_item = {};
  HandledExceptionScope handled(&handled_item, true);
  // Released inside the scopes of the tracer and the interpreter.
  struct ClearHandled {
    _PyErr_StackItem& item;
    ~ClearHandled() { Py_CLEAR(item.exc_value); }
  } clear{handled_item};
  FJ_CHECK_OK(scope_.begin(guards_.get()));
  Interpreter interpreter(request_, tracer_, *guards_, stop_);
  interpreter_ = &interpreter;
  note_handled_outside(interpreter.state, handled_outside);
  MovedTexts& moved = interpreter.state.table<MovedTexts>();
  moved.allowed = !stop_.texts_are_read;
  Frame frame;
  FJ_CHECK_OK(bind_inputs(frame));
  Result<Interpreter::Exit> exit = [&] {
    CaptureCallbackScope callbacks([&](PyObject* function,
                                       PyObject* const* args, size_t num_args,
                                       PyObject** result) {
      return interpreter.call_from_native(function, args, num_args, result);
    });
    Result<Interpreter::Exit> ran = interpreter.run(frame);
    if (!ran.ok()) return ran;
    // The locals go with the frame; a generator among them is closed.
    interpreter.frame = &frame;
    frame.stack.clear();
    for (Ref& slot : frame.slots) slot.reset();
    Result<Ref> left = interpreter.after_native(Py_NewRef(Py_None));
    interpreter.frame = nullptr;
    if (!left.ok()) return left.forward<Interpreter::Exit>();
    return ran;
  }();
  if (exit.ok()) {
    FJ_CHECK(exit.value().flow == Flow::kReturn);
    return or_stop_earlier(finish_return(std::move(exit.value().value)),
                           restart);
  }
  // Something may have looked at a text that was to be handed on.
  auto again_with_texts_read = [&] {
    stop_.texts_are_read = true;
    *restart = true;
    return Result<CaptureOutcome>::raised();
  };
  if (exit.is_raised()) {
    Ref exception = take_raised();
    if (moved.any) return again_with_texts_read();
    if (request_.raising && depends_on_guards(exception.get())) {
      *request_.raising = std::move(guards_);
    }
    Break brk{
        BreakReason::kUnsupportedException,
        std::string("the function raises ") + Py_TYPE(exception.get())->tp_name,
        Span{frame.code, frame.decoded->op(frame.current).offset}};
    return brk;
  }
  Break brk = exit.take_break();
  if (brk.reason == BreakReason::kInterrupted) return brk;
  if (brk.reason == BreakReason::kInternal) {
    throw InternalError(__FILE__, __LINE__, brk.detail);
  }
  if (moved.any) return again_with_texts_read();
  if (request_.fullgraph || frame.code.get() == nullptr) return brk;
  if (interpreter.at_stop_point()) {
    return or_stop_earlier(finish_break(frame, std::move(brk)), restart);
  }
  if (interpreter.found_long_loop() && stop_.ordinal == SIZE_MAX) {
    stop_.brk = std::move(brk);
    *restart = true;
    return Result<CaptureOutcome>::raised();
  }
  bool at_loop = brk.reason == BreakReason::kInstructionBudget &&
                 interpreter.at_left_loop();
  // What is left would be as large again: the frame is left to CPython.
  if (leaves_whole_frame(brk.reason) && !at_loop) return brk;
  if (stop_.ordinal != SIZE_MAX) {
    // An order that depends on addresses, such as a set of fresh objects'.
    brk.detail =
        "the program took another path when captured again: " + words_of(brk);
    brk.reason = BreakReason::kBreakNotResumable;
    return brk;
  }
  stop_.stack = interpreter.break_stack();
  if (at_loop && std::count(frame.left_loops.begin(), frame.left_loops.end(),
                            frame.current)) {
    return finish_at_loop(frame, std::move(brk), restart);
  }
  bool beneath =
      interpreter.inlined_calls != interpreter.calls_before_instruction();
  if (!beneath &&
      breaks_without_effect(brk.reason, frame.decoded->op(frame.current).op)) {
    return or_stop_earlier(finish_break(frame, std::move(brk)), restart);
  }
  // Not undone but done again, up to this instruction.
  stop_.ordinal = interpreter.ordinal();
  stop_.offset = frame.decoded->op(frame.current).offset;
  stop_.brk = std::move(brk);
  stop_.missed_keys = interpreter.state.table<CachedResults>().missed_keys;
  *restart = true;
  return Result<CaptureOutcome>::raised();
}

}  // namespace

Result<CaptureOutcome> capture(const CaptureRequest& request,
                               TensorTracer& tracer) {
  resolve_libraries();
  auto* function = reinterpret_cast<PyFunctionObject*>(request.function);
  int flags = reinterpret_cast<PyCodeObject*>(function->func_code)->co_flags;
  int generators =
      CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  if ((flags & generators) || !(flags & CO_OPTIMIZED)) {
    return Break{BreakReason::kGeneratorFrame, "",
                 Span{Ref::borrow(function->func_code), 0}};
  }
  if (is_residual_code(function->func_code)) {
    return Break{BreakReason::kBreakNotResumable, "residual code",
                 Span{Ref::borrow(function->func_code), 0}};
  }
  ErrorGuard keep;
  CollectorOff collector;
  StopPoint stop;
  bool restart = false;
  // One for the break, one for texts that are read after all, and some to find
  // a place before what cannot be rebuilt.
  constexpr int kMaxAttempts = 7;
  for (int attempt = 1;; ++attempt) {
    auto result = Attempt(request, tracer, stop).run(&restart);
    if (!restart) return result;
    if (attempt == kMaxAttempts) return std::move(*stop.brk);
  }
}

}  // namespace framejit::bytecode
