#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "../double/double.h"
#include "registration.h"

using torch::stable::Tensor;

Tensor twice_of(Tensor const &input) {
  STD_TORCH_CHECK(input.scalar_type() == torch::headeronly::ScalarType::Float, "double: expected float32");
  Tensor const x = torch::stable::contiguous(input);
  Tensor out = torch::stable::empty_like(x);
  twice(static_cast<float *>(out.data_ptr()), static_cast<float const *>(x.data_ptr()), x.numel());
  return out;
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("double(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("double", TORCH_BOX(&twice_of)); }

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
