// wgmma: four warps multiply tiles of shared memory while they go on. PTX ISA, "Asynchronous Warpgroup Level
// Matrix Multiply-Accumulate Instructions": matrix descriptor format, canonical layouts, register fragments.
#pragma once

#include <climits>

#include "bulk.h"
#include "ptx.h"

namespace emu {

// What a matrix descriptor says, in bytes; a line of a strip has so many cells of 16 bytes.
struct Described {
    uint32_t start, leading, stride;
    unsigned cells;
};

static Described described(const char* instruction, uint64_t bits) {
    constexpr unsigned CELLS[] = {1, 8, 4, 2};  // no swizzle, 128, 64 and 32 bytes
    constexpr uint64_t UNUSED = 0x3FF1C000C000C000ull, BASE_OFFSET = 7ull << 49;
    if (bits & UNUSED)
        fail(FAILED, "%s: descriptor %#llx has bits that mean nothing", instruction, (unsigned long long)bits);
    if (bits & BASE_OFFSET || bits >> 62 == 0)
        fail(FAILED, "%s: descriptor %#llx is not swizzled, or begins inside a pattern", instruction,
             (unsigned long long)bits);
    const auto bytes = [bits](unsigned from) { return (uint32_t)(bits >> from & 0x3FFF) << 4; };
    return {bytes(0), bytes(16), bytes(32), CELLS[bits >> 62]};
}

// Where element (line, step) of an operand is: `line` along its rows or columns, `step` along the reduction.
//
//   K-major:  ((8, m), (T, 2k)) : ((cells T, stride), (1, T))           T = 8 elements
//   MN-major: ((T, cells, m), (8, k)) : ((1, T, leading), (cells T, stride))
//
// Then bits 4 to 6 of the address are changed by bits 7 to 9, as many as the swizzle has.
static uint32_t place(const Described& tile, unsigned line, unsigned step, bool across) {
    const uint32_t bytes = 16 * tile.cells, elements = bytes / 2;  // of a strip's line
    const uint32_t inside = across ? line / elements * tile.leading + step / 8 * tile.stride + step % 8 * bytes +
                                         line % elements * 2
                                   : line / 8 * tile.stride + line % 8 * bytes + step * 2;
    const uint32_t at = tile.start + inside;
    return at ^ (at >> 7 & (tile.cells - 1)) << 4;
}

// Of an address in shared memory 18 bits count; a block has less.
static uint16_t shared_element(const char* instruction, uint32_t address) {
    const uint32_t first = (uint32_t)(window().data - window().region);
    const uint32_t offset = (address - first) & 0x3FFFF;
    if (offset + 2 > window().bytes)
        fail(ILLEGAL_ADDRESS, "%s reads offset %u of %zu bytes of shared memory", instruction, offset,
             window().bytes);
    uint16_t element;
    memcpy(&element, window().data + offset, 2);
    return element;
}

// `lines` x 16 elements of an operand, line after line.
static std::vector<uint16_t> tile_of(const char* instruction, const Described& tile, unsigned lines, bool across) {
    std::vector<uint16_t> elements;
    elements.reserve(lines * 16);
    for (unsigned line = 0; line < lines; ++line)
        for (unsigned step = 0; step < 16; ++step)
            elements.push_back(shared_element(instruction, place(tile, line, step, across)));
    return elements;
}

// A tile may be read that no bulk copy is still bringing.
static void check_brought(const char* instruction, const Described& tile, unsigned lines, bool across) {
    const uint32_t base = (uint32_t)(window().data - window().region);
    long first = LONG_MAX, last = 0;
    for (unsigned line = 0; line < lines; ++line)
        for (unsigned step = 0; step < 16; ++step) {
            const long at = (place(tile, line, step, across) - base) & 0x3FFFF;
            first = at < first ? at : first;
            last = at > last ? at : last;
        }
    if (being_brought(cluster_rank, first, last)) fail(FAILED, "%s reads what a bulk copy is still bringing", instruction);
}

// A tile that the tensor cores may still be reading.
struct Reading {
    const char* instruction;
    Described tile;
    unsigned lines;
    bool across;
    unsigned group;
    std::vector<uint16_t> elements;
};

// Sums on their way to registers: those of thread 0, then of thread 1, ...
struct Sums {
    std::vector<float*> to;
    std::vector<float> values;
    unsigned group;
};

// What four warps have given to the tensor cores.
struct Flight {
    std::vector<Reading> readings;
    std::vector<Sums> sums;
    unsigned group;  // that the next product belongs to
    bool fenced;     // registers were not touched since a wgmma.fence
};
static Flight flights[MAX_GROUPS];

static void forget_products() {
    for (Flight& flight : flights) flight = {};
}

static void fence_proxy_async() { queues[current].unpublished = false; }

struct Given {
    float* const* to;
    const float* from;
    uint64_t a, b;
    bool add;
};

// The sums that a product adds to: those in flight to the same registers, or what the registers hold.
static Sums& sums_of(const char* instruction, void** threads, unsigned count) {
    Flight& flight = flights[group_number()];
    float* const first = static_cast<Given*>(threads[0])->to[0];
    for (Sums& sums : flight.sums) {
        if (sums.to[0] != first) continue;
        if (sums.to.size() != GROUP * count) fail(FAILED, "%s: sums in flight are of another shape", instruction);
        return sums;
    }
    if (!flight.fenced) fail(FAILED, "%s without wgmma.fence after registers were written or read", instruction);
    flight.sums.emplace_back();
    for (unsigned thread = 0; thread < GROUP; ++thread)
        for (unsigned n = 0; n < count; ++n) {
            const Given& given = *static_cast<Given*>(threads[thread]);
            flight.sums.back().to.push_back(given.to[n]);
            flight.sums.back().values.push_back(given.from[n]);
        }
    return flight.sums.back();
}

static void check_given(const char* instruction, void** threads) {
    const Given& first = *static_cast<Given*>(threads[0]);
    for (unsigned thread = 1; thread < GROUP; ++thread) {
        const Given& given = *static_cast<Given*>(threads[thread]);
        if (given.a != first.a || given.b != first.b || given.add != first.add)
            fail(FAILED, "%s: threads 0 and %u of four warps name different tiles", instruction, thread);
    }
    for (unsigned thread = 0; thread < thread_count; ++thread)
        if (queues[first_fiber(cluster_rank) + thread].unpublished)
            fail(FAILED, "%s: no fence.proxy.async after what thread %u copied to shared memory", instruction,
                 thread);
}

// y (64 x N) += a (64 x 16) b (16 x N), from shared memory as it is now; if it changes before a wait covers the
// product, that is told. N is a multiple of 8 up to 256; either operand may lie across (MN-major).
template <class Format, unsigned N, bool AcrossA, bool AcrossB>
static void multiply_tiles(const char* instruction, void** threads) {
    static_assert(N % 8 == 0 && 8 <= N && N <= 256, "wgmma.m64nNk16 has 8, 16, ... or 256 columns");
    check_given(instruction, threads);
    const Given& given = *static_cast<Given*>(threads[0]);
    Flight& flight = flights[group_number()];
    const Described a = described(instruction, given.a), b = described(instruction, given.b);
    if (!bulk_copies[cluster_rank].empty()) {
        check_brought(instruction, a, 64, AcrossA);
        check_brought(instruction, b, N, AcrossB);
    }
    flight.readings.push_back({instruction, a, 64, AcrossA, flight.group, tile_of(instruction, a, 64, AcrossA)});
    flight.readings.push_back({instruction, b, N, AcrossB, flight.group, tile_of(instruction, b, N, AcrossB)});
    static float y[64][N], left[64 * 16], right[16][N];
    const Reading* const read = &flight.readings.back() - 1;
    for (unsigned i = 0; i < 64 * 16; ++i) left[i] = Format::value(read[0].elements[i], 0);
    for (unsigned i = 0; i < 16 * N; ++i) right[i % 16][i / 16] = Format::value(read[1].elements[i], 0);
    for (unsigned i = 0; i < 64; ++i)
        for (unsigned j = 0; j < N; ++j) {
            float sum = 0;
            for (unsigned k = 0; k < 16; ++k) sum += left[16 * i + k] * right[k][j];
            y[i][j] = sum;
        }
    Sums& sums = sums_of(instruction, threads, N / 2);
    sums.group = flight.group;
    for (unsigned thread = 0; thread < GROUP; ++thread)
        for (unsigned n = 0; n < N / 2; ++n) {
            const unsigned row = thread / LANES * 16 + thread % LANES / 4 + n / 2 % 2 * 8;
            const unsigned column = n / 4 * 8 + thread % 4 * 2 + n % 2;
            float& sum = sums.values[thread * (N / 2) + n];
            sum = (given.add ? sum : 0) + y[row][column];
        }
}

template <class Format, unsigned N, bool AcrossA, bool AcrossB>
static void wgmma(const char* instruction, float* const* to, const float* from, uint64_t a, uint64_t b, bool add) {
    Given given{to, from, a, b, add};
    group_collective(instruction, &given,
                     [=](void** threads) { multiply_tiles<Format, N, AcrossA, AcrossB>(instruction, threads); });
}

static void wgmma_fence() {
    group_collective("wgmma.fence", nullptr, [](void**) { flights[group_number()].fenced = true; });
}

static void wgmma_commit_group() {
    group_collective("wgmma.commit_group", nullptr, [](void**) { ++flights[group_number()].group; });
}

// Lands all groups but the `pending` last ones.
static void land_products(unsigned pending) {
    Flight& flight = flights[group_number()];
    std::vector<Reading> readings;
    for (Reading& reading : flight.readings) {
        if (reading.elements != tile_of(reading.instruction, reading.tile, reading.lines, reading.across))
            fail(FAILED, "%s: shared memory was written before a wait covered the product", reading.instruction);
        if (reading.group + pending >= flight.group) readings.push_back(std::move(reading));
    }
    flight.readings = std::move(readings);
    std::vector<Sums> left;
    for (Sums& sums : flight.sums) {
        if (sums.group + pending >= flight.group) {
            left.push_back(std::move(sums));
            continue;
        }
        for (size_t i = 0; i < sums.to.size(); ++i) *sums.to[i] = sums.values[i];
        flight.fenced = false;
    }
    flight.sums = std::move(left);
}

static void wgmma_wait_group(unsigned pending) {
    group_collective("wgmma.wait_group", nullptr, [=](void**) { land_products(pending); });
}

}  // namespace emu
