// Barriers in shared memory that count arrivals and bytes, and the bulk copies (TMA) that report to them. PTX ISA,
// "mbarrier" and "cp.async.bulk.tensor".
#pragma once

#include <map>

#include "ptx.h"
#include "tensor_map.h"

struct CUtensorMap {
    unsigned char bytes[TENSOR_MAP_BYTES];
};

namespace emu {

constexpr unsigned BARRIER_BYTES = 8, MOST_ARRIVALS = (1u << 20) - 1;

// Phase: how many were completed. Bytes: those expected less those that came, in this phase.
struct Barrier {
    unsigned phase, count, pending;
    long bytes;
    uint64_t mark;  // what its 8 bytes of shared memory hold: whoever else writes there is told
};
static std::map<uint32_t, Barrier> barriers[MAX_CLUSTER];

// A copy that nobody has waited for yet: until then its destination holds NaN.
struct BulkCopy {
    uint32_t address, barrier;
    std::vector<unsigned char> data;
};
static std::vector<BulkCopy> bulk_copies[MAX_CLUSTER];

static void forget_bulk_copies() {
    for (unsigned rank = 0; rank < MAX_CLUSTER; ++rank) {
        barriers[rank].clear();
        bulk_copies[rank].clear();
    }
}

static long shared_offset(uint32_t address) { return window().region + address - window().data; }

static void mbarrier_init(uint32_t address, uint32_t count) {
    unsigned char* const at = shared_at(address, BARRIER_BYTES, "mbarrier.init");
    if (count < 1 || count > MOST_ARRIVALS) fail(FAILED, "mbarrier.init: a barrier counts 1 to 2^20 - 1 arrivals");
    const Barrier made{0, count, count, 0, 0x4d42415252494552ull ^ address};
    memcpy(at, &made.mark, BARRIER_BYTES);
    barriers[cluster_rank][address] = made;
}

// The barrier at an address of one block of the cluster; another's has to be there still.
static Barrier& barrier_of(Place place, const char* instruction) {
    if (blocks[place.rank].progress == Progress::finished)
        fail(FAILED, "%s: block %u of the cluster has finished", instruction, place.rank);
    const auto found = barriers[place.rank].find(place.address);
    if (found == barriers[place.rank].end())
        fail(FAILED, "%s at offset %ld of shared memory, where no mbarrier.init was (block %u of the cluster)",
             instruction, shared_offset(place.address), place.rank);
    if (memcmp(windows[place.rank].region + place.address, &found->second.mark, BARRIER_BYTES))
        fail(FAILED, "%s: the mbarrier at offset %ld was overwritten", instruction, shared_offset(place.address));
    return found->second;
}

static Barrier& barrier_at(uint32_t address, const char* instruction) {
    shared_at(address, BARRIER_BYTES, instruction);
    return barrier_of({cluster_rank, address}, instruction);
}

// Lets those who wait for this barrier look again.
static void wake(Place place) {
    const unsigned first = first_fiber(place.rank);
    for (unsigned thread = 0; thread < thread_count; ++thread) {
        Fiber& fiber = fibers[first + thread];
        if (fiber.state != State::at_mbarrier || fiber.watched != place.address) continue;
        fiber.state = State::ready;
        woken = true;
    }
}

static void complete_phase(Barrier& barrier) {
    if (barrier.pending || barrier.bytes) return;
    barrier.pending = barrier.count;
    ++barrier.phase;
}

static void mbarrier_arrive(uint32_t address, long bytes, const char* instruction) {
    const Place place = placed(address);
    if (place.rank == cluster_rank) shared_at(place.address, BARRIER_BYTES, instruction);
    Barrier& barrier = barrier_of(place, instruction);
    if (barrier.pending == 0) fail(FAILED, "%s: more arrivals than the %u of a phase", instruction, barrier.count);
    barrier.bytes += bytes;
    --barrier.pending;
    complete_phase(barrier);
    wake(place);
}

// What is on its way to this barrier arrives.
static void land_bulk_copies(uint32_t address, Barrier& barrier) {
    std::vector<BulkCopy>& copies = bulk_copies[cluster_rank];
    std::vector<BulkCopy> left;
    for (BulkCopy& copy : copies) {
        if (copy.barrier != address) {
            left.push_back(std::move(copy));
            continue;
        }
        memcpy(window().region + copy.address, copy.data.data(), copy.data.size());
        barrier.bytes -= (long)copy.data.size();
    }
    copies = std::move(left);
    complete_phase(barrier);
}

// Whether the phase of this parity is over: the one before the current phase, or the current one.
static bool mbarrier_try_wait(uint32_t address, uint32_t parity) {
    if (parity > 1) fail(FAILED, "mbarrier.try_wait: the parity of a phase is 0 or 1, not %u", parity);
    for (;;) {
        Barrier& barrier = barrier_at(address, "mbarrier.try_wait");
        if (barrier.phase % 2 == parity) land_bulk_copies(address, barrier);
        if (barrier.phase % 2 != parity) {
            wake({cluster_rank, address});
            return true;
        }
        fibers[current].watched = address;
        wait(State::at_mbarrier);
    }
}

// Nobody can go on, and this thread waits for a barrier.
[[noreturn]] static void fail_at_mbarrier(unsigned thread, uint32_t address) {
    const Barrier& barrier = barriers[cluster_rank][address];
    fail(FAILED,
         "thread %u waits without end for the mbarrier at offset %ld: in its phase %u, %u of %u arrivals and %ld bytes "
         "are missing",
         thread, shared_offset(address), barrier.phase, barrier.pending, barrier.count, barrier.bytes);
}

// Whether something between these offsets of a block's shared memory is still on its way.
static bool being_brought(unsigned rank, long first, long last) {
    for (const BulkCopy& copy : bulk_copies[rank]) {
        const long begin = shared_offset(copy.address);
        if (first < begin + (long)copy.data.size() && begin <= last) return true;
    }
    return false;
}

// A box of a matrix, line after line, swizzled by the address of its destination; zero where it sticks out. It goes to
// the same place of each block that has a bit in `blocks_mask`, and is reported to the same barrier there.
static void bulk_tensor_2d(uint32_t to, uint64_t map, int32_t element, int32_t line, uint32_t barrier,
                           uint32_t blocks_mask) {
    const char* const instruction = "cp.async.bulk.tensor.2d";
    tensor_map tile;
    memcpy(&tile, reinterpret_cast<const void*>(map), sizeof tile);
    if (tile.magic != TENSOR_MAP_MAGIC) fail(FAILED, "%s: the descriptor was never encoded", instruction);
    shared_at(barrier, BARRIER_BYTES, instruction);
    if (blocks_mask == 0 || blocks_mask >> cluster_count)
        fail(FAILED, "%s to blocks %#x of a cluster of %u", instruction, blocks_mask, cluster_count);
    const uint32_t line_bytes = 2 * tile.box[0], bytes = line_bytes * tile.box[1], pattern = 8 * tile.swizzle_bytes;
    if (line_bytes != tile.swizzle_bytes)
        fail(FAILED, "%s: a line of %u bytes is not swizzled as one of %u", instruction, line_bytes,
             tile.swizzle_bytes);
    const long offset = shared_offset(to);
    if (offset < 0 || offset + bytes > (long)window().bytes)
        fail(ILLEGAL_ADDRESS, "%s of %u bytes at offset %ld of %zu bytes of shared memory", instruction, bytes, offset,
             window().bytes);
    if (offset % pattern)
        fail(MISALIGNED, "%s at offset %ld of shared memory, which is no multiple of %u", instruction, offset, pattern);
    BulkCopy copy{to, barrier, std::vector<unsigned char>(bytes)};
    for (uint32_t i = 0; i < tile.box[1]; ++i)
        for (uint32_t j = 0; j < tile.box[0]; ++j) {
            const long row = (long)line + i, column = (long)element + j;
            if (row < 0 || column < 0 || row >= (long)tile.extents[1] || column >= (long)tile.extents[0]) continue;
            uint32_t at = i * line_bytes + 2 * j;
            at ^= (at >> 7 & (tile.swizzle_bytes / 16 - 1)) << 4;
            memcpy(&copy.data[at], reinterpret_cast<const char*>(tile.address) + row * tile.stride_bytes + 2 * column,
                   2);
        }
    for (unsigned rank = 0; rank < cluster_count; ++rank) {
        if (!(blocks_mask >> rank & 1)) continue;
        barrier_of({rank, barrier}, instruction);
        if (being_brought(rank, offset, offset + bytes - 1))
            fail(FAILED, "%s: another copy to offset %ld is still on its way", instruction, offset);
        memset(windows[rank].region + to, POISON, bytes);
        bulk_copies[rank].push_back(copy);
        wake({rank, barrier});
    }
}

// Registers of a thread from here on, of all threads of four warps.
static void set_registers(const char* instruction, uint32_t count) {
    if (count < 24 || count > 256 || count % 8)
        fail(FAILED, "%s %u: the number is a multiple of 8 from 24 to 256", instruction, count);
    group_collective(instruction, nullptr, [](void**) {});
}

}  // namespace emu
