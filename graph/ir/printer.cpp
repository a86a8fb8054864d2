// Graph -> text. The form is described in graph_text.h.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "graph/ir/graph_text.h"

namespace framejit::graph {

namespace {

struct DtypeRow {
  c10::ScalarType dtype;
  const char* name;
};
constexpr DtypeRow kDtypes[] = {
    {c10::ScalarType::Float, "f32"},
    {c10::ScalarType::Double, "f64"},
    {c10::ScalarType::Half, "f16"},
    {c10::ScalarType::BFloat16, "bf16"},
    {c10::ScalarType::Long, "i64"},
    {c10::ScalarType::Int, "i32"},
    {c10::ScalarType::Short, "i16"},
    {c10::ScalarType::Char, "i8"},
    {c10::ScalarType::Byte, "u8"},
    {c10::ScalarType::Bool, "bool"},
    {c10::ScalarType::ComplexHalf, "c32"},
    {c10::ScalarType::ComplexFloat, "c64"},
    {c10::ScalarType::ComplexDouble, "c128"},
};

std::string quote_text(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string double_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  for (int precision : {15, 17}) {  // the shorter one when it is exact
    std::snprintf(buffer, sizeof buffer, "%.*g", precision, value);
    if (std::strtod(buffer, nullptr) == value) break;
  }
  std::string text = buffer;
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class Items, class F>
std::string joined(const Items& items, const F& f) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += ", ";
    out += f(item);
  }
  return out;
}

// The strides that the parser gives a value without strides.
bool has_implied_strides(const TensorMeta& meta) {
  Expr expected = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    if (meta.strides[i] != expected) return false;
    expected = expected * meta.sizes[i];
  }
  return true;
}

class Printer {
 public:
  Printer(const Graph& graph, std::vector<Ref>* objects)
      : graph_(graph), objects_(objects) {}

  std::string run() {
    out_ = "graph(" +
           joined(graph_.inputs,
                  [&](Value* input) {
                    return id(input) + " " + quote_text(input->name) + " : " +
                           meta(*input);
                  }) +
           ") {\n";
    for (const auto& node : graph_.block().nodes) {
      if (node->op == Opcode::kPlaceholder || node->op == Opcode::kOutput)
        continue;
      out_ += "  " + line(*node) + "\n";
    }
    out_ += "  return (" +
            joined(graph_.outputs, [&](const Arg& a) { return arg(a); }) + ")";
    if (!graph_.mutations.empty()) {
      out_ += " mutates(" +
              joined(graph_.mutations,
                     [&](const Graph::Mutation& mutation) {
                       return std::to_string(mutation.input) + ": " +
                              id(mutation.value) +
                              (mutation.requires_grad ? "" : " nograd");
                     }) +
              ")";
    }
    return out_ + "\n}\n";
  }

 private:
  static std::string id(const Value* value) {
    return "%" + std::to_string(value->id);
  }

  std::string object(const Ref& ref) {
    size_t index = 0;
    for (; index < objects_->size(); ++index)
      if ((*objects_)[index].get() == ref.get()) break;
    if (index == objects_->size()) objects_->push_back(ref);
    return "$" + std::to_string(index);
  }

  std::string line(const Node& node) {
    std::string text;
    if (!node.outputs.empty() || node.outputs_are_list) {
      std::string ids =
          joined(node.outputs, [](const auto& value) { return id(&*value); });
      text = node.outputs_are_list ? "[" + ids + "] = " : ids + " = ";
    }
    text += target(node) + "(";
    text += joined(node.args, [&](const Arg& a) { return arg(a); });
    for (const auto& [name, value] : node.kwargs) {
      if (text.back() != '(') text += ", ";
      text += name + "=" + arg(value);
    }
    text += ")";
    if (!node.outputs.empty()) {
      text += " : " + joined(node.outputs,
                             [&](const auto& value) { return meta(*value); });
    }
    if (node.is_backward) text += " @backward";
    if (node.must_keep) text += " @keep";
    if (node.span.code) text += "  # " + format_span(node.span);
    return text;
  }

  std::string target(const Node& node) {
    std::string prefix;
    switch (node.op) {
      case Opcode::kCallMethod:
        return "Tensor." + node.method;
      case Opcode::kGetAttr:
        return node.method.empty() ? "get_attr" : "get_attr " + node.method;
      case Opcode::kCallModule:
        if (!node.callable) return "call_module " + node.method;
        break;
      case Opcode::kStateEnter:
        prefix = "enter ";
        break;
      case Opcode::kStateExit:
        prefix = "exit ";
        break;
      default:
        break;
    }
    if (node.aten) return prefix + node.target_name();
    std::string path = node.callable ? import_path(node.callable.get()) : "";
    return prefix + (path.empty() ? object(node.callable) : path);
  }

