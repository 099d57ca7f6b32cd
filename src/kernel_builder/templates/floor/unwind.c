/* glibc 2.35: a faster way to find unwind tables. A negative answer makes the unwinder use dl_iterate_phdr. */
#include "floor.h"

HIDDEN int _dl_find_object(void *address, void *result) {
  (void)address;
  (void)result;
  return -1;
}
