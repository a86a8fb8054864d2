// Interpreter: runs micro-ops over real objects, symbolically.
//
// One per capture attempt. It mirrors CPython's evaluation loop; everything it
// does to an object goes through CaptureState, which decides whether to act
// natively, guard, log, or record. Handlers (one per micro-op, handlers_*.cpp)
// look at their operands on the stack and take them off only when they have
// succeeded, so that a break finds the frame as it was before the instruction.
// calls.cpp decides what a callable is, binding.cpp binds arguments.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bytecode/interpreter/repeated_calls.h"

#include "bytecode/builtins/cached_results.h"
#include "bytecode/interpreter/exceptions.h"
#include "bytecode/interpreter/frame.h"
#include "bytecode/interpreter/held_arguments.h"
#include "bytecode/objects/native_calls.h"

namespace framejit::bytecode {

class Interpreter;
using MicroOpHandler = Result<Flow> (*)(Interpreter&, Frame&, const MicroOp&);
MicroOpHandler micro_op_handler(MicroOpKind kind);

// Test only: the capture whose instruction count reaches this value throws an
// InternalError, as a bug in FrameJIT would. 0: off.
extern size_t g_inject_failure_at;
// Test only: a break before this micro-op (counted from 1) of the outermost
// frame, or the next one that a frame can stop at. 0: off.
extern size_t g_inject_break_at;
// Test only: told of every instruction before it is interpreted. Null: off.
extern void (*g_observe_instruction)(PyObject* code, int offset);

// The place in the outermost frame where the capture is to stop: found by an
// earlier attempt that broke beneath it. Counted in executed micro-ops, so that
// each turn of a loop is a place of its own.
struct StopPoint {
  size_t ordinal = SIZE_MAX;
  int offset = -1;  // -1: not checked
  std::optional<Break> brk;
  std::vector<Span> stack;
  std::vector<MissedKey> missed_keys;
  // Texts that came in are facts, whatever is done with them (moved_texts.h).
  bool texts_are_read = false;
};

using Arguments = std::vector<PyObject*>;

class Interpreter final : public Caller {
 public:
  Interpreter(const CaptureRequest& request, TensorTracer& tracer,
              GuardSet& guards, const StopPoint& stop);
  ~Interpreter() override;
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // ---- Caller
  Result<Ref> call(PyObject* callable, std::vector<PyObject*> args,
                   PyObject* kwnames = nullptr) override;
  Span here() const override;
  size_t place() const override { return ordinal_; }
  PythonFrame python_frame(int up) const override;
  bool would_handle_failure() const override;

  // ---- frames (interpreter.cpp)
  struct Exit {
    Flow flow;
    Ref value;
  };
  // The one place that says how deep calls may nest; deeper is a break.
  Status check_depth();
  // Runs until the frame returns or yields. thrown: raised at the instruction
  // the frame is suspended at (generator.throw).
  Result<Exit> run(Frame& frame, Ref thrown = {});
  // Sets the frame up for the function: code, globals, empty slots.
  Status prepare_frame(Frame& frame, PyObject* function);

  // ---- calls (calls.cpp)
  Result<Ref> call_function(PyObject* function, const Arguments& args,
                            PyObject* kwnames);
  Result<Ref> inline_function(PyObject* function, const Arguments& args,
                              PyObject* kwnames);
  Result<Ref> call_foreign(CalleeClass kind, PyObject* callable,
                           const Arguments& args, PyObject* kwnames);
  // The source to describe a function's parts by; null: made in this capture.
  const Source* function_source(PyObject* function);
  void add_fresh_function(PyObject* function);
  bool is_fresh_function(PyObject* function) const override {
    return fresh_functions_.contains(function);
  }

  // A frame that CPython was about to run beneath a native call: parameter
  // slots are bound. False: CPython runs it.
  bool call_from_native(PyObject* function, PyObject* const* args,
                        size_t num_args, PyObject** result);

  // ---- binding.cpp: arguments into the parameter slots of the frame.
  Status bind(Frame& frame, const Arguments& args, PyObject* kwnames);

  // A key about to be hashed by C code: symbolic values become concrete, a
  // Python-level __hash__ breaks.
  Result<Ref> hashable(PyObject* key);
  Status check_hashable(PyObject* key);

