#include "tests/codegen/cuda/emulated.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/cuda/body_text.h"
#include "codegen/cuda/prelude.h"
#include "codegen/kernels/text.h"

namespace framejit::codegen {

namespace {

constexpr size_t kPerFile = 60;

}  // namespace

EmulatedKernels::~EmulatedKernels() {
  for (void* library : libraries_) dlclose(library);
}

int EmulatedKernels::add(Kernel kernel, const CudaOptions& options) {
  kernel.name = "kernel";
  std::string key = print(kernel);
  key += std::to_string(options.team);
  key += options.wide_indices ? "w" : "n";
  key += options.deterministic ? "d" : "a";
  key += options.vectors ? "v" : "s";
  auto found = std::find(keys_.begin(), keys_.end(), key);
  if (found != keys_.end()) return static_cast<int>(found - keys_.begin());
  int scalar = -1;
  if (options.vectors) {
    CudaOptions without = options;
    without.vectors = false;
    scalar = add(kernel, without);
  }
  kernel.name = "k" + std::to_string(kernels_.size());
  CudaKernel text = print_cuda(kernel, options);
  if (!text.refused.empty()) return -1;
  if (spoil) spoil(&text.source);
  keys_.push_back(key);
  kernels_.push_back({kernel.arguments, std::move(text), scalar, nullptr});
  return static_cast<int>(kernels_.size()) - 1;
}

std::string EmulatedKernels::text_of(const Entry& entry) const {
  const CudaKernel& kernel = entry.text;
  std::string call;
  size_t place = 0;
  auto parameter = [&](const std::string& text) {
    call += (place ? ", " : "") + text + "p[" + std::to_string(place) + "]";
    ++place;
  };
  for (const KernelArgument& argument : entry.arguments) {
    parameter(std::string("(") + cuda_memory_type(argument.type) + "*)");
  }
  for (const Expr& each : kernel.parameters) {
    parameter(each.is_float() ? "*(double*)" : "*(i64*)");
  }
  parameter("(i32*)");
  return "namespace n_" + kernel.name + " {\n" + kernel.source +
         "static void call(void* given) {\n  void** p = (void**)given;\n  " +
         kernel.name + "(" + call + ");\n}\n}\nextern \"C\" void run_" +
         kernel.name +
         "(void** p, unsigned blocks, unsigned order) {\n"
         "  emulation::launch(n_" +
         kernel.name + "::call, p, blocks, " + std::to_string(kernel.block) +
         ", " + (kernel.waits ? "false" : "true") + ", order);\n}\n";
}

std::string EmulatedKernels::build() {
  namespace fs = std::filesystem;
  std::string pattern =
      (fs::temp_directory_path() / "framejit-emulation-XXXXXX").string();
  if (!mkdtemp(pattern.data())) return "no folder for temporary files";
  const fs::path folder = pattern;
  std::string said;
  while (built_ < kernels_.size() && said.empty()) {
    const size_t end = std::min(built_ + kPerFile, kernels_.size());
    const fs::path source = folder / "kernels.cpp", log = folder / "log";
    const fs::path library =
        folder / ("kernels" + std::to_string(built_) + ".so");
    {
      std::ofstream out(source);
      out << "#include \"" << FJ_SOURCE_DIR
          << "/tests/codegen/cuda/emulation.h\"\n"
          << cuda_prelude();
      for (size_t i = built_; i < end; ++i) out << text_of(kernels_[i]);
    }
    // Nothing is contracted, as for NVRTC.
    const std::string command =
        "c++ -std=c++17 -O1 -w -shared -fPIC -ffp-contract=off -o " +
        library.string() + " " + source.string() + " > " + log.string() +
        " 2>&1";
    if (std::system(command.c_str()) != 0) {
      std::stringstream text;
      text << std::ifstream(log).rdbuf() << std::ifstream(source).rdbuf();
      said = text.str();
      break;
    }
    void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
      said = dlerror();
      break;
    }
    libraries_.push_back(opened);
    for (size_t i = built_; i < end; ++i) {
      kernels_[i].function = reinterpret_cast<Function>(
          dlsym(opened, ("run_" + kernels_[i].text.name).c_str()));
    }
    built_ = end;
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return said;
}

bool EmulatedKernels::run(int number, const int64_t* symbols,
                          std::span<void* const> arguments, unsigned blocks,
                          unsigned order) const {
  const Entry& entry = kernels_[number];
  const bool divides =
      std::ranges::all_of(entry.text.multiples, [&](const Expr& each) {
        return each.evaluate(symbols) % entry.text.width == 0;
      });
  const bool lies = std::ranges::all_of(
      entry.text.alignments, [&](const std::pair<int, int>& each) {
        return reinterpret_cast<uintptr_t>(arguments[each.first]) %
                   static_cast<uintptr_t>(each.second) ==
               0;
      });
  if (!divides || !lies)
    return run(entry.scalar, symbols, arguments, blocks, order);
  wide_runs += entry.text.width > 1;
  std::vector<void*> parameters(arguments.begin(), arguments.end());
  std::vector<int64_t> values;
  values.reserve(entry.text.parameters.size());
  for (const Expr& each : entry.text.parameters) {
    values.push_back(each.evaluate(symbols));
    parameters.push_back(&values.back());
  }
  int32_t failed = 0;
  parameters.push_back(&failed);
  entry.function(parameters.data(), blocks, order);
  return failed == 0;
}

}  // namespace framejit::codegen
