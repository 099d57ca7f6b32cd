// As much of SYCL as a kernel uses, with the rules that its compiler judges: what a kernel captures is copied by bytes,
// and it is called with the index of its item, as a constant function.
#pragma once
#include <cstddef>
#include <type_traits>
namespace sycl {
template <int> struct range {
  explicit range(std::size_t all);
};
template <int> struct id {
  operator std::size_t() const;
};
struct half {
  explicit half(float);
  operator float() const;
};
namespace ext::oneapi {
struct bfloat16 {
  explicit bfloat16(float);
  operator float() const;
};
} // namespace ext::oneapi
struct queue {
  template <int Dimensions, typename Kernel> void parallel_for(range<Dimensions>, Kernel const &kernel) {
    static_assert(std::is_trivially_copyable_v<Kernel>, "what a kernel captures is copied to the device");
    kernel(id<Dimensions>());
  }
};
} // namespace sycl
