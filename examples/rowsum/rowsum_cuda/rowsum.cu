#include "rowsum.h"

#include "../torch-ext/torch_binding.h"

namespace {

// The length from which a row has enough work for eight blocks.
constexpr std::int64_t kLong = 1 << 16;

__global__ void __launch_bounds__(kThreads) row_sum_kernel(float *out, float const *input, std::int64_t size) {
  float const *row = input + blockIdx.x * size;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    sum += row[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    out[blockIdx.x] = sum;
  }
}

// The section `rowsum_clusters` is compiled only for these, not for 11.0, for example.
bool has_clusters(int major) { return major == 9 || major == 10 || major == 12; }

} // namespace

cudaError_t row_sum_cuda(float *out, float const *input, std::int64_t rows, std::int64_t size, cudaStream_t stream) {
  int device = 0, major = 0;
  if (cudaError_t const error = cudaGetDevice(&device)) {
    return error;
  }
  if (cudaError_t const error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) {
    return error;
  }
  if (size >= kLong && has_clusters(major)) {
    return row_sum_clusters(out, input, rows, size, stream);
  }
  row_sum_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(out, input, size);
  return cudaGetLastError();
}
