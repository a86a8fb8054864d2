// Programs whose fusion decisions are held by text: programs/*.loops has a
// graph with hints for its symbols ("cuda" before them: for a GPU), and behind
// "---" what its schedule is. Each
// is also run on small sizes and compared with the graph.
//
// FJ_UPDATE_PROGRAMS=1 writes what comes out into the files: read the diff.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../random_loops.h"
#include "../random_source.h"
#include "codegen/cuda/print_cuda.h"
#include "codegen/loops/text.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/schedule/schedule.h"
#include "codegen/x86/compile.h"

namespace framejit::codegen {
namespace {

struct Program {
  std::filesystem::path path;
  std::string head;  // all before the expectation
  TargetInfo target;
  LoopGraph graph;
  std::string expected;
};

Program read(const std::filesystem::path& path) {
  Program out;
  out.path = path;
  std::ifstream file(path);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  const size_t end = text.find("---\n");
  out.head = text.substr(0, end);
  if (end != std::string::npos) out.expected = text.substr(end + 4);
  const size_t line = out.head.find('\n');
  std::istringstream hints(out.head.substr(0, line));
  std::string word;
  hints >> word;
  const bool is_cuda = word == "cuda";
  if (is_cuda) {
    out.target = cuda_target(90);
    hints >> word;
  }
  EXPECT_EQ(word, "hints") << path;
  for (int64_t value; hints >> value;) out.target.hints.push_back(value);
  if (!is_cuda) out.target.threads = 4;
  std::string error;
  auto graph = parse_loops(out.head.substr(line), &error);
  EXPECT_TRUE(graph) << path << ": " << error;
  if (graph) out.graph = *graph;
  EXPECT_EQ(verify(out.graph), "") << path;
  return out;
}

std::vector<Program> programs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(FJ_SOURCE_DIR) /
           "tests/codegen/schedule/programs"))
    if (entry.path().extension() == ".loops") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Program> out;
  for (const auto& path : paths) out.push_back(read(path));
  return out;
}

// Inputs, outputs and results of calls, once each: no schedule moves less.
int64_t least_bytes(const Program& program) {
  int64_t bytes = 0;
  auto add = [&](BufferId id) {
    const Buffer& buffer = program.graph.buffers[id];
    bytes += program.target.hint(buffer.sizes) *
             static_cast<int64_t>(dtype_size(buffer.type));
  };
  for (const Definition& d : program.graph.definitions) {
    if (d.kind == DefinitionKind::kInput || d.kind == DefinitionKind::kExtern)
      for (BufferId result : d.results) add(result);
  }
  for (BufferId output : program.graph.outputs) add(output);
  return bytes;
}

std::string description(const Program& program, const Schedule& schedule) {
  // Steps and kernels; where buffers lie is of no interest here.
  std::istringstream lines(print(schedule, false));
  std::string out;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("  %", 0) != 0) out += line + "\n";
  return out + "bytes moved " +
         std::to_string(bytes_moved(schedule, program.target)) +
         ", inputs and outputs " + std::to_string(least_bytes(program)) +
         ", arena " +
         std::to_string(program.target.hint(schedule.arena_bytes)) + "\n";
}

TEST(SchedulePrograms, AreFusedAsTheFilesSay) {
  const bool update = std::getenv("FJ_UPDATE_PROGRAMS") != nullptr;
  int count = 0;
  for (const Program& program : programs()) {
    Schedule schedule = make_schedule(program.graph, program.target);
    EXPECT_EQ(verify(schedule), "") << program.path;
    const std::string got = description(program, schedule);
    ++count;
    if (update) {
      std::ofstream(program.path) << program.head << "---\n" << got;
    } else {
      EXPECT_EQ(got, program.expected) << program.path << "\n"
                                       << print(schedule, true);
    }
  }
  EXPECT_GE(count, 20);
}

// Small numbers; of integers, those that index everything.
void fill(const LoopGraph& graph, RunMemory* memory, uint64_t seed) {
  RandomSource random(seed);
  size_t at = 0;
  for (const Definition& d : graph.definitions) {
    if (d.kind != DefinitionKind::kInput) continue;
    const DType type = graph.buffers[d.results[0]].type;
    BufferMemory& input = memory->inputs[at++];
    const size_t item = dtype_size(type);
    for (size_t i = 0; i + item <= input.bytes.size(); i += item) {
      double value = is_float(type)
                         ? static_cast<double>(random.below(33) - 8) / 8
                         : static_cast<double>(random.below(2));
      store_element(type, element_of(type, value), input.bytes.data() + i);
    }
  }
}

TEST(SchedulePrograms, MeanWhatTheirGraphsDo) {
  for (const Program& program : programs()) {
    for (int64_t size : {0, 1, 2, 3, 7, 17}) {
      for (bool hints : {false, true}) {
        RandomLoops run;
        run.graph = program.graph;
        for (size_t i = 0; i < program.target.hints.size(); ++i)
          run.symbols.push_back(size ? size + static_cast<int64_t>(i % 2) : 0);
        run.symbols.push_back(std::bit_cast<int64_t>(0.25));
        run.tolerance.assign(program.graph.outputs.size(), 2e-3);
        for (size_t i = 0; i < run.tolerance.size(); ++i)
          if (!is_float(program.graph.buffers[program.graph.outputs[i]].type))
            run.tolerance[i] = 0;
        // What indexes a row of no elements, or one that is not there.
        if (program.path.stem() == "kv_cache") run.symbols[3] = 0;
        if (program.path.stem() == "kv_cache" && size == 0) continue;
        if (program.path.stem() == "update_of_an_input") run.symbols[2] = 0;
        if (program.path.stem() == "update_of_an_input" && size == 0) continue;
        TargetInfo target = program.target;
        if (!hints) target.hints = run.symbols;
        RunMemory expected = random_run(run, 1);
        fill(program.graph, &expected, 7);
        ExternCall call = [&](const Definition& d, std::span<void* const>,
                              std::span<void* const> results) {
          for (size_t i = 0; i < results.size(); ++i) {
            const Buffer& buffer = program.graph.buffers[d.results[i]];
            int64_t count = 1;
            for (const Expr& e : buffer.sizes)
              count *= e.evaluate(run.symbols.data());
            for (int64_t j = 0; j < count; ++j)
              static_cast<float*>(results[i])[j] =
                  static_cast<float>((j * 5 + d.callee) % 11) / 8;
          }
          return true;
        };
        std::string outcome = interpret(program.graph, run.symbols.data(),
                                        expected.input_pointers(),
                                        expected.output_pointers(), call);
        auto expect_same = [&](const KernelRun& kernel_run) {
          Schedule schedule = make_schedule(program.graph, target);
          RunMemory got = random_run(run, 1);
          fill(program.graph, &got, 7);
          ASSERT_EQ(
              interpret(schedule, run.symbols.data(), got.input_pointers(),
                        got.output_pointers(), call, kernel_run),
              outcome)
              << program.path << " " << size << "\n"
              << print(schedule, true);
          ASSERT_EQ(compare_outputs(run, expected, got), "")
              << program.path << " " << size << "\n"
              << print(schedule, true);
        };
        expect_same({});
        for (X86Isa isa : cpu_isas()) {
          target.vector_bytes = vector_bytes(isa);
          expect_same([&](const Kernel& kernel, const int64_t* symbols,
                          std::span<void* const> arguments) {
            Compiled code = compile(kernel, isa);
            EXPECT_TRUE(code.code) << program.path << " " << code.refused;
            return code.code &&
                   framejit::codegen::run(*code.code, kernel, symbols,
                                          arguments.data());
          });
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace framejit::codegen
