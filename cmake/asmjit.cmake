# asmjit: Debian's package (its static library has one member that is not
# position independent; asmjit_pic_shim.cpp keeps it from being pulled in), or
# upstream's sources where there is none.
find_package(asmjit CONFIG QUIET)
if(asmjit_FOUND)
  add_library(framejit_asmjit_shim STATIC ${CMAKE_SOURCE_DIR}/cmake/asmjit_pic_shim.cpp)
  target_link_libraries(framejit_asmjit_shim PRIVATE asmjit::asmjit)
  # Whole: nothing of ours may name the shim's functions, only asmjit's own
  # members do, and those come after it on the command line.
  add_library(framejit_asmjit INTERFACE)
  target_link_libraries(framejit_asmjit INTERFACE
    "$<LINK_LIBRARY:WHOLE_ARCHIVE,framejit_asmjit_shim>" asmjit::asmjit)
else()
  include(FetchContent)
  set(ASMJIT_STATIC ON CACHE BOOL "" FORCE)
  FetchContent_Declare(asmjit GIT_REPOSITORY https://github.com/asmjit/asmjit.git
                       GIT_TAG 0bd5787)
  FetchContent_MakeAvailable(asmjit)
  add_library(framejit_asmjit INTERFACE)
  target_link_libraries(framejit_asmjit INTERFACE asmjit::asmjit)
endif()
