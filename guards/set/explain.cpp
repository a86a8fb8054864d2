// Guards and their failures as text.
#include "frame_hook/interjections.h"
#include "guards/set/evaluate.h"
#include "guards/set/iterators.h"
#include "guards/set/object_layout.h"
#include "guards/set/object_text.h"

namespace framejit {
std::string tensor_guard_text(const GuardSet& set, const Guard& guard,
                              PyObject* code);
namespace {

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
  // Of a recurrence nobody reads more than how it begins.
  constexpr size_t kLongest = 200, kBegin = 150, kEnd = 30;
  if (out.size() > kLongest)
    out = out.substr(0, kBegin) + " ... " + out.substr(out.size() - kEnd);
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
  constexpr int kMostValues = 8;
  int values = 0;
  for (const auto& [index, symbol] : used) {
    if (++values > kMostValues) return text + ", ...";
    text += ", " + source_text(set.symbols()[index].source, code) + " = " +
            value_text(symbol);
  }
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
    drop_error();
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

// A guard that does not hold now.
struct Failure {
  const GuardSet& set;
  const Guard& guard;
  PyObject* value;  // null: about the set
  PyObject* code;
  const SymbolValues& symbols;

  std::string name() const { return source_text(guard.source, code); }
  std::string expected() const { return object_text(guard.object.get()); }
  std::string attribute() const { return string_text(guard.object.get()); }
};

std::string type_differs(const Failure& at) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(at.value));
  std::string found = object_text(type);
  if (found == at.expected()) found = "another class of that name";
  return failed("type(" + at.name() + ")", at.expected(), found);
}

std::string value_differs(const Failure& at) {
  return failed(at.name(), at.expected(), found_text(at.value));
}

std::string object_differs(const Failure& at) {
  if (object_text(at.value) == at.expected())
    return failed(at.name(), at.expected(), "another one");
  return value_differs(at);
}

std::string key_is_missing(const Failure& at) {
  return at.name() + ": key " + at.expected() + " is missing";
}

std::string key_is_there(const Failure& at) {
  return at.name() + ": key " + at.expected() + " is there now";
}

std::string attribute_is_set(const Failure& at) {
  return at.name() + "." + at.attribute() + " is set now";
}

std::string keys_differ(const Failure& at) {
  return failed("list(" + at.name() + ")", at.expected(),
                dict_keys_text(at.value));
}

std::string places_differ(const Failure& at) {
  return at.name() + " was filled in another way, so its order may differ";
}

std::string length_differs(const Failure& at) {
  return failed("len(" + at.name() + ")", std::to_string(at.guard.number),
                std::to_string(container_length(at.value)));
}

std::string class_attribute_differs(const Failure& at) {
  return object_text(at.value) + "." + at.attribute() + " was changed";
}

std::string ownership_differs(const Failure& at) {
  return object_text(at.value) + (at.guard.number ? " has no " : " has a ") +
         at.attribute() + " of its own";
}

std::string is_same_no_longer(const Failure& at) {
  return at.name() + " is no longer " + source_text(at.guard.other, at.code);
}

std::string is_same_now(const Failure& at) {
  return at.name() + " is now " + source_text(at.guard.other, at.code);
}

std::string does_not_exist(const Failure& at) {
  return at.name() + " no longer exists";
}

std::string tensor_differs(const Failure& at) {
  return TensorFailure(at.set, at.name(), at.code, at.symbols)
      .text(at.set.tensor_specs()[at.guard.number], at.value);
}

std::string tensor_attribute_is_set(const Failure& at) {
  return at.name() + " has attributes set";
}

std::string storages_differ(const Failure&) {
  return "inputs share storage in another way than at capture";
}

std::string expression_is_false(const Failure& at) {
  return expression_failure(at.set, at.guard.expr, at.symbols, at.code);
}

std::string thread_state_differs(const Failure& at) {
  const TensorLayout* layout = tensor_layout();
  std::string text;
  if (layout && layout->explain_thread_state)
    text = layout->explain_thread_state(at.set.thread_state());
  return text.empty() ? "the state of the thread changed" : text;
}

std::string left_differs(const Failure& at) {
  return failed("items left of " + at.name(), std::to_string(at.guard.number),
                std::to_string(iterator_left(at.value)));
}

std::string is_not_ascii(const Failure& at) {
  return failed(at.name(), "a str of ASCII", object_text(at.value));
}

std::string c_method_differs(const Failure& at) {
  return failed(at.name(), "a bound " + object_text(at.guard.object.get()),
                object_text(at.value));
}

std::string has_finalizer(const Failure& at) {
  return "what goes from " + at.name() + " has a finalizer or weak references";
}

std::string failure_text(const Failure& at) {
  static constexpr std::string (*kFailures[])(const Failure&) = {
#define FJ_GUARD(name, scope, rank, rereads, text, holds, failure, ...) failure,
#include "guards/set/guard_kinds.def"
#undef FJ_GUARD
  };
  return kFailures[size_t(at.guard.kind)](at);
}

}  // namespace

std::string guard_text(const GuardSet& set, const Guard& guard,
                       PyObject* code) {
  ErrorGuard keep_error;
  std::string out;
  for (const char* p = guard_kind_row(guard.kind).text; *p; ++p) {
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
      case 'T':
        out += tensor_guard_text(set, guard, code);
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
  bool of_set = guard_kind_row(guard.kind).scope == GuardScope::kSet;
  bool has_value = !of_set && !is_int_source(guard.source->kind);
  PyObject* value = has_value ? sources.get(guard.source) : nullptr;
  if (!of_set && holds(set, guard, sources, symbols)) {
    text = "holds: " + guard_text(set, guard, code);
  } else if (!of_set && !value) {
    text = source_text(guard.source, code) + " no longer exists";
  } else {
    text = failure_text({set, guard, value, code, symbols});
    if (text.empty()) text = "failed: " + guard_text(set, guard, code);
  }
  return text + place(guard);
}

}  // namespace framejit
