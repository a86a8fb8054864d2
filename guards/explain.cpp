// Guards and their failures as text.
#include "guards/evaluate.h"
#include "guards/iterators.h"
#include "guards/object_layout.h"
#include "guards/object_text.h"

namespace framejit {
std::string tensor_guard_text(const GuardSet& set, const Guard& guard,
                              PyObject* code);
namespace {

struct KindRow {
  const char* name;
  const char* text;
};
constexpr KindRow kKindRows[] = {
#define X(name, text) {#name, text},
    FJ_GUARD_KINDS(X)
#undef X
};

// s0, f1 -> the place it is read from.
std::string expression_text(const GuardSet& set, const Expr& expr,
                            PyObject* code) {
  std::string text = expr.str(), out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    bool symbol = text[i] == 's' || text[i] == 'f';
    if (symbol && (i == 0 || !isalnum(text[i - 1])) && end < text.size() &&
        isdigit(text[end])) {
      while (end < text.size() && isdigit(text[end])) ++end;
      size_t index = std::stoul(text.substr(i + 1, end - i - 1));
      if (index < set.symbols().size()) {
        out += source_text(set.symbols()[index].source, code);
        i = end;
        continue;
      }
    }
    out += text.substr(i, end - i);
    i = end;
  }
  return out;
}

std::string place(const Guard& guard) {
  return guard.span.code ? "  (" + format_span(guard.span) + ")" : "";
}

std::string failed(const std::string& what, const std::string& expected,
                   const std::string& got) {
  return what + ": expected " + expected + ", got " + got;
}

std::string bits_text(uint64_t bits) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, "%#llx",
           static_cast<unsigned long long>(bits));
  return buffer;
}

std::string expression_failure(const GuardSet& set, const Expr& expr,
                               const SymbolValues& symbols, PyObject* code) {
  auto value_text = [&](const Expr& of) -> std::string {
    std::vector<int> used;
    of.collect_symbols(&used);
    for (int index : used) {
      if (!symbols.available[index]) return "no number";
    }
    int64_t value;
    if (!of.try_evaluate(symbols.values.data(), &value)) return "no number";
    return of.is_float() ? Expr::real(std::bit_cast<double>(value)).str()
                         : std::to_string(value);
  };
  if (expr.op() == ExprOp::kFloatSame) {
    const std::vector<Expr>& sides = expr.operands();
    return failed(expression_text(set, sides[0], code), sides[1].str(),
                  value_text(sides[0]));
  }
  std::string text = "no longer true: " + expression_text(set, expr, code);
  std::map<int, Expr> used;
  expr.collect_symbols(&used);
  for (const auto& [index, symbol] : used)
    text += ", " + source_text(set.symbols()[index].source, code) + " = " +
            value_text(symbol);
  return text;
}

class TensorFailure {
 public:
  TensorFailure(const GuardSet& set, const std::string& name, PyObject* code,
                const SymbolValues& symbols)
      : set_(set), name_(name), code_(code), symbols_(symbols) {}

  std::string text(const TensorSpec& spec, PyObject* value) {
    if (spec.type && Py_TYPE(value) != spec.type) {
      return failed("type(" + name_ + ")", object_text(object(spec.type)),
                    object_text(object(Py_TYPE(value))));
    }
    TensorFields fields = tensor_fields(value);
    if (!fields.valid) return name_ + ": not a tensor that can be read";
    auto number = [](int64_t n) { return std::to_string(n); };
    if (fields.dtype != spec.dtype)
      return failed(name_ + ".dtype", dtype_text(spec.dtype),
                    dtype_text(fields.dtype));
    if (fields.device_type != spec.device_type ||
        fields.device_index != spec.device_index)
      return failed(name_ + ".device",
                    device_text(spec.device_type, spec.device_index),
                    device_text(fields.device_type, fields.device_index));
    std::string keys = keys_text(name_, spec.key_set, fields.key_set);
    if (!keys.empty()) return keys;
    if (fields.has_forward_grad)
      return failed(name_ + " forward-mode gradient", "none", "one");
    if (fields.requires_grad != spec.requires_grad)
      return failed(name_ + ".requires_grad", truth(spec.requires_grad),
                    truth(fields.requires_grad));
    if (fields.dim != static_cast<int64_t>(spec.sizes.size()))
      return failed(name_ + ".dim()", number(spec.sizes.size()),
                    number(fields.dim));
    std::string what = numbers("size", spec.sizes, fields.sizes);
    if (what.empty() && spec.check_strides)
      what = numbers("stride", spec.strides, fields.strides);
    if (what.empty() && spec.check_offset)
      what =
          one(".storage_offset()", spec.storage_offset, fields.storage_offset);
    if (what.empty() && fields.key_set != spec.key_set)
      what = failed(name_ + " dispatch keys", bits_text(spec.key_set),
                    bits_text(fields.key_set));
    return what;
  }

