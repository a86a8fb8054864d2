// Runs the text of CUDA kernels on the host, one block after the other.
//
// The threads of a block are fibers of one thread: each runs until it waits for
// others (a barrier, a shuffle) or ends. A warp runs as far as it can before
// the next one does, in an order that the caller chooses, so a barrier that is
// missing shows in one order or another; shared memory begins as NaN. What
// blocks do to each other at the same time does not show.
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define FJ_EMULATED 1
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("fj_shared")))

extern "C" char __start_fj_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_fj_shared[] __attribute__((weak, visibility("hidden")));

struct Dimensions {
  unsigned x, y, z;
};
static Dimensions threadIdx, blockIdx, gridDim;

static inline float __int_as_float(unsigned bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline double __longlong_as_double(unsigned long long bits) {
  double d;
  memcpy(&d, &bits, sizeof d);
  return d;
}
static inline float from_f16(unsigned short bits) {
  _Float16 h;
  memcpy(&h, &bits, sizeof h);
  return (float)h;
}
static inline unsigned short to_f16(float x) {
  _Float16 h = (_Float16)x;
  unsigned short bits;
  memcpy(&bits, &h, sizeof bits);
  return bits;
}
// As x86 truncates, which is what the interpreter does.
static inline int to_i32(double x) {
  return x > -2147483649.0 && x < 2147483648.0 ? (int)x : -2147483647 - 1;
}
static inline long long to_i64(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (long long)x : -9223372036854775807LL - 1;
}

static inline float div_nearly(float a, float b) { return a / b; }
static inline void check_failed(int* failed) { *failed = 1; }

// Fibers are not interrupted.
template <class T>
static T atomicCAS(T* place, T expected, T wanted) {
  T old = *place;
  if (old == expected) *place = wanted;
  return old;
}
template <class T>
static T atomicAdd(T* place, T x) {
  T old = *place;
  *place = old + x;
  return old;
}

namespace emulation {

enum class State { kRuns, kAtBarrier, kInShuffle, kEnded };

struct Fiber {
  ucontext_t context;
  State state;
  int given, taken, source;  // of a shuffle
};

constexpr int kWarp = 32, kStack = 64 * 1024;
static Fiber* fibers;
static ucontext_t scheduler;
static int current, count;
static void (*kernel)(void*);
static void* arguments;

static void die(const char* what) {
  fprintf(stderr, "emulation: %s, block %u, thread %d; ", what, blockIdx.x,
          current);
  for (int i = 0; i < count; ++i) fputc("rbse"[(int)fibers[i].state], stderr);
  fputc('\n', stderr);
  abort();
}

static void wait_for(State state) {
  Fiber& fiber = fibers[current];
  fiber.state = state;
  swapcontext(&fiber.context, &scheduler);
}

static void begin() {
  kernel(arguments);
  fibers[current].state = State::kEnded;
}

static void resume(int thread) {
  current = thread;
  threadIdx = {(unsigned)thread, 0, 0};
  swapcontext(&scheduler, &fibers[thread].context);
}

// Runs what lanes of a warp can; true: something ran.
static bool run_warp(int first, bool backwards) {
  const int lanes = count - first < kWarp ? count - first : kWarp;
  bool ran = false;
  for (int k = 0; k < lanes; ++k) {
    const int lane = first + (backwards ? lanes - 1 - k : k);
    if (fibers[lane].state != State::kRuns) continue;
    resume(lane);
    ran = true;
  }
  // A shuffle is done when all lanes have come to it.
  int waiting = 0;
  for (int k = 0; k < lanes; ++k)
    waiting += fibers[first + k].state == State::kInShuffle;
  if (waiting == 0) return ran;
  if (waiting < lanes) {
    for (int k = 0; k < lanes; ++k) {
      if (fibers[first + k].state == State::kEnded)
        die("a shuffle that not all lanes come to");
    }
    return ran;
  }
  for (int k = 0; k < lanes; ++k) {
    Fiber& fiber = fibers[first + k];
    if (fiber.source < 0 || fiber.source >= lanes)
      die("a shuffle from no lane");
    fiber.taken = fibers[first + fiber.source].given;
  }
  for (int k = 0; k < lanes; ++k) fibers[first + k].state = State::kRuns;
  return true;
}

// order: 0 forwards, 1 backwards, else the seed of a random one.
static void run_block(unsigned order) {
  if (__start_fj_shared) {
    memset(__start_fj_shared, 0xff, __stop_fj_shared - __start_fj_shared);
  }
  for (int i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    void* stack = fiber.context.uc_stack.ss_sp;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler;
    fiber.state = State::kRuns;
    makecontext(&fiber.context, begin, 0);
  }
  const int warps = (count + kWarp - 1) / kWarp;
  unsigned random = order;
  for (;;) {
    bool ran = false;
    random = random * 1664525u + 1013904223u;
    const int first = order > 1 ? (int)((random >> 16) % warps) : 0;
    for (int k = 0; k < warps; ++k) {
      int warp = order == 1 ? warps - 1 - k : (k + first) % warps;
      while (run_warp(warp * kWarp, order == 1)) ran = true;
    }
    if (ran) continue;
    int ended = 0, waiting = 0;
    for (int i = 0; i < count; ++i) {
      ended += fibers[i].state == State::kEnded;
      waiting += fibers[i].state == State::kAtBarrier;
    }
    if (ended == count) return;
    if (waiting != count) die("a barrier that not all threads come to");
    for (int i = 0; i < count; ++i) fibers[i].state = State::kRuns;
  }
}

// alone: no thread waits for another, so none needs a fiber.
static void launch(void (*function)(void*), void* given, unsigned blocks,
                   unsigned threads, bool alone, unsigned order) {
  kernel = function;
  arguments = given;
  count = (int)threads;
  gridDim = {blocks, 1, 1};
  if (alone) {
    for (unsigned b = 0; b < blocks; ++b) {
      blockIdx = {b, 0, 0};
      for (unsigned t = 0; t < threads; ++t) {
        threadIdx = {t, 0, 0};
        function(given);
      }
    }
    return;
  }
  fibers = (Fiber*)calloc(threads, sizeof(Fiber));
  char* stacks = (char*)malloc((size_t)threads * kStack);
  for (unsigned t = 0; t < threads; ++t)
    fibers[t].context.uc_stack.ss_sp = stacks + (size_t)t * kStack;
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx = {b, 0, 0};
    run_block(order);
  }
  free(stacks);
  free(fibers);
}

}  // namespace emulation

static inline void __syncthreads() {
  emulation::wait_for(emulation::State::kAtBarrier);
}
static inline int __shfl_sync(unsigned, int value, int source) {
  emulation::Fiber& fiber = emulation::fibers[emulation::current];
  fiber.given = value;
  fiber.source = source;
  emulation::wait_for(emulation::State::kInShuffle);
  return fiber.taken;
}
static inline void __syncwarp() {
  __shfl_sync(0xffffffffu, 0, (int)(threadIdx.x % 32));
}
