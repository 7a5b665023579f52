/* The descriptor of a matrix in global memory that bulk copies take tiles from: what stands for a CUtensorMap. */
#ifndef DIETLAB_TENSOR_MAP_H
#define DIETLAB_TENSOR_MAP_H

#include <stdint.h>
#include <string.h>

enum { TENSOR_MAP_BYTES = 128, TENSOR_MAP_MAGIC = 0x54454e53 };

/* Two dimensions, elements of 16 bits; the first dimension is that along which elements are neighbours. */
struct tensor_map {
    uint32_t magic;
    uint32_t swizzle_bytes;  /* 128, 64 or 32 */
    uint64_t address;
    uint64_t extents[2];
    uint64_t stride_bytes;
    uint32_t box[2];
    unsigned char rest[TENSOR_MAP_BYTES - 48];
};

/* Returns 0, or 1 (CUDA_ERROR_INVALID_VALUE) where the driver refuses (CUDA Driver API, cuTensorMapEncodeTiled). */
static inline int tensor_map_encode(struct tensor_map *map, unsigned rank, uint64_t address, const uint64_t *extents,
                                    const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                    unsigned swizzle)
{
    const uint64_t most = (uint64_t)1 << 32;
    const struct tensor_map made = {TENSOR_MAP_MAGIC, 16u << swizzle, address, {extents[0], extents[1]},
                                    strides[0], {box[0], box[1]}, {0}};
    if ((uintptr_t)map % 64 || rank != 2 || address % 16 || strides[0] % 16 || strides[0] >> 40)
        return 1;
    if (extents[0] < 1 || extents[1] < 1 || extents[0] > most || extents[1] > most)
        return 1;
    if (box[0] < 1 || box[1] < 1 || box[0] > 256 || box[1] > 256 || steps[0] != 1 || steps[1] != 1)
        return 1;
    if (swizzle < 1 || swizzle > 3 || 2 * box[0] > made.swizzle_bytes || 2 * box[0] % 16)
        return 1;
    *map = made;
    return 0;
}

#endif
