// foreign.h: everything the lower half knows about tensors.
//
// The interpreter works on real Python objects; a tensor is a stand-in object
// that a TensorTracer made, and whatever is done with it goes through the
// tracer. graph/ implements this for the real library; tests/fake_tracer with a
// toy tensor, so that the interpreter is tested on every CPython with no tensor
// library installed. What it knows of libraries otherwise is registered as rows
// (bytecode/library/library.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frame_hook/dispatch.h"
#include "guards/result.h"
#include "guards/set/dynamic_dims.h"
#include "guards/set/guard_set.h"

namespace framejit {

enum class ObjectClass {
  kPlain,         // not foreign
  kTensor,        // a real tensor (input); make a stand-in
  kStandIn,       // a stand-in of the running capture
  kStaleStandIn,  // a stand-in of some other capture: break
  kUnsupported,   // subclass, sparse, quantized...: break when it is used
  kSymbolic,      // a number of the library over our expressions
  kConstant,      // immutable foreign constant: guarded with Equals
};

enum class CalleeClass {
  kNotForeign,  // none of the tracer's business
  kInline,      // Python code of the library that should be interpreted
  kPure,        // call natively with constants/stand-ins; no node
  kLeaf,        // an operation: recorded as one node
  kStateRead,   // reads guarded thread state (is_grad_enabled): call natively
  kStateWrite,  // set_grad_enabled & co: recorded, restored if it stays open
  kConstFalse,  // is_compiling... : the answer during capture is a constant
  kConstTrue,
  kSubBlock,  // calls back (a checkpoint): its substitute, or a break
  kUnknown,   // known to be outside the vocabulary: break
};

// A finished graph, handed to the backend by the bindings.
class ForeignGraph {
 public:
  virtual ~ForeignGraph() = default;
  virtual size_t num_operations() const = 0;
  virtual std::string str() const = 0;
};

// A call as the library hands it to what overrides it.
struct FunctionOverride {
  Ref function;  // the public callable
  Ref types;     // tuple: the classes to ask, in order
  Ref args;      // tuple
  Ref kwargs;    // dict; empty: called with three arguments
};

class TensorTracer {
 public:
  virtual ~TensorTracer() = default;

  // Why no capture can begin on this thread now: a mode that it cannot follow
  // is active, say. Empty: it can.
  virtual std::string refusal() { return ""; }

  // ---- one capture. begin() snapshots the ambient state; exactly one of
  // finish() and abandon() follows, and both restore it.
  virtual Status begin(GuardSet* guards) = 0;
  // outputs: the stand-ins (and symbolic values) the residual code needs, in
  // order. Input mutations recorded in the graph are committed by the executor.
  // open_states: net state writes still in force at the end are left to the
  // residual code: reported by state_now().
  virtual Result<std::unique_ptr<ForeignGraph>> finish(
      const std::vector<PyObject*>& outputs) = 0;
  virtual void abandon() = 0;
  // Python calls (callable, args) that bring the state at capture start to the
  // state now, in order; empty when they are equal. Residual code replays them.
  virtual std::vector<std::pair<Ref, std::vector<Ref>>> state_now() = 0;

  // ---- objects
  virtual ObjectClass classify(PyObject* object) = 0;
  // The stand-in of an input tensor; adds its Tensor guard and gathers it.
  // dynamic: what becomes a symbol.
  virtual Result<Ref> stand_in(PyObject* tensor, const Source* source,
                               DynamicDims dynamic) = 0;
  virtual PyObject* real_of(
      PyObject* stand_in) = 0;  // borrowed; null: computed
  virtual const Source* source_of(PyObject* stand_in) = 0;  // null: computed

  // ---- operations. A failed leaf is a Break (LeafRaised ...), never an
  // exception of the user's.
  virtual CalleeClass classify_callee(PyObject* callable) = 0;
  virtual Result<Ref> call(PyObject* callable,
                           const std::vector<PyObject*>& args,
                           PyObject* kwnames) = 0;  // kw values last in args
  virtual Result<Ref> get_attribute(PyObject* stand_in, PyObject* name) = 0;
  // What a getter of C gives of it, whatever its class has by that name.
  virtual Result<Ref> get_by_descriptor(PyObject* stand_in,
                                        PyObject* descriptor) = 0;
  // A C attribute (.grad, .data, requires_grad); null value: delete. Empty: it
  // is part of the graph. Else the caller replays it after the graph: None, as
  // it is; or by this function of the tensor and the value.
  virtual Result<Ref> set_attribute(PyObject* stand_in, PyObject* name,
                                    PyObject* value) = 0;
  // isinstance(stand_in, type) for a type written in C.
  virtual Result<bool> is_instance(PyObject* stand_in, PyObject* type) = 0;
  // Operators with at least one stand-in or symbolic operand; `function` is the
  // callable of the operator module that a graph node names.
  virtual Result<Ref> operate(PyObject* function,
                              const std::vector<PyObject*>& operands) = 0;

  // A metaclass in C++ that gives attributes as `type` does, but for methods of
  // its own classes.
  virtual bool is_binding_metaclass(PyTypeObject* type) { return false; }

  // ---- classes of tensors, and objects that override functions
  // A stand-in of a class that the program derived from the tensor's.
  virtual bool is_subclass(PyObject* stand_in) { return false; }
  // Guards that its class finds the library's own special method, or none. A
  // break where it finds another.
  virtual Status guard_special(PyObject* stand_in, const char* name) {
    return ok_status();
  }
  // Has the class of the object a method that the library would ask?
  virtual bool is_overloaded(PyObject* object) { return false; }
  // What it would ask for this call; empty: it would not ask. Nothing runs.
  virtual Result<std::optional<FunctionOverride>> find_override(
      PyObject* callable, const std::vector<PyObject*>& args,
      PyObject* kwnames) {
    return std::optional<FunctionOverride>();
  }
  // Tensor.__new__(type, ...) and Tensor._make_subclass(type, data, ...).
  // Empty: no such class.
  virtual Result<Ref> make_instance(PyObject* type,
                                    const std::vector<PyObject*>& args,
                                    PyObject* kwnames) {
    return Ref();
  }
  virtual Result<Ref> make_subclass(PyObject* type, PyObject* data,
                                    bool requires_grad) {
    return Ref();
  }

  // ---- symbolic values
  virtual Result<Ref> make_symbolic(const Expr& expr) = 0;  // int-valued
  virtual std::optional<Expr> expr_of(PyObject* symbolic) = 0;
  // The Python type a symbolic value stands for: int, bool or float.
  virtual PyObject* symbolic_type(PyObject* symbolic) = 0;
  // Specialise: the concrete int/bool/float, with a guard added.
  virtual Result<Ref> concretise(PyObject* symbolic) = 0;

  // After a native call: a break that foreign code may have swallowed.
  virtual std::optional<Break> pending_break() = 0;
  // Where the program is, for node metadata.
  virtual void set_location(const Span& span) = 0;
  // The whole of it, outermost first, for who asks; empty: nobody knows.
  using Stack = std::function<std::vector<Span>()>;
  virtual void set_stack(Stack) {}
  // The first arguments of its frames, outermost first: of methods their
  // objects. Set where somebody wants to know
  // (CaptureRequest::notes_receivers).
  using Receivers = std::function<std::vector<Ref>()>;
  virtual void set_receivers(Receivers) {}
};

}  // namespace framejit
