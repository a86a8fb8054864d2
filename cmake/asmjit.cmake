# asmjit: Debian's package (its static library has one member that is not
# position independent; asmjit_pic_shim.cpp keeps it from being pulled in), or
# upstream's sources where there is none.
find_package(asmjit CONFIG QUIET)
if(asmjit_FOUND)
  add_library(framejit_asmjit STATIC ${CMAKE_SOURCE_DIR}/cmake/asmjit_pic_shim.cpp)
  target_link_libraries(framejit_asmjit PUBLIC asmjit::asmjit)
else()
  include(FetchContent)
  set(ASMJIT_STATIC ON CACHE BOOL "" FORCE)
  FetchContent_Declare(asmjit GIT_REPOSITORY https://github.com/asmjit/asmjit.git
                       GIT_TAG 0bd5787)
  FetchContent_MakeAvailable(asmjit)
  add_library(framejit_asmjit INTERFACE)
  target_link_libraries(framejit_asmjit INTERFACE asmjit::asmjit)
endif()
