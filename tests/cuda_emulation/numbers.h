// CUDA's number types: half, bfloat16, and vectors of 2 to 4.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

template <class To, class From>
static inline To emu_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same number of bits");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

namespace emu {

// IEEE 754 binary16 <-> binary32, to nearest even. In software: compilers before GCC 12 have no type for it.
static inline float half_to_float(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) {
        const float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
    return emu_bits<float>(sign | wide << 23 | fraction << 13);
}

static inline uint16_t float_to_half(float value) {
    const uint32_t bits = emu_bits<uint32_t>(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return 0x7FFF;  // NaN
    if (size >= 0x47800000u) return sign | 0x7C00;  // 65536 and more
    if (size < 0x38800000u)  // below 2^-14: a multiple of 2^-24
        return sign | (uint16_t)nearbyintf(emu_bits<float>(size) * 0x1p24f);
    const uint32_t rounded = size + 0xFFF + (size >> 13 & 1);
    return sign | (uint16_t)((rounded - 0x38000000u) >> 13);
}

static inline float bfloat16_to_float(uint16_t bits) { return emu_bits<float>((uint32_t)bits << 16); }

static inline uint16_t float_to_bfloat16(float value) {
    const uint32_t bits = emu_bits<uint32_t>(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

}  // namespace emu

// Every operation is done in float and rounded once, as the 16-bit instructions of a GPU do.
#define EMU_SIXTEEN_BITS(NAME, PAIR, WIDEN, NARROW)                                                           \
    struct NAME {                                                                                             \
        uint16_t bits;                                                                                        \
        NAME() = default;                                                                                     \
        template <class T, std::enable_if_t<std::is_arithmetic<T>::value, int> = 0>                           \
        NAME(T value) : bits(emu::NARROW((float)value)) {}                                                    \
        operator float() const { return emu::WIDEN(bits); }                                                   \
        NAME& operator+=(NAME other) { return *this = NAME((float)*this + (float)other); }                    \
        NAME& operator-=(NAME other) { return *this = NAME((float)*this - (float)other); }                    \
        NAME& operator*=(NAME other) { return *this = NAME((float)*this * (float)other); }                    \
        NAME& operator/=(NAME other) { return *this = NAME((float)*this / (float)other); }                    \
    };                                                                                                        \
    struct alignas(4) PAIR {                                                                                  \
        NAME x, y;                                                                                            \
        PAIR() = default;                                                                                     \
        PAIR(NAME x, NAME y) : x(x), y(y) {}                                                                  \
    };                                                                                                        \
    static inline NAME operator+(NAME a, NAME b) { return NAME((float)a + (float)b); }                        \
    static inline NAME operator-(NAME a, NAME b) { return NAME((float)a - (float)b); }                        \
    static inline NAME operator*(NAME a, NAME b) { return NAME((float)a * (float)b); }                        \
    static inline NAME operator/(NAME a, NAME b) { return NAME((float)a / (float)b); }                        \
    static inline NAME operator-(NAME a) { return NAME(-(float)a); }                                          \
    static inline bool __heq(NAME a, NAME b) { return (float)a == (float)b; }                                 \
    static inline bool __hne(NAME a, NAME b) { return (float)a != (float)b; }                                 \
    static inline bool __hlt(NAME a, NAME b) { return (float)a < (float)b; }                                  \
    static inline bool __hle(NAME a, NAME b) { return (float)a <= (float)b; }                                 \
    static inline bool __hgt(NAME a, NAME b) { return (float)a > (float)b; }                                  \
    static inline bool __hge(NAME a, NAME b) { return (float)a >= (float)b; }                                 \
    static inline NAME __hadd(NAME a, NAME b) { return a + b; }                                               \
    static inline NAME __hsub(NAME a, NAME b) { return a - b; }                                               \
    static inline NAME __hmul(NAME a, NAME b) { return a * b; }                                               \
    static inline NAME __hdiv(NAME a, NAME b) { return a / b; }                                               \
    static inline NAME __hneg(NAME a) { return -a; }                                                          \
    static inline NAME __habs(NAME a) { return NAME(fabsf(a)); }                                              \
    static inline NAME __hmax(NAME a, NAME b) { return NAME(fmaxf(a, b)); }                                   \
    static inline NAME __hmin(NAME a, NAME b) { return NAME(fminf(a, b)); }                                   \
    static inline NAME __hfma(NAME a, NAME b, NAME c) { return NAME(fmaf(a, b, c)); }                         \
    static inline PAIR __hadd2(PAIR a, PAIR b) { return PAIR(a.x + b.x, a.y + b.y); }                         \
    static inline PAIR __hmul2(PAIR a, PAIR b) { return PAIR(a.x * b.x, a.y * b.y); }                         \
    static inline PAIR __hmax2(PAIR a, PAIR b) { return PAIR(__hmax(a.x, b.x), __hmax(a.y, b.y)); }           \
    static inline PAIR __hmin2(PAIR a, PAIR b) { return PAIR(__hmin(a.x, b.x), __hmin(a.y, b.y)); }           \
    static inline PAIR __hfma2(PAIR a, PAIR b, PAIR c) {                                                      \
        return PAIR(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                            \
    }                                                                                                         \
    static inline NAME hexp(NAME a) { return NAME(expf(a)); }                                                 \
    static inline NAME hexp2(NAME a) { return NAME(exp2f(a)); }                                               \
    static inline NAME hlog(NAME a) { return NAME(logf(a)); }                                                 \
    static inline NAME hlog2(NAME a) { return NAME(log2f(a)); }                                               \
    static inline NAME hsqrt(NAME a) { return NAME(sqrtf(a)); }                                               \
    static inline NAME hrsqrt(NAME a) { return NAME(1.0f / sqrtf(a)); }                                       \
    static inline NAME hrcp(NAME a) { return NAME(1.0f / (float)a); }                                         \
    static inline NAME hsin(NAME a) { return NAME(sinf(a)); }                                                 \
    static inline NAME hcos(NAME a) { return NAME(cosf(a)); }                                                 \
    static inline NAME htanh(NAME a) { return NAME(tanhf(a)); }                                               \
    static inline NAME hfloor(NAME a) { return NAME(floorf(a)); }                                             \
    static inline NAME hceil(NAME a) { return NAME(ceilf(a)); }                                               \
    static inline NAME htrunc(NAME a) { return NAME(truncf(a)); }                                             \
    static inline NAME hrint(NAME a) { return NAME(rintf(a)); }

EMU_SIXTEEN_BITS(__half, __half2, half_to_float, float_to_half)
EMU_SIXTEEN_BITS(__nv_bfloat16, __nv_bfloat162, bfloat16_to_float, float_to_bfloat16)
#undef EMU_SIXTEEN_BITS

using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

#define EMU_VECTORS(T, NAME, TWO_BYTES, FOUR_BYTES)                                                           \
    struct NAME##1 { T x; };                                                                                  \
    struct alignas(TWO_BYTES) NAME##2 { T x, y; };                                                            \
    struct NAME##3 { T x, y, z; };                                                                            \
    struct alignas(FOUR_BYTES) NAME##4 { T x, y, z, w; };                                                     \
    static inline NAME##1 make_##NAME##1(T x) { return {x}; }                                                 \
    static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                         \
    static inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                                 \
    static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned int, uint, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
#undef EMU_VECTORS

static inline half2 make_half2(half x, half y) { return half2(x, y); }
static inline half2 __halves2half2(half x, half y) { return half2(x, y); }
static inline float __half2float(half a) { return a; }
static inline half __float2half(float a) { return half(a); }
static inline half __float2half_rn(float a) { return half(a); }
static inline half __double2half(double a) { return half((float)a); }
static inline half2 __float2half2_rn(float a) { return half2(half(a), half(a)); }
static inline half2 __floats2half2_rn(float a, float b) { return half2(half(a), half(b)); }
static inline half2 __float22half2_rn(float2 a) { return half2(half(a.x), half(a.y)); }
static inline float2 __half22float2(half2 a) { return {a.x, a.y}; }
static inline half __ushort_as_half(unsigned short bits) { return emu_bits<half>(bits); }
static inline unsigned short __half_as_ushort(half a) { return a.bits; }

static inline float __bfloat162float(nv_bfloat16 a) { return a; }
static inline nv_bfloat16 __float2bfloat16(float a) { return nv_bfloat16(a); }
static inline nv_bfloat16 __float2bfloat16_rn(float a) { return nv_bfloat16(a); }
static inline nv_bfloat16 __double2bfloat16(double a) { return nv_bfloat16((float)a); }
static inline nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
    return nv_bfloat162(nv_bfloat16(a), nv_bfloat16(b));
}
static inline nv_bfloat162 __float22bfloat162_rn(float2 a) { return __floats2bfloat162_rn(a.x, a.y); }
static inline float2 __bfloat1622float2(nv_bfloat162 a) { return {a.x, a.y}; }
static inline nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return emu_bits<nv_bfloat16>(bits); }
static inline unsigned short __bfloat16_as_ushort(nv_bfloat16 a) { return a.bits; }
