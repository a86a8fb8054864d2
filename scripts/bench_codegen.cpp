// Bandwidth of emitted kernels on one thread, beside memcpy of the same bytes,
// and the time that compiling them takes.
//
//   ninja -C build/release bench_codegen
//   build/release/tests/bench_codegen                  kernels that stand below
//   build/release/tests/bench_codegen FILE.loops ...   graphs with their hints
//     (tests/codegen/schedule/programs): scheduled, then run on sizes as
//     hinted. FJ_LISTING=1 prints schedule and machine code.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <sstream>

#include "codegen/kernels/text.h"
#include "codegen/loops/text.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/schedule/schedule.h"
#include "codegen/x86/compile.h"

using namespace framejit::codegen;

namespace {

// Of this thread: what else runs on the machine counts little.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + now.tv_nsec * 1e-9;
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

// Numbers around 0; of integers, small ones that index everything.
void fill(DType type, char* memory, int64_t count) {
  const size_t size = dtype_size(type);
  for (int64_t k = 0; k < count; ++k) {
    Element element = is_float(type) || is_small_float(type)
                          ? element_of(type, (k * 7919 % 1000) * 0.004 - 2)
                          : element_of_integer(type, k * 7919 % 61 % 2);
    store_element(type, element, memory + k * size);
  }
}

double copy_time(int64_t bytes) {
  std::vector<char> from(static_cast<size_t>(bytes / 2), 1), to(from.size());
  return time_of([&] { std::memcpy(to.data(), from.data(), from.size()); });
}

// A graph as a whole, each kernel compiled once.
int run_program(const std::string& path, X86Isa isa) {
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  const size_t line = text.find('\n');
  std::istringstream hints(text.substr(0, line));
  std::string word, error;
  hints >> word;
  TargetInfo target;
  target.vector_bytes = isa == X86Isa::kAvx512 ? 64 : 32;
  for (int64_t value; hints >> value;) target.hints.push_back(value);
  auto graph =
      parse_loops(text.substr(line, text.find("---\n") - line), &error);
  if (word != "hints" || !graph) {
    std::printf("%s: %s\n", path.c_str(), error.c_str());
    return 1;
  }
  const int64_t* symbols = target.hints.data();
  const Schedule schedule = make_schedule(*graph, target);
  const bool listing = std::getenv("FJ_LISTING") != nullptr;
  if (listing) std::printf("%s\n", print(schedule, true).c_str());
  std::vector<Compiled> compiled;
  for (const Kernel& kernel : schedule.kernels) {
    compiled.push_back(compile(kernel, isa, listing));
    if (!compiled.back().code) {
      std::printf("%s: %s\n", path.c_str(), compiled.back().refused.c_str());
      return 0;
    }
    if (listing) std::printf("%s\n", compiled.back().code->listing.c_str());
  }
  std::vector<std::vector<char>> memory(schedule.allocations.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i].resize(schedule.allocations[i].bytes.evaluate(symbols) + 64);
  }
  for (BufferId input : schedule.inputs) {
    std::vector<char>& bytes = memory[schedule.allocation(input)];
    const DType type = schedule.buffers[input].type;
    fill(type, bytes.data(),
         static_cast<int64_t>(bytes.size() / dtype_size(type)));
  }
  std::vector<std::vector<void*>> arguments;
  for (const Step& step : schedule.steps) {
    auto& list = arguments.emplace_back();
    for (BufferId id : step.arguments) {
      const Buffer& buffer = schedule.buffers[id];
      list.push_back(memory[schedule.allocation(id)].data() +
                     buffer.offset.evaluate(symbols) *
                         static_cast<int64_t>(dtype_size(buffer.type)));
    }
  }
  std::vector<double> of_step(schedule.steps.size(), 1e9);
  double time = time_of([&] {
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      const int number = schedule.steps[s].kernel;
      if (number < 0) continue;
      double start = seconds();
      run(*compiled[number].code, schedule.kernels[number], symbols,
          arguments[s].data());
      of_step[s] = std::min(of_step[s], seconds() - start);
    }
  });
  int64_t bytes = 0;
  for (const Allocation& allocation : schedule.allocations) {
    if (allocation.kind != MemoryKind::kArena)
      bytes += allocation.bytes.evaluate(symbols);
  }
  const double copy = copy_time(bytes);
  const std::string name = path.substr(path.rfind('/') + 1);
  std::printf(
      "%-34s %-7s %9.3f ms %7.2f GB/s, %5.2f of a copy; steps:", name.c_str(),
      isa_name(isa), time * 1e3, bytes / time * 1e-9, time / copy);
  for (size_t s = 0; s < of_step.size() && s < 8; ++s) {
    std::printf(" %.3f", of_step[s] * 1e3);
  }
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const X86Isa isas[] = {X86Isa::kAvx512, X86Isa::kAvx2};
    int wrong = 0;
    for (int i = 1; i < argc; ++i) {
      for (X86Isa isa : isas) {
        if (cpu_has(isa)) wrong |= run_program(argv[i], isa);
      }
    }
    return wrong;
  }
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
      fill(type, memory.back().data(), sample.elements[i]);
    }
    for (auto& each : memory) arguments.push_back(each.data());
    double copy = copy_time(static_cast<int64_t>(bytes));
    for (X86Isa isa : {X86Isa::kAvx512, X86Isa::kAvx2}) {
      if (!cpu_has(isa)) continue;
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
