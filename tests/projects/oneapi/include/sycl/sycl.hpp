// As much of SYCL as the tests' kernels use, on the processor.
#pragma once

#ifndef SYCL_LANGUAGE_VERSION
#error "this is compiled without -fsycl"
#endif

#include <cstddef>

namespace sycl {

template <int> struct range {
  std::size_t size;
};

template <int> struct id {
  std::size_t at;
  std::size_t operator[](int) const { return at; }
};

struct queue {
  template <typename Kernel> void parallel_for(range<1> all, Kernel kernel) {
    for (std::size_t at = 0; at < all.size; ++at) {
      kernel(id<1>{at});
    }
  }
};

} // namespace sycl
