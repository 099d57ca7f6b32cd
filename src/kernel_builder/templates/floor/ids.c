/* glibc 2.29 and 2.30: thin wrappers of system calls. */
#include "floor.h"

extern long syscall(long, ...);

#if defined(__x86_64__)
enum { GETTID = 186, TGKILL = 234, GETCPU = 309 };
#elif defined(__aarch64__)
enum { GETTID = 178, TGKILL = 131, GETCPU = 168 };
#else
#error "system call numbers of this processor are not known here"
#endif

HIDDEN int gettid(void) { return (int)syscall(GETTID); }
HIDDEN int tgkill(int group, int thread, int signal) { return (int)syscall(TGKILL, group, thread, signal); }
HIDDEN int getcpu(unsigned *cpu, unsigned *node) { return (int)syscall(GETCPU, cpu, node, (void *)0); }
