// CaptureState: what one capture knows about objects (design.md section 3).
//
// A value on the interpreter's stack is a real Python object; its origin is in
// the side tables here, found by identity. An object with a Source is an
// *input*: never mutated, reads install guards, writes go to the write log. An
// object with no entry is fresh or constant and is used natively. Tensors are
// stand-ins made by the TensorTracer. The inputs are kept alive by this class
// (identity reuse would forge origins); fresh objects are not.
#pragma once

#include <utility>
#include <vector>

#include "bytecode/objects/capture_request.h"
#include "frame_hook/table_registry.h"
#include "guards/foreign.h"

namespace framejit::bytecode {

// A frame as the program would find it by walking up from the innermost.
struct PythonFrame {
  bool known = false;
  // Null in frames above the captured ones: `beyond` levels up from the frame
  // that called the captured function (1: that frame).
  PyObject* globals = nullptr;
  PyCodeObject* code = nullptr;
  int line = 0;
  int beyond = 0;
};

// Calls back into the interpreter; implemented by interpreter.cpp.
class Caller {
 public:
  virtual ~Caller() = default;
  // Any callable: inlines Python functions, uses builtin rows, records leaves.
  // kwnames: tuple or null; keyword values are last in args.
  virtual Result<Ref> call(PyObject* callable, std::vector<PyObject*> args,
                           PyObject* kwnames = nullptr) = 0;
  virtual Span here() const = 0;
  // The micro-op of the outermost frame, counted.
  virtual size_t place() const = 0;
  // Made in this capture: a function nothing guards.
  virtual bool is_fresh_function(PyObject* function) const = 0;
  // `up` callers above the innermost frame (0: that frame).
  virtual PythonFrame python_frame(int up) const = 0;
  // Would code of the program run, in any of the captured frames, when the
  // current instruction raised: an except, a finally, a with?
  virtual bool would_handle_failure() const = 0;
};

class CaptureState {
 public:
  CaptureState(const CaptureRequest& request, TensorTracer& tracer,
               GuardSet& guards, Caller& caller);
  ~CaptureState();

  TensorTracer& tracer;
  GuardSet& guards;
  Caller& caller;
  const CaptureRequest& request;

  // ---- origins (origins.cpp)
  const Source* source_of(PyObject* object) const;  // null: not an input
  bool is_input(PyObject* object) const { return source_of(object) != nullptr; }
  void register_input(PyObject* object, const Source* source);
  void keep_alive(PyObject* object);
  // A value read from `source` of an input: installs the guard that makes the
  // read reusable (type, or value for constants), replaces tensors by
  // stand-ins and dynamic ints by symbols, remembers the origin.
  Result<Ref> wrap(PyObject* value, const Source* source);
  void guard(GuardKind kind, const Source* source, PyObject* object = nullptr,
             int64_t number = 0);
  bool is_constant(PyObject* object) const;  // immutable, guarded by value
  // Registers an object whose identity is already guarded (a class attribute,
  // a default of a pinned function), so that what is read of it is guarded too.
  // True: it was not known before. (For what holds nothing for good: see
  // below.)
  bool pin(PyObject* object);
  // And what it holds for good, as frozensets do, whose items native code
  // reads.
  Status pin_value(PyObject* object);
  // One that is guarded to be itself: its class and what it holds are known
  // from then on.
  Status register_constant(PyObject* object);
  // A break that a callback under native code ran into. Native code may swallow
  // the exception that stands for it, so every native call is followed by this.
  void set_native_break(Break brk);
  bool has_native_break() const;
  Result<Ref> after_native(PyObject* new_reference);

  // ---- attributes (attributes.cpp): CPython's protocol, exactly
  Result<Ref> get_attr(PyObject* object, PyObject* name);
  // The same, but an empty Ref where CPython would raise AttributeError.
  Result<Ref> find_attr(PyObject* object, PyObject* name);
  Status set_attr(PyObject* object, PyObject* name, PyObject* value);
  Status del_attr(PyObject* object, PyObject* name);
  Result<Ref> super_attr(PyObject* type, PyObject* self, PyObject* name);
  // The class attribute found by MRO look-up, guarded; empty Ref: absent.
  Result<Ref> type_lookup(PyTypeObject* type, PyObject* name);
  // Function and self of a MethodType object; guarded when it is an input.
  Result<std::pair<Ref, Ref>> method_parts(PyObject* method);
  // type(object), also for stand-ins and symbolic values.
  Ref type_of(PyObject* object);
  // A dunder implemented in Python (a function) on object's class, or empty
  // when C implements it.
  Result<Ref> python_special(PyObject* object, const char* name);

  // ---- containers and operators (containers.cpp, operators.cpp,
  // comparisons.cpp, formatting.cpp)
  Result<Ref> get_item(PyObject* object, PyObject* key);
  Status set_item(PyObject* object, PyObject* key, PyObject* value);
  Status del_item(PyObject* object, PyObject* key);
  Result<bool> contains(PyObject* container, PyObject* item);
  Result<Ref> length(PyObject* object);  // int or symbolic
  Result<bool> truth(PyObject* object);  // data-dependent: Break
  Result<Ref> iter(PyObject* object);
  // Empty Ref: exhausted; `stop` gets the StopIteration that said so, if any.
  Result<Ref> next(PyObject* iterator, Ref* stop = nullptr);
  Result<Ref> binary(int op, bool in_place, PyObject* a, PyObject* b);
  Result<Ref> unary(int op, PyObject* a);
  Result<Ref> compare(int op, PyObject* a, PyObject* b);  // Py_LT ...
  Result<bool> is_same(PyObject* a, PyObject* b);         // `is`
  Result<Ref> format_value(PyObject* value, int conversion, PyObject* spec);
  // All elements of an iterable, e.g. for unpacking and star-arguments.
  Result<std::vector<Ref>> elements(PyObject* iterable,
                                    size_t limit = SIZE_MAX);
  Result<Ref> element_list(PyObject* iterable);  // the same in a fresh list
  // The copy of an input container to hand to C code for a whole use; guards
  // its whole content. `unshadow` maps results back.
  Result<Ref> shadow(PyObject* container);
  PyObject* unshadow(PyObject* object) const;

  // Reads and writes that know about the write log.
  Result<Ref> dict_get(PyObject* dict, PyObject* key);  // empty Ref: absent
  Status dict_set(PyObject* dict, PyObject* key, PyObject* value);
  Status dict_del(PyObject* dict, PyObject* key);
  Result<Ref> instance_dict(PyObject* object);       // empty Ref: none
  Result<Ref> cell_get(PyObject* cell);              // empty Ref: unbound
  Status cell_set(PyObject* cell, PyObject* value);  // null: delete

  Break make_break(BreakReason reason, std::string detail = {}) const;

  // The side tables. Each belongs to one file, and is declared in its header
  // (origins.h, containers.h, write_log.h ...).
  template <class Table>
  Table& table() const {
    return tables_.get<Table>();
  }

 private:
  void register_alone(PyObject* object);
  Status pin_parts(PyObject* object);
  mutable TableRegistry tables_;
};

}  // namespace framejit::bytecode
