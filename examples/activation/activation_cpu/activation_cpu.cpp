#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

#include "../torch-ext/torch_binding.h"

namespace {

template <Gate kGate, typename T> void rows(Shape shape, T *out, T const *input) {
#pragma omp parallel for
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    T const *x = input + 2 * row * shape.size;
    T const *up = x + shape.size;
    T *to = out + row * shape.size;
    for (std::int64_t i = 0; i < shape.size; ++i) {
      to[i] = static_cast<T>(gated<kGate>(static_cast<float>(x[i]), static_cast<float>(up[i])));
    }
  }
}

template <Gate kGate> void elements(Shape shape, void *out, void const *input) {
  switch (shape.element) {
  case Element::Float:
    return rows<kGate>(shape, static_cast<float *>(out), static_cast<float const *>(input));
  case Element::Half:
    return rows<kGate>(shape, static_cast<c10::Half *>(out), static_cast<c10::Half const *>(input));
  case Element::BFloat16:
    return rows<kGate>(shape, static_cast<c10::BFloat16 *>(out), static_cast<c10::BFloat16 const *>(input));
  }
}

} // namespace

void gate_cpu(Gate gate, Shape shape, void *out, void const *input) {
  switch (gate) {
  case Gate::Silu:
    return elements<Gate::Silu>(shape, out, input);
  case Gate::Gelu:
    return elements<Gate::Gelu>(shape, out, input);
  case Gate::GeluTanh:
    return elements<Gate::GeluTanh>(shape, out, input);
  }
}
