// Printing and parsing of expressions: Python syntax, s<i> for symbol i.
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "frame_hook/native_stack.h"
#include "guards/expr/expr.h"

namespace framejit {
namespace {

// Binding strength, as in Python.
enum Level { kOr, kAnd, kNot, kCompare, kSum, kTerm, kUnary, kAtom };

const char* float_text(ExprOp op) {
  switch (op) {
#define FJ_FLOAT_OP(name, text, ...) \
  case ExprOp::k##name:              \
    return text;
#include "guards/expr/float_ops.def"
#undef FJ_FLOAT_OP
    case ExprOp::kFromInt:
      return "float";
    case ExprOp::kFloatSame:
      return "same";
    case ExprOp::kDefined:
      return "defined";
    default:
      return nullptr;
  }
}

// A call in the text; the rest of the floats' operators are infix.
bool is_function(ExprOp op) {
  const char* text = float_text(op);
  return text && isalpha(static_cast<unsigned char>(text[0]));
}

const char* infix(ExprOp op) {
  switch (op) {
    case ExprOp::kFloatEq:
      return " == ";
    case ExprOp::kFloatLt:
      return " < ";
    case ExprOp::kFloatLe:
      return " <= ";
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
      return is_function(op) ? nullptr : float_text(op);
  }
}

Level level_of(const Expr& e) {
  switch (e.op()) {
    case ExprOp::kConst:
      return e.constant() < 0 ? kUnary : kAtom;
    case ExprOp::kFloat:
      return std::signbit(e.real()) && !std::isnan(e.real()) ? kUnary : kAtom;
    case ExprOp::kAdd:
    case ExprOp::kFloatAdd:
    case ExprOp::kFloatSub:
      return kSum;
    case ExprOp::kMul:
    case ExprOp::kFloorDiv:
    case ExprOp::kMod:
    case ExprOp::kFloatMul:
    case ExprOp::kFloatDiv:
    case ExprOp::kFloatFloorDiv:
    case ExprOp::kFloatMod:
      return kTerm;
    case ExprOp::kNeg:
    case ExprOp::kFloatNeg:
      return kUnary;
    case ExprOp::kFloatEq:
    case ExprOp::kFloatLt:
    case ExprOp::kFloatLe:
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

// The shortest text that reads back as this double, like repr(). The bits of a
// NaN that is not the usual one are kept, too.
std::string real_text(double value) {
  int64_t bits = std::bit_cast<int64_t>(value);
  if (std::isnan(value)) {
    double usual = std::numeric_limits<double>::quiet_NaN();
    return bits == std::bit_cast<int64_t>(usual)
               ? "nan"
               : "nan(" + std::to_string(bits) + ")";
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
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
    case ExprOp::kFloat:
      *out += real_text(e.real());
      break;
    case ExprOp::kFloatSymbol:
      *out += "f" + std::to_string(e.symbol_index());
      break;
    case ExprOp::kNeg:
    case ExprOp::kFloatNeg:
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
      if (is_function(e.op())) {
        *out += float_text(e.op());
        for (size_t i = 0; i < e.operands().size(); ++i) {
          *out += i ? ", " : "(";
          print(e.operands()[i], kOr, out);
        }
        *out += ")";
        break;
      }
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
    return !native_stack_low() && parse_level_inner(level, out);
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
          *out = typed(ExprOp::kNeg, ExprOp::kFloatNeg, {*out});
          return true;
        }
        return parse_atom(out);
      case kAtom:
        return parse_atom(out);
    }
    return false;
  }

  // The operation of ints, or of floats where there is one.
  static Expr typed(ExprOp ints, ExprOp floats, std::vector<Expr> operands) {
    bool any = false;
    for (const Expr& e : operands) any = any || e.is_float();
    return Expr::make(any ? floats : ints, std::move(operands));
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
      ExprOp op, floats;
      bool swap;
    } kRows[] = {{"==", ExprOp::kEq, ExprOp::kFloatEq, false},
                 {"!=", ExprOp::kNe, ExprOp::kFloatEq, false},
                 {"<=", ExprOp::kLe, ExprOp::kFloatLe, false},
                 {">=", ExprOp::kLe, ExprOp::kFloatLe, true},
                 {"<", ExprOp::kLt, ExprOp::kFloatLt, false},
                 {">", ExprOp::kLt, ExprOp::kFloatLt, true}};
    for (const auto& row : kRows) {
      if (!take(row.token)) continue;
      Expr right;
      if (!parse_level(kSum, &right)) return false;
      bool inverted =
          row.op == ExprOp::kNe && (out->is_float() || right.is_float());
      *out = row.swap ? typed(row.op, row.floats, {right, *out})
                      : typed(row.op, row.floats, {*out, right});
      if (inverted) *out = expr_not(*out);
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
      if (out->is_float() || right.is_float()) {
        *out = Expr::make(plus ? ExprOp::kFloatAdd : ExprOp::kFloatSub,
                          {*out, right});
        continue;
      }
      *out = plus ? *out + right : *out - right;
    }
  }

