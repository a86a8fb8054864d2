// Printing and parsing of expressions: Python syntax, s<i> for symbol i.
#include <cctype>
#include <cstdlib>

#include "guards/expr.h"

namespace framejit {
namespace {

// Binding strength, as in Python.
enum Level { kOr, kAnd, kNot, kCompare, kSum, kTerm, kUnary, kAtom };

const char* infix(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd:
      return "+";
    case ExprOp::kMul:
      return "*";
    case ExprOp::kFloorDiv:
      return "//";
    case ExprOp::kMod:
      return "%";
    case ExprOp::kEq:
      return " == ";
    case ExprOp::kNe:
      return " != ";
    case ExprOp::kLt:
      return " < ";
    case ExprOp::kLe:
      return " <= ";
    case ExprOp::kAnd:
      return " and ";
    case ExprOp::kOr:
      return " or ";
    default:
      return nullptr;
  }
}

Level level_of(const Expr& e) {
  switch (e.op()) {
    case ExprOp::kConst:
      return e.constant() < 0 ? kUnary : kAtom;
    case ExprOp::kAdd:
      return kSum;
    case ExprOp::kMul:
    case ExprOp::kFloorDiv:
    case ExprOp::kMod:
      return kTerm;
    case ExprOp::kNeg:
      return kUnary;
    case ExprOp::kEq:
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kLe:
      return kCompare;
    case ExprOp::kAnd:
      return kAnd;
    case ExprOp::kOr:
      return kOr;
    case ExprOp::kNot:
      return kNot;
    default:
      return kAtom;
  }
}

void print(const Expr& e, Level outer, std::string* out);

void print_operands(const Expr& e, std::string* out) {
  Level level = level_of(e);
  const char* separator = infix(e.op());
  for (size_t i = 0; i < e.operands().size(); ++i) {
    std::string text;
    // Only the first operand of a left-associative operator may bind equally.
    print(e.operands()[i], i == 0 && level >= kSum ? level : Level(level + 1),
          &text);
    // A negative constant subtracts; "-4%s0" would bind otherwise behind "-".
    bool subtract = e.op() == ExprOp::kAdd && i > 0 &&
                    e.operands()[i].is_const() && text[0] == '-';
    if (i > 0 && !subtract) *out += separator;
    *out += text;
  }
  // A logic node of one operand (the truth of a number).
  if (e.operands().size() == 1) *out += separator + *out;
}

void print(const Expr& e, Level outer, std::string* out) {
  Level level = level_of(e);
  bool parenthesised = level < outer;
  if (parenthesised) *out += "(";
  switch (e.op()) {
    case ExprOp::kConst:
      *out += std::to_string(e.constant());
      break;
    case ExprOp::kSymbol:
      *out += "s" + std::to_string(e.symbol_index());
      break;
    case ExprOp::kNeg:
      *out += "-";
      print(e.operands()[0], kAtom, out);
      break;
    case ExprOp::kNot:
      *out += "not ";
      print(e.operands()[0], kNot, out);
      break;
    case ExprOp::kMin:
    case ExprOp::kMax:
      *out += e.op() == ExprOp::kMin ? "min(" : "max(";
      for (size_t i = 0; i < e.operands().size(); ++i) {
        if (i) *out += ", ";
        print(e.operands()[i], kOr, out);
      }
      *out += ")";
      break;
    default: {
      std::string text;
      print_operands(e, &text);
      *out += text;
    }
  }
  if (parenthesised) *out += ")";
}

class Parser {
 public:
  explicit Parser(const std::string& text) : at_(text.c_str()) {}

  bool parse(Expr* out) {
    return parse_level(kOr, out) && (skip_space(), *at_ == '\0');
  }

 private:
  void skip_space() {
    while (*at_ == ' ') ++at_;
  }
  bool take(const char* token) {
    skip_space();
    const char* p = at_;
    for (const char* t = token; *t; ++t, ++p) {
      if (*p != *t) return false;
    }
    bool word = isalpha(static_cast<unsigned char>(token[0]));
    if (word && (isalnum(static_cast<unsigned char>(*p)) || *p == '_'))
      return false;
    at_ = p;
    return true;
  }

  bool parse_level(Level level, Expr* out) {
    if (++depth_ > 512) return false;
    bool ok = parse_level_inner(level, out);
    --depth_;
    return ok;
  }

