// What CUDA C++ offers without a header: qualifiers, barriers, shuffles, votes, atomics and intrinsics.
#pragma once

#include <cassert>
#include <cstdlib>

#include "fibers.h"
#include "numbers.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// A kernel that breaks the promise of __restrict__ must not be broken by the compiler of the emulator.
#define __restrict__
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

#define CUDART_INF_F emu_bits<float>(0x7F800000u)
#define CUDART_NAN_F emu_bits<float>(0x7FFFFFFFu)
#define CUDART_INF emu_bits<double>((uint64_t)0x7FF0000000000000ull)
#define CUDART_NAN emu_bits<double>((uint64_t)0xFFF8000000000000ull)

#define __syncthreads() emu::sync_threads(__LINE__)
#define __syncthreads_count(yes) ((int)emu::sync_threads_count(__LINE__, (yes) != 0))
#define __syncthreads_or(yes) ((int)(emu::sync_threads_count(__LINE__, (yes) != 0) != 0))
#define __syncthreads_and(yes) ((int)(emu::sync_threads_count(__LINE__, (yes) != 0) == emu::thread_count))

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) {}

namespace emu {

static inline unsigned lane() { return current % LANES; }
static inline uint32_t warp_lanes() { return warps[current / LANES].lanes; }

// Lane i of the mask gets the value of lane source(i); what comes from a lane outside of the mask is poisoned.
template <class T>
static T shuffle(const char* instruction, uint32_t mask, T value, unsigned source) {
    struct Exchange {
        T value;
        unsigned source;
        T result;
    } mine{value, source, value};
    collective(instruction, mask & warp_lanes(), &mine, [](void** lanes, uint32_t present) {
        for (unsigned i = 0; i < LANES; ++i) {
            if (!(present >> i & 1)) continue;
            Exchange& exchange = *static_cast<Exchange*>(lanes[i]);
            if (present >> exchange.source & 1)
                exchange.result = static_cast<Exchange*>(lanes[exchange.source])->value;
            else
                memset(static_cast<void*>(&exchange.result), 0xFF, sizeof exchange.result);
        }
    });
    return mine.result;
}

// All lanes of the mask get `combine` over their values.
template <class T, class Combine>
static T reduce(const char* instruction, uint32_t mask, T value, Combine combine) {
    struct Exchange {
        T value;
        Combine combine;
    } mine{value, combine};
    collective(instruction, mask & warp_lanes(), &mine, [](void** lanes, uint32_t present) {
        const unsigned first = __builtin_ctz(present);
        T total = static_cast<Exchange*>(lanes[first])->value;
        for (unsigned i = first + 1; i < LANES; ++i)
            if (present >> i & 1)
                total = static_cast<Exchange*>(lanes[i])->combine(total, static_cast<Exchange*>(lanes[i])->value);
        for (unsigned i = first; i < LANES; ++i)
            if (present >> i & 1) static_cast<Exchange*>(lanes[i])->value = total;
    });
    return mine.value;
}

}  // namespace emu

static inline void __syncwarp(unsigned mask = emu::FULL) {
    emu::collective("__syncwarp", mask & emu::warp_lanes(), nullptr, [](void**, uint32_t) {});
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
    const unsigned base = emu::lane() & ~(width - 1u);
    return emu::shuffle("__shfl_sync", mask, value, base + (source & (width - 1u)));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    const unsigned lane = emu::lane(), position = lane & (width - 1u);
    return emu::shuffle("__shfl_up_sync", mask, value, position < delta ? lane : lane - delta);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    const unsigned lane = emu::lane(), position = lane & (width - 1u);
    return emu::shuffle("__shfl_down_sync", mask, value, position + delta >= (unsigned)width ? lane : lane + delta);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize) {
    const unsigned lane = emu::lane(), other = lane ^ (unsigned)bits, base = lane & ~(width - 1u);
    return emu::shuffle("__shfl_xor_sync", mask, value, other >= base + width ? lane : other);
}

static inline unsigned __activemask() { return emu::warp_lanes(); }
static inline unsigned __ballot_sync(unsigned mask, int yes) {
    const unsigned mine = yes ? 1u << emu::lane() : 0;
    return emu::reduce("__ballot_sync", mask, mine, [](unsigned a, unsigned b) { return a | b; });
}
static inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, !yes) == 0; }
static inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
    return emu::reduce("__reduce_add_sync", mask, value, [](unsigned a, unsigned b) { return a + b; });
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
    return emu::reduce("__reduce_min_sync", mask, value, [](unsigned a, unsigned b) { return a < b ? a : b; });
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
    return emu::reduce("__reduce_max_sync", mask, value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}

// Fibers change places at barriers only, so plain memory operations are atomic.
template <class T, class Update>
static inline T emu_atomic(T* address, Update update) {
    const T before = *address;
    *address = update(before);
    return before;
}
template <class T>
static inline T atomicAdd(T* address, std::common_type_t<T> value) {
    return emu_atomic(address, [=](T old) { return T(old + value); });
}
template <class T>
static inline T atomicMax(T* address, std::common_type_t<T> value) {
    return emu_atomic(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
static inline T atomicMin(T* address, std::common_type_t<T> value) {
    return emu_atomic(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
static inline T atomicExch(T* address, std::common_type_t<T> value) {
    return emu_atomic(address, [=](T) { return value; });
}
template <class T>
static inline T atomicCAS(T* address, std::common_type_t<T> compare, std::common_type_t<T> value) {
    return emu_atomic(address, [=](T old) { return old == compare ? value : old; });
}

template <class A, class B, std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value, int> = 0>
static inline std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value) return fmax((T)a, (T)b);
    return (T)a < (T)b ? (T)b : (T)a;
}
template <class A, class B, std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value, int> = 0>
static inline std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value) return fmin((T)a, (T)b);
    return (T)b < (T)a ? (T)b : (T)a;
}

template <class T>
static inline T __ldg(const T* address) {
    return *address;
}
static inline unsigned __float_as_uint(float value) { return emu_bits<unsigned>(value); }
static inline int __float_as_int(float value) { return emu_bits<int>(value); }
static inline float __uint_as_float(unsigned bits) { return emu_bits<float>(bits); }
static inline float __int_as_float(int bits) { return emu_bits<float>(bits); }
static inline long long __double_as_longlong(double value) { return emu_bits<long long>(value); }
static inline double __longlong_as_double(long long bits) { return emu_bits<double>(bits); }
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __clz(int bits) { return bits ? __builtin_clz((unsigned)bits) : 32; }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }

// Macros, because C libraries have functions of these names.
static inline float emu_rsqrt(float value) { return 1.0f / sqrtf(value); }
static inline double emu_rsqrt(double value) { return 1.0 / sqrt(value); }
#define rsqrtf(value) emu_rsqrt((float)(value))
#define rsqrt(value) emu_rsqrt(value)
#define __expf(value) expf(value)
#define __exp10f(value) exp10f(value)
#define __logf(value) logf(value)
#define __log2f(value) log2f(value)
#define __log10f(value) log10f(value)
#define __powf(base, exponent) powf(base, exponent)
#define __sinf(value) sinf(value)
#define __cosf(value) cosf(value)
#define __tanf(value) tanf(value)
static inline float __saturatef(float value) { return fminf(fmaxf(value, 0.0f), 1.0f); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float value) { return 1.0f / value; }
static inline float __fsqrt_rn(float value) { return sqrtf(value); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float2 __fadd2_rn(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
static inline float2 __fmul2_rn(float2 a, float2 b) { return {a.x * b.x, a.y * b.y}; }