  bool parse_term(Expr* out) {
    if (!parse_level(kUnary, out)) return false;
    for (;;) {
      Expr right;
      ExprOp op, floats;
      if (take("//")) {
        op = ExprOp::kFloorDiv, floats = ExprOp::kFloatFloorDiv;
      } else if (take("/")) {
        op = floats = ExprOp::kFloatDiv;
      } else if (take("*")) {
        op = ExprOp::kMul, floats = ExprOp::kFloatMul;
      } else if (take("%")) {
        op = ExprOp::kMod, floats = ExprOp::kFloatMod;
      } else {
        return true;
      }
      if (!parse_level(kUnary, &right)) return false;
      *out = typed(op, floats, {*out, right});
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

  // "0.5", "1e-3", "inf", "nan"; false and nothing taken: no float.
  bool parse_real(Expr* out) {
    if (take("inf")) {
      *out = Expr::real(std::numeric_limits<double>::infinity());
      return true;
    }
    if (take("nan")) {
      *out = Expr::real(std::numeric_limits<double>::quiet_NaN());
      int64_t bits;
      if (!take("(")) return true;
      if (!parse_number(&bits) || !take(")")) return false;
      *out = Expr::real(std::bit_cast<double>(bits));
      return true;
    }
    const char* end = at_ + (*at_ == '-');
    while (isdigit(static_cast<unsigned char>(*end))) ++end;
    if (end == at_ || (*end != '.' && *end != 'e')) return false;
    char* after;
    double value = strtod(at_, &after);
    if (after <= end) return false;
    at_ = after;
    *out = Expr::real(value);
    return true;
  }

  // A function of floats by its name; nothing taken: none.
  bool parse_function(Expr* out, bool* found) {
    static constexpr struct {
      const char* text;
      ExprOp op;
      size_t operands;
    } kRows[] = {
#define FJ_FLOAT_OP(name, text, operands, ...) \
  {text, ExprOp::k##name, operands},
#include "guards/expr/float_ops.def"
#undef FJ_FLOAT_OP
        {"float", ExprOp::kFromInt, 1},
        {"same", ExprOp::kFloatSame, 2},
        {"defined", ExprOp::kDefined, 1}};
    for (const auto& row : kRows) {
      bool shared = row.op == ExprOp::kFloatMin || row.op == ExprOp::kFloatMax;
      if (!is_function(row.op) || shared || !take(row.text)) continue;
      *found = true;
      std::vector<Expr> operands(row.operands);
      for (size_t i = 0; i < row.operands; ++i) {
        if (!take(i ? "," : "(") || !parse_level(kOr, &operands[i]))
          return false;
      }
      if (!take(")")) return false;
      *out = Expr::make(row.op, std::move(operands));
      return true;
    }
    return false;
  }

  bool parse_atom(Expr* out) {
    skip_space();
    if (parse_real(out)) return true;
    bool function = false;
    if (parse_function(out, &function)) return true;
    if (function) return false;
    for (bool is_min : {true, false}) {
      if (!take(is_min ? "min" : "max")) continue;
      if (!take("(")) return false;
      std::vector<Expr> operands;
      do {
        Expr e;
        if (!parse_level(kOr, &e)) return false;
        operands.push_back(e);
      } while (take(","));
      bool floats = false;
      for (const Expr& e : operands) floats = floats || e.is_float();
      if (floats && operands.size() != 2) return false;
      *out = floats
                 ? Expr::make(is_min ? ExprOp::kFloatMin : ExprOp::kFloatMax,
                              operands)
                 : Expr::make(is_min ? ExprOp::kMin : ExprOp::kMax, operands);
      return take(")");
    }
    if (take("(")) return parse_level(kOr, out) && take(")");
    int64_t number;
    if ((*at_ == 's' || *at_ == 'f') &&
        isdigit(static_cast<unsigned char>(at_[1]))) {
      bool is_float = *at_++ == 'f';
      if (!parse_number(&number) || number > INT32_MAX) return false;
      int index = static_cast<int>(number);
      *out = is_float ? Expr::real_symbol(index) : Expr::symbol(index);
      return true;
    }
    if (!isdigit(static_cast<unsigned char>(*at_)) && *at_ != '-') return false;
    if (!parse_number(&number)) return false;
    *out = Expr(number);
    return true;
  }

  const char* at_;
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
