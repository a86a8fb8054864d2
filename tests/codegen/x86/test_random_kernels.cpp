// Random kernels give what the interpreter does. FJ_KERNEL_SEEDS=first:count
// asks for others than the few that run each time.
#include <cstdlib>

#include "tests/codegen/x86/random_kernels.h"

namespace framejit::codegen {
namespace {

TEST(X86RandomKernels, EqualTheInterpreter) {
  uint64_t first = 1, count = 1000;
  if (const char* wanted = std::getenv("FJ_KERNEL_SEEDS")) {
    char* rest;
    first = std::strtoull(wanted, &rest, 10);
    if (*rest == ':') count = std::strtoull(rest + 1, nullptr, 10);
  }
  int compiled = 0, failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; ++seed) {
    failed += !RandomKernel(seed).check(&compiled);
    if (count > 10000 && seed % 10000 == 0) {
      std::fprintf(stderr, "\r%llu", static_cast<unsigned long long>(seed));
    }
  }
  std::printf("%d kernels compiled of %llu\n", compiled,
              static_cast<unsigned long long>(count));
  // Few are refused, whichever instruction sets there are.
  const auto sets = static_cast<int>(cpu_isas().size());
  EXPECT_GE(compiled, sets * static_cast<int>(count / 2));
}

}  // namespace
}  // namespace framejit::codegen
