#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>

#include "../torch-ext/torch_binding.h"

namespace {

// T is the type in memory, C the type for computing.
template <typename T, typename C>
void forward(Shape shape, T *out, C *rstd, T const *x, T const *weight, double eps) {
  at::parallel_for(0, shape.rows, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T const *from = x + row * shape.size;
      T *to = out + row * shape.size;
      C squares = 0;
      for (std::int64_t i = 0; i < shape.size; ++i) {
        squares += static_cast<C>(from[i]) * static_cast<C>(from[i]);
      }
      C const factor = C(1) / std::sqrt(squares / static_cast<C>(shape.size) + static_cast<C>(eps));
      for (std::int64_t i = 0; i < shape.size; ++i) {
        to[i] = static_cast<T>(static_cast<C>(from[i]) * factor * static_cast<C>(weight[i]));
      }
      rstd[row] = factor;
    }
  });
}

template <typename T, typename C>
void backward(Shape shape, T *grad_x, C *grad_weight, T const *grad, T const *x, T const *weight, C const *rstd) {
  at::parallel_for(0, shape.rows, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t const at = row * shape.size;
      C product = 0;
      for (std::int64_t i = 0; i < shape.size; ++i) {
        product += static_cast<C>(grad[at + i]) * static_cast<C>(weight[i]) * static_cast<C>(x[at + i]);
      }
      C const factor = rstd[row];
      C const pull = product * factor * factor * factor / static_cast<C>(shape.size);
      for (std::int64_t i = 0; i < shape.size; ++i) {
        grad_x[at + i] = static_cast<T>(static_cast<C>(grad[at + i]) * static_cast<C>(weight[i]) * factor -
                                        static_cast<C>(x[at + i]) * pull);
      }
    }
  });
  // Each thread has its own columns, so no two threads write to the same sum.
  at::parallel_for(0, shape.size, 64, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      grad_weight[i] = 0;
    }
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::int64_t const at = row * shape.size + i;
        grad_weight[i] += static_cast<C>(grad[at]) * static_cast<C>(x[at]) * rstd[row];
      }
    }
  });
}

template <typename Run> void with_types(Element element, Run const &run) {
  switch (element) {
  case Element::Float:
    return run(float{}, float{});
  case Element::Double:
    return run(double{}, double{});
  case Element::Half:
    return run(c10::Half{}, float{});
  case Element::BFloat16:
    return run(c10::BFloat16{}, float{});
  }
}

} // namespace

void rms_norm_cpu(Shape shape, void *out, void *rstd, void const *x, void const *weight, double eps) {
  with_types(shape.element, [=](auto stored, auto computed) {
    using T = decltype(stored);
    using C = decltype(computed);
    forward(shape, static_cast<T *>(out), static_cast<C *>(rstd), static_cast<T const *>(x),
            static_cast<T const *>(weight), eps);
  });
}

void rms_norm_backward_cpu(Shape shape, void *grad_x, void *grad_weight, void const *grad, void const *x,
                           void const *weight, void const *rstd) {
  with_types(shape.element, [=](auto stored, auto computed) {
    using T = decltype(stored);
    using C = decltype(computed);
    backward(shape, static_cast<T *>(grad_x), static_cast<C *>(grad_weight), static_cast<T const *>(grad),
             static_cast<T const *>(x), static_cast<T const *>(weight), static_cast<C const *>(rstd));
  });
}
