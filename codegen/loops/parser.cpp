#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "codegen/loops/text.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/text_scanner.h"
#include "guards/result.h"

namespace framejit::codegen {
namespace {

class Parser : public TextScanner {
 public:
  using TextScanner::TextScanner;

  LoopGraph run() {
    expect_word("loops");
    expect("(");
    std::set<int> declared;
    while (!accept(")")) {
      Expr symbol = expression(",)");
      if (!symbol.is_symbol() && !symbol.is_float_symbol())
        fail("expected a symbol");
      declared.insert(symbol.symbol_index());
      accept(",");
    }
    expect("{");
    while (!accept_word("return")) statement();
    while (peek() == '%') {
      graph_.outputs.push_back(buffer());
      if (accept_word("into")) {
        graph_.places.resize(graph_.outputs.size(), kNoBuffer);
        graph_.places.back() = defined_buffer();
      }
      accept(",");
    }
    expect("}");
    if (peek() != '\0') fail("text behind the graph");
    if (declared != used_symbols_) fail("the symbols are not those used");
    for (size_t i = 0; i < defined_.size(); ++i)
      if (!defined_[i]) fail("%" + std::to_string(i) + " has no definition");
    return std::move(graph_);
  }

 private:
  // ---- characters

  // letter, then a number: "i3".
  std::optional<int> numbered(char letter) {
    std::string name = next_word();
    if (name.size() < 2 || name.size() > 9 || name[0] != letter)
      return std::nullopt;
    for (char c : name.substr(1))
      if (!std::isdigit(static_cast<unsigned char>(c))) return std::nullopt;
    at_ += name.size();
    return std::atoi(name.c_str() + 1);
  }
  std::string quoted() {
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

  // ---- expressions

  Expr expression(const char* end) {
    Expr out = TextScanner::expression(end);
    std::vector<int> symbols;
    out.collect_symbols(&symbols);
    used_symbols_.insert(symbols.begin(), symbols.end());
    return out;
  }
  Expr factor() {
    if (accept("(")) {
      Expr out = expression(")");
      expect(")");
      return out;
    }
    return expression(" ,]+*)");
  }
  std::vector<Expr> expression_list() {
    std::vector<Expr> out;
    expect("[");
    while (!accept("]")) {
      out.push_back(expression(",]"));
      accept(",");
    }
    return out;
  }

  // ---- statements

  BufferId buffer() {
    expect("%");
    int64_t id = integer();
    if (id < 0 || id > 100'000'000) fail("no such buffer");
    return static_cast<BufferId>(id);
  }
  BufferId defined_buffer() {
    BufferId id = buffer();
    if (static_cast<size_t>(id) >= defined_.size() || !defined_[id])
      fail("unknown buffer %" + std::to_string(id));
    return id;
  }
  DType type() {
    std::string name = word();
    auto out = dtype_named(name);
    if (!out) fail("unknown type " + name);
    return *out;
  }

  BufferId declaration() {
    BufferId id = buffer();
    if (defined_.size() <= static_cast<size_t>(id)) {
      if (static_cast<size_t>(id) > text_.size()) fail("no such buffer");
      defined_.resize(id + 1);
      graph_.buffers.resize(id + 1);
    }
    if (defined_[id]) fail("defined twice: %" + std::to_string(id));
    Buffer& out = graph_.buffers[id];
    if (peek() == '"') out.name = quoted();
    expect(":");
    out.type = type();
    out.sizes = expression_list();
    out.strides = accept_word("strides") ? expression_list()
                                         : contiguous_strides(out.sizes);
    return id;
  }

  void statement() {
    Definition definition;
    std::vector<BufferId> results;
    while (peek() == '%') {
      results.push_back(declaration());
      if (!accept(",")) break;
    }
    if (!results.empty()) expect("=");
    if (accept_word("alias")) {
      if (results.size() != 1) fail("an alias is one buffer");
      Buffer& alias = graph_.buffers[results[0]];
      alias.alias_of = defined_buffer();
      if (accept_word("offset")) alias.offset = expression("\n");
    } else {
      right_side(definition);
      definition.results = results;
      graph_.definitions.push_back(std::move(definition));
    }
    for (BufferId id : results) defined_[id] = true;
  }

  void combiner(Definition& definition) {
    definition.combiner = combiner_named(next_word());
    if (definition.combiner) word();
  }

  void right_side(Definition& definition) {
    std::string kind = word();
    if (kind == "input") {
      definition.kind = DefinitionKind::kInput;
    } else if (kind == "extern") {
      parse_call(this, &definition);
      expect("(");
      while (!accept(")")) {
        definition.operands.push_back(defined_buffer());
        accept(",");
      }
    } else if (kind == "map") {
      definition.kind = DefinitionKind::kMap;
      body(definition);
    } else if (kind == "reduce" || kind == "scan") {
      definition.kind =
          kind == "scan" ? DefinitionKind::kScan : DefinitionKind::kReduce;
      combiner(definition);
      body(definition);
    } else if (kind == "update") {
      definition.kind = DefinitionKind::kUpdate;
      combiner(definition);
      if (!accept_word("none")) definition.base = defined_buffer();
      body(definition);
      expect_word("to");
      definition.target = indices();
    } else {
      fail("unknown definition " + kind);
    }
  }

  void body(Definition& definition) {
    definition_ = &definition;
    names_.clear();
    expect("(");
    bool reduced = false;
    for (;;) {
      if (accept(";")) {
        reduced = true;
        accept(",");
      }
      if (accept(")")) break;
      auto loop = numbered('i');
      if (!loop || *loop != static_cast<int>(definition.loops.size()))
        fail("loops are i0, i1, ... in order");
      expect("<");
      definition.loops.push_back(expression(",;)"));
      definition.reduced += reduced;
      accept(",");
    }
    while (auto name = numbered('t')) {
      const size_t behind = at_;
      if (!accept("=")) {  // no: the value itself
        at_ = behind;
        definition.value = named(*name);
        return;
      }
      if (names_.count(*name)) fail("a name twice");
      ScalarId value = scalar();
      names_[*name] = value;
    }
    definition.value = scalar();
  }

  ScalarId named(int name) {
    auto found = names_.find(name);
    if (found == names_.end()) fail("unknown t" + std::to_string(name));
    return found->second;
  }

  // ---- scalars

  ScalarId scalar() {
    Body& body = definition_->body;
    if (peek() == '%') return load(kNoScalar);
    if (auto name = numbered('t')) return named(*name);
    // "i8(" is a constant, "i8" a loop.
    const size_t start = at_;
    if (auto loop = numbered('i'); loop && peek() != '(') {
      if (*loop >= static_cast<int>(definition_->loops.size()))
        fail("unknown loop i" + std::to_string(*loop));
      return body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1}, *loop);
    }
    at_ = start;
    std::string name = word();
    if (name == "number") return number();
    if (name == "when") {
      expect("(");
      ScalarId condition = scalar();
      expect(",");
      ScalarId value = load(condition);
      expect(")");
      return value;
    }
    if (auto constant_type = dtype_named(name)) return constant(*constant_type);
    return operation(name);
  }

