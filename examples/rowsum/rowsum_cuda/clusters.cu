#include "rowsum.h"

#include <cooperative_groups.h>

namespace {

constexpr int kBlocks = 8; // the largest cluster that every device with clusters takes

// One cluster adds up one row: each block adds up a part, then the first block adds up the parts, from shared memory.
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads)
    row_sum_kernel(float *out, float const *input, std::int64_t size) {
  auto const cluster = cooperative_groups::this_cluster();
  std::int64_t const row = blockIdx.x / kBlocks;
  __shared__ float part;

  float sum = 0;
  for (std::int64_t i = cluster.block_rank() * kThreads + threadIdx.x; i < size; i += kBlocks * kThreads) {
    sum += input[row * size + i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    part = sum;
  }
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    float total = 0;
    for (int block = 0; block < kBlocks; ++block) {
      total += *cluster.map_shared_rank(&part, block);
    }
    out[row] = total;
  }
  cluster.sync(); // shared memory lives as long as its block: no block may end before it is read
}

} // namespace

cudaError_t row_sum_clusters(float *out, float const *input, std::int64_t rows, std::int64_t size,
                             cudaStream_t stream) {
  row_sum_kernel<<<static_cast<unsigned>(rows * kBlocks), kThreads, 0, stream>>>(out, input, size);
  return cudaGetLastError();
}
