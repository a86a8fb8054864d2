// What follows from decisions: rows, and random decisions whose consequences
// are compared with what the expressions are of numbers that fit.
#include <cstdlib>
#include <random>

#include "gtest/gtest.h"
#include "guards/expr/facts.h"

namespace framejit {
namespace {

Expr parse(const std::string& text) {
  Expr expr;
  EXPECT_TRUE(Expr::parse(text, &expr)) << text;
  return expr;
}

Facts facts_of(const std::vector<const char*>& texts) {
  Facts facts;
  for (const char* text : texts) facts.assume(parse(text));
  return facts;
}

TEST(FactsTest, WhatFollows) {
  const struct {
    std::vector<const char*> known;
    const char* asked;
    std::optional<bool> answer;
  } kRows[] = {
      // ranges
      {{"2 <= s0"}, "s0 == 1", false},
      {{"2 <= s0"}, "0 < s0", true},
      {{"2 <= s0"}, "0 <= s0*s0-4", true},
      {{"2 <= s0"}, "s0 == 2", {}},
      {{"2 <= s0", "s0 != 2"}, "3 <= s0", true},
      {{"2 <= s0", "s0 <= 64"}, "s0 <= 100", true},
      {{"2 <= s0", "s0 <= 64"}, "s0*2+1 < 200", true},
      {{"2 <= s0", "s0 <= 2"}, "s0 % 2 == 0", true},
      {{"5 <= 2*s0"}, "3 <= s0", true},
      {{"s0 <= 64"}, "s0 <= 63", {}},
      // sums
      {{"s0 <= s1", "s1 <= s2"}, "s0 <= s2", true},
      {{"s0 < s1"}, "s0 == s1", false},
      {{"s0 < s1"}, "s1 <= s0", false},
      {{"s0 <= s1", "s1 <= s0"}, "s0 == s1", true},
      {{"s0 + s1 <= 10", "2 <= s1"}, "s0 <= 8", true},
      {{"2 <= s0", "2 <= s1"}, "s1 < s0*s1", true},
      {{"2 <= s0", "2 <= s1"}, "s0*s1 == s1", false},
      {{"2 <= s0", "2 <= s1", "2 <= s2"}, "s2 < s0*s1*s2", true},
      {{"s0 != s1"}, "s1 == s0", false},
      {{}, "2*s0+1 == 4*s1", false},
      // equalities
      {{"s0 == 5"}, "s0 % 2 == 1", true},
      {{"s0 == 5"}, "s0 <= 64", true},
      {{"s1 == s0*2"}, "s1 % 2 == 0", true},
      {{"s1 == s0*2", "4 <= s1"}, "2 <= s0", true},
      {{"s0 == s1", "s1 == s2"}, "s0 + 1 == s2 + 1", true},
      {{"s0*2 == s1*2"}, "s1 == s0", true},
      // remainders and quotients
      {{"s0 % 4 == 0"}, "s0 % 2 == 0", true},
      {{"s0 % 4 == 2"}, "(s0+1) % 2 == 1", true},
      {{"s0 % 4 == 2"}, "s0 == 9", false},
      {{"s0 % 2 != 0"}, "s0 % 2 == 1", true},
      {{"s0 % 4 == 0"}, "s0*s1 % 4 == 0", true},
      {{"s0 % 4 == 0"}, "s0 % 8 == 0", {}},
      {{"2 <= s1"}, "s0*s1 % s1 == 0", true},
      {{"0 <= s1"}, "s0*s1 % s1 == 0", {}},  // s1 may be 0
      {{"2 <= s0", "2 <= s1"}, "s0*s1*s2*6 // (s0*s1*2) == s2*3", true},
      {{"0 <= s0"}, "s0 // 2 <= s0", true},
      {{}, "s0 // 2 * 2 <= s0", true},
      {{"3 <= s0 // 2"}, "6 <= s0", true},
      {{"8 <= s0"}, "4 <= s0 // 2", true},
      {{"2 <= s0", "s0 <= 7"}, "s0 // 8 == 0", true},
      {{"2 <= s0", "s0 <= 7"}, "s0 % 8 == s0", true},
      {{"0 <= s0"}, "0 <= s0 // s1", {}},  // s1 may be 0
      {{"0 <= s0", "1 <= s1"}, "0 <= s0 // s1", true},
      // min and max
      {{"s0 <= s1"}, "min(s0, s1) == s0", true},
      {{"2 <= s0"}, "max(s0, 1) == s0", true},
      {{}, "min(s0, s1) <= s1", true},
      {{"4 <= min(s0, s1)"}, "4 <= s1", true},
      {{"s0 <= 3"}, "min(s0, 7) + 1 <= 4", true},
      // and, or, not
      {{"2 <= s0 and s0 <= 4"}, "s0 < 5", true},
      {{"not (s0 < 2 or 9 < s0)"}, "s0 <= 9", true},
      {{"2 <= s0"}, "s0 == 1 or s0 == 0", false},
      {{"2 <= s0"}, "s0 == 1 or 1 < s0", true},
      {{"s0 < 2 or 9 < s0"}, "s0 < 2", {}},
      {{"s0 < 2 or 9 < s0"}, "s0 < 2 or 9 < s0", true},
      // Beyond 64 bits nothing is known, or it is as of numbers without limits.
      {{"0 <= s0"}, "s0*s0*s0 <= 9223372036854775807", {}},
      {{"4611686018427387904 <= s0"}, "0 <= s0*s0", true},
  };
  for (const auto& row : kRows) {
    Facts facts = facts_of(row.known);
    std::string known;
    for (const char* text : row.known) known += std::string(text) + ", ";
    EXPECT_EQ(facts.decide(parse(row.asked)), row.answer)
        << row.asked << " of " << known;
  }
}

TEST(FactsTest, SimplerForms) {
  const struct {
    std::vector<const char*> known;
    const char *expr, *simple;
  } kRows[] = {
      {{"s0 <= s1"}, "min(s0, s1)", "s0"},
      {{"s0 <= s1"}, "max(s0, s1, s2)", "max(s1, s2)"},
      {{"s1 == s0"}, "s1*2 + s0", "s0*3"},
      {{"s0 == 5"}, "s0*s1", "s1*5"},
      {{"s0 % 4 == 1"}, "(s0+2) % 4 + s1", "s1+3"},
      {{"2 <= s1"}, "(s0*s1 + s1*s1) // s1", "s0+s1"},
      {{"2 <= s0"}, "max(s0//2, 1)", "s0//2"},
      {{"2 <= s0"}, "min((s0-1)//2+1, (s0+1)//2+1)", "(s0+1)//2"},
  };
  for (const auto& row : kRows)
    EXPECT_EQ(facts_of(row.known).simplify(parse(row.expr)), parse(row.simple))
        << row.expr << ": "
        << facts_of(row.known).simplify(parse(row.expr)).str();
}

// ---- random decisions

class RandomFacts {
 public:
  explicit RandomFacts(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }

  Expr integer(int depth) {
    if (depth == 0 || below(5) == 0) {
      if (below(3) != 0) return Expr::symbol(int(below(kSymbols)));
      static constexpr int64_t kNumbers[] = {-3, -1, 0, 1, 2, 3, 4, 5, 8, 16};
      return Expr(kNumbers[below(std::size(kNumbers))]);
    }
    static constexpr ExprOp kOps[] = {
        ExprOp::kAdd, ExprOp::kAdd,      ExprOp::kAdd, ExprOp::kMul,
        ExprOp::kMul, ExprOp::kFloorDiv, ExprOp::kMod, ExprOp::kMin,
        ExprOp::kMax, ExprOp::kNeg};
    const ExprOp op = kOps[below(std::size(kOps))];
    Expr a = integer(depth - 1);
    if (op == ExprOp::kNeg) return Expr::make(op, {a});
    // By a number, mostly, as programs divide.
    const bool divides = op == ExprOp::kFloorDiv || op == ExprOp::kMod;
    Expr b = divides && below(4) != 0 ? Expr(below(6) + 1) : integer(depth - 1);
    return Expr::make(op, {a, b});
  }

  Expr boolean(int depth) {
    const int64_t kind = below(12);
    if (depth > 0 && kind == 0)
      return Expr::make(ExprOp::kAnd, {boolean(depth - 1), boolean(depth - 1)});
    if (depth > 0 && kind == 1)
      return Expr::make(ExprOp::kOr, {boolean(depth - 1), boolean(depth - 1)});
    if (depth > 0 && kind == 2) return expr_not(boolean(depth - 1));
    static constexpr ExprOp kOps[] = {ExprOp::kEq, ExprOp::kNe, ExprOp::kLt,
                                      ExprOp::kLe, ExprOp::kLe};
    return Expr::make(kOps[below(std::size(kOps))],
                      {integer(depth), integer(depth)});
  }