  // A break met beneath foreign C code, which may swallow the exception that
  // stands for it: the loop looks here after every instruction.
  void post_break(Break brk);
  // The result of a native call, or the break that hides behind it.
  Result<Ref> after_native(PyObject* new_reference);
  Break make_break(BreakReason reason, std::string detail = {}) const {
    return state.make_break(reason, std::move(detail));
  }

  // Alive while frames run whose callers are not those of the program: library
  // functions between them are not interpreted.
  class HiddenFrames {
   public:
    explicit HiddenFrames(Interpreter& interpreter)
        : interpreter_(interpreter) {
      ++interpreter_.hidden_;
    }
    ~HiddenFrames() { --interpreter_.hidden_; }

   private:
    Interpreter& interpreter_;
  };

  CaptureState state;
  Frame* frame = nullptr;  // innermost
  int depth = 0;
  size_t inlined_calls = 0;
  RepeatedCalls repeated_calls;

  // ---- for the driver
  size_t instructions() const { return instructions_; }
  size_t ordinal() const { return ordinal_; }
  bool at_stop_point() const { return stopped_; }
  // The budget was used up in a loop, which later captures leave to CPython.
  bool found_long_loop() const { return found_long_loop_; }
  // The break is where the outermost frame comes to such a loop, or beneath.
  bool at_left_loop() const { return at_left_loop_; }
  const std::vector<Span>& break_stack() const { return break_stack_; }
  // Inlined calls when the current instruction of the outermost frame began.
  size_t calls_before_instruction() const { return calls_before_; }

  // What interpreted generators hold: cleared when the interpreter goes.
  std::shared_ptr<Interpreter*> handle() const { return handle_; }

 private:
  class FrameScope;
  Result<Flow> step(Frame& frame);
  void note_break(Break* brk);
  std::vector<Span> program_stack() const;  // outermost first
  // ---- loops that are too long (long_loops.cpp)
  void note_turn(Frame& frame);
  void find_left_loops(Frame& frame);
  Break over_budget(const char* what) const;
  Break out_of_budget();
  std::optional<Break> break_at_left_loop(const Frame& frame);
  Result<Ref> call_frame_builtin(PyObject* callable, const Arguments& args,
                                 PyObject* kwnames, bool* handled);
  Result<Ref> call_object(PyObject* callable, const Arguments& args,
                          PyObject* kwnames);
  Result<Ref> call_marked_function(PyObject* function, const Arguments& args,
                                   PyObject* kwnames);
  Result<Ref> call_method(PyObject* method, const Arguments& args,
                          PyObject* kwnames);
  Result<Ref> make_super();
  Result<Ref> frame_locals();
  // __build_class__ (handlers_classes.cpp)
  Result<Ref> build_class(const Arguments& args, PyObject* kwnames);
  // exec, eval (handlers_exec.cpp)
  Result<Ref> run_code(const Arguments& args, bool is_eval);
  Status bind_keywords(Frame& frame, const Arguments& args, PyObject* kwnames,
                       size_t positional, PyObject* extra, bool* mismatch);
  Status bind_defaults(Frame& frame, bool* mismatch);

  const StopPoint& stop_;
  HeldArguments held_arguments_;
  size_t instructions_ = 0;
  size_t ordinal_ = 0;
  size_t calls_before_ = 0;
  bool stopped_ = false;
  bool found_long_loop_ = false;
  bool at_left_loop_ = false;
  int break_depth_ = -1;
  int hidden_ = 0;
  std::vector<Span> break_stack_;
  std::optional<Break> pending_break_;
  std::unordered_set<PyObject*> fresh_functions_;
  std::shared_ptr<Interpreter*> handle_;
};

// "module.foo", "list.sort": how messages name a callable. Runs no user code.
std::string callable_name(PyObject* callable);
// The exception that carries a break through foreign C code.
PyObject* capture_break_type();

// Interned names, made once.
// clang-format off
#define FJ_NAMES(X) \
  X(__enter__)      \
  X(__exit__)       \
  X(__next__)       \
  X(__class__)      \
  X(__package__)    \
  X(send)           \
  X(keys)           \
  X(__match_args__) \
  X(__import__)
// clang-format on
struct Names {
#define X(name) PyObject* name;
  FJ_NAMES(X)
#undef X
};
const Names& names();

}  // namespace framejit::bytecode
