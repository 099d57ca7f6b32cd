// The interface between the binding, which handles tensors, and the kernels, which handle memory.
#pragma once

#include <cstdint>

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#endif

#if defined(CPU_KERNEL)
void row_sum_cpu(float *out, float const *input, std::int64_t rows, std::int64_t size);
#elif defined(CUDA_KERNEL)
// Uses clusters if the device has them and rows are long enough.
cudaError_t row_sum_cuda(float *out, float const *input, std::int64_t rows, std::int64_t size, cudaStream_t stream);
#endif
