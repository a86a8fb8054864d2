// Classes of tensors and of autograd functions: what makes them and their
// instances, the types that are torch's own, torch.device as a manager, and the
// profiler.
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

Result<Ref> make_subclass(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (!call.plain(2, 3)) {
    PyObject* wanted = call.argument(2, "require_grad");
    if (call.positional() != 2 || call.args.size() != 3 || !wanted) {
      return call.unknown();
    }
  }
  PyObject* wanted = call.args.size() > 2 ? call.args[2] : Py_False;
  if (!PyType_Check(call.args[0]) || !is_stand_in(state, call.args[1]) ||
      !PyBool_Check(wanted)) {
    return call.unknown();
  }
  FJ_TRY(Ref made, state.tracer.make_subclass(call.args[0], call.args[1],
                                              wanted == Py_True));
  return made ? Result<Ref>(made) : Result<Ref>(call.unknown());
}

// torch.Tensor.__new__(cls, ...), as super().__new__() reaches it.
Result<Ref> make_instance(BuiltinCall& call) {
  if (call.args.empty() || !PyType_Check(call.args[0])) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  FJ_TRY(Ref made,
         call.state.tracer.make_instance(call.args[0], rest, call.kwnames));
  return made ? Result<Ref>(made) : Result<Ref>(call.unknown());
}

// class F(torch.autograd.Function) inside a frame: gives the class the class of
// its backward nodes, and that one a number that no other has.
Result<Ref> init_function_class(BuiltinCall& call) {
  if (!call.plain(4, 4) || !is_fresh_class(call.state, call.args[0])) {
    return call.unknown();
  }
  PauseHook pause;  // the classes' own code does not run
  std::vector<PyObject*> args = call.args;
  return call.state.after_native(
      PyObject_Vectorcall(call.callable, args.data(), args.size(), nullptr));
}

// `with torch.device("cpu"):` sets the default device to what it is: a capture
// begins only where no other is set. Any other device is a mode of torch.
Result<Ref> enter_device(Interpreter& interpreter, Ref manager) {
  CaptureState& state = interpreter.state;
  if (state.tracer.classify(manager.get()) != ObjectClass::kConstant) {
    return manager;
  }
  Ref type = Ref::steal(PyObject_GetAttrString(manager.get(), "type"));
  if (!type) return Result<Ref>::raised();
  if (PyUnicode_CompareWithASCIIString(type.get(), "cpu") != 0) {
    return interpreter.make_break(BreakReason::kThreadState,
                                  "torch.device as a context manager");
  }
  PyObject* nothing = library_object("contextlib", "nullcontext");
  if (!nothing) return Result<Ref>::raised();
  return interpreter.call(nothing, {manager.get()});
}

constexpr CalleeRow kCallees[] = {
    {"torch._C", "TensorBase._make_subclass", make_subclass},
    {"torch._C", "TensorBase.__new__", make_instance},
    {"torch.autograd.function", "FunctionMeta.__init__", init_function_class},
};

constexpr TupleTypeRow kTupleTypes[] = {{"torch", "Size"}};

constexpr ManagerRow kManagers[] = {
    {"torch", "device", enter_device},
    {"torch.autograd.grad_mode", "no_grad", nullptr},
    {"torch.autograd.grad_mode", "enable_grad", nullptr},
    {"torch.autograd.grad_mode", "set_grad_enabled", nullptr},
    {"torch.autograd.grad_mode", "inference_mode", nullptr},
    {"torch.amp.autocast_mode", "autocast", nullptr},
    {"torch.cpu.amp.autocast_mode", "autocast", nullptr},
    {"torch.cuda.amp.autocast_mode", "autocast", nullptr},
};

// The marks that torch's own mark_dynamic and its like leave.
constexpr DimMarkRow kDimMarks[] = {
    {"_dynamo_dynamic_indices", DimMarkRow::Kind::kDynamic},
    {"_dynamo_weak_dynamic_indices", DimMarkRow::Kind::kMaybeDynamic},
    {"_dynamo_static_indices", DimMarkRow::Kind::kStatic},
};

// torch.profiler with Python's frames: what it gives PyEval_SetProfile, and
// what it registers with sys.monitoring on 3.12.
constexpr ObserverRow kObservers[] = {
    "TraceContext",
    "torch.profiler.python_tracer_event_handler",
};

}  // namespace

const Library& torch_types() {
  static constexpr Library kLibrary = {.name = "torch types",
                                       .callees = kCallees,
                                       .dim_marks = kDimMarks,
                                       .tuple_types = kTupleTypes,
                                       .managers = kManagers,
                                       .observers = kObservers};
  return kLibrary;
}

}  // namespace framejit::libraries
