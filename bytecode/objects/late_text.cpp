#include "bytecode/objects/late_text.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"
#include "guards/set/number_expr.h"

namespace framejit::bytecode {

namespace {

// Reads a format, of which a text is made whatever the number is, if one is
// made of the number that it is now.
class FormatReader {
 public:
  explicit FormatReader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  char next() { return at_end() ? '\0' : text_[at_++]; }
  bool skip(std::string_view any) {
    bool found = !at_end() && any.find(text_[at_]) != any.npos;
    at_ += found;
    return found;
  }
  void skip_all(std::string_view any) {
    while (skip(any)) continue;
  }
  // None, or one that does not fill the memory.
  bool size() {
    size_t before = at_;
    skip_all("0123456789");
    return at_ - before <= 3;
  }
  bool precision() { return !skip(".") || size(); }

  // [[fill]align][sign][#][0][width][grouping][.precision][type], without the
  // types of locales and characters.
  bool spec() {
    constexpr std::string_view kAligns = "<>=^";
    std::string_view rest = text_.substr(at_);
    if (rest.size() > 1 && kAligns.find(rest[1]) != rest.npos) ++at_;
    skip(kAligns);
    skip("+- ");
    skip("#");
    if (!size()) return false;
    skip(",_");
    if (!precision()) return false;
    skip("bdoxXeEfFgG%s");
    return true;
  }
  // As of str.format: {}, {0}, {:spec}, {0:spec}.
  bool fields() {
    while (!at_end()) {
      char c = next();
      if (c == '}' && next() != '}') return false;
      if (c != '{' || skip("{")) continue;
      skip_all("0123456789");
      if (skip(":") && !spec()) return false;
      if (!skip("}")) return false;
    }
    return true;
  }
  // As of str % tuple: the types, in order.
  bool directives(std::string* types) {
    while (!at_end()) {
      if (next() != '%' || skip("%")) continue;
      skip_all("#0- +");
      if (!size() || !precision()) return false;
      types->push_back(next());
    }
    return true;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

bool is_plain_spec(std::string_view text) {
  FormatReader reader(text);
  return reader.spec() && reader.at_end();
}

std::string_view text_of(PyObject* string) {
  if (!PyUnicode_CheckExact(string)) return "\xff";  // none is like this
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(string, &size);
  if (!text) {
    PyErr_Clear();
    return "\xff";
  }
  return {text, size_t(size)};
}

bool is_number(CaptureState& state, PyObject* object, PyTypeObject* type) {
  return is_symbolic(state, object) &&
         state.tracer.symbolic_type(object) == as_object(type);
}
bool is_number(CaptureState& state, PyObject* object) {
  return is_number(state, object, &PyLong_Type) ||
         is_number(state, object, &PyFloat_Type);
}

// Constants whose text is ASCII, or a str.
bool is_plain_operand(PyObject* object) {
  return object == Py_None || PyBool_Check(object) ||
         PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyUnicode_CheckExact(object);
}

// Null: a Python error is set.
Ref tuple_of(const std::vector<PyObject*>& items) {
  Ref tuple = Ref::steal(PyTuple_New(Py_ssize_t(items.size())));
  for (size_t i = 0; tuple && i < items.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), Py_NewRef(items[i]));
  return tuple;
}

// An operand as it may be now. Null: a Python error is set.
Ref sample(CaptureState& state, PyObject* operand) {
  if (is_late_text(operand)) return Ref::steal(PyUnicode_FromString(""));
  if (PyTuple_CheckExact(operand)) {
    std::vector<Ref> samples;
    std::vector<PyObject*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operand); ++i) {
      samples.push_back(sample(state, PyTuple_GET_ITEM(operand, i)));
      if (!samples.back()) return Ref();
      items.push_back(samples.back().get());
    }
    return tuple_of(items);
  }
  if (!is_symbolic(state, operand)) return Ref::borrow(operand);
  std::optional<Expr> expr = state.tracer.expr_of(operand);
  if (!expr) return Ref::borrow(operand);
  return Ref::steal(number_object(*expr, state.guards.hints().data()));
}

// Does it make a text of the operands as they may be now?
bool makes_one_now(CaptureState& state, PyObject* callable,
                   const std::vector<PyObject*>& operands) {
  ErrorGuard keep;
  PauseHook pause;
  std::vector<Ref> samples;
  std::vector<PyObject*> args;
  for (PyObject* operand : operands) {
    samples.push_back(sample(state, operand));
    if (!samples.back()) break;
    args.push_back(samples.back().get());
  }
  Ref text;
  if (args.size() == operands.size())
    text = Ref::steal(
        PyObject_Vectorcall(callable, args.data(), args.size(), nullptr));
  if (!text) PyErr_Clear();
  return text && PyUnicode_CheckExact(text.get());
}

PyObject* str_format() {
  static PyObject* found = made_once([] {
    return PyObject_GetAttrString(as_object(&PyUnicode_Type), "format");
  });
  return found;
}

// "%d" of a float is an error when it is infinite.
bool suit(CaptureState& state, std::string_view types,
          const std::vector<PyObject*>& values) {
  if (types.size() != values.size()) return false;
  for (size_t i = 0; i < types.size(); ++i) {
    bool is_late = is_late_text(values[i]);
    if (types[i] == 's') continue;
    if (is_late) return false;
    if (std::strchr("diuoxX", types[i])) {
      if (is_number(state, values[i], &PyFloat_Type)) return false;
    } else if (!std::strchr("raeEfFgG", types[i])) {
      return false;
    }
  }
  return true;
}

// The call that makes it: (callable, operands...).
Result<Ref> made_by(CaptureState& state, Ref call) {
  if (!call) return Result<Ref>::raised();
  return make_opaque(state, OpaqueKind::kText, call.get());
}

}  // namespace