  std::vector<int64_t> numbers() {
    std::vector<int64_t> values;
    const bool sizes = below(2) != 0;
    for (int i = 0; i < kSymbols; ++i)
      values.push_back(sizes ? below(18) + 2 : below(26) - 6);
    if (below(30) == 0) values[0] = int64_t{1} << below(62);
    return values;
  }

  static constexpr int kSymbols = 4;

 private:
  std::mt19937_64 random_;
};

// FJ_FACTS=10000000: as many decisions.
TEST(FactsTest, RandomDecisionsAgreeWithEvaluation) {
  const char* wanted = std::getenv("FJ_FACTS");
  const int64_t decisions = wanted ? std::atoll(wanted) : 100'000;
  const char* seed = std::getenv("FJ_FACTS_SEED");
  RandomFacts random(seed ? std::atoll(seed) : 1);
  int64_t asked = 0, answered = 0, compared = 0;
  while (asked < decisions) {
    const std::vector<int64_t> hints = random.numbers();
    Facts facts;
    std::vector<Expr> known;
    std::vector<std::vector<int64_t>> fitting = {hints};
    std::vector<std::vector<int64_t>> others;
    for (int i = 0; i < 60; ++i) {
      std::vector<int64_t> other = random.numbers();
      // Near the hints, and with equal ones where they are equal.
      if (i % 2) {
        other = hints;
        const int64_t more = random.below(7) - 3;
        for (int64_t& value : other) value += i % 4 == 1 ? more : 0;
        other[random.below(RandomFacts::kSymbols)] += random.below(9) - 4;
      }
      others.push_back(std::move(other));
    }
    for (int step = 0; step < 10; ++step) {
      Expr condition = random.boolean(int(random.below(4)));
      int64_t truth;
      if (!condition.try_evaluate(hints.data(), &truth)) continue;
      ++asked;
      // As a capture: a decision, and the guard where it was none before.
      const auto answer = facts.decide(condition);
      if (answer) {
        ++answered;
        ASSERT_EQ(*answer, truth != 0) << condition.str();
      }
      auto fail = [&](const std::vector<int64_t>& values) {
        std::string text = condition.str() + " knowing";
        for (const Expr& each : known) text += " [" + each.str() + "]";
        for (int64_t value : values) text += " " + std::to_string(value);
        return text;
      };
      Expr form = random.integer(int(random.below(4)));
      Expr simple = facts.simplify(form);
      Range range = facts.range_of(form);
      auto check_form = [&](const std::vector<int64_t>& values) {
        int64_t expected, got;
        if (!form.try_evaluate(values.data(), &expected)) return;
        ASSERT_LE(range.low, expected) << form.str() << " " << fail(values);
        ASSERT_GE(range.high, expected) << form.str() << " " << fail(values);
        if (!simple.try_evaluate(values.data(), &got)) return;
        ASSERT_EQ(got, expected)
            << form.str() << " as " << simple.str() << " " << fail(values);
      };
      check_form(hints);
      for (const auto& values : others) {
        check_form(values);
        int64_t other;
        if (!answer) continue;
        ++compared;
        // What is said to follow has a value, but for its size.
        if (!condition.try_evaluate(values.data(), &other)) continue;
        ASSERT_EQ(other != 0, *answer) << fail(values);
      }
      if (HasFatalFailure()) return;
      if (answer) continue;
      Expr fact = truth ? condition : expr_not(condition);
      facts.assume(fact);
      known.push_back(fact);
      std::erase_if(others, [&](const std::vector<int64_t>& values) {
        int64_t holds;
        return !fact.try_evaluate(values.data(), &holds) || !holds;
      });
    }
  }
  EXPECT_GT(answered, asked / 10);
  EXPECT_GT(compared, asked / 4);
  if (wanted)
    std::printf("%lld asked, %lld followed, %lld compared\n",
                static_cast<long long>(asked), static_cast<long long>(answered),
                static_cast<long long>(compared));
}

}  // namespace
}  // namespace framejit
