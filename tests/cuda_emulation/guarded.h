/* Memory that ends where nothing is mapped, filled with NaN: what stands for a GPU's memory.

   One byte past the end faults, unless the size is no multiple of the alignment: then the few bytes up to the
   next multiple are there, hold NaN, and guarded_overrun() tells whether they were written. */
#ifndef DIETLAB_GUARDED_H
#define DIETLAB_GUARDED_H

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Not-a-number in float, half, bfloat16 and double; -1 in integers. */
enum { POISON = 0xFF, GUARD_BYTES = 1 << 20 };

struct guarded {
    unsigned char *region; /* with the guards around it */
    size_t region_bytes;
    unsigned char *data;
    size_t bytes;
};

/* alignment: a power of two up to the size of a page. Returns 0 if there is no memory. */
static inline int guarded_take(struct guarded *memory, size_t bytes, size_t alignment)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    const size_t open_bytes = rounded ? (rounded + page - 1) / page * page : page;
    void *region = mmap(NULL, open_bytes + 2 * GUARD_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return 0;
    memory->region = (unsigned char *)region;
    memory->region_bytes = open_bytes + 2 * GUARD_BYTES;
    memory->bytes = bytes;
    memory->data = memory->region + GUARD_BYTES + open_bytes - rounded;
    if (mprotect(memory->region + GUARD_BYTES, open_bytes, PROT_READ | PROT_WRITE)) {
        munmap(region, memory->region_bytes);
        return 0;
    }
    memset(memory->region + GUARD_BYTES, POISON, open_bytes);
    return 1;
}

static inline void guarded_release(struct guarded *memory)
{
    munmap(memory->region, memory->region_bytes);
    memory->region = NULL;
}

/* Whether something was written beside the data, where a fault could not show it. */
static inline int guarded_overrun(const struct guarded *memory)
{
    const unsigned char *at = memory->region + GUARD_BYTES;
    const unsigned char *end = memory->region + memory->region_bytes - GUARD_BYTES;
    for (; at < memory->data; ++at)
        if (*at != POISON)
            return 1;
    for (at = memory->data + memory->bytes; at < end; ++at)
        if (*at != POISON)
            return 1;
    return 0;
}

#endif
