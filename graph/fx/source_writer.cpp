// Python source of a graph's function, as torch.fx writes it.
//
//   %relu = call_function[target=torch.relu](args = (%x,))
//   ->
//       relu = torch.relu(x);  x = None
//
// What is particular to an object (types, enums, what a function is called in
// generated code) is asked of the writer in framejit/fx/_codegen.py, functions
// once each. That writer can do all of this, too, and does where places are to
// be shown or a program changes the lines; tests compare the two.
#include <algorithm>

#include "graph/fx/arguments.h"

namespace framejit::graph::fx {

namespace {

bool is_identifier(const std::string& text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  bool is_ascii = true;
  for (unsigned char c : text) {
    if (c >= 0x80) is_ascii = false;
    bool is_word = c == '_' || (c >= '0' && c <= '9') ||
                   (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c < 0x80 && !is_word) return false;
  }
  return is_ascii || PyUnicode_IsIdentifier(text_object(text).get());
}

// a.b.0 -> base.a.b.getattr(..., "0")
std::string attribute_text(std::string base, const std::string& path) {
  size_t at = 0;
  while (true) {
    size_t dot = path.find('.', at);
    std::string part = path.substr(at, dot - at);
    base = is_identifier(part) ? base + "." + part
                               : "getattr(" + base + ", \"" + part + "\")";
    if (dot == std::string::npos) return base;
    at = dot + 1;
  }
}

std::string repr_of(PyObject* object) {
  return text_of(checked(PyObject_Repr(object)).get());
}

std::string string_text(const std::string& text) {
  bool is_plain = true;
  for (unsigned char c : text)
    is_plain = is_plain && c >= 0x20 && c < 0x7f && c != '\'' && c != '\\';
  return is_plain ? "'" + text + "'" : repr_of(text_object(text).get());
}

std::string float_text(double value) {
  char* text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
  if (!text) throw Raised{};
  std::string out = text;
  PyMem_Free(text);
  return out;
}

class SourceWriter {
 public:
  SourceWriter(PyObject* graph, Names& names, PyObject* writer,
               std::string root, bool has_own_output)
      : graph_(graph),
        names_(names),
        writer_(writer),
        root_(std::move(root)),
        has_own_output_(has_own_output) {}

  void write() {
    find_last_uses();
    int index = 0;
    for (const auto& node : ir_of(graph_).block().nodes) {
      markers_.emplace_back(body_.size(), index++);
      emit(*node);
      free(*node);
    }
    if (markers_.empty()) body_ = "pass\n";
  }

  // (text, index of the node by line, parameters, return annotation, wrapped)
  Ref result() const {
    Ref indices = checked(PyList_New(0));
    std::string text;
    text.reserve(body_.size() + 8 * markers_.size());
    size_t marker = 0;
    Ref index = Ref::borrow(Py_None);
    bool has_begun = false;
    for (size_t at = 0; at <= body_.size();) {
      while (marker < markers_.size() && markers_[marker].first <= at)
        index = checked(PyLong_FromLong(markers_[marker++].second));
      checked(PyList_Append(indices.get(), index.get()));
      size_t end = std::min(body_.find('\n', at), body_.size());
      // Empty lines in the beginning are left out.
      if (has_begun || end > at) {
        text += has_begun ? "\n    " : "    ";
        text.append(body_, at, end - at);
        has_begun = true;
      }
      at = end + 1;
    }
    if (!has_begun) text = "    ";
    Ref parameters = list_of(parameters_), wrapped = list_of(wrapped_);
    Ref source = text_object(text), returns = text_object(returns_);
    return checked(PyTuple_Pack(5, source.get(), indices.get(),
                                parameters.get(), returns.get(),
                                wrapped.get()));
  }

 private:
  static Ref list_of(const std::vector<std::string>& texts) {
    Ref list = checked(PyList_New(0));
    for (const std::string& text : texts)
      checked(PyList_Append(list.get(), text_object(text).get()));
    return list;
  }

  // By the ids of values, of which each node has one.
  void find_last_uses() {
    auto& nodes = ir_of(graph_).block().nodes;
    int ids = 0;
    for (const auto& node : nodes) ids = std::max(ids, id_of(*node) + 1);
    last_uses_.resize(ids);
    known_.resize(ids);
    std::vector<bool> seen(ids);
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
      auto& last = last_uses_[id_of(**at)];
      auto use = [&](Value* value) {
        if (seen[value->id]) return;
        seen[value->id] = true;
        last.push_back(value->node);
      };
      for (const Arg& arg : (*at)->args) each_value(arg, use);
      for (const auto& [name, arg] : (*at)->kwargs) each_value(arg, use);
    }
  }
  static int id_of(const Node& node) { return node.outputs[0]->id; }
  // (Most arguments are values.)
  template <class F>
  static void each_value(const Arg& arg, const F& use) {
    if (auto* value = std::get_if<Value*>(&arg.value)) return use(*value);
    for_each_value(arg, use);
  }