  std::string meta(const Value& value) {
    if (value.kind == Value::Kind::kInt)
      return (value.expr.is_float() ? "float(" : "int(") + value.expr.str() +
             ")";
    if (value.kind == Value::Kind::kOther) return "other";
    const TensorMeta& m = value.meta;
    auto exprs = [](const std::vector<Expr>& list) {
      return "[" + joined(list, [](const Expr& e) { return e.str(); }) + "]";
    };
    std::string text = dtype_name(m.dtype) + exprs(m.sizes);
    if (m.sizes.size() != m.strides.size() || !has_implied_strides(m))
      text += " strides" + exprs(m.strides);
    if (!m.storage_offset.is_const(0))
      text += " offset(" + m.storage_offset.str() + ")";
    text += " " + m.device.str();
    if (m.requires_grad) text += " grad";
    return text;
  }

  std::string arg(const Arg& a) {
    return std::visit([&](const auto& value) { return text_of(value); },
                      a.value);
  }
  std::string list(const std::vector<Arg>& items) {
    return joined(items, [&](const Arg& a) { return arg(a); });
  }

  std::string text_of(const Arg::None&) { return "None"; }
  std::string text_of(Value* value) { return id(value); }
  std::string text_of(bool value) { return value ? "True" : "False"; }
  std::string text_of(int64_t value) { return std::to_string(value); }
  std::string text_of(double value) { return double_text(value); }
  std::string text_of(const c10::complex<double>& value) {
    return "complex(" + double_text(value.real()) + ", " +
           double_text(value.imag()) + ")";
  }
  std::string text_of(const std::string& value) { return quote_text(value); }
  std::string text_of(const Expr& value) { return "sym(" + value.str() + ")"; }
  std::string text_of(c10::ScalarType value) {
    return "dtype(" + dtype_name(value) + ")";
  }
  std::string text_of(const c10::Device& value) {
    return "device(" + value.str() + ")";
  }
  std::string text_of(c10::Layout value) {
    return "layout(" + std::to_string(static_cast<int>(value)) + ")";
  }
  std::string text_of(c10::MemoryFormat value) {
    return "memory_format(" + std::to_string(static_cast<int>(value)) + ")";
  }
  std::string text_of(const Ref& value) {
    return value ? object(value) : "None";
  }
  std::string text_of(const Arg::List& value) {
    return "[" + list(value.items) + "]";
  }
  std::string text_of(const Arg::Tuple& value) {
    return "(" + list(value.items) + (value.items.size() == 1 ? ",)" : ")");
  }
  std::string text_of(const Arg::Dict& value) {
    return "{" +
           joined(value.items,
                  [&](const auto& item) {
                    return arg(item.first) + ": " + arg(item.second);
                  }) +
           "}";
  }
  std::string text_of(const std::shared_ptr<Arg::Slice>& value) {
    return "slice(" + arg(value->start) + ", " + arg(value->stop) + ", " +
           arg(value->step) + ")";
  }

  const Graph& graph_;
  std::vector<Ref>* objects_;
  std::string out_;
};

}  // namespace

std::string dtype_name(c10::ScalarType dtype) {
  for (const DtypeRow& row : kDtypes)
    if (row.dtype == dtype) return row.name;
  return c10::toString(dtype);
}

bool parse_dtype_name(const std::string& name, c10::ScalarType* out) {
  for (const DtypeRow& row : kDtypes) {
    if (name == row.name) {
      *out = row.dtype;
      return true;
    }
  }
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    auto dtype = static_cast<c10::ScalarType>(i);
    if (name == c10::toString(dtype)) {
      *out = dtype;
      return true;
    }
  }
  return false;
}

std::string print_graph(const Graph& graph, std::vector<Ref>* objects) {
  return Printer(graph, objects).run();
}

std::string Graph::str() const {
  std::vector<Ref> objects;
  return print_graph(*this, &objects);
}

std::string Node::target_name() const {
  switch (op) {
    case Opcode::kPlaceholder:
      return "placeholder";
    case Opcode::kOutput:
      return "output";
    case Opcode::kGetAttr:
      return "get_attr";
    case Opcode::kCallMethod:
      return "." + method;
    default:
      break;
  }
  if (aten) {
    std::string name = aten->schema().name();
    size_t colons = name.find("::");
    if (colons != std::string::npos) name.replace(colons, 2, ".");
    const std::string& overload = aten->schema().overload_name();
    return name + "." + (overload.empty() ? "default" : overload);
  }
  if (!callable) return "?";
  std::string path = import_path(callable.get());
  return path.empty() ? Py_TYPE(callable.get())->tp_name : path;
}

}  // namespace framejit::graph
