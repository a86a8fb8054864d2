#include "framejit/csrc/cuda_kernels.h"

#include <pybind11/stl.h>

#include <map>
#include <mutex>

#include "backend/cuda_machine.h"
#include "backend/cuda_report.h"
#include "codegen/cuda/nvrtc.h"

namespace py = pybind11;

namespace framejit {

namespace {

py::dict as_dict(const backend::CudaKernelReport& kernel) {
  py::dict out;
  out["name"] = kernel.name;
  out["entry"] = kernel.entry;
  out["source"] = kernel.source;
  out["refused"] = kernel.refused;
  out["threads"] = kernel.block;
  out["team"] = kernel.team;
  out["bytes_moved"] = kernel.bytes;
  out["lines"] = kernel.lines;
  return out;
}

// What `call` returns. Also when it raises, the kernels of the graphs that it
// compiled and what stays a call of ATen are appended to the lists.
py::object cuda_kernels(int architecture, const py::function& call,
                        py::list kernels, py::list calls) {
  backend::CudaReport report(architecture);
  auto tell = [&] {
    for (const auto& kernel : report.kernels()) kernels.append(as_dict(kernel));
    for (const std::string& each : report.calls()) calls.append(each);
  };
  py::object result;
  try {
    result = call();
  } catch (py::error_already_set&) {
    tell();
    throw;
  }
  tell();
  return result;
}

// Loaded once a process for each list of paths: it stays.
std::shared_ptr<const codegen::Nvrtc> nvrtc(
    const std::vector<std::string>& paths, std::string* error) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::vector<std::string>,
                                     std::shared_ptr<const codegen::Nvrtc>>();
  std::lock_guard lock(mutex);
  auto found = known.find(paths);
  if (found != known.end()) return found->second;
  auto made = codegen::Nvrtc::open(paths, error);
  if (made) known.emplace(paths, made);
  return made;
}

std::shared_ptr<const codegen::Nvrtc> loaded(
    const std::vector<std::string>& paths) {
  std::string error;
  auto found = nvrtc(paths, &error);
  if (!found) throw py::import_error(error);
  return found;
}

py::dict compile_cuda(const std::vector<std::string>& paths,
                      const std::string& source, const std::string& name,
                      int architecture) {
  codegen::Cubin cubin;
  {
    py::gil_scoped_release release;
    cubin = loaded(paths)->compile(source, name, architecture);
  }
  py::dict out;
  out["error"] = cubin.error;
  out["image"] = py::bytes(cubin.image.data(), cubin.image.size());
  out["log"] = cubin.log;
  out["registers"] = cubin.registers;
  out["spilled_bytes"] = cubin.spilled_bytes;
  out["stack_bytes"] = cubin.stack_bytes;
  out["shared_bytes"] = cubin.shared_bytes;
  return out;
}

}  // namespace

void bind_cuda_kernels(py::module_& m) {
  backend::CudaLibraries libraries;
  libraries.nvrtc = []() -> std::vector<std::string> {
    try {
      return py::module_::import("framejit._kernels")
          .attr("nvrtc_paths")()
          .cast<std::vector<std::string>>();
    } catch (const py::error_already_set&) {
      return {};
    }
  };
  backend::set_cuda_libraries(std::move(libraries));
  m.def("cuda_kernels", &cuda_kernels);
  m.def("compile_cuda", &compile_cuda);
  m.def("nvrtc_version", [](const std::vector<std::string>& paths) {
    auto found = loaded(paths);
    return py::make_tuple(found->major(), found->minor(),
                          found->architectures());
  });
}

}  // namespace framejit
