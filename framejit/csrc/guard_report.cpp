// Guards for people: the tree of them, and one line for a miss with a hint.
#include <map>
#include <sstream>

#include "bytecode/code/decoder.h"
#include "frame_hook/collector.h"
#include "frame_hook/interjections.h"
#include "framejit/csrc/reports.h"
#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"
#include "guards/set/source_text.h"

namespace framejit {
namespace {

// The user's line for a guard. Arguments are guarded before the first
// instruction: theirs is the line that reads the argument first.
Span place_of(const Guard& guard, PyObject* code) {
  if (guard.span.code || !guard.source) return guard.span;
  Argument argument = argument_of(guard.source, code);
  if (argument.slot < 0) return {};
  code = argument.code.get();
  auto decoded = bytecode::decode(code);
  if (!decoded.ok()) {
    drop_error();
    return {};
  }
  using bytecode::MicroOpKind;
  for (const bytecode::MicroOp& op : decoded.value()->ops()) {
    bool reads = op.op == MicroOpKind::kLoadFast ||
                 op.op == MicroOpKind::kLoadFastCheck ||
                 op.op == MicroOpKind::kLoadDeref ||
                 op.op == MicroOpKind::kLoadClosure;
    if (!reads || op.arg != argument.slot) continue;
    Span span{Ref::borrow(code), op.offset};
    return span_line(span) > 0 ? span : Span{};
  }
  return {};
}

std::string line_of(const GuardSet& set, const Guard& guard, PyObject* code) {
  std::string text = guard_text(set, guard, code);
  Span place = place_of(guard, code);
  if (place.code) text += "  # " + format_span(place);
  return text;
}

// Guards below the object they look at; what is about no single object first.
class Tree {
 public:
  Tree(const GuardSet& set, PyObject* code) : set_(set), code_(code) {
    for (const Guard& guard : set.guards()) {
      if (!guard.source || guard.kind == GuardKind::kThreadState) {
        text_ << "\n  " << line_of(set, guard, code);
      } else {
        guards_[guard.source->id].push_back(&guard);
        adopt(guard.source);
      }
    }
    for (const Source* root : children_[nullptr]) show(root, 1);
  }
  std::string str() const { return text_.str(); }

 private:
  void adopt(const Source* source) {
    for (; source; source = source->base) {
      if (!known_.emplace(source->id, true).second) return;
      children_[source->base].push_back(source);
    }
  }
  // A place without guards of its own has no line, its children stand for it.
  void show(const Source* source, int depth) {
    for (const Guard* guard : guards_[source->id]) {
      text_ << "\n"
            << std::string(size_t(depth) * 2, ' ')
            << line_of(set_, *guard, code_);
    }
    int below = depth + (guards_[source->id].empty() ? 0 : 1);
    for (const Source* child : children_[source]) show(child, below);
  }

  const GuardSet& set_;
  PyObject* code_;
  std::ostringstream text_;
  std::map<uint32_t, std::vector<const Guard*>> guards_;
  std::map<uint32_t, bool> known_;
  std::map<const Source*, std::vector<const Source*>> children_;
};

// In the order in which explain_failure() looks at a tensor. Behind a break it
// is one that the function made, mostly: nobody can mark it before the call.
std::string tensor_hint(const TensorSpec& spec, PyObject* value,
                        const std::string& name, bool is_resume) {
  TensorFields fields = tensor_fields(value);
  if (!fields.valid || Py_TYPE(value) != spec.type ||
      fields.dtype != spec.dtype || fields.device_type != spec.device_type ||
      fields.device_index != spec.device_index ||
      fields.key_set != spec.key_set) {
    return "";
  }
  if (fields.requires_grad != spec.requires_grad) {
    return "call it with requires_grad always the same";
  }
  if (is_resume || fields.dim != int64_t(spec.sizes.size())) return "";
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    if (spec.sizes[d].is_const() && !spec.sizes[d].is_const(fields.sizes[d])) {
      return "mark_dynamic(" + name + ", " + std::to_string(d) + ")";
    }
  }
  bool sizes_fit = true;  // a size that is an expression may have failed
  for (const Expr& size : spec.sizes) sizes_fit &= size.is_const();
  for (size_t d = 0; sizes_fit && d < spec.strides.size(); ++d) {
    if (spec.check_strides && !spec.strides[d].is_const(fields.strides[d])) {
      return "pass tensors of one layout: " + name + ".contiguous()";
    }
  }
  return "";
}

// dynamic=True is about what is passed; a number that lies elsewhere becomes
// symbolic by changing.
std::string number_hint(const Source* source, bool is_resume) {
  const Source* root = source;
  while (root->base) root = root->base;
  if (root->kind == SourceKind::kArg) {
    if (is_resume) return "compile(..., dynamic=True)";
    return "compile(..., dynamic=True), or pass it as a tensor";
  }
  if (root->kind == SourceKind::kConst && source->kind == SourceKind::kGetSet) {
    return "";  // the interpreter's own
  }
  return "keep it in a tensor, or pass it as an argument";
}

std::string failure_hint(const GuardSet& set, const Guard& guard,
                         const CompileRequest& request) {
  SourceValues sources(set, request.args, request.function);
  switch (guard.kind) {
    case GuardKind::kTensor: {
      PyObject* value = sources.get(guard.source);
      if (!value) return "";
      return tensor_hint(set.tensor_specs()[guard.number], value,
                         source_text(guard.source, request.code),
                         request.is_resume);
    }
    case GuardKind::kFloatIs:
    case GuardKind::kEquals: {
      PyObject* value = sources.get(guard.source);
      PyObject* expected = guard.object.get();
      if (value && Py_TYPE(value) == Py_TYPE(expected) &&
          (PyLong_CheckExact(value) || PyFloat_CheckExact(value)))
        return number_hint(guard.source, request.is_resume);
      return "";
    }
    case GuardKind::kShapeExpr:
      if (guard.expr.op() != ExprOp::kEq &&
          guard.expr.op() != ExprOp::kFloatSame)
        return "";
      return "each value is a program of its own where it is an index or a "
             "key, decides a branch, becomes text or is a plain number to "
             "torch: pass a tensor where one may be, or raise recompile_limit";
    case GuardKind::kTypeAttrIs:
    case GuardKind::kTypeOwns:
      return "a class was changed after it was compiled";
    case GuardKind::kThreadState:
      return "call it in one torch mode (grad, autocast, default dtype)";
    case GuardKind::kLength:
      if (source_text(guard.source, request.code) == "positional arguments")
        return "pass as many arguments each time";
      [[fallthrough]];
    case GuardKind::kDictKeys:
      return "keep the container's size and keys, or read fewer of them";
    default:
      return "";
  }
}

}  // namespace

std::string guard_tree(const GuardSet& guards, PyObject* code) {
  return Tree(guards, code).str();
}

Miss describe_miss(const JitEntry& entry, const CompileRequest& request) {
  Miss miss;
  DecoratedNames decorated(request.function);
  CollectorOff off;  // what the guards name stays alive
  const GuardSet& guards = entry.guards();
  size_t failed = entry.failed_fact;
  miss.reason = explain_failure(guards, failed, request.args, request.function,
                                request.code);
  if (failed < guards.guards().size()) {
    const Guard& guard = guards.guards()[failed];
    Span place = place_of(guard, request.code);
    if (!guard.span.code && place.code) {
      miss.reason += "  (" + format_span(place) + ")";
    }
    miss.hint = failure_hint(guards, guard, request);
  }
  return miss;
}

std::string Miss::text() const {
  return hint.empty() ? reason : reason + "  hint: " + hint;
}

}  // namespace framejit
