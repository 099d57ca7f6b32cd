/* glibc 2.36: arc4random and its family, from getrandom (glibc 2.25). */
#include "floor.h"

extern long getrandom(void *, size_type, unsigned);
extern void abort(void) __attribute__((noreturn));
extern int *__errno_location(void);

enum { INTERRUPTED = 4 /* EINTR */ };

HIDDEN void arc4random_buf(void *buffer, size_type size) {
  unsigned char *next = (unsigned char *)buffer;
  while (size != 0) {
    long got = getrandom(next, size, 0);
    if (got < 0) {
      if (*__errno_location() == INTERRUPTED) {
        continue;
      }
      abort(); /* as glibc does: the caller cannot be told that there is no randomness */
    }
    next += got;
    size -= (size_type)got;
  }
}

HIDDEN unsigned arc4random(void) {
  unsigned value;
  arc4random_buf(&value, sizeof value);
  return value;
}

HIDDEN unsigned arc4random_uniform(unsigned bound) {
  if (bound < 2) {
    return 0;
  }
  unsigned surplus = -bound % bound; /* 2^32 mod bound: values below it would make small results likelier */
  unsigned value;
  do {
    value = arc4random();
  } while (value < surplus);
  return value % bound;
}
