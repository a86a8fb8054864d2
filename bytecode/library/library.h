// What a library registers so that captures know it.
//
// The interpreter knows Python and its standard library. What else it should
// know of a library that programs use is data: tables of rows, each of which
// names a module and a path in it. Registering imports nothing. Whenever a
// capture begins, rows of modules that were imported meanwhile are resolved to
// objects; from then on they are found by the identity of a callee, of a type
// or of a code object. A row whose object is missing in this version of the
// library has no effect: its callee is a break, its function is inlined.
// `libraries/` has the rows of real libraries, `tests/toy_library.h` a toy's.
// (Tensors and their operations are the tracer's: guards/foreign.h.)
#pragma once

#include <span>
#include <vector>

#include "guards/result.h"

namespace framejit::bytecode {

class Interpreter;
enum class Reads : uint8_t;  // objects/native_calls.h
struct BuiltinCall;          // builtins/builtins.h
using BuiltinFunction = Result<Ref> (*)(BuiltinCall&);

// A C callee, as a row of builtins.def: modelled, or (null) called natively. A
// path through a class names the raw attribute of the class. A Python function
// has a row if the model is to stand for it. A model that gives an empty Ref
// leaves the call to what knows callables by their type.
struct CalleeRow {
  const char* module;
  const char* path;
  BuiltinFunction model;
  Reads reads = {};  // of one without a model
};

// The same for everything that the module holds of one kind.
struct FamilyRow {
  enum class Of : uint8_t { kInstances, kSubtypes };
  const char* module;
  const char* type;  // a type that the module holds, too
  Of of;
  BuiltinFunction model;
};

// A Python function that is not interpreted but run here. It reads what its
// code reads, through CaptureState, so that the guards are the same. handled:
// the result is the call's; otherwise nothing was done.
using FastPath = Result<Ref> (*)(Interpreter& interpreter, PyObject* function,
                                 const std::vector<PyObject*>& args,
                                 PyObject* kwnames, bool* handled);
struct FastPathRow {
  const char* module;
  const char* path;
  // Its co_names. Code that mentions other things is another version's.
  std::span<const char* const> names;
  FastPath run;
  // What the library's is_compiling() answers in it: false where it asks in
  // order to leave something out that a capture needs.
  bool is_compiling = true;
};

// A function made by a function of the library (path: "outer.<locals>.inner")
// that runs the one it wraps: that is called in its place.
struct WrapperRow {
  const char* module;
  const char* path;
  // Where the wrapped function is: a free variable, or (null) __wrapped__.
  const char* variable;
};

// What an attribute of a function says.
enum class Mark : uint8_t {
  kNone,
  kDisabled,  // never captured
  kWrapper,   // its __wrapped__ is called in its place
  // Made by another compiler. The value is the id of the function it speaks of:
  // functools.wraps copies it to others.
  kOtherCompiler,
  kGraphBreak,      // calling it is a break
  kIsCompiling,     // True
  kConstantResult,  // always gives the same: called once
  kWithoutEffects,  // f(function, ...): breaks if the function has effects
  // f(manager): None, where a `with` called f's caller to enter it; else an
  // object that cannot outlive the capture.
  kHandleWithoutWith,
};
struct MarkRow {
  const char* attribute;
  Mark mark;
  const char* package;  // of functions of this package only; null: all
};

// An attribute of a tensor: a set of dims.
struct DimMarkRow {
  enum class Kind : uint8_t { kDynamic, kMaybeDynamic, kStatic };
  const char* attribute;
  Kind kind;
};

// A type, and those that the module derives from it, whose objects are
// constants: immutable and compared by ==.
struct ConstantTypeRow {
  const char* module;
  const char* type;
};

// Numbers of a type, and those derived from it, whose arithmetic asks a state
// of the library's what becomes of an error (numpy.errstate). enter() makes
// every error a FloatingPointError and gives what leave() takes; null: it
// failed.
struct ErrorStateRow {
  const char* module;
  const char* type;
  PyObject* (*enter)();
  void (*leave)(PyObject* entered);
};

// A tuple type made in C that is called with its items.
struct TupleTypeRow {
  const char* module;
  const char* path;
};

// A context manager: what `with` uses instead; null: it only resets a state.
struct ManagerRow {
  const char* module;
  const char* path;
  Result<Ref> (*model)(Interpreter& interpreter, Ref manager);
};

// A module of ours with a dict: full name of a function of the library that the
// tracer calls a sub-block -> the Python function that says what it means. It
// is imported when the first sub-block is called.
struct SubstituteTable {
  const char* module;
  const char* attribute;
};

// The method by which a class takes calls of the library's functions over
// (bytecode/objects/overrides.h). Only the tracer's library has one.
struct OverrideProtocol {
  const char* method;
  const char* package;  // the home of classes that are the library's own
};

// Profilers of the library's, by the full names of their C types
// (frame_hook/observers.h).
using ObserverRow = const char*;

struct Library {
  const char* name;
  std::span<const CalleeRow> callees = {};
  std::span<const FamilyRow> families = {};
  std::span<const FastPathRow> fast_paths = {};
  std::span<const WrapperRow> wrappers = {};
  std::span<const MarkRow> marks = {};
  std::span<const DimMarkRow> dim_marks = {};
  std::span<const ConstantTypeRow> constant_types = {};
  std::span<const ErrorStateRow> error_states = {};
  std::span<const TupleTypeRow> tuple_types = {};
  std::span<const ManagerRow> managers = {};
  std::span<const ObserverRow> observers = {};
  // Modules whose functions, as callbacks of weak references, only keep a table
  // of the library's own.
  std::span<const char* const> quiet_callbacks = {};
  const SubstituteTable* substitutes = nullptr;
  const OverrideProtocol* overrides = nullptr;
};

// The library must live forever. False: it is registered already, or it has an
// override protocol and another one has, too; then nothing is registered.
bool register_library(const Library& library);

// ---- for the interpreter

// The row for one of the operands, or what lies in a list or tuple of them.
const ErrorStateRow* find_error_state(std::span<PyObject* const> operands);

// Resolves rows of modules imported since the last call: when a capture begins.
void resolve_libraries();

// Null, empty: no row.
const CalleeRow* find_callee(PyObject* callable);
struct FunctionRows {
  const FastPathRow* fast_path = nullptr;
  const WrapperRow* wrapper = nullptr;
};
FunctionRows find_function(PyObject* code);
const ManagerRow* find_manager(PyTypeObject* type);
bool is_library_tuple(PyTypeObject* type);
// The function that one found by a WrapperRow wraps; null: not there.
PyObject* wrapped_by(PyObject* function, const WrapperRow& row);
Mark find_mark(PyObject* function);
// The same for what is no function: its __dict__.
Mark find_mark_in(PyObject* dict);
struct DimMark {
  PyObject* name;  // interned
  DimMarkRow::Kind kind;
};
const std::vector<DimMark>& dim_mark_rows();
// What stands for a sub-block; borrowed or null.
PyObject* find_substitute(PyObject* function);
const OverrideProtocol* override_protocol();

// Is this module name the package's or one beneath it?
bool is_in_package(PyObject* module_name, const char* package);

// Rows that are there without any library: Python's own, and the marks of
// functions of this project's Python package (standard_rows.cpp).
const Library& standard_rows();

}  // namespace framejit::bytecode