 private:
  static PyObject* object(PyTypeObject* type) {
    return reinterpret_cast<PyObject*>(type);
  }
  static std::string truth(bool value) { return value ? "True" : "False"; }
  std::string numbers(const char* field, const std::vector<Expr>& expected,
                      const int64_t* actual) {
    for (size_t i = 0; i < expected.size(); ++i) {
      std::string what =
          one("." + std::string(field) + "(" + std::to_string(i) + ")",
              expected[i], actual[i]);
      if (!what.empty()) return what;
    }
    return "";
  }
  std::string one(const std::string& field, const Expr& expected,
                  int64_t actual) {
    std::vector<int> used;
    expected.collect_symbols(&used);
    int64_t value = 0;
    bool known = true;
    for (int index : used) known = known && symbols_.available[index];
    known = known && expected.try_evaluate(symbols_.values.data(), &value);
    if (known && value == actual) return "";
    std::string text = expression_text(set_, expected, code_);
    if (known && !expected.is_const()) text += " = " + std::to_string(value);
    return failed(name_ + field, text, std::to_string(actual));
  }

  const GuardSet& set_;
  std::string name_;
  PyObject* code_;
  const SymbolValues& symbols_;
};

std::string dict_keys_text(PyObject* dict) {
  if (PyAnySet_Check(dict)) {
    Ref items = Ref::steal(PySequence_Tuple(dict));
    if (items) return object_text(items.get());
    PyErr_Clear();
  }
  if (!PyDict_Check(dict)) return object_text(dict);
  std::string text = "(";
  Py_ssize_t position = 0;
  PyObject* key;
  while (PyDict_Next(dict, &position, &key, nullptr) && text.size() < 80) {
    if (text.size() > 1) text += ", ";
    text += object_text(key);
  }
  return text + ")";
}

// What is found is not "this" object, which guards name.
std::string found_text(PyObject* value) {
  std::string text = object_text(value);
  return text.starts_with("this ") ? "a " + text.substr(5) : text;
}

std::string value_failure(const GuardSet& set, const Guard& guard,
                          PyObject* code, PyObject* value,
                          SourceValues& sources, const SymbolValues& symbols) {
  std::string name = source_text(guard.source, code);
  std::string expected = object_text(guard.object.get());
  switch (guard.kind) {
    case GuardKind::kTypeIs:
      return failed("type(" + name + ")", expected,
                    object_text(reinterpret_cast<PyObject*>(Py_TYPE(value))));
    case GuardKind::kIs:
      if (object_text(value) == expected)
        return failed(name, expected, "another one");
      [[fallthrough]];
    case GuardKind::kEquals:
    case GuardKind::kFloatIs:
      return failed(name, expected, found_text(value));
    case GuardKind::kHasKey:
      return name + ": key " + expected + " is missing";
    case GuardKind::kNoKey:
      return name + ": key " + expected + " is there now";
    case GuardKind::kNoInstanceAttr:
      return name + "." + string_text(guard.object.get()) + " is set now";
    case GuardKind::kDictKeys:
      return failed("list(" + name + ")", expected, dict_keys_text(value));
    case GuardKind::kLength:
      return failed("len(" + name + ")", std::to_string(guard.number),
                    std::to_string(container_length(value)));
    case GuardKind::kTypeAttrIs:
      return object_text(value) + "." + string_text(guard.object.get()) +
             " was changed";
    case GuardKind::kSameObject:
    case GuardKind::kNotSameObject: {
      bool same = guard.kind == GuardKind::kSameObject;
      return name + (same ? " is no longer " : " is now ") +
             source_text(guard.other, code);
    }
    case GuardKind::kTensor:
      return TensorFailure(set, name, code, symbols)
          .text(set.tensor_specs()[guard.number], value);
    case GuardKind::kIterLeft:
      return failed("items left of " + name, std::to_string(guard.number),
                    std::to_string(iterator_left(value)));
    case GuardKind::kNoTensorAttrs:
      return name + " has attributes set";
    default:
      return "";
  }
}

}  // namespace

