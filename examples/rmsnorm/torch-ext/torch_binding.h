// The interface between the binding, which handles tensors, and the kernels, which handle memory. No PyTorch headers
// here: the .cu file includes this file, and is compiled once for every GPU architecture.
#pragma once

#include <cstdint>

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#endif

enum class Element { Float, Double, Half, BFloat16 };

// The input of both kernels: `rows` rows of `size` > 0 contiguous elements.
struct Shape {
  std::int64_t rows;
  std::int64_t size;
  Element element;
};

// `rstd` and `grad_weight` are double for Element::Double, else float.
#if defined(CPU_KERNEL)
void rms_norm_cpu(Shape shape, void *out, void *rstd, void const *x, void const *weight, double eps);
void rms_norm_backward_cpu(Shape shape, void *grad_x, void *grad_weight, void const *grad, void const *x,
                           void const *weight, void const *rstd);
#elif defined(CUDA_KERNEL)
cudaError_t rms_norm_cuda(Shape shape, void *out, void *rstd, void const *x, void const *weight, double eps,
                          cudaStream_t stream);
cudaError_t rms_norm_backward_cuda(Shape shape, void *grad_x, void *grad_weight, void const *grad, void const *x,
                                   void const *weight, void const *rstd, cudaStream_t stream);
#endif
