// Decoder against the running CPython's own `dis`: rows for every opcode, all
// of the standard library, jump targets, handlers, names and constants.
#include <gtest/gtest.h>

#include "tests/bytecode/bytecode_module.h"

namespace framejit::bytecode {
namespace {

TEST(Decoder, EveryOpcodeHasARow) {
  EXPECT_EQ(run_python_test("code/decoder_checks.py", "every_opcode_has_a_row"),
            "");
}

TEST(Decoder, AgreesWithDisOnTheStandardLibrary) {
  EXPECT_EQ(run_python_test("code/decoder_checks.py", "agrees_with_dis"), "");
}

TEST(Decoder, VersionDifferencesAreGone) {
  EXPECT_EQ(run_python_test("code/decoder_checks.py", "version_differences"),
            "");
}

TEST(Decoder, CacheDiesWithTheCode) {
  EXPECT_EQ(run_python_test("code/decoder_checks.py", "cache_dies_with_code"),
            "");
}

TEST(Decoder, InstrumentedCodeDecodesAsPlain) {
  EXPECT_EQ(run_python_test("code/decoder_checks.py", "instrumented_code"), "");
}

TEST(Decoder, MalformedCodeIsABreak) {
  EXPECT_EQ(run_python_test("code/decoder_checks.py", "malformed_code"), "");
}

}  // namespace
}  // namespace framejit::bytecode
