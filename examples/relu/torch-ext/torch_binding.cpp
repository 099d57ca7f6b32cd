#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#if defined(CUDA_KERNEL)
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "registration.h"
#include "torch_binding.h"

namespace {

Element element_of(at::Tensor const &tensor) {
  switch (tensor.scalar_type()) {
  case at::kFloat:
    return Element::Float;
  case at::kDouble:
    return Element::Double;
  case at::kHalf:
    return Element::Half;
  case at::kBFloat16:
    return Element::BFloat16;
  default:
    TORCH_CHECK(false, "relu: expected float32, float64, float16 or bfloat16, got ", tensor.scalar_type());
  }
}

void relu_out(at::Tensor &out, at::Tensor const &input) {
  Element const element = element_of(input);
  TORCH_CHECK(out.scalar_type() == input.scalar_type(), "relu: out is ", out.scalar_type(), " but input is ",
              input.scalar_type());
  TORCH_CHECK(out.device() == input.device(), "relu: out is on ", out.device(), " but input is on ",
              input.device());
  TORCH_CHECK(out.sizes() == input.sizes(), "relu: out has shape ", out.sizes(), " but input has shape ",
              input.sizes());
  TORCH_CHECK(out.is_non_overlapping_and_dense(), "relu: out must fill its memory without gaps, got strides ",
              out.strides(), " for shape ", out.sizes());
  at::assert_no_partial_overlap(out, input);
  if (input.numel() == 0) {
    return;
  }

  // Elements are processed in memory order, so both tensors need the same layout; otherwise, input is copied.
  at::Tensor const source = input.strides() == out.strides() ? input : at::empty_like(out).copy_(input);

#if defined(CPU_KERNEL)
  relu_cpu(out.mutable_data_ptr(), source.const_data_ptr(), source.numel(), element);
#elif defined(CUDA_KERNEL)
  c10::cuda::CUDAGuard const guard(source.device());
  C10_CUDA_CHECK(relu_cuda(out.mutable_data_ptr(), source.const_data_ptr(), source.numel(), element,
                           c10::cuda::getCurrentCUDAStream()));
#endif
}

at::Tensor relu(at::Tensor const &input) {
  at::Tensor out = at::empty_like(input);
  relu_out(out, input);
  return out;
}

} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("relu(Tensor x) -> Tensor");
  ops.def("relu_out(Tensor! out, Tensor x) -> ()");
#if defined(CPU_KERNEL)
  ops.impl("relu", c10::kCPU, &relu);
  ops.impl("relu_out", c10::kCPU, &relu_out);
#elif defined(CUDA_KERNEL)
  ops.impl("relu", c10::kCUDA, &relu);
  ops.impl("relu_out", c10::kCUDA, &relu_out);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
