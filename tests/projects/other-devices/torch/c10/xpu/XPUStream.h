// torch's stream, as far as a kernel for XPU uses it.
#pragma once
#include <cstdint>
#include <sycl/sycl.hpp>
namespace c10::xpu {
struct XPUStream {
  sycl::queue &queue() const;
};
XPUStream getCurrentXPUStream(std::int8_t device);
} // namespace c10::xpu
