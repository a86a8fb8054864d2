#include "graph/ir/parser.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "graph/ir/graph_text.h"

namespace framejit::graph {

namespace {

struct SyntaxError {
  std::string message;
};

class Parser {
 public:
  Parser(const std::string& text, const std::vector<Ref>& objects)
      : text_(text), objects_(objects) {}

  std::unique_ptr<Graph> run() {
    graph_ = std::make_unique<Graph>();
    expect("graph");
    expect("(");
    while (!accept(")")) {
      input();
      accept(",");
    }
    expect("{");
    while (!accept_word("return")) line();
    outputs();
    expect("}");
    skip_space();
    if (at_ != text_.size()) fail("text behind the graph");
    return std::move(graph_);
  }

  std::string where() const {
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i)
      line += text_[i] == '\n';
    return "line " + std::to_string(line);
  }

 private:
  // ---- characters

  [[noreturn]] void fail(const std::string& message) {
    throw SyntaxError{message};
  }

  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        if (at_ == text_.size()) return;
      } else if (!std::isspace(static_cast<unsigned char>(text_[at_]))) {
        return;
      }
    }
  }

  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(const char* token) {
    skip_space();
    if (text_.compare(at_, std::strlen(token), token) != 0) return false;
    at_ += std::strlen(token);
    return true;
  }

  void expect(const char* token) {
    if (!accept(token)) fail(std::string("expected ") + token);
  }

  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  }

  bool accept_word(const char* word) {
    skip_space();
    size_t size = std::strlen(word);
    if (text_.compare(at_, size, word) != 0) return false;
    if (at_ + size < text_.size() && is_word(text_[at_ + size])) return false;
    at_ += size;
    return true;
  }

  // Letters, digits, _ and the extra characters.
  std::string word(const char* extra = "") {
    skip_space();
    size_t start = at_;
    while (
        at_ < text_.size() &&
        (is_word(text_[at_]) || (text_[at_] && std::strchr(extra, text_[at_]))))
      ++at_;
    if (at_ == start) fail("expected a name");
    return text_.substr(start, at_ - start);
  }

  std::string string() {
    expect("\"");
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == 'n') c = '\n';
      }
      out += c;
    }
    expect("\"");
    return out;
  }

  int64_t integer() {
    skip_space();
    char* end = nullptr;
    int64_t value = std::strtoll(text_.c_str() + at_, &end, 10);
    if (end == text_.c_str() + at_) fail("expected an integer");
    at_ = end - text_.c_str();
    return value;
  }

  // ---- pieces

  // Up to a character of `end` outside parentheses.
  Expr expression(const char* end) {
    skip_space();
    size_t start = at_;
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (depth == 0 && std::strchr(end, c)) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
    }
    Expr out;
    std::string part = text_.substr(start, at_ - start);
    if (!Expr::parse(part, &out)) fail("bad expression " + part);
    return out;
  }

  std::vector<Expr> expressions() {
    std::vector<Expr> out;
    expect("[");
    while (!accept("]")) {
      out.push_back(expression(",]"));
      accept(",");
    }
    return out;
  }

  void meta(Value* value) {
    if (accept_word("other")) {
      value->kind = Value::Kind::kOther;
      return;
    }
    std::string name = word();
    if ((name == "int" || name == "float") && peek() == '(') {
      expect("(");
      value->kind = Value::Kind::kInt;
      value->expr = expression(")");
      expect(")");
      return;
    }
    value->kind = Value::Kind::kTensor;
    TensorMeta& m = value->meta;
    if (!parse_dtype_name(name, &m.dtype)) fail("unknown dtype " + name);
    m.sizes = expressions();
    if (accept_word("strides")) {
      m.strides = expressions();
    } else {
      m.strides.resize(m.sizes.size());
      Expr stride = 1;
      for (size_t i = m.sizes.size(); i-- > 0;) {
        m.strides[i] = stride;
        stride = stride * m.sizes[i];
      }
    }
    if (accept_word("offset")) {
      expect("(");
      m.storage_offset = expression(")");
      expect(")");
    }
    m.device = device();
    m.requires_grad = accept_word("grad");
  }

  c10::Device device() {
    std::string name = word();
    if (at_ < text_.size() && text_[at_] == ':') {
      ++at_;
      name += ":" + word();
    }
    try {
      return c10::Device(name);
    } catch (const std::exception&) {
      fail("unknown device " + name);
    }
  }

  Value* value() {
    expect("%");
    int id = static_cast<int>(integer());
    auto found = values_.find(id);
    if (found == values_.end()) fail("unknown value %" + std::to_string(id));
    return found->second;
  }

  int new_id() {
    expect("%");
    int id = static_cast<int>(integer());
    if (values_.contains(id)) fail("%" + std::to_string(id) + " defined twice");
    return id;
  }

  void define(Value* value, int id) {
    graph_->set_id(value, id);
    values_[id] = value;
  }

  Ref object() {
    expect("$");
    size_t index = static_cast<size_t>(integer());
    if (index >= objects_.size()) fail("unknown object $");
    return objects_[index];
  }

  // ---- arguments

  std::vector<Arg> items(const char* end) {
    std::vector<Arg> out;
    while (!accept(end)) {
      out.push_back(arg());
      accept(",");
    }
    return out;
  }

  Arg arg() {
    char c = peek();
    if (c == '%') return Arg(value());
    if (c == '$') return Arg(object());
    if (c == '"') return Arg(string());
    if (accept("[")) return Arg(Arg::List{items("]")});
    if (accept("(")) return Arg(Arg::Tuple{items(")")});
    if (accept("{")) return dict();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)))
      return number();
    if (accept_word("None")) return Arg();
    if (accept_word("True")) return Arg(true);
    if (accept_word("False")) return Arg(false);
    if (accept_word("nan"))
      return Arg(std::numeric_limits<double>::quiet_NaN());
    if (accept_word("inf")) return Arg(std::numeric_limits<double>::infinity());
    return constructed();
  }

  Arg constructed() {
    std::string name = word();
    expect("(");
    Arg out;
    if (name == "sym") {
      out = Arg(expression(")"));
    } else if (name == "dtype") {
      c10::ScalarType dtype;
      if (!parse_dtype_name(word(), &dtype)) fail("unknown dtype");
      out = Arg(dtype);
    } else if (name == "device") {
      out = Arg(device());
    } else if (name == "layout") {
      out = Arg(static_cast<c10::Layout>(integer()));
    } else if (name == "memory_format") {
      out = Arg(static_cast<c10::MemoryFormat>(integer()));
    } else if (name == "complex") {
      double real = as_double(arg());
      expect(",");
      out = Arg(c10::complex<double>(real, as_double(arg())));
    } else if (name == "slice") {
      auto slice = std::make_shared<Arg::Slice>();
      slice->start = arg();
      expect(",");
      slice->stop = arg();
      expect(",");
      slice->step = arg();
      out = Arg(std::move(slice));
    } else {
      fail("unknown argument form " + name);
    }
    expect(")");
    return out;
  }

  double as_double(const Arg& arg) {
    if (arg.is<double>()) return arg.get<double>();
    fail("expected a float");
  }

  Arg number() {
    size_t start = at_;
    if (text_[at_] == '-') ++at_;
    if (accept_word("inf"))
      return Arg(-std::numeric_limits<double>::infinity());
    while (
        at_ < text_.size() &&
        (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
         text_[at_] == '.' ||
         ((text_[at_] == '-' || text_[at_] == '+') && text_[at_ - 1] == 'e')))
      ++at_;
    std::string part = text_.substr(start, at_ - start);
    if (part.find_first_of(".e") == std::string::npos)
      return Arg(static_cast<int64_t>(std::strtoll(part.c_str(), nullptr, 10)));
    return Arg(std::strtod(part.c_str(), nullptr));
  }

  Arg dict() {
    Arg::Dict out;
    while (!accept("}")) {
      Arg key = arg();
      expect(":");
      out.items.emplace_back(std::move(key), arg());
      accept(",");
    }
    return Arg(std::move(out));
  }

  // ---- lines

  void input() {
    int id = new_id();
    std::string name = string();
    expect(":");
    Value* value = graph_->add_input(name, TensorMeta{});
    meta(value);
    define(value, id);
  }

  void line() {
    auto node = std::make_unique<Node>();
    std::vector<int> ids;
    if (accept("[")) {
      node->outputs_are_list = true;
      while (!accept("]")) {
        ids.push_back(new_id());
        accept(",");
      }
      expect("=");
    } else if (peek() == '%') {
      do {
        ids.push_back(new_id());
      } while (accept(","));
      expect("=");
    }
    target(*node);
    expect("(");
    arguments(*node);
    Node* placed = graph_->append(std::move(node));
    if (!ids.empty()) expect(":");
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i) expect(",");
      Value* value = graph_->add_output(placed);
      meta(value);
      define(value, ids[i]);
    }
    placed->is_backward = accept("@backward");
    placed->must_keep = accept("@keep");
  }

  void arguments(Node& node) {
    while (!accept(")")) {
      size_t start = at_;
      char c = peek();
      if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
        std::string name = word();
        if (at_ < text_.size() && text_[at_] == '=') {
          ++at_;
          node.kwargs.emplace_back(name, arg());
          accept(",");
          continue;
        }
        at_ = start;
      }
      node.args.push_back(arg());
      accept(",");
    }
  }

  void target(Node& node) {
    if (accept("Tensor.")) {
      node.op = Opcode::kCallMethod;
      node.method = word();
      node.callable = resolve_import_path("torch.Tensor." + node.method);
      return;
    }
    if (accept_word("get_attr")) {
      node.op = Opcode::kGetAttr;
      return;
    }
    if (accept_word("enter")) node.op = Opcode::kStateEnter;
    if (accept_word("exit")) node.op = Opcode::kStateExit;
    if (peek() == '$') {
      node.callable = object();
      return;
    }
    std::string path = word(".");
    node.aten = find_operator(path);
    if (!node.aten) node.callable = resolve_import_path(path);
    if (!node.aten && !node.callable) fail("unknown target " + path);
  }

  // "aten.mul.Tensor": namespace, name, overload.
  static std::optional<c10::OperatorHandle> find_operator(
      const std::string& path) {
    size_t first = path.find('.');
    size_t last = path.rfind('.');
    if (first == std::string::npos || first == last) return std::nullopt;
    std::string name =
        path.substr(0, first) + "::" + path.substr(first + 1, last - first - 1);
    std::string overload = path.substr(last + 1);
    if (overload == "default") overload.clear();
    return c10::Dispatcher::singleton().findSchema({name, overload});
  }

  void outputs() {
    expect("(");
    graph_->set_outputs(items(")"));
    if (!accept_word("mutates")) return;
    expect("(");
    while (!accept(")")) {
      int input = static_cast<int>(integer());
      expect(":");
      Graph::Mutation mutation{input, value()};
      mutation.requires_grad = !accept_word("nograd");
      graph_->mutations.push_back(mutation);
      accept(",");
    }
  }

  const std::string& text_;
  const std::vector<Ref>& objects_;
  size_t at_ = 0;
  std::unique_ptr<Graph> graph_;
  std::unordered_map<int, Value*> values_;
};

}  // namespace

std::unique_ptr<Graph> parse_graph(const std::string& text,
                                   const std::vector<Ref>& objects,
                                   std::string* error) {
  Parser parser(text, objects);
  try {
    return parser.run();
  } catch (const SyntaxError& syntax) {
    *error = parser.where() + ": " + syntax.message;
    return nullptr;
  }
}

}  // namespace framejit::graph
