// The interface between the binding, which handles tensors, and CUTLASS, which handles memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// out (m x n) = a (m x k) * b (k x n), all float16 and row-major; n and k are multiples of 8. Sums are float32.
// Returns nullptr, or an error message.
char const *gemm_cuda(void *out, void const *a, void const *b, int m, int n, int k, cudaStream_t stream);
