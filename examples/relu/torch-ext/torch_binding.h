// The interface between the binding, which handles tensors, and the device code, which handles pointers.
// No PyTorch headers here: the .cu file includes this file, and is compiled once for every GPU architecture.
#pragma once

#include <cstdint>

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#endif

enum class Element { Float, Double, Half, BFloat16 };

// Each function processes `count` > 0 contiguous elements. `out` may be `input`.
#if defined(CPU_KERNEL)
void relu_cpu(void *out, void const *input, std::int64_t count, Element element);
#elif defined(CUDA_KERNEL)
cudaError_t relu_cuda(void *out, void const *input, std::int64_t count, Element element, cudaStream_t stream);
#endif
