// The PTX instructions of generated kernels: shared addresses, cp.async, ldmatrix, stmatrix, mma.
// Layouts of fragments: PTX ISA, "Matrix fragments for mma.m16n8k16" and its neighbours, and "ldmatrix".
#pragma once

#include <vector>

#include "builtins.h"
#include "guarded.h"

namespace emu {

// The shared memory of each block of a cluster: what the kernel declares with a size, then what the launch asks
// for.
static guarded windows[MAX_CLUSTER];
static guarded& window() { return windows[cluster_rank]; }

template <class T>
static T& statics() {
    return *reinterpret_cast<T*>(window().data);
}

static unsigned char* dynamic_shared() {
    return window().data + (kernel->static_bytes + kernel->alignment - 1) / kernel->alignment * kernel->alignment;
}

// A shared address has 32 bits: the distance from the start of the window's region.
static uint32_t shared_address(const void* pointer) {
    const size_t distance = static_cast<const unsigned char*>(pointer) - window().region;
    if (distance >= window().region_bytes) fail(ILLEGAL_ADDRESS, "%p is no address of shared memory", pointer);
    return (uint32_t)distance;
}

static unsigned char* shared_at(uint32_t address, unsigned bytes, const char* instruction) {
    unsigned char* const at = window().region + address;
    const long offset = at - window().data;
    if (address >= window().region_bytes || offset < 0 || offset + bytes > window().bytes)
        fail(ILLEGAL_ADDRESS, "%s of %u bytes at offset %ld of %zu bytes of shared memory", instruction, bytes,
             offset, window().bytes);
    if (offset % bytes)
        fail(MISALIGNED, "%s at offset %ld of shared memory, which is no multiple of %u", instruction, offset,
             bytes);
    return at;
}

// Where another block of the cluster has what this block has at `address` (both generic).
static uint64_t mapa(uint64_t address, unsigned rank) {
    if (rank >= cluster_count)
        fail(ILLEGAL_ADDRESS, "mapa to block %u of a cluster of %u", rank, cluster_count);
    const long offset = window().region + shared_address(reinterpret_cast<void*>(address)) - window().data;
    return reinterpret_cast<uint64_t>(windows[rank].data + offset);
}

// An address in the shared memory of a cluster has the block's number, plus 1, in its high bits; without one it is
// of the running block.
constexpr unsigned OTHER_BLOCK = 24;
static uint32_t mapa_shared(uint32_t address, unsigned rank) {
    if (rank >= cluster_count)
        fail(ILLEGAL_ADDRESS, "mapa to block %u of a cluster of %u", rank, cluster_count);
    return address | (rank + 1) << OTHER_BLOCK;
}

// Where in a cluster's shared memory something is: the block, and the address as if it were running.
struct Place {
    unsigned rank;
    uint32_t address;
};
static Place placed(uint32_t address) {
    const unsigned other = address >> OTHER_BLOCK;
    return {other ? other - 1 : cluster_rank, address & ((1u << OTHER_BLOCK) - 1)};
}

static unsigned char* global_at(uint64_t address, unsigned bytes, const char* instruction) {
    if (address % bytes)
        fail(MISALIGNED, "%s at global address %#llx, which is no multiple of %u", instruction,
             (unsigned long long)address, bytes);
    return reinterpret_cast<unsigned char*>(address);
}

template <class T, unsigned N>
static void load(T (&values)[N], const unsigned char* from) {
    memcpy(values, from, sizeof values);
}
template <class T, unsigned N>
static void store(unsigned char* to, const T (&values)[N]) {
    memcpy(to, values, sizeof values);
}

// Registers have bits, C++ variables have types: .b32 moves bits whatever the type.
template <class To, class From>
static void assign(To& to, From from) {
    if constexpr (std::is_floating_point<To>::value != std::is_floating_point<From>::value)
        to = emu_bits<To>(from);
    else
        to = (To)from;
}
template <class T>
static T poison() {
    T value;
    memset(&value, POISON, sizeof value);
    return value;
}

// The bits of `from` as a value of another type, converted between integers only.
template <class To, class From>
static To as(From from) {
    To to;
    assign(to, from);
    return to;
}

// A copy on its way to shared memory. It lands when its thread waits for the group it was committed to.
struct Copy {
    uint32_t address;
    unsigned group;
    unsigned char bytes;
    unsigned char data[16];
};
struct Queue {
    std::vector<Copy> copies;
    unsigned group;    // that the next copy belongs to
    bool unpublished;  // copies have landed that the async proxy was not told of
};
static Queue queues[MAX_FIBERS];

static void forget_copies() {
    for (unsigned fiber = 0; fiber < first_fiber(cluster_count); ++fiber) {
        queues[fiber].copies.clear();
        queues[fiber].group = 0;
        queues[fiber].unpublished = false;
    }
}

// Until the copy lands, the destination holds NaN: reading it early is a wrong result.
static void cp_async(uint32_t address, uint64_t source, unsigned bytes, unsigned source_bytes) {
    Queue& queue = queues[current];
    unsigned char* const to = shared_at(address, bytes, "cp.async");
    if (source_bytes > bytes)
        fail(FAILED, "cp.async of %u bytes reads %u bytes (src-size)", bytes, source_bytes);
    Copy copy{address, queue.group, (unsigned char)bytes, {}};
    memcpy(copy.data, global_at(source, bytes, "cp.async"), source_bytes);
    memset(to, POISON, bytes);
    queue.copies.push_back(copy);
}

static void cp_async_commit_group() { ++queues[current].group; }

// Lands all groups but the `pending` last ones.
static void cp_async_wait_group(unsigned pending) {
    Queue& queue = queues[current];
    size_t landed = 0;
    for (; landed < queue.copies.size() && queue.copies[landed].group + pending < queue.group; ++landed) {
        const Copy& copy = queue.copies[landed];
        memcpy(window().region + copy.address, copy.data, copy.bytes);
    }
    queue.unpublished |= landed > 0;
    queue.copies.erase(queue.copies.begin(), queue.copies.begin() + landed);
}

static void cp_async_wait_all() {
    cp_async_commit_group();
    cp_async_wait_group(0);
}

// Eight lanes give the rows of one 8x8 matrix of 16-bit values; lane l holds two values of row l / 4.
struct Matrices {
    unsigned char* row;
    uint32_t registers[4];
};

template <unsigned N, bool Transposed>
static unsigned char* element(void** lanes, unsigned matrix, unsigned lane, unsigned i) {
    const unsigned outer = lane / 4, inner = 2 * (lane % 4) + i;
    const unsigned row = Transposed ? inner : outer, column = Transposed ? outer : inner;
    return static_cast<Matrices*>(lanes[8 * matrix + row])->row + 2 * column;
}

template <unsigned N, bool Transposed>
static void ldmatrix(const char* instruction, uint32_t (&registers)[N], uint32_t address) {
    Matrices mine{lane() < 8 * N ? shared_at(address, 16, instruction) : nullptr, {}};
    aligned_collective(instruction, &mine, [](void** lanes, uint32_t) {
        for (unsigned lane = 0; lane < LANES; ++lane)
            for (unsigned matrix = 0; matrix < N; ++matrix)
                for (unsigned i = 0; i < 2; ++i)
                    memcpy(reinterpret_cast<char*>(&static_cast<Matrices*>(lanes[lane])->registers[matrix]) + 2 * i,
                           element<N, Transposed>(lanes, matrix, lane, i), 2);
    });
    memcpy(registers, mine.registers, sizeof registers);
}

template <unsigned N, bool Transposed>
static void stmatrix(const char* instruction, uint32_t address, const uint32_t (&registers)[N]) {
    Matrices mine{lane() < 8 * N ? shared_at(address, 16, instruction) : nullptr, {}};
    memcpy(mine.registers, registers, sizeof registers);
    aligned_collective(instruction, &mine, [](void** lanes, uint32_t) {
        for (unsigned lane = 0; lane < LANES; ++lane)
            for (unsigned matrix = 0; matrix < N; ++matrix)
                for (unsigned i = 0; i < 2; ++i)
                    memcpy(element<N, Transposed>(lanes, matrix, lane, i),
                           reinterpret_cast<char*>(&static_cast<Matrices*>(lanes[lane])->registers[matrix]) + 2 * i,
                           2);
    });
}

// Number formats of the multiplicands: how many values a 32-bit register holds, and the values.
struct F16 {
    static constexpr unsigned PER_REGISTER = 2;
    static float value(uint32_t bits, unsigned i) { return half_to_float(bits >> 16 * i & 0xFFFF); }
};
struct BF16 {
    static constexpr unsigned PER_REGISTER = 2;
    static float value(uint32_t bits, unsigned i) { return bfloat16_to_float(bits >> 16 * i & 0xFFFF); }
};
struct TF32 {  // the lowest 13 bits of the fraction do not count
    static constexpr unsigned PER_REGISTER = 1;
    static float value(uint32_t bits, unsigned) { return emu_bits<float>(bits & 0xFFFFE000u); }
};

// Four accumulators of a lane: in four float registers, or in two registers of two halves.
static void unpack(float (&four)[4], const float* registers) { memcpy(four, registers, sizeof four); }
static void pack(float* registers, const float (&four)[4]) { memcpy(registers, four, sizeof four); }
static void unpack(float (&four)[4], const uint32_t* registers) {
    for (unsigned i = 0; i < 4; ++i) four[i] = F16::value(registers[i / 2], i % 2);
}
static void pack(uint32_t* registers, const float (&four)[4]) {
    for (unsigned i = 0; i < 2; ++i)
        registers[i] = float_to_half(four[2 * i]) | (uint32_t)float_to_half(four[2 * i + 1]) << 16;
}

template <class Accumulator>
struct Fragments {
    const uint32_t *a, *b;
    const Accumulator* c;
    Accumulator* d;
};

// D = A B + C for a 16xK tile A, a Kx8 tile B and 16x8 tiles C, D, spread over the registers of a warp.
template <class Format, unsigned K, class Accumulator>
static void multiply(void** lanes, uint32_t) {
    constexpr unsigned P = Format::PER_REGISTER, A_REGISTERS = 16 * K / (LANES * P);
    float a[16][K], b[K][8], c[16][8], four[4];
    for (unsigned lane = 0; lane < LANES; ++lane) {
        const auto& mine = *static_cast<Fragments<Accumulator>*>(lanes[lane]);
        const unsigned group = lane / 4, column = lane % 4;
        for (unsigned r = 0; r < A_REGISTERS; ++r)
            for (unsigned i = 0; i < P; ++i)
                a[group + 8 * (r % 2)][P * column + 4 * P * (r / 2) + i] = Format::value(mine.a[r], i);
        for (unsigned r = 0; r < A_REGISTERS / 2; ++r)
            for (unsigned i = 0; i < P; ++i) b[P * column + 4 * P * r + i][group] = Format::value(mine.b[r], i);
        unpack(four, mine.c);
        for (unsigned i = 0; i < 4; ++i) c[group + 8 * (i / 2)][2 * column + i % 2] = four[i];
    }
    for (unsigned i = 0; i < 16; ++i)
        for (unsigned k = 0; k < K; ++k)
            for (unsigned j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
    for (unsigned lane = 0; lane < LANES; ++lane) {
        for (unsigned i = 0; i < 4; ++i) four[i] = c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
        pack(static_cast<Fragments<Accumulator>*>(lanes[lane])->d, four);
    }
}

template <class Format, unsigned K, class Accumulator>
static void mma(const char* instruction, Accumulator* d, const uint32_t* a, const uint32_t* b, const Accumulator* c) {
    Fragments<Accumulator> mine{a, b, c, d};
    aligned_collective(instruction, &mine, multiply<Format, K, Accumulator>);
}

}  // namespace emu

static inline size_t __cvta_generic_to_shared(const void* pointer) { return emu::shared_address(pointer); }
static inline void* __cvta_shared_to_generic(size_t address) { return emu::window().region + address; }
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += (int)(int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