  // ---- names

  const std::string& name(const Node& node) {
    std::string& known = known_[id_of(node)];
    if (known.empty()) known = names_.create(node.outputs[0]->name);
    return known;
  }

  std::string ask(const char* method, PyObject* object) {
    size_t count = ir_of(graph_).block().nodes.size();
    Ref answer = checked(PyObject_CallMethod(writer_, method, "O", object));
    if (ir_of(graph_).block().nodes.size() != count)
      raise(PyExc_RuntimeError, "the graph changed while its source was made");
    return text_of(answer.get());
  }

  // ---- expressions

  std::string items_text(const std::vector<Arg>& items) {
    std::string out;
    for (const Arg& item : items) {
      if (&item != &items[0]) out += ", ";
      out += text(item);
    }
    return out;
  }

  std::string text(const Arg& arg) {
    if (auto* value = std::get_if<Value*>(&arg.value))
      return name(*(*value)->node);
    if (arg.is<Arg::None>()) return "None";
    if (auto* flag = std::get_if<bool>(&arg.value))
      return *flag ? "True" : "False";
    if (auto* number = std::get_if<int64_t>(&arg.value))
      return std::to_string(*number);
    if (auto* number = std::get_if<double>(&arg.value))
      return float_text(*number);
    if (auto* string = std::get_if<std::string>(&arg.value))
      return string_text(*string);
    if (auto* list = std::get_if<Arg::List>(&arg.value))
      return "[" + items_text(list->items) + "]";
    if (auto* tuple = std::get_if<Arg::Tuple>(&arg.value)) {
      std::string items = items_text(tuple->items);
      if (tuple->items.size() == 1) items += ",";
      std::string type =
          tuple->type ? ask("class_text", tuple->type.get()) : "";
      return type + "(" + items + ")";
    }
    if (auto* dict = std::get_if<Arg::Dict>(&arg.value)) {
      std::string out;
      for (const auto& [key, value] : dict->items) {
        if (!out.empty()) out += ", ";
        out += repr_of(to_python(graph_, key).get()) + ": " + text(value);
      }
      return "{" + out + "}";
    }
    if (auto* slice = std::get_if<std::shared_ptr<Arg::Slice>>(&arg.value))
      return "slice(" + text((*slice)->start) + ", " + text((*slice)->stop) +
             ", " + text((*slice)->step) + ")";
    return ask("text", to_python(graph_, arg).get());
  }

  std::string call_text(const Node& node, size_t first) {
    std::string out;
    for (size_t i = first; i < node.args.size(); ++i) {
      if (!out.empty()) out += ", ";
      out += text(node.args[i]);
    }
    for (const auto& [keyword, arg] : node.kwargs) {
      if (!out.empty()) out += ", ";
      out += keyword + " = " + text(arg);
    }
    return out;
  }

  // ---- statements

  void emit(const Node& node) {
    std::string typed =
        node.type ? " : " + ask("type_text", node.type.get()) : "";
    switch (node.op) {
      case Opcode::kOutput:
        return emit_output(node, typed);
      case Opcode::kPlaceholder:
        return emit_placeholder(node, typed);
      case Opcode::kCallMethod: {
        body_ += name(node) + typed + " = ";
        if (node.args.empty())
          raise(PyExc_IndexError, "tuple index out of range");
        body_ += attribute_text(text(node.args[0]), node.method);
        body_ += "(" + call_text(node, 1) + ")";
        return;
      }
      case Opcode::kCallModule:
        body_ += name(node) + typed + " = ";
        body_ += attribute_text(root_, node.method);
        body_ += "(" + call_text(node, 0) + ")";
        return;
      case Opcode::kGetAttr:
        body_ += name(node) + typed + " = ";
        body_ += attribute_text(root_, node.method);
        return;
      default:
        return emit_function(node, typed);
    }
  }

  void emit_output(const Node& node, const std::string& typed) {
    if (node.type) returns_ = " -> " + typed.substr(3);
    if (node.args.empty()) raise(PyExc_IndexError, "tuple index out of range");
    if (!has_own_output_) {
      body_ += "return " + text(node.args[0]);
      return;
    }
    // Of code generators that are the program's: they name nodes by the writer.
    auto tell = [&](Value* value) {
      Ref face = Ref::borrow(as_object(face_of(graph_, value->node)));
      checked(PyObject_CallMethod(writer_, "know", "Os", face.get(),
                                  name(*value->node).c_str()));
    };
    for_each_value(node.args[0], tell);
    Ref value = to_python(graph_, node.args[0]);
    body_ += ask("output_text", value.get());
  }

