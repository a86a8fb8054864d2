// Errors of emitted f32 functions over every bit pattern, as a table.
//
//   ninja -C build/release sweep_math
//   build/release/tests/sweep_math [--step N] [--isa avx2] [function ...]
//
// Without --step all 2^32 inputs: minutes a function. Progress goes to stderr.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/codegen/legalise/accuracy.h"

using namespace framejit::codegen;

int main(int argc, char** argv) {
  uint64_t step = 1;
  X86Isa isa = cpu_isas().front();
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--step") && i + 1 < argc) {
      step = std::strtoull(argv[++i], nullptr, 10);
    } else if (!std::strcmp(argv[i], "--isa") && i + 1 < argc) {
      isa = std::strcmp(argv[++i], "avx2") ? X86Isa::kAvx512 : X86Isa::kAvx2;
    } else {
      wanted.push_back(argv[i]);
    }
  }
  if (step == 0) return 2;
  std::printf(
      "| function | largest error (ulp) | at | inputs |\n|---|---|---|---|\n");
  for (ScalarOp op : swept_functions()) {
    const std::string name = scalar_op_row(op).text;
    if (!wanted.empty() &&
        std::find(wanted.begin(), wanted.end(), name) == wanted.end()) {
      continue;
    }
    Compiled compiled = compile(function_kernel(op, DType::kF32), isa);
    if (!compiled.code) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), compiled.refused.c_str());
      return 1;
    }
    Accuracy all;
    constexpr uint64_t kPart = 1ull << 28;
    for (uint64_t begin = 0; begin < 1ull << 32; begin += kPart) {
      std::fprintf(stderr, "\r%-8s %3d%%", name.c_str(),
                   static_cast<int>(begin / kPart * 100 / 16));
      Accuracy part = sweep(op, *compiled.code, begin, begin + kPart, step);
      if (!(part.worst <= all.worst)) {
        all.worst = part.worst;
        all.at = part.at;
      }
      all.count += part.count;
    }
    std::fprintf(stderr, "\r%*s\r", 20, "");
    std::printf("| %s | %.3f | %.9g | %llu |\n", name.c_str(), all.worst,
                all.at, static_cast<unsigned long long>(all.count));
    std::fflush(stdout);
  }
}