  bool parse_level_inner(Level level, Expr* out) {
    switch (level) {
      case kOr:
        return parse_chain(ExprOp::kOr, "or", kAnd, out);
      case kAnd:
        return parse_chain(ExprOp::kAnd, "and", kNot, out);
      case kNot:
        if (!take("not")) return parse_level(kCompare, out);
        if (!parse_level(kNot, out)) return false;
        *out = expr_not(*out);
        return true;
      case kCompare:
        return parse_compare(out);
      case kSum:
        return parse_sum(out);
      case kTerm:
        return parse_term(out);
      case kUnary:
        skip_space();
        if (*at_ == '-' && !isdigit(static_cast<unsigned char>(at_[1]))) {
          ++at_;
          if (!parse_level(kUnary, out)) return false;
          *out = Expr::make(ExprOp::kNeg, {*out});
          return true;
        }
        return parse_atom(out);
      case kAtom:
        return parse_atom(out);
    }
    return false;
  }

  bool parse_chain(ExprOp op, const char* word, Level next, Expr* out) {
    if (!parse_level(next, out)) return false;
    std::vector<Expr> operands{*out};
    while (take(word)) {
      Expr right;
      if (!parse_level(next, &right)) return false;
      operands.push_back(right);
    }
    if (operands.size() > 1) *out = Expr::make(op, std::move(operands));
    return true;
  }

  bool parse_compare(Expr* out) {
    if (!parse_level(kSum, out)) return false;
    static constexpr struct {
      const char* token;
      ExprOp op;
      bool swap;
    } kRows[] = {{"==", ExprOp::kEq, false}, {"!=", ExprOp::kNe, false},
                 {"<=", ExprOp::kLe, false}, {">=", ExprOp::kLe, true},
                 {"<", ExprOp::kLt, false},  {">", ExprOp::kLt, true}};
    for (const auto& row : kRows) {
      if (!take(row.token)) continue;
      Expr right;
      if (!parse_level(kSum, &right)) return false;
      *out = row.swap ? Expr::make(row.op, {right, *out})
                      : Expr::make(row.op, {*out, right});
      return true;
    }
    return true;
  }

  bool parse_sum(Expr* out) {
    if (!parse_level(kTerm, out)) return false;
    for (;;) {
      bool plus = take("+");
      if (!plus && !take("-")) return true;
      Expr right;
      if (!parse_level(kTerm, &right)) return false;
      *out = plus ? *out + right : *out - right;
    }
  }

  bool parse_term(Expr* out) {
    if (!parse_level(kUnary, out)) return false;
    for (;;) {
      Expr right;
      ExprOp op;
      if (take("//"))
        op = ExprOp::kFloorDiv;
      else if (take("*"))
        op = ExprOp::kMul;
      else if (take("%"))
        op = ExprOp::kMod;
      else
        return true;
      if (!parse_level(kUnary, &right)) return false;
      *out = Expr::make(op, {*out, right});
    }
  }

  bool parse_number(int64_t* out) {
    char* end;
    errno = 0;
    *out = strtoll(at_, &end, 10);
    if (end == at_ || errno == ERANGE) return false;
    at_ = end;
    return true;
  }

  bool parse_atom(Expr* out) {
    skip_space();
    for (bool is_min : {true, false}) {
      if (!take(is_min ? "min" : "max")) continue;
      if (!take("(")) return false;
      std::vector<Expr> operands;
      do {
        Expr e;
        if (!parse_level(kOr, &e)) return false;
        operands.push_back(e);
      } while (take(","));
      *out = Expr::make(is_min ? ExprOp::kMin : ExprOp::kMax, operands);
      return take(")");
    }
    if (take("(")) return parse_level(kOr, out) && take(")");
    int64_t number;
    if (*at_ == 's' && isdigit(static_cast<unsigned char>(at_[1]))) {
      ++at_;
      if (!parse_number(&number) || number > INT32_MAX) return false;
      *out = Expr::symbol(static_cast<int>(number));
      return true;
    }
    if (!isdigit(static_cast<unsigned char>(*at_)) && *at_ != '-') return false;
    if (!parse_number(&number)) return false;
    *out = Expr(number);
    return true;
  }

  const char* at_;
  int depth_ = 0;
};

}  // namespace

std::string Expr::str() const {
  std::string out;
  print(*this, kOr, &out);
  return out;
}

bool Expr::parse(const std::string& text, Expr* out) {
  Parser parser(text);
  Expr result;
  if (!parser.parse(&result)) return false;
  *out = result;
  return true;
}

}  // namespace framejit
