// Bandwidth of emitted kernels on one thread, beside memcpy of the same bytes,
// and the time that compiling them takes.
//
//   ninja -C build/release bench_codegen && build/release/tests/bench_codegen
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "codegen/kernels/text.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/x86/compile.h"

using namespace framejit::codegen;

namespace {

double seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The best of several runs.
double time_of(const std::function<void()>& work) {
  double best = 1e9, begin = seconds();
  for (int i = 0; i < 200 && (i < 5 || seconds() - begin < 0.4); ++i) {
    double start = seconds();
    work();
    best = std::min(best, seconds() - start);
  }
  return best;
}

struct Sample {
  const char* text;
  std::vector<int64_t> symbols;
  std::vector<int64_t> elements;  // of each argument
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> list = {
      {R"(kernel add(%0: f32, %1: f32, %2: out f32) outer (i0 < s0) columns {
  stage () {
    v0: f32 = load %0[i0]
    v1: f32 = load %1[i0]
    v2: f32 = add v0, v1
    store %2[i0] = v2
  }
})",
       {1 << 22},
       {1 << 22, 1 << 22, 1 << 22}},
      {R"(kernel gelu_like(%0: f32, %1: out f32) outer (i0 < s0) columns {
  stage () {
    v0: f32 = load %0[i0]
    v1: f32 = const 0.70710678
    v2: f32 = mul v0, v1
    v3: f32 = erf v2
    v4: f32 = const 1
    v5: f32 = add v3, v4
    v6: f32 = const 0.5
    v7: f32 = mul v0, v6
    v8: f32 = mul v7, v5
    store %1[i0] = v8
  }
})",
       {1 << 22},
       {1 << 22, 1 << 22}},
      {R"(kernel bf16_chain(%0: bf16, %1: bf16, %2: out bf16) outer (i0 < s0) columns {
  stage () {
    v0: bf16 = load %0[i0]
    v1: bf16 = load %1[i0]
    v2: f32 = cast v0
    v3: f32 = cast v1
    v4: f32 = mul v2, v3
    v5: f32 = add v4, v2
    v6: bf16 = cast v5
    store %2[i0] = v6
  }
})",
       {1 << 22},
       {1 << 22, 1 << 22, 1 << 22}},
      {R"(kernel softmax(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32, r1: f32) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    r0 = max v0
  }
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    v1: f32 = row r0
    v2: f32 = sub v0, v1
    v3: f32 = exp v2
    store %1[i0*s1 + i1] = v3
    r1 = sum v3
  }
  stage (i1 < s1) {
    v0: f32 = load %1[i0*s1 + i1]
    v1: f32 = row r1
    v2: f32 = div v0, v1
    store %1[i0*s1 + i1] = v2
  }
})",
       {4096, 1024},
       {1 << 22, 1 << 22}},
      {R"(kernel layer_norm(%0: f32, %1: f32, %2: out f32) outer (i0 < s0) inner rows (r0: f32, r1: f32, r2: f32, r3: f32) numbers (n0 = s1) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    r0 = sum v0
  }
  stage () {
    v0: f32 = row r0
    v1: i64 = number n0
    v2: f32 = cast v1
    v3: f32 = div v0, v2
    r1 = v3
  }
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    v1: f32 = row r1
    v2: f32 = sub v0, v1
    v3: f32 = mul v2, v2
    r2 = sum v3
  }
  stage () {
    v0: f32 = row r2
    v1: i64 = number n0
    v2: f32 = cast v1
    v3: f32 = div v0, v2
    v4: f32 = const 1e-05
    v5: f32 = add v3, v4
    v6: f32 = sqrt v5
    v7: f32 = const 1
    v8: f32 = div v7, v6
    r3 = v8
  }
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    v1: f32 = row r1
    v2: f32 = sub v0, v1
    v3: f32 = row r3
    v4: f32 = mul v2, v3
    v5: f32 = load %1[i1]
    v6: f32 = mul v4, v5
    store %2[i0*s1 + i1] = v6
  }
})",
       {4096, 1024},
       {1 << 22, 1024, 1 << 22}},
      {R"(kernel welford(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32, r1: f32) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    r0, r1 = welford v0
  }
  stage () {
    v0: f32 = row r1
    store %1[i0] = v0
  }
})",
       {4096, 1024},
       {1 << 22, 4096}},
      {R"(kernel row_sum(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    r0 = sum v0
  }
  stage () {
    v0: f32 = row r0
    store %1[i0] = v0
  }
})",
       {4096, 1024},
       {1 << 22, 4096}},
      {R"(kernel column_sum(%0: f32, %1: out f32) outer (i0 < s0) columns rows (r0: f32) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0 + i1*s0]
    r0 = sum v0
  }
  stage () {
    v0: f32 = row r0
    store %1[i0] = v0
  }
})",
       {1024, 4096},
       {1 << 22, 1024}},
      {R"(kernel argmax(%0: f32, %1: out i64) outer (i0 < s0) inner rows (r0: f32, r1: i64) {
  stage (i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    r0, r1 = argmax v0
  }
  stage () {
    v0: i64 = row r1
    store %1[i0] = v0
  }
})",
       {4096, 1024},
       {1 << 22, 4096}},
      {R"(kernel transpose_add(%0: f32, %1: f32, %2: out f32) outer (i0 < s0, i1 < s1) columns {
  stage () {
    v0: f32 = load %0[i0 + i1*s0]
    v1: f32 = load %1[i0*s1 + i1]
    v2: f32 = add v0, v1
    store %2[i0*s1 + i1] = v2
  }
})",
       {2048, 2048},
       {1 << 22, 1 << 22, 1 << 22}},
      {R"(kernel transpose_tiled(%0: f32, %1: f32, %2: out f32) outer (i0 < s0, i1 < s1) columns {
  stage (i2 < 16) {
    v0: f32 = load %0[i0*16 + i1*(s0*16) + i2]
    v1: f32 = load %1[i0*(s1*16) + i1 + i2*s1]
    v2: f32 = add v0, v1
    store %2[i0*(s1*16) + i1 + i2*s1] = v2
  }
})",
       {2048 / 16, 2048},
       {1 << 22, 1 << 22, 1 << 22}},
      {R"(kernel column_stream(%0: f32, %1: out f64, %2: out f32) outer () inner {
  stage (i0 < s1) {
    v0: f64 = const 0
    store %1[i0] = v0
  }
  stage (i0 < s0, i1 < s1) {
    v0: f32 = load %0[i0*s1 + i1]
    v1: f64 = cast v0
    store %1[i1] = sum v1
  }
  stage (i0 < s1) {
    v0: f64 = load %1[i0]
    v1: f32 = cast v0
    store %2[i0] = v1
  }
})",
       {4096, 1024},
       {1 << 22, 1024, 1024}},
      {R"(kernel float64_chain(%0: f64, %1: out f64) outer (i0 < s0) columns {
  stage () {
    v0: f64 = load %0[i0]
    v1: f64 = exp v0
    v2: f64 = tanh v1
    v3: f64 = add v2, v0
    store %1[i0] = v3
  }
})",
       {1 << 21},
       {1 << 21, 1 << 21}},
      {R"(kernel sin_large(%0: f32, %1: out f32) outer (i0 < s0) columns {
  stage () {
    v0: f32 = load %0[i0]
    v1: f32 = const 1e+20
    v2: f32 = mul v0, v1
    v3: f32 = sin v2
    store %1[i0] = v3
  }
})",
       {1 << 22},
       {1 << 22, 1 << 22}},
  };
  return list;
}

}  // namespace

