/* glibc 2.33 made stat and its family functions of libc.so; before, callers were given wrappers of these. */
#include "floor.h"

struct stat;

#if defined(__x86_64__)
enum { STAT_VERSION = 1, MKNOD_VERSION = 0 };
#else
enum { STAT_VERSION = 0, MKNOD_VERSION = 0 };
#endif

extern int __xstat(int, const char *, struct stat *);
extern int __lxstat(int, const char *, struct stat *);
extern int __fxstat(int, int, struct stat *);
extern int __fxstatat(int, int, const char *, struct stat *, int);
extern int __xmknod(int, const char *, unsigned, unsigned long *);
extern int __xmknodat(int, int, const char *, unsigned, unsigned long *);

HIDDEN int stat(const char *path, struct stat *out) { return __xstat(STAT_VERSION, path, out); }
HIDDEN int lstat(const char *path, struct stat *out) { return __lxstat(STAT_VERSION, path, out); }
HIDDEN int fstat(int file, struct stat *out) { return __fxstat(STAT_VERSION, file, out); }
HIDDEN int fstatat(int directory, const char *path, struct stat *out, int flags) {
  return __fxstatat(STAT_VERSION, directory, path, out, flags);
}

/* On 64-bit Linux the types of the 64-bit family are the same. */
HIDDEN int stat64(const char *path, struct stat *out) { return stat(path, out); }
HIDDEN int lstat64(const char *path, struct stat *out) { return lstat(path, out); }
HIDDEN int fstat64(int file, struct stat *out) { return fstat(file, out); }
HIDDEN int fstatat64(int directory, const char *path, struct stat *out, int flags) {
  return fstatat(directory, path, out, flags);
}

HIDDEN int mknod(const char *path, unsigned mode, unsigned long device) {
  return __xmknod(MKNOD_VERSION, path, mode, &device);
}
HIDDEN int mknodat(int directory, const char *path, unsigned mode, unsigned long device) {
  return __xmknodat(MKNOD_VERSION, directory, path, mode, &device);
}
