/* glibc 2.28: fcntl64. On 64-bit Linux it is fcntl; every command takes at most one argument of a word. */
#include "floor.h"

extern int fcntl(int, int, ...);

HIDDEN int fcntl64(int file, int command, ...) {
  __builtin_va_list arguments;
  __builtin_va_start(arguments, command);
  void *argument = __builtin_va_arg(arguments, void *);
  __builtin_va_end(arguments);
  return fcntl(file, command, argument);
}
