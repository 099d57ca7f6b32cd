// The macro alone, with the check that all parts of a message can be written.
#pragma once
#include <cstdlib>
#include <sstream>
template <typename... Parts> [[noreturn]] void fail_with(Parts const &...parts) {
  (std::ostringstream() << ... << parts);
  std::abort();
}
#define TORCH_CHECK(condition, ...)                                                                                    \
  if (!(condition)) {                                                                                                  \
    fail_with(__VA_ARGS__);                                                                                            \
  }
