// Only CUDA headers: this file is compiled once for every GPU architecture, and PyTorch headers would take up nearly
// all of that time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kColumnWarps = 32;

template <typename C> __device__ C warp_sum(C value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, offset);
  }
  return value;
}

// Returns to every thread the sum over all threads of the block. Call it once per kernel: `parts` is not cleared.
template <typename C> __device__ C block_sum(C value) {
  __shared__ C parts[kWarps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  C total = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    total += parts[warp];
  }
  return total;
}

// One block per row. T is the type in memory, C the type for computing.
template <typename T, typename C>
__global__ void __launch_bounds__(kThreads)
    forward(std::int64_t size, T *out, C *rstd, T const *x, T const *weight, C eps) {
  T const *from = x + blockIdx.x * size;
  T *to = out + blockIdx.x * size;
  C squares = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    squares += static_cast<C>(from[i]) * static_cast<C>(from[i]);
  }
  C const factor = C(1) / sqrt(block_sum(squares) / static_cast<C>(size) + eps);
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    to[i] = static_cast<T>(static_cast<C>(from[i]) * factor * static_cast<C>(weight[i]));
  }
  if (threadIdx.x == 0) {
    rstd[blockIdx.x] = factor;
  }
}

template <typename T, typename C>
__global__ void __launch_bounds__(kThreads)
    backward_rows(std::int64_t size, T *grad_x, T const *grad, T const *x, T const *weight, C const *rstd) {
  std::int64_t const at = blockIdx.x * size;
  C product = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    product += static_cast<C>(grad[at + i]) * static_cast<C>(weight[i]) * static_cast<C>(x[at + i]);
  }
  C const factor = rstd[blockIdx.x];
  C const pull = block_sum(product) * factor * factor * factor / static_cast<C>(size);
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    grad_x[at + i] = static_cast<T>(static_cast<C>(grad[at + i]) * static_cast<C>(weight[i]) * factor -
                                    static_cast<C>(x[at + i]) * pull);
  }
}

// One block for 32 columns: each warp adds up every 32nd row, and the first warp adds up the sums of all warps. Memory
// accesses are coalesced, no two threads write to the same sum, and the order of additions is always the same.
template <typename T, typename C>
__global__ void __launch_bounds__(32 * kColumnWarps)
    backward_columns(std::int64_t rows, std::int64_t size, C *grad_weight, T const *grad, T const *x, C const *rstd) {
  __shared__ C parts[kColumnWarps][32];
  std::int64_t const i = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  C sum = 0;
  if (i < size) {
#pragma unroll 4
    for (std::int64_t row = threadIdx.y; row < rows; row += kColumnWarps) {
      sum += static_cast<C>(grad[row * size + i]) * static_cast<C>(x[row * size + i]) * rstd[row];
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && i < size) {
    for (int warp = 1; warp < kColumnWarps; ++warp) {
      sum += parts[warp][threadIdx.x];
    }
    grad_weight[i] = sum;
  }
}

template <typename Run> cudaError_t with_types(Element element, Run const &run) {
  switch (element) {
  case Element::Float:
    run(float{}, float{});
    break;
  case Element::Double:
    run(double{}, double{});
    break;
  case Element::Half:
    run(__half{}, float{});
    break;
  case Element::BFloat16:
    run(__nv_bfloat16{}, float{});
    break;
  }
  return cudaGetLastError();
}

} // namespace

cudaError_t rms_norm_cuda(Shape shape, void *out, void *rstd, void const *x, void const *weight, double eps,
                          cudaStream_t stream) {
  return with_types(shape.element, [=](auto stored, auto computed) {
    using T = decltype(stored);
    using C = decltype(computed);
    if (shape.rows > 0) {
      forward<T, C><<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
          shape.size, static_cast<T *>(out), static_cast<C *>(rstd), static_cast<T const *>(x),
          static_cast<T const *>(weight), static_cast<C>(eps));
    }
  });
}

cudaError_t rms_norm_backward_cuda(Shape shape, void *grad_x, void *grad_weight, void const *grad, void const *x,
                                   void const *weight, void const *rstd, cudaStream_t stream) {
  return with_types(shape.element, [=](auto stored, auto computed) {
    using T = decltype(stored);
    using C = decltype(computed);
    if (shape.rows > 0) {
      backward_rows<T, C><<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
          shape.size, static_cast<T *>(grad_x), static_cast<T const *>(grad), static_cast<T const *>(x),
          static_cast<T const *>(weight), static_cast<C const *>(rstd));
    }
    auto const blocks = static_cast<unsigned>((shape.size + 31) / 32);
    backward_columns<T, C><<<blocks, dim3(32, kColumnWarps), 0, stream>>>(
        shape.rows, shape.size, static_cast<C *>(grad_weight), static_cast<T const *>(grad), static_cast<T const *>(x),
        static_cast<C const *>(rstd));
  });
}
