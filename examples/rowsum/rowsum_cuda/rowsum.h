// Code that both .cu files share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

constexpr int kThreads = 256;

// Returns the sum over all threads of the block to its first thread. Call it only once per kernel.
__device__ inline float block_sum(float value) {
  __shared__ float parts[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, offset);
  }
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  float total = 0;
  if (threadIdx.x == 0) {
    for (float const part : parts) {
      total += part;
    }
  }
  return total;
}

// In clusters.cu. Only for devices of compute capability 9.0 and later.
cudaError_t row_sum_clusters(float *out, float const *input, std::int64_t rows, std::int64_t size, cudaStream_t stream);