Result<Ref> late_text_of_number(CaptureState& state, PyObject* number,
                                int conversion, PyObject* spec) {
  if (!is_number(state, number)) return Ref();
  if (spec && PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0)
    spec = nullptr;
  if (!spec) {
    // str() and repr() of a number are the same, and ASCII.
    return made_by(state, tuple_of({as_object(&PyUnicode_Type), number}));
  }
  PyObject* format = library_object("builtins", "format");
  if (conversion != 0 || !is_plain_spec(text_of(spec)) ||
      !makes_one_now(state, format, {number, spec}))
    return Ref();
  return made_by(state, tuple_of({format, number, spec}));
}

PyObject* text_maker(PyObject* callable, std::vector<PyObject*>* operands) {
  if (PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable) &&
      PyUnicode_CheckExact(PyCFunction_GET_SELF(callable)) &&
      !std::strcmp(
          reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name,
          "format")) {
    operands->push_back(PyCFunction_GET_SELF(callable));
    return str_format();
  }
  bool makes_text = callable == as_object(&PyUnicode_Type) ||
                    callable == str_format() ||
                    callable == library_object("builtins", "format");
  return makes_text ? callable : nullptr;
}

Result<Ref> late_call(CaptureState& state, PyObject* maker,
                      const std::vector<PyObject*>& operands) {
  if (operands.empty()) return Ref();
  bool is_str = maker == as_object(&PyUnicode_Type);
  if (is_str || maker == library_object("builtins", "format")) {
    if (operands.size() > (is_str ? 1 : 2)) return Ref();
    return late_text_of_number(state, operands[0], 0,
                               operands.size() == 2 ? operands[1] : nullptr);
  }
  std::vector<PyObject*> values(operands.begin() + 1, operands.end());
  if (maker != str_format() && PyTuple_CheckExact(operands[1])) {
    if (state.is_input(operands[1])) return Ref();
    values.clear();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands[1]); ++i)
      values.push_back(PyTuple_GET_ITEM(operands[1], i));
  }
  bool is_late = false;
  for (PyObject* value : values) {
    bool differs = is_late_text(value) || is_number(state, value);
    if (!differs && !is_plain_operand(value)) return Ref();
    is_late |= differs;
  }
  std::string_view format = text_of(operands[0]);
  std::string types;
  bool plain = maker == str_format()
                   ? FormatReader(format).fields()
                   : FormatReader(format).directives(&types) &&
                         suit(state, types, values);
  if (!is_late || !plain || !makes_one_now(state, maker, operands))
    return Ref();
  std::vector<PyObject*> call = {maker};
  call.insert(call.end(), operands.begin(), operands.end());
  return made_by(state, tuple_of(call));
}

Result<Ref> late_join(CaptureState& state,
                      const std::vector<PyObject*>& parts) {
  FJ_TRY(Ref empty, from_api(PyUnicode_FromString("")));
  FJ_TRY(Ref join, from_api(PyObject_GetAttrString(empty.get(), "join")));
  Ref strings = tuple_of(parts);
  if (!strings) return Result<Ref>::raised();
  return made_by(state, tuple_of({join.get(), strings.get()}));
}

Result<Ref> late_text_of_input(CaptureState& state, PyObject* text,
                               const Source* source) {
  if (!PyUnicode_IS_ASCII(text)) return Ref();
  FJ_TRY(Ref late, make_opaque(state, OpaqueKind::kText));
  state.guard(GuardKind::kAsciiText, source, nullptr);
  state.register_input(late.get(), source);
  return late;
}

bool is_late_text(PyObject* object) {
  return is_opaque(object, OpaqueKind::kText);
}

namespace {

void add_constants(PyObject* operand, std::vector<PyObject*>* constants) {
  if (is_late_text(operand)) constants_of_late_text(operand, constants);
  if (PyUnicode_CheckExact(operand)) constants->push_back(operand);
  if (!PyTuple_CheckExact(operand)) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operand); ++i)
    add_constants(PyTuple_GET_ITEM(operand, i), constants);
}

}  // namespace

void constants_of_late_text(PyObject* text, std::vector<PyObject*>* constants) {
  PyObject* call = opaque_object(text);
  if (!call) return;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(call); ++i) {
    add_constants(PyTuple_GET_ITEM(call, i), constants);
  }
}

}  // namespace framejit::bytecode