std::string guard_text(const GuardSet& set, const Guard& guard,
                       PyObject* code) {
  ErrorGuard keep_error;
  if (guard.kind == GuardKind::kTensor)
    return tensor_guard_text(set, guard, code);
  std::string out;
  for (const char* p = kKindRows[static_cast<int>(guard.kind)].text; *p; ++p) {
    if (*p != '%') {
      out += *p;
      continue;
    }
    switch (*++p) {
      case 's':
        out += source_text(guard.source, code);
        break;
      case 'o':
        // Attribute names stand behind a dot, everything else is a value.
        out += !out.empty() && out.back() == '.'
                   ? string_text(guard.object.get())
                   : object_text(guard.object.get());
        break;
      case 'n':
        out += std::to_string(guard.number);
        break;
      case 't':
        out += source_text(guard.other, code);
        break;
      case 'e':
        out += expression_text(set, guard.expr, code);
        break;
    }
  }
  return out;
}

std::string tensor_guard_text(const GuardSet& set, const Guard& guard,
                              PyObject* code) {
  const TensorSpec& spec = set.tensor_specs()[guard.number];
  auto list = [](const std::vector<Expr>& values) {
    std::string text = "[";
    for (const Expr& e : values)
      text += (text.size() > 1 ? ", " : "") + e.str();
    return text + "]";
  };
  std::string text = source_text(guard.source, code) + ": " +
                     object_text(reinterpret_cast<PyObject*>(spec.type)) + " " +
                     dtype_text(spec.dtype) + " " +
                     device_text(spec.device_type, spec.device_index) +
                     " sizes " + list(spec.sizes);
  if (spec.check_strides) text += " strides " + list(spec.strides);
  if (spec.check_offset) text += " offset " + spec.storage_offset.str();
  if (spec.requires_grad) text += " requires_grad";
  return text;
}

std::string explain_failure(const GuardSet& set, size_t index,
                            PyObject* const* args, PyObject* function,
                            PyObject* code) {
  ErrorGuard keep_error;
  SourceValues sources(set, args, function);
  SymbolValues symbols = read_symbols(set, sources);
  if (index >= set.guards().size()) {
    for (size_t i = 0; i < set.symbols().size(); ++i) {
      if (!symbols.available[i])
        return source_text(set.symbols()[i].source, code) +
               " cannot be read as a number";
    }
    for (const Source* source : set.gathered()) {
      if (!sources.get(source))
        return source_text(source, code) + " no longer exists";
    }
    return "no guard failed";
  }
  const Guard& guard = set.guards()[index];
  std::string text;
  if (guard.kind == GuardKind::kThreadState) {
    const TensorLayout* layout = tensor_layout();
    if (layout && layout->explain_thread_state)
      text = layout->explain_thread_state(set.thread_state());
    if (text.empty()) text = "torch thread state changed";
  } else if (guard.kind == GuardKind::kShapeExpr) {
    text = expression_failure(set, guard.expr, symbols, code);
  } else if (guard.kind == GuardKind::kStorageRelation) {
    text = "inputs share storage in another way than at capture";
  } else {
    bool is_int = is_int_source(guard.source->kind);
    PyObject* value = is_int ? nullptr : sources.get(guard.source);
    bool holds_now = holds(set, guard, sources, symbols);
    if (holds_now) {
      text = "holds: " + guard_text(set, guard, code);
    } else if (!value) {
      text = source_text(guard.source, code) + " no longer exists";
    } else {
      text = value_failure(set, guard, code, value, sources, symbols);
      if (text.empty()) text = "failed: " + guard_text(set, guard, code);
    }
  }
  return text + place(guard);
}

}  // namespace framejit
