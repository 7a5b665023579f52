// A launch: the blocks of a grid one after the other, with faults of their threads turned into messages.
#pragma once

#include <csignal>
#include <mutex>
#include <new>

#include <pthread.h>

#include "ptx.h"
#include "wgmma.h"

#define EMU_EXPORT extern "C" __attribute__((visibility("default")))

namespace emu {

static std::mutex launching;
static pthread_t launcher;
static void* fault_address;
constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE};

static void on_fault(int number, siginfo_t* info, void*) {
    if (!pthread_equal(launcher, pthread_self())) {  // not ours: let it happen again, and end the process
        signal(number, SIG_DFL);
        return;
    }
    fault_address = info->si_addr;
    siglongjmp(escape, number + 1);
}

static void describe_fault(int number) {
    const auto* at = static_cast<const unsigned char*>(fault_address);
    const int room = sizeof message;
    int used = snprintf(message, room, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): ", kernel->name,
                        blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    failure_code = ILLEGAL_ADDRESS;
    if (number == SIGFPE) {
        failure_code = FAILED;
        snprintf(message + used, room - used, "integer division by zero");
    } else if (at >= window().region && at < window().region + window().region_bytes) {
        snprintf(message + used, room - used, "access at offset %ld of %zu bytes of shared memory",
                 (long)(at - window().data), window().bytes);
    } else {
        snprintf(message + used, room - used, "access to global address %p, which nothing is at", fault_address);
    }
}

// A block has finished. Another of its cluster that reads its shared memory later than that finds NaN.
static void leave(unsigned rank) {
    if (!bulk_copies[rank].empty()) fail(FAILED, "the block ended while a bulk copy was on its way to it");
    if (guarded_overrun(&windows[rank]))
        fail(ILLEGAL_ADDRESS, "something beside the %zu bytes of shared memory was written", window().bytes);
    memset(windows[rank].data, POISON, windows[rank].bytes);
}

static void run_grid() {
    unsigned number = 0;
    for (first_block.z = 0; first_block.z < gridDim.z; ++first_block.z)
        for (first_block.y = 0; first_block.y < gridDim.y; ++first_block.y)
            for (first_block.x = 0; first_block.x < gridDim.x; first_block.x += cluster_count, ++number) {
                forget_copies();
                forget_products();
                forget_bulk_copies();
                run_cluster(number, leave);
            }
}

// The only frame that failures come back to.
__attribute__((noinline)) static int run_guarded() {
    const int number = sigsetjmp(escape, 1);
    if (number > 1) describe_fault(number - 1);
    if (number == 0) run_grid();
    current = NOBODY;
    return number ? failure_code : 0;
}

static bool take_memory(unsigned dynamic_bytes) {
    if (!stacks) {
        void* const taken = mmap(nullptr, MAX_FIBERS * STACK_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (taken == MAP_FAILED) return false;
        stacks = static_cast<unsigned char*>(taken);
    }
    const unsigned alignment = kernel->alignment;
    const size_t fixed = (kernel->static_bytes + alignment - 1) / alignment * alignment;
    const size_t bytes = dynamic_bytes ? fixed + dynamic_bytes : kernel->static_bytes;
    for (unsigned rank = 0; rank < cluster_count; ++rank)
        if (!guarded_take(&windows[rank], bytes, alignment)) return false;
    return true;
}

static int launch(const emulated_kernel* launched, const unsigned* grid, const unsigned* block, unsigned cluster,
                  unsigned dynamic_bytes, void** arguments) {
    std::lock_guard<std::mutex> lock(launching);
    kernel = launched;
    kernel_arguments = arguments;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    thread_count = block[0] * block[1] * block[2];
    warp_count = (thread_count + LANES - 1) / LANES;
    cluster_count = cluster;
    cluster_rank = 0;
    launcher = pthread_self();
    fault_address = nullptr;
    message[0] = '\0';
    if (cluster == 0 || cluster > MAX_CLUSTER || grid[0] % cluster) {
        snprintf(message, sizeof message, "kernel %s: a grid of %u blocks has no clusters of %u", kernel->name,
                 grid[0], cluster);
        return FAILED;
    }
    if (thread_count == 0 || thread_count > MAX_THREADS || !take_memory(dynamic_bytes)) {
        snprintf(message, sizeof message, "kernel %s: %u threads and %u bytes cannot be had", kernel->name,
                 thread_count, dynamic_bytes);
        return FAILED;
    }
    struct sigaction action = {}, before[3];
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    for (int i = 0; i < 3; ++i) sigaction(FAULTS[i], &action, &before[i]);
    const int result = run_guarded();
    for (int i = 0; i < 3; ++i) sigaction(FAULTS[i], &before[i], nullptr);
    for (unsigned rank = 0; rank < cluster_count; ++rank) guarded_release(&windows[rank]);
    return result;
}

static const char* failure() { return message; }

}  // namespace emu

EMU_EXPORT int emu_launch(const emulated_kernel* kernel, const unsigned* grid, const unsigned* block,
                          unsigned cluster, unsigned dynamic_bytes, void** arguments) {
    return kernel->launch(kernel, grid, block, cluster, dynamic_bytes, arguments);
}
EMU_EXPORT int emu_encode(tensor_map* map, uint64_t address, const uint64_t* extents, uint64_t stride,
                          const uint32_t* box, unsigned swizzle) {
    const uint32_t steps[2] = {1, 1};
    return tensor_map_encode(map, 2, address, extents, &stride, box, steps, swizzle);
}
EMU_EXPORT const char* emu_failure() { return emu::message; }
EMU_EXPORT void* emu_fault_address() { return emu::fault_address; }
EMU_EXPORT guarded* emu_take(size_t bytes, size_t alignment) {
    guarded* const memory = new (std::nothrow) guarded;
    if (memory && guarded_take(memory, bytes, alignment)) return memory;
    delete memory;
    return nullptr;
}
EMU_EXPORT int emu_overrun(const guarded* memory) { return guarded_overrun(memory); }
EMU_EXPORT void emu_release(guarded* memory) {
    guarded_release(memory);
    delete memory;
}

// What the compiler calls where it finds a misaligned access or an index out of an array's bounds
// (-fsanitize=alignment,bounds-strict without its library); the layouts are those of GCC's libsanitizer.
extern "C" {
struct emu_source_location {
    const char* file;
    uint32_t line, column;
};
struct emu_type_mismatch {
    emu_source_location where;
    const void* type;
    unsigned char log_alignment, kind;
};
struct emu_out_of_bounds {
    emu_source_location where;
    const void *array, *index;
};
__attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(void* data, void* address) {
    const auto* mismatch = static_cast<const emu_type_mismatch*>(data);
    emu::fail(emu::MISALIGNED, "line %u: access at %p, which is no multiple of %u", mismatch->where.line, address,
              1u << mismatch->log_alignment);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(void* data, void* index) {
    emu::fail(emu::ILLEGAL_ADDRESS, "line %u: index %ld is out of the array's bounds",
              static_cast<const emu_out_of_bounds*>(data)->where.line, (long)(intptr_t)index);
}
}
