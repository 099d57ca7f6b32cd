#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
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
  case at::kHalf:
    return Element::Half;
  case at::kBFloat16:
    return Element::BFloat16;
  default:
    TORCH_CHECK(false, "activation: expected float32, float16 or bfloat16, got ", tensor.scalar_type());
  }
}

template <Gate kGate> void gate(at::Tensor &out, at::Tensor const &input) {
  Element const element = element_of(input);
  TORCH_CHECK(input.dim() > 0 && input.size(-1) % 2 == 0,
              "activation: expected input with an even last dimension, got shape ", input.sizes());
  std::int64_t const size = input.size(-1) / 2;
  auto expected = input.sizes().vec();
  expected.back() = size;
  TORCH_CHECK(out.sizes() == expected, "activation: expected out of shape ", c10::IntArrayRef(expected), ", got ",
              out.sizes());
  TORCH_CHECK(out.scalar_type() == input.scalar_type(), "activation: out is ", out.scalar_type(), " but input is ",
              input.scalar_type());
  TORCH_CHECK(out.device() == input.device(), "activation: out is on ", out.device(), " but input is on ",
              input.device());
  TORCH_CHECK(out.is_contiguous(), "activation: expected a contiguous out, got strides ", out.strides());
  at::assert_no_overlap(out, input);
  if (out.numel() == 0) {
    return;
  }
  at::Tensor const source = input.contiguous();
  Shape const shape{out.numel() / size, size, element};
#if defined(CPU_KERNEL)
  gate_cpu(kGate, shape, out.mutable_data_ptr(), source.const_data_ptr());
#elif defined(CUDA_KERNEL)
  c10::cuda::CUDAGuard const guard(source.device());
  C10_CUDA_CHECK(gate_cuda(kGate, shape, out.mutable_data_ptr(), source.const_data_ptr(),
                           c10::cuda::getCurrentCUDAStream()));
#endif
}

} // namespace

#if defined(CPU_KERNEL)
constexpr auto kDevice = c10::kCPU;
#elif defined(CUDA_KERNEL)
constexpr auto kDevice = c10::kCUDA;
#endif

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("silu_and_mul(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_and_mul(Tensor! out, Tensor input) -> ()");
  ops.def("gelu_tanh_and_mul(Tensor! out, Tensor input) -> ()");
  ops.impl("silu_and_mul", kDevice, &gate<Gate::Silu>);
  ops.impl("gelu_and_mul", kDevice, &gate<Gate::Gelu>);
  ops.impl("gelu_tanh_and_mul", kDevice, &gate<Gate::GeluTanh>);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
