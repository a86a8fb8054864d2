// What tests ask of cuda_stand_in.cpp, which they open as the driver.
#pragma once

extern "C" {
struct StandInCounts {
  int compiled, loaded, launched;
  int contexts;     // made current
  int last_device;  // of a launch
  unsigned last_blocks, last_threads;
  void* last_stream;
  char last_kernel[64];
};
StandInCounts* stand_in_counts();
// The next call of "compile", "load" or "launch" fails with this code.
void stand_in_fail(const char* what, int code);
}
