// A CUDA driver and an NVRTC for machines without a GPU: "cubins" are libraries
// that the host's compiler makes of the kernels' text with
// tests/codegen/cuda/emulation.h, memory is the host's, launches run at once.
// What a real driver refuses (a launch without a context, a kernel of another
// device) this one does, too.
#include "tests/cuda_stand_in.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kDevices = 2;
constexpr int kInvalid = 1, kNoContext = 201;

std::mutex mutex;
StandInCounts counts;
std::map<std::string, int> failures;
int contexts[kDevices];
thread_local int* current = nullptr;

int failure(const char* what) {
  std::lock_guard lock(mutex);
  auto found = failures.find(what);
  if (found == failures.end()) return 0;
  const int code = found->second;
  failures.erase(found);
  return code;
}

struct Module {
  void* library;
  int device;
};
struct Kernel {
  void (*run)(void** parameters, unsigned blocks, unsigned threads);
  int device;
  std::string name;
};

struct Program {
  std::string source, log, cubin;
};

// "const float* __restrict__ a0" -> "const float* "
std::string type_of(std::string parameter) {
  const std::string word = "__restrict__";
  if (size_t at = parameter.find(word); at != std::string::npos)
    parameter.erase(at, word.size());
  return parameter.substr(0, parameter.find_last_of(" *") + 1);
}

// What runs the kernel with parameters as cuLaunchKernel has them.
std::string launcher(const std::string& source) {
  const size_t head = source.find("extern \"C\" __global__");
  const size_t begin = source.find(") ", head) + 2;
  const size_t open = source.find('(', begin), close = source.find(") {", open);
  const std::string name = source.substr(begin, open - begin);
  std::istringstream list(source.substr(open + 1, close - open - 1));
  std::string call;
  int number = 0;
  for (std::string parameter; std::getline(list, parameter, ','); ++number)
    call += std::string(number ? ", " : "") + "*(" + type_of(parameter) +
            "*)p[" + std::to_string(number) + "]";
  return "static void call_it(void* given) {\n  void** p = (void**)given;\n  " +
         name + "(" + call + ");\n}\nextern \"C\" void run_" + name +
         "(void** p, unsigned blocks, unsigned threads) {\n"
         "  emulation::launch(call_it, p, blocks, threads, false, 1);\n}\n";
}

int as_context(void* context) {
  for (int i = 0; i < kDevices; ++i)
    if (context == &contexts[i]) return i;
  return -1;
}

}  // namespace

extern "C" {

StandInCounts* stand_in_counts() { return &counts; }
void stand_in_fail(const char* what, int code) {
  std::lock_guard lock(mutex);
  failures[what] = code;
}

// ---- the driver

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int code, const char** text) {
  *text = code == kNoContext ? "invalid device context" : "stand-in error";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < kDevices ? 0 : 101;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75   ? 9
           : attribute == 76 ? 0
           : attribute == 16 ? 4
                             : 512;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = current;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  std::lock_guard lock(mutex);
  if (context) ++counts.contexts;
  current = static_cast<int*>(context);
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = as_context(current);
  return current ? 0 : kNoContext;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int now = 0;
  std::swap(now, *mode);
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  if (int code = failure("load")) return code;
  if (!current) return kNoContext;
  void* library =
      dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (!library) return 200;
  std::lock_guard lock(mutex);
  ++counts.loaded;
  *module = new Module{library, as_context(current)};
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  auto* of = static_cast<Module*>(module);
  void* found = dlsym(of->library, (std::string("run_") + name).c_str());
  if (!found) return 500;
  *function =
      new Kernel{reinterpret_cast<void (*)(void**, unsigned, unsigned)>(found),
                 of->device, name};
  return 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z,
                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** parameters, void** extra) {
  if (int code = failure("launch")) return code;
  auto* kernel = static_cast<Kernel*>(function);
  if (!current) return kNoContext;
  if (as_context(current) != kernel->device) return 400;
  if (x == 0 || y != 1 || z != 1 || bx == 0 || bx > 1024 || by != 1 ||
      bz != 1 || shared != 0 || extra)
    return kInvalid;
  std::lock_guard lock(mutex);
  ++counts.launched;
  counts.last_device = kernel->device;
  counts.last_blocks = x;
  counts.last_threads = bx;
  counts.last_stream = stream;
  snprintf(counts.last_kernel, sizeof counts.last_kernel, "%s",
           kernel->name.c_str());
  kernel->run(parameters, x, bx);
  return 0;
}

// ---- NVRTC

const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 9;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  *architectures = 90;
  return 0;
}
int nvrtcCreateProgram(void** program, const char* source, const char*, int,
                       const char* const*, const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
int nvrtcCompileProgram(void* given, int, const char* const*) {
  auto* program = static_cast<Program*>(given);
  if (int code = failure("compile")) {
    program->log = "the stand-in was asked to fail";
    return code;
  }
  namespace fs = std::filesystem;
  std::string folder =
      (fs::temp_directory_path() / "framejit-stand-in-XXXXXX").string();
  if (!mkdtemp(folder.data())) return 1;
  const std::string source = folder + "/kernel.cpp", log = folder + "/log";
  program->cubin = folder + "/kernel.so";
  std::ofstream(source) << "#include \"" FJ_SOURCE_DIR
                           "/tests/codegen/cuda/emulation.h\"\n"
                        << program->source << launcher(program->source);
  const std::string command =
      "c++ -std=c++17 -O1 -w -shared -fPIC -ffp-contract=off -o " +
      program->cubin + " " + source + " > " + log + " 2>&1";
  const int code = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream(log).rdbuf();
  program->log = said.str();
  std::lock_guard lock(mutex);
  ++counts.compiled;
  return code == 0 ? 0 : 6;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  strcpy(log, static_cast<Program*>(program)->log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->cubin.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(void* program, char* image) {
  strcpy(image, static_cast<Program*>(program)->cubin.c_str());
  return 0;
}
}
