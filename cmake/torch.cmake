# LibTorch: the one inside the installed torch wheel, whichever build it is. Its
# own CMake package would ask for CUDA when the wheel has it; nothing of ours
# links CUDA, so the libraries are named here. First with -E: pip's build
# isolation hides the installed torch through the environment.
foreach(framejit_flag -E -B)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${framejit_flag} -c
            "import os, torch; print(os.path.dirname(torch.__file__)); print(torch.__version__); print(int(torch.compiled_with_cxx11_abi()))"
    OUTPUT_VARIABLE framejit_torch_info OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    RESULT_VARIABLE framejit_torch_status)
  if(framejit_torch_status EQUAL 0)
    break()
  endif()
endforeach()
if(NOT framejit_torch_status EQUAL 0)
  message(FATAL_ERROR "FrameJIT needs torch 2.11, 2.12 or 2.13: pip install torch==2.13.0, or "
                      "configure with -DFRAMEJIT_TORCH=OFF for the lower half alone")
endif()
string(REPLACE "\n" ";" framejit_torch_info "${framejit_torch_info}")
list(GET framejit_torch_info 0 FRAMEJIT_TORCH_DIR)
list(GET framejit_torch_info 1 FRAMEJIT_TORCH_VERSION)
list(GET framejit_torch_info 2 FRAMEJIT_TORCH_ABI)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" FRAMEJIT_TORCH_MINOR "${FRAMEJIT_TORCH_VERSION}")
if(NOT FRAMEJIT_TORCH_MINOR MATCHES "^2\\.1[123]$")
  message(FATAL_ERROR "FrameJIT supports torch 2.11, 2.12 and 2.13 (docs/versions.md); "
                      "this is ${FRAMEJIT_TORCH_VERSION}")
endif()
message(STATUS "torch ${FRAMEJIT_TORCH_VERSION} in ${FRAMEJIT_TORCH_DIR}")

add_library(framejit_torch INTERFACE)
target_include_directories(framejit_torch SYSTEM INTERFACE
  ${FRAMEJIT_TORCH_DIR}/include ${FRAMEJIT_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(framejit_torch INTERFACE
  _GLIBCXX_USE_CXX11_ABI=${FRAMEJIT_TORCH_ABI})
target_compile_options(framejit_torch INTERFACE -fopenmp)
target_link_directories(framejit_torch INTERFACE ${FRAMEJIT_TORCH_DIR}/lib)
target_link_libraries(framejit_torch INTERFACE torch_python torch_cpu torch c10)
# at::parallel_for is inlined into its users: they need torch's own OpenMP.
file(GLOB framejit_torch_openmp ${FRAMEJIT_TORCH_DIR}/lib/libgomp*.so*
     ${FRAMEJIT_TORCH_DIR}/../torch.libs/libgomp*.so*)
target_link_libraries(framejit_torch INTERFACE ${framejit_torch_openmp})
target_link_options(framejit_torch INTERFACE -Wl,-rpath,${FRAMEJIT_TORCH_DIR}/lib)
