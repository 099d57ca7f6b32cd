// Only CUDA headers: this file is compiled once for every GPU architecture, and PyTorch headers would take up nearly
// all of that time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 256;

// One block per row, or for several rows if there are more rows than a grid can have blocks.
template <Gate kGate, typename T>
__global__ void __launch_bounds__(kThreads) rows(std::int64_t count, std::int64_t size, T *out, T const *input) {
  for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    T const *x = input + 2 * row * size;
    T const *up = x + size;
    T *to = out + row * size;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      to[i] = static_cast<T>(gated<kGate>(static_cast<float>(x[i]), static_cast<float>(up[i])));
    }
  }
}

template <Gate kGate, typename T> void launch(Shape shape, void *out, void const *input, cudaStream_t stream) {
  auto const blocks = static_cast<unsigned>(std::min<std::int64_t>(shape.rows, 0x7fffffff));
  rows<kGate><<<blocks, kThreads, 0, stream>>>(shape.rows, shape.size, static_cast<T *>(out),
                                               static_cast<T const *>(input));
}

template <Gate kGate> void elements(Shape shape, void *out, void const *input, cudaStream_t stream) {
  switch (shape.element) {
  case Element::Float:
    return launch<kGate, float>(shape, out, input, stream);
  case Element::Half:
    return launch<kGate, __half>(shape, out, input, stream);
  case Element::BFloat16:
    return launch<kGate, __nv_bfloat16>(shape, out, input, stream);
  }
}

} // namespace

cudaError_t gate_cuda(Gate gate, Shape shape, void *out, void const *input, cudaStream_t stream) {
  switch (gate) {
  case Gate::Silu:
    elements<Gate::Silu>(shape, out, input, stream);
    break;
  case Gate::Gelu:
    elements<Gate::Gelu>(shape, out, input, stream);
    break;
  case Gate::GeluTanh:
    elements<Gate::GeluTanh>(shape, out, input, stream);
    break;
  }
  return cudaGetLastError();
}
