/* glibc 2.32: true while the process has one thread. False is always a correct answer: it only costs an atomic add. */
#include "floor.h"

HIDDEN char __libc_single_threaded = 0;
