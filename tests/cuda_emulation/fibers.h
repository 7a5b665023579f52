// The threads of one block, or of a cluster of blocks, as fibers of one processor thread: switching, barriers,
// instructions of a whole warp.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#if !defined(__x86_64__) || defined(EMU_UCONTEXT)
#undef EMU_UCONTEXT
#define EMU_UCONTEXT
#include <ucontext.h>
#endif

#include "kernel.h"

namespace emu {
struct Index {
    unsigned x, y, z;
};
}  // namespace emu

static emu::Index threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace emu {

constexpr unsigned MAX_THREADS = 1024, MAX_CLUSTER = 8, LANES = 32, GROUP = 4 * LANES, NOBODY = ~0u;
constexpr unsigned MAX_FIBERS = MAX_THREADS * MAX_CLUSTER, MAX_GROUPS = MAX_FIBERS / GROUP;
constexpr unsigned NUMBERED = 16;  // barriers of a block (PTX ISA, "bar")
constexpr uint32_t FULL = 0xFFFFFFFFu;
constexpr size_t STACK_BYTES = 128 * 1024;

#if !defined(EMU_UCONTEXT)
// swapcontext() saves the signal mask by two system calls; this saves what the calling convention asks for.
struct Context {
    void* stack_pointer;
};
extern "C" __attribute__((visibility("hidden"))) void emu_switch(void** from, void* to);
asm(R"(
    .text
    .globl emu_switch
    .hidden emu_switch
    .type emu_switch, @function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_switch, . - emu_switch
)");
static void switch_context(Context& from, Context& to) { emu_switch(&from.stack_pointer, to.stack_pointer); }
static void prepare(Context& context, unsigned char* stack, void (*entry)()) {
    void** top = reinterpret_cast<void**>(stack + STACK_BYTES);
    *--top = nullptr;  // the return address of entry: a function starts 8 bytes below a multiple of 16
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    context.stack_pointer = top;
}
#else
struct Context {
    ucontext_t ucontext;
};
static void switch_context(Context& from, Context& to) { swapcontext(&from.ucontext, &to.ucontext); }
static void prepare(Context& context, unsigned char* stack, void (*entry)()) {
    getcontext(&context.ucontext);
    context.ucontext.uc_stack.ss_sp = stack;
    context.ucontext.uc_stack.ss_size = STACK_BYTES;
    context.ucontext.uc_link = nullptr;
    makecontext(&context.ucontext, entry, 0);
}
#endif

enum class State : unsigned char { ready, at_barrier, at_numbered, at_cluster, at_mbarrier, in_warp, in_group, done };

struct Fiber {
    Context context;
    State state;
    int line;      // of the barrier it waits at
    uint32_t watched;  // the barrier in shared memory, or the number of that of some threads, that it waits for
    bool arrived;  // at the cluster's barrier
    Index index;
};

// The lanes of a warp meet here for an instruction that they carry out together.
struct Warp {
    const char* instruction;
    uint32_t lanes;     // that the block has
    uint32_t expected;  // in this instruction
    uint32_t arrived;
    void* arguments[LANES];
};

// The threads of four warps meet here for an instruction that they carry out together.
struct Group {
    const char* instruction;
    unsigned arrived;
    void* arguments[GROUP];
};

enum class Progress { released, waiting, blocked, finished };

// A block of a cluster; one that is in no cluster is a cluster by itself.
struct Block {
    unsigned phase;  // barriers passed
    unsigned votes, last_votes;
    unsigned numbered[NUMBERED];  // threads at each barrier of some threads
    Progress progress;
};

static Fiber fibers[MAX_FIBERS];
static Warp warps[MAX_FIBERS / LANES];
static Group groups[MAX_GROUPS];
static bool woken;  // threads of other warps can go on
static Block blocks[MAX_CLUSTER];
static Context scheduler;
static const emulated_kernel* kernel;
static void** kernel_arguments;
static unsigned char* stacks;
static unsigned thread_count;  // of a block
static unsigned warp_count;    // of a block; the fibers of each begin at a multiple of 32
static unsigned cluster_count = 1, cluster_rank;  // blocks of the cluster, and which one is running
static Index first_block;
static unsigned current = NOBODY;

static char message[512];
static int failure_code;
static sigjmp_buf escape;

// Ends the launch: back to the frame that started it, whatever stack this is.
[[noreturn]] __attribute__((noinline, cold, format(printf, 2, 3))) static void fail(int code, const char* format,
                                                                                    ...) {
    const int room = sizeof message;
    int used = snprintf(message, room, "kernel %s, block (%u, %u, %u)", kernel->name, blockIdx.x, blockIdx.y,
                        blockIdx.z);
    if (current != NOBODY)
        used += snprintf(message + used, room - used, ", thread (%u, %u, %u)", threadIdx.x, threadIdx.y,
                         threadIdx.z);
    used += snprintf(message + used, room - used, ": ");
    va_list values;
    va_start(values, format);
    vsnprintf(message + used, room - used, format, values);
    va_end(values);
    failure_code = code;
    siglongjmp(escape, 1);
}
constexpr int ILLEGAL_ADDRESS = 700, MISALIGNED = 716, FAILED = 719;

static void wait(State state) {
    Fiber& me = fibers[current];
    me.state = state;
    switch_context(me.context, scheduler);
}

static unsigned first_fiber(unsigned rank) { return rank * warp_count * LANES; }

static void enter(unsigned rank) {
    cluster_rank = rank;
    blockIdx = {first_block.x + rank, first_block.y, first_block.z};
}

static void resume(unsigned fiber) {
    current = fiber;
    threadIdx = fibers[fiber].index;
    switch_context(scheduler, fibers[fiber].context);
    current = NOBODY;
}

static void fiber_main() {
    kernel->body(kernel_arguments);
    fibers[current].state = State::done;
    switch_context(fibers[current].context, scheduler);
    __builtin_unreachable();
}

// Line: of the source, or -1 for a barrier in inline assembly.
static void sync_threads(int line) {
    fibers[current].line = line;
    wait(State::at_barrier);
}

// How many threads of the block said yes.
static unsigned sync_threads_count(int line, bool yes) {
    blocks[cluster_rank].votes += yes;
    sync_threads(line);
    return blocks[cluster_rank].last_votes;
}

// A barrier of `count` threads of the block, whoever they are; number 0 is that of all.
static void sync_some_threads(unsigned number, unsigned count) {
    if (number < 1 || number >= NUMBERED || count < LANES || count % LANES || count > thread_count)
        fail(FAILED, "bar.sync %u of %u threads, of %u that the block has", number, count, thread_count);
    unsigned& arrived = blocks[cluster_rank].numbered[number];
    fibers[current].watched = number;
    if (++arrived < count) {
        wait(State::at_numbered);
        return;
    }
    arrived = 0;
    for (unsigned thread = 0; thread < thread_count; ++thread) {
        Fiber& fiber = fibers[first_fiber(cluster_rank) + thread];
        if (fiber.state == State::at_numbered && fiber.watched == number) fiber.state = State::ready;
    }
    woken = true;
}

static void cluster_arrive() {
    if (fibers[current].arrived) fail(FAILED, "barrier.cluster.arrive twice without a wait");
    fibers[current].arrived = true;
}

static void cluster_wait() {
    if (!fibers[current].arrived) fail(FAILED, "barrier.cluster.wait without an arrive");
    fibers[current].arrived = false;
    wait(State::at_cluster);
}

// The last lane to arrive carries `body(arguments of all lanes, mask)` out for all.
template <class Body>
static void collective(const char* instruction, uint32_t mask, void* argument, Body body) {
    const unsigned lane = current % LANES;
    Warp& warp = warps[current / LANES];
    if (!(mask >> lane & 1)) fail(FAILED, "lane %u is not in its own mask %#x of %s", lane, mask, instruction);
    if (warp.arrived == 0) {
        warp.instruction = instruction;
        warp.expected = mask;
    } else if (warp.expected != mask ||
               (warp.instruction != instruction && strcmp(warp.instruction, instruction) != 0)) {
        fail(FAILED, "lanes of one warp meet in %s (mask %#x) and %s (mask %#x)", warp.instruction, warp.expected,
             instruction, mask);
    }
    warp.arguments[lane] = argument;
    warp.arrived |= 1u << lane;
    if (warp.arrived != warp.expected) {
        wait(State::in_warp);
        return;
    }
    warp.arrived = 0;
    body(warp.arguments, mask);
    for (unsigned other = 0; other < LANES; ++other)
        if (other != lane && mask >> other & 1) fibers[current - lane + other].state = State::ready;
}

// For instructions that PTX calls .aligned: all 32 lanes take part.
template <class Body>
static void aligned_collective(const char* instruction, void* argument, Body body) {
    if (warps[current / LANES].lanes != FULL)
        fail(FAILED, "%s needs a warp of 32 threads; the block has %u threads", instruction, thread_count);
    collective(instruction, FULL, argument, body);
}

// Which four warps of all these are, counted from the block's first thread.
static unsigned group_number() {
    return cluster_rank * (MAX_THREADS / GROUP) + (current - first_fiber(cluster_rank)) / GROUP;
}

// The last of four warps' threads to arrive carries `body(arguments of all)` out for all.
template <class Body>
static void group_collective(const char* instruction, void* argument, Body body) {
    const unsigned thread = current - first_fiber(cluster_rank), inside = thread % GROUP;
    if (thread - inside + GROUP > thread_count)
        fail(FAILED, "%s needs four whole warps; the block has %u threads", instruction, thread_count);
    Group& group = groups[group_number()];
    if (group.arrived == 0)
        group.instruction = instruction;
    else if (group.instruction != instruction && strcmp(group.instruction, instruction) != 0)
        fail(FAILED, "four warps meet in %s and %s", group.instruction, instruction);
    group.arguments[inside] = argument;
    if (++group.arrived != GROUP) {
        wait(State::in_group);
        return;
    }
    group.arrived = 0;
    body(group.arguments);
    for (unsigned other = 0; other < GROUP; ++other)
        if (other != inside) fibers[current - inside + other].state = State::ready;
    woken = true;
}

static void run_warp(unsigned warp, bool forward) {
    const unsigned first = cluster_rank * warp_count * LANES + warp * LANES;
    const unsigned left = thread_count - warp * LANES, count = left < LANES ? left : LANES;
    for (bool again = true; again;) {
        again = false;
        for (unsigned i = 0; i < count; ++i) {
            const unsigned fiber = first + (forward ? i : count - 1 - i);
            if (fibers[fiber].state != State::ready) continue;
            resume(fiber);
            again = true;
        }
    }
}


[[noreturn]] static void fail_at_mbarrier(unsigned thread, uint32_t address);

// Nobody of a block can go on: everybody is at the same barrier (which they pass), at the cluster's, or has
// finished; or this never ends.
static Progress release_barrier(unsigned rank) {
    const unsigned begin = first_fiber(rank);
    unsigned at_barrier = 0, at_cluster = 0, finished = 0, first = 0;
    for (unsigned thread = 0; thread < thread_count; ++thread) {
        const Fiber& fiber = fibers[begin + thread];
        const Warp& warp = warps[(begin + thread) / LANES];
        if (fiber.state == State::done) {
            ++finished;
        } else if (fiber.state == State::in_warp) {
            fail(FAILED, "divergent warp: lanes %#x of warp %u wait in %s for lanes %#x, which never come",
                 warp.arrived, thread / LANES, warp.instruction, warp.expected & ~warp.arrived);
        } else if (fiber.state == State::in_group) {
            const Group& group = groups[rank * (MAX_THREADS / GROUP) + thread / GROUP];
            fail(FAILED, "divergent warps: %u threads wait in %s for the others of their four warps", group.arrived,
                 group.instruction);
        } else if (fiber.state == State::at_mbarrier) {
            return Progress::blocked;  // perhaps another block of the cluster arrives there
        } else if (fiber.state == State::at_numbered) {
            fail(FAILED, "divergent barrier: %u threads wait at barrier %u for others, which never come",
                 blocks[rank].numbered[fiber.watched], fiber.watched);
        } else if (fiber.state == State::at_cluster) {
            ++at_cluster;
        } else if (at_barrier++ == 0) {
            first = thread;
        } else if (fiber.line != fibers[begin + first].line) {
            fail(FAILED, "divergent barrier: thread %u waits in line %d and thread %u in line %d", first,
                 fibers[begin + first].line, thread, fiber.line);
        }
    }
    if (at_cluster && at_cluster != thread_count)
        fail(FAILED, "divergent barrier: %u of %u threads wait for their cluster", at_cluster, thread_count);
    if (at_cluster) return Progress::waiting;
    if (at_barrier == 0) return Progress::finished;
    if (finished)
        fail(FAILED, "divergent barrier: %u threads wait in line %d and %u threads have finished", at_barrier,
             fibers[begin + first].line, finished);
    for (unsigned thread = 0; thread < thread_count; ++thread) fibers[begin + thread].state = State::ready;
    Block& block = blocks[rank];
    block.last_votes = block.votes;
    block.votes = 0;
    ++block.phase;
    return Progress::released;
}

static void start_fibers(unsigned rank) {
    blocks[rank] = {};
    for (unsigned warp = 0; warp < warp_count; ++warp) {
        const unsigned left = thread_count - warp * LANES;
        Warp& started = warps[rank * warp_count + warp];
        started.lanes = left < LANES ? (1u << left) - 1 : FULL;
        started.arrived = 0;
        groups[rank * (MAX_THREADS / GROUP) + warp * LANES / GROUP].arrived = 0;
    }
    for (unsigned thread = 0; thread < thread_count; ++thread) {
        const unsigned number = first_fiber(rank) + thread;
        Fiber& fiber = fibers[number];
        fiber.state = State::ready;
        fiber.arrived = false;
        fiber.index = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
        prepare(fiber.context, stacks + number * STACK_BYTES, fiber_main);
    }
}

// Threads run one after the other up to the next barrier, in an order that turns around at every barrier and
// block: a missing barrier shows as a wrong result in whichever direction data go.
static Progress run_block(unsigned rank, unsigned number) {
    Progress progress;
    enter(rank);
    do {
        const bool forward = (number + blocks[rank].phase) % 2 == 0;
        do {
            woken = false;
            for (unsigned i = 0; i < warp_count; ++i) run_warp(forward ? i : warp_count - 1 - i, forward);
        } while (woken);
        progress = release_barrier(rank);
    } while (progress == Progress::released);
    return progress;
}

static void check_stacks(unsigned rank) {
    for (unsigned thread = 0; thread < thread_count; ++thread) {
        uint64_t bottom;  // nothing was ever written there
        memcpy(&bottom, stacks + (first_fiber(rank) + thread) * STACK_BYTES, sizeof bottom);
        if (bottom) fail(FAILED, "thread %u needs more than %zu bytes of stack", thread, STACK_BYTES);
    }
}

static bool can_go_on(unsigned rank) {
    for (unsigned thread = 0; thread < thread_count; ++thread)
        if (fibers[first_fiber(rank) + thread].state == State::ready) return true;
    return false;
}

// Nobody of the cluster can go on: tells of a thread that waits for a barrier in shared memory.
static void fail_if_blocked() {
    for (unsigned rank = 0; rank < cluster_count; ++rank)
        for (unsigned thread = 0; thread < thread_count && blocks[rank].progress == Progress::blocked; ++thread) {
            const Fiber& fiber = fibers[first_fiber(rank) + thread];
            if (fiber.state != State::at_mbarrier) continue;
            enter(rank);
            fail_at_mbarrier(thread, fiber.watched);
        }
}

// The blocks of a cluster, each up to the cluster's next barrier or until it waits for what another one does, in
// an order that turns around each time. `over(rank)` is called when a block has finished.
template <class Over>
static void run_cluster(unsigned number, Over over) {
    for (unsigned rank = 0; rank < cluster_count; ++rank) start_fibers(rank);
    for (unsigned round = 0;; ++round) {
        bool ran = false;
        for (unsigned i = 0; i < cluster_count; ++i) {
            const unsigned rank = (number + round) % 2 == 0 ? i : cluster_count - 1 - i;
            Block& block = blocks[rank];
            if (block.progress == Progress::finished || !can_go_on(rank)) continue;
            ran = true;
            block.progress = run_block(rank, number + rank);
            if (block.progress != Progress::finished) continue;
            check_stacks(rank);
            over(rank);
        }
        if (ran) continue;
        fail_if_blocked();
        unsigned waiting = 0;
        for (unsigned rank = 0; rank < cluster_count; ++rank) waiting += blocks[rank].progress == Progress::waiting;
        if (waiting == 0) return;
        if (waiting != cluster_count)
            fail(FAILED, "divergent barrier: %u of %u blocks of a cluster wait for the others, which have finished",
                 waiting, cluster_count);
        for (unsigned fiber = 0; fiber < first_fiber(cluster_count); ++fiber)
            if (fibers[fiber].state == State::at_cluster) fibers[fiber].state = State::ready;
    }
}

}  // namespace emu