  ScalarId number() {
    expect("(");
    Expr value = expression(")");
    expect(")");
    return definition_->body.emit(ScalarOp::kNumber,
                                  value.is_float() ? DType::kF64 : DType::kI64,
                                  {-1, -1, -1}, graph_.add_number(value));
  }

  ScalarId constant(DType type) {
    expect("(");
    Element value;
    if (!is_float(type)) {
      value = static_cast<Element>(integer());
    } else if (accept("nan:")) {
      peek();
      value = std::strtoull(text_.c_str() + at_, nullptr, 10);
      word();
    } else {
      value = real(type);
    }
    expect(")");
    return definition_->body.emit_element(type, value);
  }

  Element real(DType type) {
    peek();
    const char* start = text_.c_str() + at_;
    char* end;
    double number = type == DType::kF64 ? std::strtod(start, &end)
                                        : std::strtof(start, &end);
    if (end == start) fail("expected a number");
    if (std::isnan(number))  // the usual one, whatever the library makes
      number = std::numeric_limits<double>::quiet_NaN();
    at_ += end - start;
    return element_of(type, number);
  }

  ScalarId operation(const std::string& name) {
    std::optional<ScalarOp> op = scalar_op_named(name);
    if (!op) fail("unknown operation " + name);
    const ScalarOpRow& row = scalar_op_row(*op);
    if (row.operands == 0) fail("no operation: " + name);
    std::optional<DType> given;
    if (row.result == ResultType::kGiven) {
      expect(".");
      given = type();
    }
    std::array<ScalarId, 3> in = {-1, -1, -1};
    expect("(");
    for (int i = 0; i < row.operands; ++i) {
      if (i) expect(",");
      in[i] = scalar();
    }
    expect(")");
    const Body& body = definition_->body;
    DType result =
        row.result == ResultType::kBool ? DType::kBool
        : given ? *given
                : body.type(in[row.types == OperandTypes::kSelect ? 1 : 0]);
    try {
      return definition_->body.emit(*op, result, in);
    } catch (const InternalError& error) {
      fail(error.message());
    }
  }

