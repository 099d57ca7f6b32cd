// The interface between the binding, which handles tensors, and the kernels, which handle memory.
#pragma once

#include <cstdint>

#include "../gates/gates.h"

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#endif

enum class Element { Float, Half, BFloat16 };

// `out` has `rows` rows of `size` > 0 elements; each row of `input` has twice as many: first x, then up.
struct Shape {
  std::int64_t rows;
  std::int64_t size;
  Element element;
};

#if defined(CPU_KERNEL)
void gate_cpu(Gate gate, Shape shape, void *out, void const *input);
#elif defined(CUDA_KERNEL)
cudaError_t gate_cuda(Gate gate, Shape shape, void *out, void const *input, cudaStream_t stream);
#endif
