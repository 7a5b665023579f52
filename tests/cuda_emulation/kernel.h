/* What an emulator library exports for every kernel; the stub driver and Python read it. */
#ifndef DIETLAB_EMULATED_KERNEL_H
#define DIETLAB_EMULATED_KERNEL_H

struct emulated_kernel {
    const char *name;
    /* Runs a grid, in clusters of so many blocks along x; arguments[i] points to argument i, as for
       cuLaunchKernel. Returns 0 or the number of a CUresult (700: illegal address, 716: misaligned address,
       719: any other failure). */
    int (*launch)(const struct emulated_kernel *kernel, const unsigned *grid, const unsigned *block,
                  unsigned cluster, unsigned dynamic_bytes, void **arguments);
    const char *(*failure)(void);      /* why the last launch failed */
    void (*body)(void **arguments);    /* what one thread does */
    unsigned static_bytes;             /* shared memory that the kernel declares with a size */
    unsigned alignment;                /* of shared memory, bytes */
    unsigned max_threads;              /* of a block, from __launch_bounds__ */
    const unsigned *argument_bytes;    /* of each argument, and a 0 behind the last */
};

#endif
