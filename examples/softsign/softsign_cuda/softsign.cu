#include <cuda_runtime.h>

#include <algorithm>

#include "../tvm-ffi-ext/tvm_ffi_binding.h"

namespace {

constexpr int kThreads = 256;

__global__ void softsign_kernel(float *out, float const *x, std::int64_t count) {
  auto const step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    out[i] = x[i] / (1.0f + fabsf(x[i]));
  }
}

} // namespace

cudaError_t softsign_cuda(float *out, float const *x, std::int64_t count, cudaStream_t stream) {
  if (count == 0) {
    return cudaSuccess;
  }
  auto const blocks = std::min<std::int64_t>((count + kThreads - 1) / kThreads, 1 << 16);
  softsign_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(out, x, count);
  return cudaGetLastError();
}
