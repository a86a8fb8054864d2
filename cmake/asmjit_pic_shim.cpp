// Debian builds libasmjit.a as PIE, not PIC. One member, globals.cpp.o, refers
// to libc's stderr directly and cannot go into a shared object. It defines
// three functions; defining them here keeps the linker from pulling that member
// in.
#include <asmjit/core.h>

#include <cstdio>
#include <cstdlib>

ASMJIT_BEGIN_NAMESPACE
namespace DebugUtils {

const char* errorAsString(Error error) noexcept {
  thread_local char text[32];
  std::snprintf(text, sizeof text, "asmjit error %u", unsigned(error));
  return text;
}

void debugOutput(const char* text) noexcept { std::fputs(text, stderr); }

// Only reachable in asmjit's own debug builds.
void assertionFailed(const char* file, int line, const char* message) noexcept {
  std::fprintf(stderr, "asmjit %s:%d: %s\n", file, line, message);
  std::abort();
}

}  // namespace DebugUtils
ASMJIT_END_NAMESPACE
