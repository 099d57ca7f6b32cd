// The line between the binding, which knows tensors, and the device code, which knows pointers.
// No torch header here: the .cu file includes this one, and is compiled once for every GPU architecture.
#pragma once

#include <cstdint>

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#endif

enum class Element { Float, Double, Half, BFloat16 };

// Each applies the operation to `count` > 0 elements that lie next to each other. `out` may be `input`.
#if defined(CPU_KERNEL)
void relu_cpu(void *out, void const *input, std::int64_t count, Element element);
#elif defined(CUDA_KERNEL)
cudaError_t relu_cuda(void *out, void const *input, std::int64_t count, Element element, cudaStream_t stream);
#endif
