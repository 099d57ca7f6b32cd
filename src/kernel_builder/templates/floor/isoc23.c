/* glibc 2.38: C23 versions of number parsing, which also take 0b prefixes. Kernels get the behaviour of the floor. */
#include "floor.h"

typedef __builtin_va_list arguments_type;
typedef __WCHAR_TYPE__ wide;
struct file;
struct locale;

#define FORWARD_STRTO(result, name, character)                                     \
  extern result name(const character *, character **, int);                        \
  HIDDEN result __isoc23_##name(const character *text, character **end, int base) { \
    return name(text, end, base);                                                  \
  }

FORWARD_STRTO(long, strtol, char)
FORWARD_STRTO(unsigned long, strtoul, char)
FORWARD_STRTO(long long, strtoll, char)
FORWARD_STRTO(unsigned long long, strtoull, char)
FORWARD_STRTO(long, strtoimax, char)
FORWARD_STRTO(unsigned long, strtoumax, char)
FORWARD_STRTO(long, wcstol, wide)
FORWARD_STRTO(unsigned long, wcstoul, wide)
FORWARD_STRTO(long long, wcstoll, wide)
FORWARD_STRTO(unsigned long long, wcstoull, wide)

#define FORWARD_STRTO_L(result, name, character)                                                          \
  extern result name(const character *, character **, int, struct locale *);                              \
  HIDDEN result __isoc23_##name(const character *text, character **end, int base, struct locale *where) { \
    return name(text, end, base, where);                                                                  \
  }

FORWARD_STRTO_L(long, strtol_l, char)
FORWARD_STRTO_L(unsigned long, strtoul_l, char)
FORWARD_STRTO_L(long long, strtoll_l, char)
FORWARD_STRTO_L(unsigned long long, strtoull_l, char)

extern int __isoc99_vsscanf(const char *, const char *, arguments_type);
extern int __isoc99_vfscanf(struct file *, const char *, arguments_type);
extern int __isoc99_vscanf(const char *, arguments_type);

HIDDEN int __isoc23_vsscanf(const char *text, const char *format, arguments_type arguments) {
  return __isoc99_vsscanf(text, format, arguments);
}

HIDDEN int __isoc23_vfscanf(struct file *stream, const char *format, arguments_type arguments) {
  return __isoc99_vfscanf(stream, format, arguments);
}

FORWARD_STRTO(long, wcstoimax, wide)
FORWARD_STRTO(unsigned long, wcstoumax, wide)
FORWARD_STRTO_L(long, wcstol_l, wide)
FORWARD_STRTO_L(unsigned long, wcstoul_l, wide)
FORWARD_STRTO_L(long long, wcstoll_l, wide)
FORWARD_STRTO_L(unsigned long long, wcstoull_l, wide)

extern int __isoc99_vswscanf(const wide *, const wide *, arguments_type);
extern int __isoc99_vfwscanf(struct file *, const wide *, arguments_type);
extern int __isoc99_vwscanf(const wide *, arguments_type);

HIDDEN int __isoc23_vswscanf(const wide *text, const wide *format, arguments_type arguments) {
  return __isoc99_vswscanf(text, format, arguments);
}

HIDDEN int __isoc23_vfwscanf(struct file *stream, const wide *format, arguments_type arguments) {
  return __isoc99_vfwscanf(stream, format, arguments);
}

HIDDEN int __isoc23_vwscanf(const wide *format, arguments_type arguments) {
  return __isoc99_vwscanf(format, arguments);
}

HIDDEN int __isoc23_swscanf(const wide *text, const wide *format, ...) {
  arguments_type arguments;
  __builtin_va_start(arguments, format);
  int count = __isoc99_vswscanf(text, format, arguments);
  __builtin_va_end(arguments);
  return count;
}

HIDDEN int __isoc23_vscanf(const char *format, arguments_type arguments) { return __isoc99_vscanf(format, arguments); }

HIDDEN int __isoc23_sscanf(const char *text, const char *format, ...) {
  arguments_type arguments;
  __builtin_va_start(arguments, format);
  int count = __isoc99_vsscanf(text, format, arguments);
  __builtin_va_end(arguments);
  return count;
}

HIDDEN int __isoc23_fscanf(struct file *stream, const char *format, ...) {
  arguments_type arguments;
  __builtin_va_start(arguments, format);
  int count = __isoc99_vfscanf(stream, format, arguments);
  __builtin_va_end(arguments);
  return count;
}

HIDDEN int __isoc23_scanf(const char *format, ...) {
  arguments_type arguments;
  __builtin_va_start(arguments, format);
  int count = __isoc99_vscanf(format, arguments);
  __builtin_va_end(arguments);
  return count;
}
