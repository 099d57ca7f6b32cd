#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#if defined(CUDA_KERNEL)
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "registration.h"
#include "torch_binding.h"

namespace {

Shape shape_of(at::Tensor const &x, at::Tensor const &weight) {
  TORCH_CHECK(x.dim() > 0 && x.size(-1) > 0, "rms_norm: expected a last dimension of at least 1, got shape ", x.sizes());
  TORCH_CHECK(weight.dim() == 1 && weight.size(0) == x.size(-1), "rms_norm: expected a weight of ", x.size(-1),
              " elements, got shape ", weight.sizes());
  TORCH_CHECK(weight.scalar_type() == x.scalar_type(), "rms_norm: weight is ", weight.scalar_type(), " but x is ",
              x.scalar_type());
  TORCH_CHECK(weight.device() == x.device(), "rms_norm: weight is on ", weight.device(), " but x is on ", x.device());
  Shape shape{x.numel() / x.size(-1), x.size(-1), Element::Float};
  switch (x.scalar_type()) {
  case at::kFloat:
    return shape;
  case at::kDouble:
    shape.element = Element::Double;
    return shape;
  case at::kHalf:
    shape.element = Element::Half;
    return shape;
  case at::kBFloat16:
    shape.element = Element::BFloat16;
    return shape;
  default:
    TORCH_CHECK(false, "rms_norm: expected float32, float64, float16 or bfloat16, got ", x.scalar_type());
  }
}

at::ScalarType computed_in(at::Tensor const &x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Returns the normalized rows and the factor of each row, which the gradient needs.
std::tuple<at::Tensor, at::Tensor> rms_norm(at::Tensor const &input, at::Tensor const &scale, double eps) {
  Shape const shape = shape_of(input, scale);
  at::Tensor const x = input.contiguous(), weight = scale.contiguous();
  at::Tensor out = at::empty_like(x);
  at::Tensor rstd = at::empty(x.sizes().slice(0, x.dim() - 1), x.options().dtype(computed_in(x)));
#if defined(CPU_KERNEL)
  rms_norm_cpu(shape, out.mutable_data_ptr(), rstd.mutable_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(), eps);
#elif defined(CUDA_KERNEL)
  c10::cuda::CUDAGuard const guard(x.device());
  C10_CUDA_CHECK(rms_norm_cuda(shape, out.mutable_data_ptr(), rstd.mutable_data_ptr(), x.const_data_ptr(),
                               weight.const_data_ptr(), eps, c10::cuda::getCurrentCUDAStream()));
#endif
  return {out, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(at::Tensor const &gradient, at::Tensor const &input,
                                                     at::Tensor const &scale, at::Tensor const &factor) {
  Shape const shape = shape_of(input, scale);
  TORCH_CHECK(gradient.sizes() == input.sizes() && gradient.scalar_type() == input.scalar_type(),
              "rms_norm_backward: expected a gradient like x, got ", gradient.scalar_type(), " of shape ",
              gradient.sizes());
  TORCH_CHECK(factor.numel() == shape.rows && factor.scalar_type() == computed_in(input),
              "rms_norm_backward: expected the rstd that rms_norm returned");
  TORCH_CHECK(gradient.device() == input.device() && factor.device() == input.device(),
              "rms_norm_backward: expected tensors on one device");
  at::Tensor const grad = gradient.contiguous(), x = input.contiguous(), weight = scale.contiguous();
  at::Tensor const rstd = factor.contiguous();
  at::Tensor grad_x = at::empty_like(x);
  at::Tensor grad_weight = at::empty(weight.sizes(), weight.options().dtype(computed_in(x)));
#if defined(CPU_KERNEL)
  rms_norm_backward_cpu(shape, grad_x.mutable_data_ptr(), grad_weight.mutable_data_ptr(), grad.const_data_ptr(),
                        x.const_data_ptr(), weight.const_data_ptr(), rstd.const_data_ptr());
#elif defined(CUDA_KERNEL)
  c10::cuda::CUDAGuard const guard(x.device());
  C10_CUDA_CHECK(rms_norm_backward_cuda(shape, grad_x.mutable_data_ptr(), grad_weight.mutable_data_ptr(),
                                        grad.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(),
                                        rstd.const_data_ptr(), c10::cuda::getCurrentCUDAStream()));
#endif
  return {grad_x, grad_weight.to(weight.scalar_type())};
}

} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)");
  ops.def("rms_norm_backward(Tensor grad, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)");
#if defined(CPU_KERNEL)
  ops.impl("rms_norm", c10::kCPU, &rms_norm);
  ops.impl("rms_norm_backward", c10::kCPU, &rms_norm_backward);
#elif defined(CUDA_KERNEL)
  ops.impl("rms_norm", c10::kCUDA, &rms_norm);
  ops.impl("rms_norm_backward", c10::kCUDA, &rms_norm_backward);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
