#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <filesystem>
#include <regex>

#include "codegen/cuda/library.h"

namespace framejit::codegen {

namespace {

using Program = void*;

// 177: functions of the prelude that nobody calls.
constexpr const char* kFlags[] = {"--std=c++17", "--fmad=false",
                                  "--ptxas-options=-v", "--no-source-include",
                                  "--diag-suppress=177"};

int number_behind(const std::string& log, const char* pattern) {
  std::smatch found;
  return std::regex_search(log, found, std::regex(pattern))
             ? std::stoi(found[1].str())
             : 0;
}

}  // namespace

const std::string Nvrtc::kOptions = [] {
  std::string all;
  for (const char* flag : kFlags) all += std::string(flag) + " ";
  return all;
}();

struct Nvrtc::Functions {
  const char* (*error_text)(int);
  int (*version)(int*, int*);
  int (*num_architectures)(int*);
  int (*architectures)(int*);
  int (*create)(Program*, const char* source, const char* name, int headers,
                const char* const* texts, const char* const* names);
  int (*destroy)(Program*);
  int (*compile)(Program, int options, const char* const* texts);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
};

Nvrtc::Nvrtc() : functions_(std::make_unique<Functions>()) {}

Nvrtc::~Nvrtc() {
  if (library_) dlclose(library_);
  if (builtins_) dlclose(builtins_);
}

std::string Nvrtc::load(const std::string& path) {
  namespace fs = std::filesystem;
  // It looks for its builtins by name only, and does not look twice.
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty()) {
    for (const auto& file : fs::directory_iterator(folder, ignored)) {
      const std::string name = file.path().filename().string();
      if (name.starts_with("libnvrtc-builtins.so"))
        builtins_ = dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    }
  }
  LibraryFunctions library(path, &library_);
  library.find(functions_->error_text, "nvrtcGetErrorString");
  library.find(functions_->version, "nvrtcVersion");
  library.find(functions_->num_architectures, "nvrtcGetNumSupportedArchs");
  library.find(functions_->architectures, "nvrtcGetSupportedArchs");
  library.find(functions_->create, "nvrtcCreateProgram");
  library.find(functions_->destroy, "nvrtcDestroyProgram");
  library.find(functions_->compile, "nvrtcCompileProgram");
  library.find(functions_->log_size, "nvrtcGetProgramLogSize");
  library.find(functions_->log, "nvrtcGetProgramLog");
  library.find(functions_->cubin_size, "nvrtcGetCUBINSize");
  library.find(functions_->cubin, "nvrtcGetCUBIN");
  if (!library.error().empty()) return library.error();
  int count = 0;
  if (functions_->version(&major_, &minor_) != 0 ||
      functions_->num_architectures(&count) != 0) {
    return path + " does not say its version";
  }
  architectures_.resize(static_cast<size_t>(count));
  if (count > 0) functions_->architectures(architectures_.data());
  return "";
}

std::shared_ptr<const Nvrtc> Nvrtc::open(const std::vector<std::string>& paths,
                                         std::string* error) {
  *error = "no NVRTC is known of";
  for (const std::string& path : paths) {
    std::shared_ptr<Nvrtc> made(new Nvrtc);
    *error = made->load(path);
    if (error->empty()) return made;
  }
  return nullptr;
}

Cubin Nvrtc::compile(const std::string& source, const std::string& name,
                     int architecture) const {
  Cubin out;
  Program program = nullptr;
  int code = functions_->create(&program, source.c_str(), name.c_str(), 0,
                                nullptr, nullptr);
  if (code != 0) {
    out.error = functions_->error_text(code);
    return out;
  }
  const std::string target =
      "--gpu-architecture=sm_" + std::to_string(architecture);
  std::vector<const char*> options(std::begin(kFlags), std::end(kFlags));
  options.push_back(target.c_str());
  code = functions_->compile(program, static_cast<int>(options.size()),
                             options.data());
  size_t size = 0;
  if (functions_->log_size(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    functions_->log(program, out.log.data());
    out.log.resize(size - 1);  // the NUL at its end
  }
  if (code != 0) {
    out.error = std::string(functions_->error_text(code)) + "\n" + out.log;
  } else if (functions_->cubin_size(program, &size) == 0 && size > 0) {
    out.image.resize(size);
    functions_->cubin(program, out.image.data());
    out.registers = number_behind(out.log, R"(Used (\d+) registers)");
    out.shared_bytes = number_behind(out.log, R"((\d+) bytes smem)");
    out.stack_bytes = number_behind(out.log, R"((\d+) bytes stack frame)");
    out.spilled_bytes = number_behind(out.log, R"((\d+) bytes spill stores)");
  } else {
    out.error = "NVRTC gave no cubin";
  }
  functions_->destroy(&program);
  return out;
}

}  // namespace framejit::codegen
