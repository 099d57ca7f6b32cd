#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

#include "../torch-ext/torch_binding.h"

namespace {

// The computation for one element; the rest of this file moves data. NaN stays NaN, as in torch.
template <typename Compute> Compute relu(Compute x) { return x <= Compute(0) ? Compute(0) : x; }

// Below this many elements a second thread costs more than it saves.
constexpr std::int64_t kGrain = 32768;

template <typename T, typename Compute> void run(void *out, void const *input, std::int64_t count) {
  T *const to = static_cast<T *>(out);
  T const *const from = static_cast<T const *>(input);
  at::parallel_for(0, count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    // No element depends on another, in place or not: the compiler may vectorize.
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = static_cast<T>(relu(static_cast<Compute>(from[i])));
    }
  });
}

} // namespace

void relu_cpu(void *out, void const *input, std::int64_t count, Element element) {
  switch (element) {
  case Element::Float:
    return run<float, float>(out, input, count);
  case Element::Double:
    return run<double, double>(out, input, count);
  case Element::Half:
    return run<c10::Half, float>(out, input, count);
  case Element::BFloat16:
    return run<c10::BFloat16, float>(out, input, count);
  }
}
