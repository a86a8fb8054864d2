// Names of nodes. That they are torch.fx's is tested in tests/python/fx.
#include "graph/fx/names.h"

#include <gtest/gtest.h>

#include <vector>

namespace framejit::graph {
namespace {

std::vector<std::string> made(const std::vector<std::string>& candidates) {
  Names names;
  std::vector<std::string> out;
  for (const std::string& candidate : candidates)
    out.push_back(names.create(candidate));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Names, AreUnique) {
  EXPECT_EQ(made({"add", "add", "add_1", "add"}),
            (Texts{"add", "add_1", "add_2", "add_3"}));
  EXPECT_EQ(made({"add_7", "add", "add"}), (Texts{"add_7", "add", "add_8"}));
  EXPECT_EQ(made({"a_07", "a_07"}), (Texts{"a_07", "a_8"}));
}

TEST(Names, AreIdentifiers) {
  EXPECT_EQ(made({"", "1x", "a..b", "é", "_1", "__1"}),
            (Texts{"_unnamed", "_1x", "a_b", "_", "_1", "__1"}));
}

TEST(Names, OfASeriesAreThoseOfItsCandidate) {
  for (const char* candidate : {"relu", "relu_3", "reserved here"}) {
    Names one, other;
    reserve_name("reserved_here");
    one.create("relu_5");
    other.create("relu_5");
    Names::Series series = one.series(candidate);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(one.next(series), other.create(candidate));
      EXPECT_EQ(one.create("relu_8"), other.create("relu_8"));
    }
  }
}

TEST(Names, ThatAreReserved) {
  reserve_name("print");
  Names names;
  EXPECT_EQ(names.create("print"), "print_1");
  EXPECT_EQ(names.create("print", true), "print");
}

TEST(Names, InSnakeCase) {
  EXPECT_EQ(snake_case("camelCaseABC"), "camel_case_abc");
  EXPECT_EQ(snake_case("ABC"), "abc");
}

}  // namespace
}  // namespace framejit::graph