  void emit_placeholder(const Node& node, const std::string& typed) {
    std::string given = node.args.empty() ? "" : " = " + text(node.args[0]);
    parameters_.push_back(node.method + typed + given);
    std::string parameter = node.method;
    std::erase(parameter, '*');
    if (parameter != name(node)) body_ += name(node) + " = " + parameter + "\n";
  }

  // How calls of a function are written; its `text` is a template where it is
  // an operator, else its name.
  struct Form {
    Ref target;
    enum Kind : uint8_t { kCall, kOperator, kInplace } kind = kCall;
    std::string text;
  };

  const Form& form_of(const Ref& target) {
    auto [at, is_new] = forms_.try_emplace(target.get());
    Form& form = at->second;
    if (!is_new) return form;
    form.target = target;
    Ref answer =
        checked(PyObject_CallMethod(writer_, "call_form", "O", target.get()));
    if (!PyTuple_Check(answer.get()) || PyTuple_GET_SIZE(answer.get()) != 2)
      raise(PyExc_TypeError, "call_form gives a pair");
    std::string kind = text_of(PyTuple_GET_ITEM(answer.get(), 0));
    form.kind = kind == "operator"  ? Form::kOperator
                : kind == "inplace" ? Form::kInplace
                                    : Form::kCall;
    form.text = text_of(PyTuple_GET_ITEM(answer.get(), 1));
    return form;
  }

  // "{} + {}" of the arguments.
  std::string filled(const std::string& form, const Node& node) {
    std::string out;
    size_t at = 0, used = 0;
    for (size_t hole; (hole = form.find("{}", at)) != std::string::npos;
         at = hole + 2) {
      out.append(form, at, hole - at);
      if (used == node.args.size())
        raise(PyExc_IndexError, "Replacement index " + std::to_string(used) +
                                    " out of range for positional args tuple");
      out += text(node.args[used++]);
    }
    return out + form.substr(at);
  }

  void emit_function(const Node& node, const std::string& typed) {
    std::string head = name(node) + typed + " = ";
    const Form& form = form_of(node.callable);
    if (form.kind == Form::kOperator) {
      body_ += head + filled(form.text, node);
      return;
    }
    if (form.kind == Form::kInplace) {
      body_ += filled(form.text, node) + ";  " + head + text(node.args[0]);
      return;
    }
    if (form.text == "getattr" && node.args.size() == 2) {
      auto* attribute = std::get_if<std::string>(&node.args[1].value);
      if (attribute && is_identifier(*attribute)) {
        body_ += head + text(node.args[0]) + "." + *attribute;
        return;
      }
    }
    body_ += head + form.text + "(" + call_text(node, 0) + ")";
    if (is_wrapped(node) && std::find(wrapped_.begin(), wrapped_.end(),
                                      form.text) == wrapped_.end())
      wrapped_.push_back(form.text);
  }

  static bool is_wrapped(const Node& node) {
    static PyObject* const key = interned("is_wrapped");
    if (!node.meta || !PyDict_Check(node.meta.get())) return false;
    PyObject* found = PyDict_GetItemWithError(node.meta.get(), key);
    if (!found && PyErr_Occurred()) throw Raised{};
    int is_true = found ? PyObject_IsTrue(found) : 0;
    checked(is_true);
    return is_true;
  }

  // Ends the line; what nobody needs any more is let go of.
  void free(const Node& node) {
    if (node.op == Opcode::kPlaceholder) return;
    std::string dead;
    for (const Node* used : last_uses_[id_of(node)])
      dead += name(*used) + " = ";
    if (node.outputs[0]->users.empty()) dead += name(node) + " = ";
    body_ += node.op == Opcode::kOutput || dead.empty()
                 ? "\n"
                 : ";  " + dead + "None\n";
  }

  PyObject* graph_;
  Names& names_;
  PyObject* writer_;
  std::string root_;
  bool has_own_output_;
  std::vector<std::vector<const Node*>> last_uses_;
  std::vector<std::string> known_;
  std::unordered_map<PyObject*, Form> forms_;
  std::string body_, returns_;
  // Where the text of each node begins, and which it is.
  std::vector<std::pair<size_t, int>> markers_;
  std::vector<std::string> parameters_, wrapped_;
};

// write_source(graph, names, writer, root, own output)
PyObject* write_source(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return object_or_null([&] {
    if (count != 5 || !PyObject_TypeCheck(args[0], g_graph_base))
      raise(PyExc_TypeError, "write_source takes a graph");
    SourceWriter writer(args[0], names_in(args[1]), args[2], text_of(args[3]),
                        args[4] == Py_True);
    writer.write();
    return writer.result();
  });
}

PyMethodDef g_source_functions[] = {
    {"write_source", as_function(write_source), METH_FASTCALL,
     "The source of a graph's function, for a writer."},
    {}};

}  // namespace

void add_source_writer(PyObject* module) {
  checked(PyModule_AddFunctions(module, g_source_functions));
}

}  // namespace framejit::graph::fx
