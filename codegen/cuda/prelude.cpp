#include "codegen/cuda/prelude.h"

namespace framejit::codegen {

const char* cuda_prelude() {
  // FJ_EMULATED: compiled for the host, by a header that has what is in the
  // first part (tests/codegen/cuda/emulation.h).
  return R"cuda(typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifndef FJ_EMULATED
static __device__ float from_f16(u16 x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
  return f;
}
static __device__ u16 to_f16(float x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
template <class T> static __device__ i32 to_i32(T x) { return (i32)x; }
template <class T> static __device__ i64 to_i64(T x) { return (i64)x; }
// Good to 2 units in the last place.
static __device__ float div_nearly(float a, float b) {
  float f;
  asm("div.full.f32 %0, %1, %2;" : "=f"(f) : "f"(a), "f"(b));
  return f;
}
// As assert() does it, whose function NVRTC knows.
static __device__ void check_failed(i32*) {
  __assertfail("index out of bounds", "framejit", 0, "a compiled kernel", 1);
}
#endif

template <class To, class From> static __device__ To bitcast(From x) {
  union { From from; To to; } u;
  u.from = x;
  return u.to;
}
static __device__ float from_bf16(u16 x) { return bitcast<float>((u32)x << 16); }
static __device__ u16 to_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u16 h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#else
  const u32 bits = bitcast<u32>(x);
  if (x != x) return (u16)(bits >> 16 | 0x40);
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

template <class T> struct unsigned_of { typedef u32 type; };
template <> struct unsigned_of<i64> { typedef u64 type; };

// Integers wrap.
template <class T> static __device__ T wrap_add(T a, T b) {
  typedef typename unsigned_of<T>::type U;
  return (T)((U)a + (U)b);
}
template <class T> static __device__ T wrap_sub(T a, T b) {
  typedef typename unsigned_of<T>::type U;
  return (T)((U)a - (U)b);
}
template <class T> static __device__ T wrap_mul(T a, T b) {
  typedef typename unsigned_of<T>::type U;
  return (T)((U)a * (U)b);
}
template <class T> static __device__ T wrap_neg(T a) { return wrap_sub((T)0, a); }
template <class T> static __device__ T wrap_abs(T a) { return a < 0 ? wrap_neg(a) : a; }
// Nothing traps.
template <class T> static __device__ T trunc_div(T a, T b) {
  return b == 0 ? (T)0 : b == (T)-1 ? wrap_neg(a) : (T)(a / b);
}
template <class T> static __device__ T trunc_mod(T a, T b) {
  return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b);
}
static __device__ u8 trunc_div(u8 a, u8 b) { return b == 0 ? 0 : a / b; }
static __device__ u8 trunc_mod(u8 a, u8 b) { return b == 0 ? 0 : a % b; }
template <class T> static __device__ T floor_div(T a, T b) {
  const T q = trunc_div(a, b), r = trunc_mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? (T)(q - 1) : q;
}
template <class T> static __device__ T floor_mod(T a, T b) {
  const T r = trunc_mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}
// NaN if either is; of equals the first.
template <class T> static __device__ T min_of(T a, T b) {
  return a != a ? a : b != b || b < a ? b : a;
}
template <class T> static __device__ T max_of(T a, T b) {
  return a != a ? a : b != b || b > a ? b : a;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static __device__ float min_of(float a, float b) {
  float f;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(f) : "f"(a), "f"(b));
  return f;
}
static __device__ float max_of(float a, float b) {
  float f;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(f) : "f"(a), "f"(b));
  return f;
}
#endif
template <class T> static __device__ T shift_left(T a, T by) {
  typedef typename unsigned_of<T>::type U;
  return by < 0 || by >= (T)(8 * sizeof(T)) ? (T)0 : (T)((U)a << by);
}
template <class T> static __device__ T shift_right(T a, T by) {
  return by < 0 || by >= (T)(8 * sizeof(T)) ? (T)(a < 0 ? -1 : 0) : (T)(a >> by);
}
static __device__ float scale_by_power(float a, float b) { return ldexpf(a, (i32)floorf(b)); }
static __device__ double scale_by_power(double a, double b) { return ldexp(a, (i32)floor(b)); }

// Elements that lie side by side: at most 16 bytes move at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) vec { T v[kCount]; };

// The sum, in pairs: of equal numbers it is exact.
template <int kCount> static __device__ float in_pairs(const float* x) {
  float sums[kCount];
  for (int i = 0; i < kCount; ++i) sums[i] = x[i];
  for (int by = 1; by < kCount; by *= 2)
    for (int i = 0; i + by < kCount; i += 2 * by) sums[i] = sums[i] + sums[i + by];
  return sums[0];
}

// An element of memory put together with another.
static __device__ float add_of(float a, float b) { return a + b; }
static __device__ double add_of(double a, double b) { return a + b; }
template <class T> static __device__ T add_of(T a, T b) { return wrap_add(a, b); }
static __device__ float mul_of(float a, float b) { return a * b; }
static __device__ double mul_of(double a, double b) { return a * b; }
template <class T> static __device__ T mul_of(T a, T b) { return wrap_mul(a, b); }
struct with_add { template <class T> static __device__ T of(T a, T b) { return add_of(a, b); } };
struct with_mul { template <class T> static __device__ T of(T a, T b) { return mul_of(a, b); } };
struct with_min { template <class T> static __device__ T of(T a, T b) { return min_of(a, b); } };
struct with_max { template <class T> static __device__ T of(T a, T b) { return max_of(a, b); } };
struct with_or { template <class T> static __device__ T of(T a, T b) { return (T)(a | b); } };
struct with_and { template <class T> static __device__ T of(T a, T b) { return (T)(a & b); } };

// By one thread of many, whichever comes first.
template <class Op, class T> static __device__ void update(T* place, T x) {
  if (sizeof(T) == 8) {
    u64* word = (u64*)place;
    u64 seen = *(volatile u64*)word, old;
    do {
      old = seen;
      const u64 wanted = (u64)bitcast<u64>(Op::of(bitcast<T>(old), x));
      seen = atomicCAS(word, old, wanted);
    } while (seen != old);
  } else if (sizeof(T) == 4) {
    u32* word = (u32*)place;
    u32 seen = *(volatile u32*)word, old;
    do {
      old = seen;
      const u32 wanted = bitcast<u32>(Op::of(bitcast<T>(old), x));
      seen = atomicCAS(word, old, wanted);
    } while (seen != old);
  } else {  // within the word of 4 bytes that it is a part of
    const u64 address = (u64)place;
    u32* word = (u32*)(address & ~3ull);
    const u32 shift = (u32)(address & 3) * 8, mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift;
    u32 seen = *(volatile u32*)word, old;
    do {
      old = seen;
      const T next = Op::of((T)((old & mask) >> shift), x);
      const u32 wanted = (old & ~mask) | ((u32)next << shift & mask);
      seen = atomicCAS(word, old, wanted);
    } while (seen != old);
  }
}
template <> __device__ void update<with_add, float>(float* place, float x) { atomicAdd(place, x); }
template <> __device__ void update<with_add, i32>(i32* place, i32 x) { atomicAdd(place, x); }
template <> __device__ void update<with_add, i64>(i64* place, i64 x) { atomicAdd((u64*)place, (u64)x); }

// What another lane of the warp has.
template <class F> static __device__ F from_lane(F f, int lane) {
  union { F f; i32 words[sizeof(F) / 4]; } in, out;
  in.f = f;
  for (int i = 0; i < (int)(sizeof(F) / 4); ++i)
    out.words[i] = __shfl_sync(0xffffffffu, in.words[i], lane);
  return out.f;
}
template <int kTeam> static __device__ void sync_team() {
  if (kTeam > 32) __syncthreads();
  else if (kTeam > 1) __syncwarp();
}
// The states of all threads of a team, in all of them. shared: one a warp.
template <int kTeam, class F> static __device__ F join_team(F f, F* shared) {
  if (kTeam == 1) return f;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int by = 16; by > 0; by /= 2) f = join(f, from_lane(f, (lane + by) % 32));
  if (kTeam <= 32) return from_lane(f, 0);
  __syncthreads();
  if (lane == 0) shared[warp] = f;
  __syncthreads();
  constexpr int kWarps = kTeam / 32;
  if ((kWarps & (kWarps - 1)) == 0) {
    f = shared[lane % kWarps];
    for (int by = kWarps / 2; by > 0; by /= 2) f = join(f, from_lane(f, (lane + by) % 32));
    return from_lane(f, 0);
  }
  f = shared[0];
#pragma unroll 1
  for (int w = 1; w < kWarps; ++w) f = join(f, shared[w]);
  return f;
}
// The states of all threads of a column, which are kTeam warps apart. shared: one
// a thread.
template <int kTeam, class F> static __device__ F join_column(F f, F* shared) {
  const int column = threadIdx.x % 32;
  __syncthreads();
  shared[threadIdx.x] = f;
  __syncthreads();
  f = shared[column];
#pragma unroll 1
  for (int w = 1; w < kTeam; ++w) f = join(f, shared[w * 32 + column]);
  return f;
}
// Those of all threads before this one, none for the first; in *total, of the
// team.
template <int kTeam, class F> static __device__ F scan_team(F f, F none, F* shared, F* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int by = 1; by < 32; by *= 2) {
    const F before = from_lane(f, lane < by ? lane : lane - by);
    if (lane >= by) f = join(before, f);
  }
  F before = from_lane(f, lane == 0 ? 0 : lane - 1);
  if (lane == 0) before = none;
  if (kTeam <= 32) {
    *total = from_lane(f, 31);
    return before;
  }
  __syncthreads();
  if (lane == 31) shared[warp] = f;
  __syncthreads();
  F all = none;
  for (int w = 0; w < kTeam / 32; ++w) {
    if (w == warp) before = join(all, before);
    all = join(all, shared[w]);
  }
  *total = all;
  return before;
}
)cuda";
}

}  // namespace framejit::codegen