  ScalarId load(ScalarId condition) {
    Access access;
    access.buffer = defined_buffer();
    access.indices = indices();
    access.when = condition;
    DType type = graph_.buffers[access.buffer].type;
    std::vector<Access>& accesses = definition_->accesses;
    size_t place =
        std::find(accesses.begin(), accesses.end(), access) - accesses.begin();
    if (place == accesses.size()) accesses.push_back(std::move(access));
    return definition_->body.emit(ScalarOp::kLoad, type, {-1, -1, -1},
                                  static_cast<int64_t>(place));
  }

  std::vector<Index> indices() {
    std::vector<Index> out;
    expect("[");
    while (!accept("]")) {
      out.push_back(index());
      accept(",");
    }
    return out;
  }

  Index index() {
    Index out;
    out.coefficients.resize(definition_->loops.size());
    do {
      if (accept("@(")) {
        if (out.data != kNoScalar) fail("two data in one index");
        out.data = scalar();
        expect(")");
      } else if (auto loop = numbered('i')) {
        if (*loop >= static_cast<int>(out.coefficients.size()))
          fail("unknown loop i" + std::to_string(*loop));
        Expr coefficient = accept("*") ? factor() : Expr(1);
        out.coefficients[*loop] = out.coefficients[*loop] + coefficient;
      } else {
        out.offset = out.offset + factor();
      }
    } while (accept("+"));
    return out;
  }

  LoopGraph graph_;
  std::vector<bool> defined_;
  std::set<int> used_symbols_;
  Definition* definition_ = nullptr;
  std::map<int, ScalarId> names_;
};

}  // namespace

void parse_call(TextScanner* scanner, Definition* call) {
  call->kind = DefinitionKind::kExtern;
  call->callee = static_cast<int>(scanner->integer());
  call->ordered = scanner->accept_word("ordered");
  call->kept = scanner->accept_word("kept");
  call->sure = scanner->accept_word("sure");
  call->into = scanner->accept_word("into");
  if (scanner->accept_word("over"))
    call->over = static_cast<int>(scanner->integer());
}

std::optional<LoopGraph> parse_loops(const std::string& text,
                                     std::string* error) {
  Parser parser(text);
  try {
    return parser.run();
  } catch (const SyntaxError& failure) {
    *error = parser.where() + ": " + failure.message;
    return std::nullopt;
  }
}

}  // namespace framejit::codegen
