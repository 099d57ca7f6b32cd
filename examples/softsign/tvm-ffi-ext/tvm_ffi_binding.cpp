#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#if defined(CUDA_KERNEL)
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/cuda/device_guard.h>
#endif

#include "tvm_ffi_binding.h"

namespace {

using tvm::ffi::TensorView;

bool same_shape(TensorView const &a, TensorView const &b) {
  bool same = a.ndim() == b.ndim();
  for (std::int32_t i = 0; same && i < a.ndim(); ++i) {
    same = a.size(i) == b.size(i);
  }
  return same;
}

void softsign(TensorView out, TensorView x) {
#if defined(CPU_KERNEL)
  constexpr auto kDevice = kDLCPU;
#elif defined(CUDA_KERNEL)
  constexpr auto kDevice = kDLCUDA;
#endif
  DLDataType const float32{kDLFloat, 32, 1};
  TVM_FFI_CHECK(x.dtype() == float32 && out.dtype() == float32, TypeError) << "softsign: expected float32";
  TVM_FFI_CHECK(same_shape(out, x), ValueError) << "softsign: out and x have different shapes";
  TVM_FFI_CHECK(out.IsContiguous() && x.IsContiguous(), ValueError) << "softsign: expected contiguous arrays";
  TVM_FFI_CHECK(x.device().device_type == kDevice && out.device().device_type == kDevice &&
                    x.device().device_id == out.device().device_id,
                ValueError)
      << "softsign: expected arrays on one device, which this build is for";
  auto *to = static_cast<float *>(out.data_ptr());
  auto const *from = static_cast<float const *>(x.data_ptr());
#if defined(CPU_KERNEL)
  softsign_cpu(to, from, x.numel());
#elif defined(CUDA_KERNEL)
  tvm::ffi::CUDADeviceGuard const guard(x.device().device_id);
  // The current stream of the caller's framework.
  auto *stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDevice, x.device().device_id));
  TVM_FFI_CHECK_CUDA_ERROR(softsign_cuda(to, from, x.numel(), stream));
#endif
}

} // namespace

// Exports a function to tvm-ffi: the exported name, and the C++ function.
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softsign, softsign);
