#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#if defined(CUDA_KERNEL)
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "registration.h"
#include "torch_binding.h"

namespace {

at::Tensor row_sum(at::Tensor const &input) {
  TORCH_CHECK(input.scalar_type() == at::kFloat, "row_sum: expected float32, got ", input.scalar_type());
  TORCH_CHECK(input.dim() == 2, "row_sum: expected a matrix, got shape ", input.sizes());
  at::Tensor const x = input.contiguous();
  at::Tensor out = at::empty({x.size(0)}, x.options());
  if (x.size(0) == 0) {
    return out;
  }
#if defined(CPU_KERNEL)
  row_sum_cpu(out.mutable_data_ptr<float>(), x.const_data_ptr<float>(), x.size(0), x.size(1));
#elif defined(CUDA_KERNEL)
  c10::cuda::CUDAGuard const guard(x.device());
  C10_CUDA_CHECK(row_sum_cuda(out.mutable_data_ptr<float>(), x.const_data_ptr<float>(), x.size(0), x.size(1),
                              c10::cuda::getCurrentCUDAStream()));
#endif
  return out;
}

} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("row_sum(Tensor x) -> Tensor");
#if defined(CPU_KERNEL)
  ops.impl("row_sum", c10::kCPU, &row_sum);
#elif defined(CUDA_KERNEL)
  ops.impl("row_sum", c10::kCUDA, &row_sum);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
