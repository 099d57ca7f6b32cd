// The computation for one pair of numbers, shared by CPU and GPU, without PyTorch headers.
#pragma once

#include <cmath>

#if defined(__CUDACC__)
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

enum class Gate { Silu, Gelu, GeluTanh };

template <Gate kGate> HOST_DEVICE inline float gated(float x, float up) {
  if constexpr (kGate == Gate::Silu) {
    return x / (1.0f + std::exp(-x)) * up;
  } else if constexpr (kGate == Gate::Gelu) {
    return 0.5f * x * (1.0f + std::erf(x * 0.70710678f)) * up; // 1 / sqrt(2)
  } else {
    return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x))) * up; // sqrt(2 / pi)
  }
}
