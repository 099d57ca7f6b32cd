/* glibc 2.38: bounded copies. */
#include "floor.h"

extern size_type strlen(const char *);
extern size_type strnlen(const char *, size_type);
extern void *memcpy(void *, const void *, size_type);

HIDDEN size_type strlcpy(char *target, const char *source, size_type size) {
  size_type length = strlen(source);
  if (size != 0) {
    size_type copied = length < size ? length : size - 1;
    memcpy(target, source, copied);
    target[copied] = 0;
  }
  return length;
}

HIDDEN size_type strlcat(char *target, const char *source, size_type size) {
  size_type used = strnlen(target, size);
  return used + (used == size ? strlen(source) : strlcpy(target + used, source, size - used));
}
