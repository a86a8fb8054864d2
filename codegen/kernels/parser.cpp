#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "codegen/kernels/text.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/text_scanner.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

class Parser : public TextScanner {
 public:
  using TextScanner::TextScanner;

  Kernel run() {
    expect("kernel");
    kernel_.name = word();
    expect("(");
    while (!accept(")")) {
      entry("%", kernel_.arguments.size());
      expect(":");
      bool is_written = accept("out ");
      kernel_.arguments.push_back({dtype(), is_written});
      accept(",");
    }
    expect("outer");
    kernel_.loops = loops(0);
    if (accept("columns")) {
      kernel_.vectorised = Vectorised::kOuter;
    } else {
      expect("inner");
    }
    if (accept("rows")) {
      for (expect("("); !accept(")"); accept(",")) {
        entry("r", kernel_.row_types.size());
        expect(":");
        kernel_.row_types.push_back(dtype());
      }
    }
    if (accept("numbers")) {
      for (expect("("); !accept(")"); accept(",")) {
        entry("n", kernel_.numbers.size());
        expect("=");
        kernel_.numbers.push_back(expression());
      }
    }
    expect("{");
    while (accept("stage")) kernel_.stages.push_back(stage());
    expect("}");
    if (peek() != '\0') fail("text behind the kernel");
    return std::move(kernel_);
  }

 private:
  int number() {
    const int64_t value = integer();
    if (value < 0 || value > 1000000) fail("expected a number");
    return static_cast<int>(value);
  }
  int numbered(const char* prefix) {
    expect(prefix);
    return number();
  }
  // The next entry of a list has its own number.
  void entry(const char* prefix, size_t count) {
    if (numbered(prefix) != static_cast<int>(count)) fail("out of order");
  }
  DType dtype() {
    std::optional<DType> type = dtype_named(word());
    if (!type) fail("unknown type");
    return *type;
  }
  // Up to a comma, bracket or " + " that is not within parentheses.
  Expr expression() { return TextScanner::expression("),]\n", " + "); }
  std::vector<Expr> loops(size_t first) {
    std::vector<Expr> result;
    for (expect("("); !accept(")"); accept(",")) {
      entry("i", first + result.size());
      expect("<");
      result.push_back(expression());
    }
    return result;
  }
  ScalarId value() { return numbered("v"); }

  Place place(size_t loops);
  Element constant(DType type);
  void node(Stage* stage);
  Stage stage();

  Kernel kernel_;
};

Place Parser::place(size_t loops) {
  Place place;
  place.argument = numbered("%");
  place.strides.assign(loops, Expr(0));
  expect("[");
  do {
    auto stride = [&] { return accept("*") ? expression() : Expr(1); };
    if (accept("@(")) {
      ScalarId id = value();
      expect(")");
      place.data.emplace_back(id, stride());
    } else if (accept("i")) {
      int loop = number();
      if (loop >= static_cast<int>(loops)) fail("a loop that is not there");
      place.strides[loop] = stride();
    } else {
      place.offset = expression();
    }
  } while (accept("+ "));
  expect("]");
  if (accept("when ")) place.when = value();
  return place;
}

Element Parser::constant(DType type) {
  peek();
  const char* start = text_.c_str() + at_;
  char* end;
  Element result;
  if (accept("nan:")) {
    start = text_.c_str() + at_;
    result = std::strtoull(start, &end, 10);
  } else if (type == DType::kF64) {
    result = element_of(type, std::strtod(start, &end));
  } else if (is_float(type)) {
    result = element_of(type, std::strtof(start, &end));
  } else {
    result = element_of_integer(type, std::strtoll(start, &end, 10));
  }
  if (end == start) fail("expected a constant");
  at_ = static_cast<size_t>(end - text_.c_str());
  return result;
}

void Parser::node(Stage* stage) {
  const size_t loops = kernel_.loops.size() + stage->loops.size();
  ScalarId id = value();
  if (id != static_cast<int>(stage->body.nodes().size())) fail("out of order");
  expect(":");
  ScalarNode node{ScalarOp::kConst, dtype()};
  expect("=");
  std::string name = word();
  std::optional<ScalarOp> op = scalar_op_named(name);
  if (!op) fail("unknown operation " + name);
  node.op = *op;
  switch (node.op) {
    case ScalarOp::kConst:
      node.payload = static_cast<int64_t>(constant(node.type));
      break;
    case ScalarOp::kIndex:
      node.payload = numbered("i");
      break;
    case ScalarOp::kNumber:
      node.payload = numbered("n");
      break;
    case ScalarOp::kRow:
      node.payload = numbered("r");
      break;
    case ScalarOp::kLoad:
      node.payload = static_cast<int64_t>(stage->loads.size());
      stage->loads.push_back(place(loops));
      break;
    case ScalarOp::kLookup:
      node.payload = numbered("t");
      expect(",");
      node.in[0] = value();
      break;
    default:
      for (int i = 0; i < scalar_op_row(node.op).operands; ++i) {
        if (i) expect(",");
        node.in[i] = value();
      }
  }
  std::string wrong = malformed(stage->body, node);
  if (!wrong.empty()) fail(wrong);
  if (stage->body.emit(node.op, node.type, node.in, node.payload) != id) {
    fail("a node that is there already");
  }
}

Stage Parser::stage() {
  Stage stage;
  stage.loops = loops(kernel_.loops.size());
  const size_t loops = kernel_.loops.size() + stage.loops.size();
  expect("{");
  while (!accept("}")) {
    if (peek() == 'v') {
      node(&stage);
    } else if (accept("store ")) {
      Store store;
      store.place = place(loops);
      expect("=");
      if (accept("prefix")) {
        store.prefix_of = number();
      } else {
        if (peek() != 'v') store.combiner = combiner_named(word());
        store.value = value();
      }
      stage.stores.push_back(store);
    } else {
      int row = numbered("r");
      if (accept(",")) numbered("r");
      expect("=");
      if (peek() == 'v') {
        stage.rows.emplace_back(value(), row);
        continue;
      }
      std::optional<Combiner> combiner = combiner_named(word());
      if (!combiner) fail("unknown combiner");
      stage.reductions.push_back({*combiner, value(), row});
    }
  }
  return stage;
}

}  // namespace

std::optional<Kernel> parse_kernel(const std::string& text,
                                   std::string* error) {
  Parser parser(text);
  try {
    return parser.run();
  } catch (const SyntaxError& e) {
    *error = parser.where() + ": " + e.message;
  } catch (const InternalError& e) {
    *error = parser.where() + ": " + e.message();
  }
  return std::nullopt;
}

}  // namespace framejit::codegen
