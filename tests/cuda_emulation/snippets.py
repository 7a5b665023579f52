"""CUDA sources in the manner of TVM's generator, whose own header and helper functions they use."""

from __future__ import annotations

from collections.abc import Iterable


def source(kernel: str, helpers: Iterable[str] = (), tags: Iterable[str] = ()) -> str:
    """A whole source: TVM's header for ``tags``, helper functions, one kernel."""
    from tvm.backend.cuda.codegen.header import header_generator

    return "\n".join([header_generator(list(tags)), *helpers, kernel])


def helper(entry: str, *tokens: str, imms: tuple[str, ...] = (), predicated: bool = False) -> tuple[str, str]:
    """The name and the text of the function that TVM generates for one PTX instruction."""
    from tvm.backend.cuda.ptx.render import render_variant
    from tvm.backend.cuda.ptx.table import TABLE

    _, name, text = render_variant(TABLE[entry], tokens, predicated=predicated, imms=imms)
    return name, text


ADD = """
extern "C" __global__ void __launch_bounds__(64) add_kernel(float* __restrict__ C, const float* __restrict__ A, const float* __restrict__ B, int64_t n);
extern "C" __global__ void __launch_bounds__(64) add_kernel(float* __restrict__ C, const float* __restrict__ A, const float* __restrict__ B, int64_t n) {
  int64_t i = (((int64_t)((int)blockIdx.x)) * (int64_t)64) + ((int64_t)((int)threadIdx.x));
  if (i < n) {
    C[i] = (A[i] + B[i]);
  }
}
"""  # noqa: E501

REVERSE = """
extern "C" __global__ void __launch_bounds__(128) reverse_kernel(float* __restrict__ B, const float* A) {
  __shared__ alignas(64) float A_shared[128];
  A_shared[((int)threadIdx.x)] = A[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))];
  BARRIER
  B[((((int)blockIdx.x) * 128) + ((int)threadIdx.x))] = A_shared[(127 - ((int)threadIdx.x))];
}
"""

DYNAMIC = """
extern "C" __global__ void __launch_bounds__(32) dynamic_kernel(float* __restrict__ B, int first) {
  extern __shared__ __align__(64) uchar buf_dyn_shmem[];
  *(float4*)(((float*)buf_dyn_shmem) + (first + (((int)threadIdx.x) * 4))) = make_float4(1.0f, 2.0f, 3.0f, ((float)((int)threadIdx.x)));
  __syncthreads();
  B[((int)threadIdx.x)] = ((float*)buf_dyn_shmem)[((first + (((int)threadIdx.x) * 4)) + 3)];
}
"""  # noqa: E501

CLUSTER = """
extern "C" __global__ void __launch_bounds__(64) cluster_kernel(float* __restrict__ B, const float* __restrict__ A, int blocks) {
  __shared__ alignas(64) float A_shared[64];
  int i = ((int)threadIdx.x);
  uint rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank) :);
  A_shared[i] = A[((((int)blockIdx.x) * 64) + i)];
  FIRST
  float total = 0.0f;
  for (int n = 0; n < blocks; ++n) {
    uint64_t other;
    asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"((uint64_t)(&(A_shared[(63 - i)]))), "r"((uint)n));
    total = (total + (*(float*)other));
  }
  LAST
  B[((((int)blockIdx.x) * 64) + i)] = (total + ((float)rank));
}
"""  # noqa: E501
MEET = """asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");"""

COPY = """
extern "C" __global__ void __launch_bounds__(32) copy_kernel(float* __restrict__ B, float* A, int n) {{
  __shared__ alignas(64) float A_shared[128];
  int first = ((int)threadIdx.x) * 4;
  {copy}(__cvta_generic_to_shared((&(A_shared[first]))), (&(A[first])), {guard});
  {commit}();
  {wait}
  *(float4*)(B + first) = *(float4*)(A_shared + first);
}}
"""

MMA = """
extern "C" __global__ void __launch_bounds__(32) mma_kernel(float* __restrict__ C, T* __restrict__ A, T* __restrict__ B) {{
  __shared__ alignas(64) T A_shared[256];
  __shared__ alignas(64) T B_shared[128];
  uint a[4], b[2];
  float c[4];
  int lane = ((int)threadIdx.x);
  *(uint4*)(A_shared + (lane * 8)) = *(uint4*)(A + (lane * 8));
  if (lane < 16) {{ *(uint4*)(B_shared + (lane * 8)) = *(uint4*)(B + (lane * 8)); }}
  __syncthreads();
  {load_a}(a[0], a[1], a[2], a[3], (&(A_shared[(((lane % 16) * 16) + ((lane / 16) * 8))])));
  {load_b}(b[0], b[1], __cvta_generic_to_shared((&(B_shared[{b_row}]))));
  for (int i = 0; i < 4; ++i) {{ c[i] = 1.0f; }}
  {mma}(c[0], c[1], c[2], c[3], a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], c[2], c[3]);
  for (int i = 0; i < 4; ++i) {{
    C[((((lane / 4) + ((i / 2) * 8)) * 8) + ((lane % 4) * 2)) + (i % 2)] = c[i];
  }}
}}
"""  # noqa: E501

WARP = """
template <typename T>
__forceinline__ __device__ T tvm_builtin_cuda_warp_reduce_sum_32(T val) {
    #pragma unroll
    for (int mask = 32 >> 1; mask > 0; mask >>= 1) {
        T shuffled = __shfl_xor_sync(0xFFFFFFFF, val, mask);
        val += shuffled;
    }
    return val;
}
extern "C" __global__ void __launch_bounds__(64) warp_kernel(float* __restrict__ S, float* __restrict__ D, half* __restrict__ H, int* __restrict__ N) {
  int i = ((int)threadIdx.x);
  float value = ((float)H[i]);
  S[i] = tvm_builtin_cuda_warp_reduce_sum_32(value);
  D[i] = __shfl_down_sync(0xFFFFFFFF, value, 1, 32);
  __syncwarp();
  H[i] = max(H[i], __float2half_rn(0.5f)) * half(2);
  atomicAdd(N, 1);
}
"""  # noqa: E501
