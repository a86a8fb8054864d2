// Residual and resume code against running whole, at every instruction.
#include <gtest/gtest.h>

#include "tests/bytecode/bytecode_module.h"

namespace framejit::bytecode {
namespace {

#define FJ_RESUME_TEST(test, function)                                     \
  TEST(Resume, test) {                                                     \
    EXPECT_EQ(run_python_test("residual/resume_checks.py", function), ""); \
  }

FJ_RESUME_TEST(OneBreakAtEveryInstruction, "one_break")
FJ_RESUME_TEST(LoopsRunWhole, "loops_run_whole")
FJ_RESUME_TEST(ChainsOfLoops, "chains_of_loops")
FJ_RESUME_TEST(VariablesOfALoop, "variables_of_a_loop")
FJ_RESUME_TEST(ChainsOfBreaks, "chains_of_breaks")
FJ_RESUME_TEST(SingleSteps, "break_everywhere")
FJ_RESUME_TEST(LoopComesToTheSameCode, "loop_comes_to_the_same_code")
FJ_RESUME_TEST(GeneratedCodeIsFreed, "generated_code_is_freed")
FJ_RESUME_TEST(ReleaseDropsCode, "release_drops_code")
FJ_RESUME_TEST(ManyShapesDoNotLeak, "many_shapes_do_not_leak")
FJ_RESUME_TEST(ImpossibleFramesAreRefused, "impossible_frames_are_refused")
FJ_RESUME_TEST(PlacesWithoutABreak, "places_without_a_break")
FJ_RESUME_TEST(HandledExceptionOfAnotherThread,
               "handled_exception_of_another_thread")
FJ_RESUME_TEST(NamesAndLinesStay, "names_and_lines_stay")

}  // namespace
}  // namespace framejit::bytecode
