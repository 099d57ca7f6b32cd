// The line between the binding, which knows tensors, and CUTLASS, which knows memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// out (m x n) = a (m x k) * b (k x n), all of float16 and row by row; n and k are multiples of 8. Sums are float32.
// Returns nullptr, or what is wrong.
char const *gemm_cuda(void *out, void const *a, void const *b, int m, int n, int k, cudaStream_t stream);
