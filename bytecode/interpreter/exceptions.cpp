#include "bytecode/interpreter/exceptions.h"

#include "bytecode/interpreter/interpreter.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/moved_texts.h"
#include "bytecode/objects/object_kinds.h"

#include <algorithm>
#include <cstring>

namespace framejit::bytecode {

namespace {

// An upper bound of what the instruction takes from the stack.
size_t max_operands(const MicroOp& op) {
  switch (op.op) {
    case MicroOpKind::kCall:
      return op.arg + 2;
    case MicroOpKind::kCallKw:
      return op.arg + 3;
    case MicroOpKind::kCallEx:
      return 3 + op.arg;
    case MicroOpKind::kBinary:
    case MicroOpKind::kCompare:
    case MicroOpKind::kContains:
    case MicroOpKind::kSubscr:
    case MicroOpKind::kDeleteSubscr:
    case MicroOpKind::kFormatValue:
      return 2;
    case MicroOpKind::kUnary:
    case MicroOpKind::kToBool:
    case MicroOpKind::kPopJump:
    case MicroOpKind::kJumpOrPop:
    case MicroOpKind::kLoadAttr:
    case MicroOpKind::kLoadMethod:
    case MicroOpKind::kGetIter:
    case MicroOpKind::kForIter:
    case MicroOpKind::kUnpackSequence:
    case MicroOpKind::kUnpackEx:
      return 1;
    case MicroOpKind::kBuildMap:
      return 2 * op.arg;
    case MicroOpKind::kBuildConstKeyMap:
      return op.arg + 1;
    case MicroOpKind::kBuildTuple:
    case MicroOpKind::kBuildList:
    case MicroOpKind::kBuildSet:
    case MicroOpKind::kBuildString:
      return op.arg;
    default:
      return 3;
  }
}

// Says what an object is, and not which value it has or where it is not found.
bool is_about_kinds(PyObject* exception) {
  for (PyObject* type :
       {PyExc_TypeError, PyExc_AttributeError, PyExc_RuntimeError}) {
    if (PyErr_GivenExceptionMatches(exception, type)) return true;
  }
  return false;
}

// Does the object hold a foreign one? Containers too large to look through
// count as if they did: it is asked only where something was raised.
bool holds_foreign(CaptureState& state, PyObject* object, int depth) {
  constexpr int kMaxDepth = 3;
  constexpr Py_ssize_t kMaxItems = 64;
  if (!object) return false;
  if (is_foreign(state, object)) return true;
  if (PyExceptionInstance_Check(object)) {
    object = reinterpret_cast<PyBaseExceptionObject*>(object)->args;
    if (!object) return false;
  }
  if (PyTuple_Check(object) || PyList_Check(object)) {
    Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
    if (count > kMaxItems || (count > 0 && depth >= kMaxDepth)) return true;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (holds_foreign(state, PySequence_Fast_GET_ITEM(object, i), depth + 1))
        return true;
    }
  } else if (PyDict_Check(object)) {
    Py_ssize_t count = PyDict_GET_SIZE(object), position = 0;
    if (count > kMaxItems || (count > 0 && depth >= kMaxDepth)) return true;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) {
      if (holds_foreign(state, key, depth + 1) ||
          holds_foreign(state, value, depth + 1)) {
        return true;
      }
    }
  } else if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return is_foreign(state, slice->start) || is_foreign(state, slice->stop) ||
           is_foreign(state, slice->step);
  } else if (PyMethod_Check(object)) {
    return holds_foreign(state, PyMethod_GET_SELF(object), depth + 1);
  } else if (PyCFunction_Check(object)) {
    return holds_foreign(state, PyCFunction_GET_SELF(object), depth + 1);
  }
  return false;
}

// A context whose __exit__ only puts a state of its library back, which a run
// of the graph leaves alone.
bool is_state_context(PyObject* exit) {
  if (!exit || !PyMethod_Check(exit)) return false;
  const ManagerRow* row = find_manager(Py_TYPE(PyMethod_GET_SELF(exit)));
  return row && !row->model;
}

