// The interface between the binding, which handles arrays, and the kernels, which handle memory.
#pragma once

#include <cstdint>

#if defined(CPU_KERNEL)
void softsign_cpu(float *out, float const *x, std::int64_t count);
#elif defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
cudaError_t softsign_cuda(float *out, float const *x, std::int64_t count, cudaStream_t stream);
#endif