int main() {
  std::printf("%-14s %-7s %9s %9s %9s %9s\n", "kernel", "isa", "compile us",
              "ms", "GB/s", "memcpy");
  for (const Sample& sample : samples()) {
    std::string error;
    std::optional<Kernel> kernel = parse_kernel(sample.text, &error);
    if (!kernel || !verify(*kernel).empty()) {
      std::printf("%s %s\n", error.c_str(),
                  kernel ? verify(*kernel).c_str() : "");
      return 1;
    }
    std::vector<std::vector<char>> memory;
    std::vector<void*> arguments;
    double bytes = 0;
    for (size_t i = 0; i < sample.elements.size(); ++i) {
      const DType type = kernel->arguments[i].type;
      const size_t size = dtype_size(type);
      memory.emplace_back(sample.elements[i] * size);
      bytes += static_cast<double>(memory.back().size());
      for (int64_t k = 0; k < sample.elements[i]; ++k) {
        store_element(type, element_of(type, (k % 1000) * 0.004 - 2),
                      memory.back().data() + k * size);
      }
    }
    for (auto& each : memory) arguments.push_back(each.data());
    std::vector<char> from(static_cast<size_t>(bytes / 2), 1), to(from.size());
    double copy =
        time_of([&] { std::memcpy(to.data(), from.data(), from.size()); });
    for (X86Isa isa : {X86Isa::kAvx512, X86Isa::kAvx2}) {
      Compiled compiled;
      double compile_time = time_of([&] { compiled = compile(*kernel, isa); });
      if (!compiled.code) {
        std::printf("%s: %s\n", kernel->name.c_str(), compiled.refused.c_str());
        continue;
      }
      double time = time_of([&] {
        run(*compiled.code, *kernel, sample.symbols.data(), arguments.data());
      });
      std::printf("%-14s %-7s %9.0f %9.2f %9.2f %9.2f\n", kernel->name.c_str(),
                  isa_name(isa), compile_time * 1e6, time * 1e3,
                  bytes / time * 1e-9, bytes / copy * 1e-9);
    }
  }
}