// The instruction that raises again behind a handler which runs nothing of the
// program; -1: there is none.
int reraise_of(const Frame& frame, const Handler& handler) {
  const std::vector<MicroOp>& ops = frame.decoded->ops();
  for (size_t i = handler.target; i < ops.size(); ++i) {
    switch (ops[i].op) {
      case MicroOpKind::kReraise:
        return int(i);
      case MicroOpKind::kNop:
      case MicroOpKind::kCopy:
      case MicroOpKind::kSwap:
      case MicroOpKind::kPop:
      case MicroOpKind::kPushExcInfo:
      case MicroOpKind::kPopExcept:
      case MicroOpKind::kLoadConst:
      case MicroOpKind::kStoreFast:
      case MicroOpKind::kDeleteFast:
        continue;
      case MicroOpKind::kCallIntrinsic1:
        if (ops[i].arg != kStopIterationError) return -1;
        continue;
      case MicroOpKind::kWithExceptStart:
        if (handler.depth < 1 || size_t(handler.depth) > frame.stack.size() ||
            !is_state_context(frame.stack[handler.depth - 1].get())) {
          return -1;
        }
        // Its answer is not true, so it is raised again.
        for (++i; i < ops.size(); ++i) {
          if (ops[i].op == MicroOpKind::kReraise) return int(i);
          if (ops[i].op != MicroOpKind::kPopJump &&
              ops[i].op != MicroOpKind::kToBool &&
              ops[i].op != MicroOpKind::kNop) {
            return -1;
          }
        }
        return -1;
      default:
        return -1;
    }
  }
  return -1;
}

}  // namespace

bool has_handler(const Frame& frame) {
  int at = int(frame.current);
  // (Handlers of handlers nest as blocks do, so this ends.)
  for (int handler; (handler = frame.decoded->op(at).handler) >= 0;) {
    at = reraise_of(frame, frame.decoded->handlers()[handler]);
    if (at < 0) return true;
  }
  return false;
}

bool is_raised_over_foreign(CaptureState& state, Frame& frame,
                            PyObject* exception) {
  const MicroOp& op = frame.decoded->op(frame.current);
  if (op.op == MicroOpKind::kRaise || op.op == MicroOpKind::kReraise ||
      op.op == MicroOpKind::kCleanupThrow) {
    return false;
  }
  if (!PyExceptionInstance_Check(exception)) return false;
  PyObject* lines =
      reinterpret_cast<PyBaseExceptionObject*>(exception)->traceback;
  if (lines && lines != Py_None) return false;
  // C code that asks for a str finds none.
  if (state.table<MovedTexts>().any) return true;
  bool deep = is_about_kinds(exception);
  size_t count = std::min(max_operands(op), frame.stack.size());
  for (size_t i = 1; i <= count; ++i) {
    PyObject* operand = frame.top(i);
    if (!operand) continue;
    // Attributes of tensors are modelled, that they are missing is guarded.
    bool attribute =
        op.op == MicroOpKind::kLoadAttr || op.op == MicroOpKind::kLoadMethod;
    if (attribute && (i > 1 || (is_stand_in(state, operand) &&
                                PyErr_GivenExceptionMatches(
                                    exception, PyExc_AttributeError)))) {
      continue;
    }
    // (1 // n, sqrt(n): what a number raises, it raises for its value.)
    if (deep ? holds_foreign(state, operand, 0) : is_stand_in(state, operand))
      return true;
  }
  return false;
}

Status add_traceback_line(const Frame& frame, PyObject* exception) {
  if (!PyExceptionInstance_Check(exception) || frame.is_substitute)
    return ok_status();
  int offset = frame.decoded->op(frame.current).offset;
  const char* file = PyUnicode_AsUTF8(frame.code_object()->co_filename);
  const char* name = PyUnicode_AsUTF8(frame.code_object()->co_name);
  if (!file || !name) return Status::raised();
  return add_traceback_line(exception, file, name,
                            span_line(Span{frame.code, offset}));
}

Status check_may_raise(const Interpreter& interp, PyObject* exception) {
  if (!interp.state.is_input(exception)) return ok_status();
  return interp.make_break(BreakReason::kUnsupportedException,
                           "raises an exception made outside");
}

}  // namespace framejit::bytecode
