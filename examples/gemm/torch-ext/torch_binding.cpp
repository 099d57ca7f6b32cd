#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "registration.h"
#include "torch_binding.h"

namespace {

at::Tensor gemm(at::Tensor const &left, at::Tensor const &right) {
  TORCH_CHECK(left.scalar_type() == at::kHalf && right.scalar_type() == at::kHalf, "gemm: expected float16, got ",
              left.scalar_type(), " and ", right.scalar_type());
  TORCH_CHECK(left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0),
              "gemm: expected matrices of m x k and k x n, got shapes ", left.sizes(), " and ", right.sizes());
  TORCH_CHECK(left.device() == right.device(), "gemm: expected matrices on one device, got ", left.device(), " and ",
              right.device());
  std::int64_t const m = left.size(0), k = left.size(1), n = right.size(1);
  TORCH_CHECK(k % 8 == 0 && n % 8 == 0, "gemm: k and n must be multiples of 8, got ", k, " and ", n);
  TORCH_CHECK(std::max({m, n, k}) <= std::numeric_limits<int>::max(), "gemm: the matrices are too large");
  at::Tensor const a = left.contiguous(), b = right.contiguous();
  at::Tensor out = at::empty({m, n}, a.options());
  if (out.numel() == 0) {
    return out;
  }
  c10::cuda::CUDAGuard const guard(a.device());
  char const *error =
      gemm_cuda(out.mutable_data_ptr(), a.const_data_ptr(), b.const_data_ptr(), static_cast<int>(m),
                static_cast<int>(n), static_cast<int>(k), c10::cuda::getCurrentCUDAStream());
  TORCH_CHECK(error == nullptr, "gemm: CUTLASS says: ", error);
  return out;
}

} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gemm(Tensor a, Tensor b) -> Tensor");
  ops.impl("gemm", c10::kCUDA, &gemm);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
