/* What the shims share: hidden definitions, and the few types they need, without any header of the C library. */
#pragma once

#define HIDDEN __attribute__((visibility("hidden")))

typedef __SIZE_TYPE__ size_type;
typedef long time_type; /* time_t of 64-bit Linux */

struct timespec_64 {
  time_type seconds;
  long nanoseconds;
};
