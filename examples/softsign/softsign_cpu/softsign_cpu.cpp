#include <cmath>

#include "../tvm-ffi-ext/tvm_ffi_binding.h"

void softsign_cpu(float *out, float const *x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = x[i] / (1.0f + std::fabs(x[i]));
  }
}
