// Only CUDA headers: this file is compiled once for every GPU architecture, and PyTorch headers would take up
// nearly all of that time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../torch-ext/torch_binding.h"

namespace {

// The computation for one element; the rest of this file moves data. NaN stays NaN, as in torch.
__device__ float relu(float x) { return x <= 0.0f ? 0.0f : x; }
__device__ double relu(double x) { return x <= 0.0 ? 0.0 : x; }
__device__ __half relu(__half x) { return __float2half_rn(relu(__half2float(x))); }
__device__ __nv_bfloat16 relu(__nv_bfloat16 x) { return __float2bfloat16_rn(relu(__bfloat162float(x))); }

// Each thread moves 16 bytes. On an H100 blocks of 1024 threads were up to 1% faster, on an H200 up to 5% slower.
constexpr int kThreads = 512;

// The bytes that each thread loads before it stores anything.
constexpr int kBytesPerThread = 16;

// The data that one instruction loads or stores: `kWidth` elements, at most 16 bytes.
template <typename T, int kWidth> struct alignas(kWidth * sizeof(T)) Pack {
  T lane[kWidth];
};

// Each block processes a contiguous range of kThreads * kBytesPerThread bytes with coalesced accesses. The last block
// has less to do, and the first block processes the remaining elements that do not fill a pack (fewer than kWidth).
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) relu_kernel(T *out, T const *input, std::int64_t count) {
  constexpr int kAccesses = kBytesPerThread / sizeof(Pack<T, kWidth>);
  std::int64_t const packs = count / kWidth;
  std::int64_t const first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kAccesses) + threadIdx.x;

  Pack<T, kWidth> pack[kAccesses];
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
    std::int64_t const index = first + i * kThreads;
    if (index < packs) {
      pack[i] = reinterpret_cast<Pack<T, kWidth> const *>(input)[index];
    }
  }
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
    std::int64_t const index = first + i * kThreads;
    if (index < packs) {
#pragma unroll
      for (int lane = 0; lane < kWidth; ++lane) {
        pack[i].lane[lane] = relu(pack[i].lane[lane]);
      }
      reinterpret_cast<Pack<T, kWidth> *>(out)[index] = pack[i];
    }
  }

  std::int64_t const rest = packs * kWidth + threadIdx.x;
  if (kWidth > 1 && blockIdx.x == 0 && rest < count) {
    out[rest] = relu(input[rest]);
  }
}

template <typename T, int kWidth>
cudaError_t launch(void *out, void const *input, std::int64_t count, cudaStream_t stream) {
  constexpr std::int64_t kElementsPerBlock = kThreads * kBytesPerThread / sizeof(T);
  auto const blocks = static_cast<unsigned int>((count + kElementsPerBlock - 1) / kElementsPerBlock);
  relu_kernel<T, kWidth>
      <<<blocks, kThreads, 0, stream>>>(static_cast<T *>(out), static_cast<T const *>(input), count);
  return cudaGetLastError();
}

template <typename T> cudaError_t run(void *out, void const *input, std::int64_t count, cudaStream_t stream) {
  // Views may start anywhere: wide accesses need both pointers on a 16-byte boundary.
  bool const aligned = (reinterpret_cast<std::uintptr_t>(out) | reinterpret_cast<std::uintptr_t>(input)) % 16 == 0;
  return aligned ? launch<T, 16 / sizeof(T)>(out, input, count, stream)
                 : launch<T, 1>(out, input, count, stream);
}

} // namespace

cudaError_t relu_cuda(void *out, void const *input, std::int64_t count, Element element, cudaStream_t stream) {
  switch (element) {
  case Element::Float:
    return run<float>(out, input, count, stream);
  case Element::Double:
    return run<double>(out, input, count, stream);
  case Element::Half:
    return run<__half>(out, input, count, stream);
  case Element::BFloat16:
    return run<__nv_bfloat16>(out, input, count, stream);
  }
  return cudaErrorInvalidValue;
}
