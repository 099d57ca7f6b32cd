/* OpenMP code that clang compiled, on GNU's runtime, which torch brings: LLVM's entry points in terms of libgomp's.

   Here are parallel regions, loops of every schedule, sections, reductions, and what orders threads. What is not here
   (tasks, copyprivate, cancellation, offloading) stays undefined, and the check of the library says so.
   References: "LLVM OpenMP Runtime Library Interface"; "The libgomp ABI" in the manual of GNU libgomp. */
#include "floor.h"

typedef unsigned u4;
typedef unsigned long u8;
typedef void (*microtask)(int *, int *, ...);

extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern void *malloc(size_type);
extern void free(void *);
extern void abort(void) __attribute__((noreturn));
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
extern void GOMP_parallel_start(void (*)(void *), void *, unsigned);
extern void GOMP_parallel_end(void);
extern void GOMP_barrier(void);
extern void GOMP_critical_name_start(void **);
extern void GOMP_critical_name_end(void **);
extern _Bool GOMP_single_start(void);
extern void GOMP_ordered_start(void);
extern void GOMP_ordered_end(void);
extern void GOMP_loop_end_nowait(void);

/* A loop whose iterations are handed out bit by bit: what the first piece is asked for with. */
struct loop {
  int schedule, is_open, is_unsigned;
  long begin, end, step, chunk;
};

struct kept {
  struct loop loop;
  struct kept *next;
};

struct call {
  microtask task;
  int count;
  void **arguments;
};

static __thread struct loop current;
static __thread struct kept *outer;
static __thread unsigned wanted_threads, wanted_binding;

HIDDEN int __kmpc_global_thread_num(void *where) { return omp_get_thread_num(); }
HIDDEN void __kmpc_push_num_threads(void *where, int thread, int count) { wanted_threads = count > 0 ? count : 0; }
HIDDEN void __kmpc_push_proc_bind(void *where, int thread, int binding) { wanted_binding = binding; }
HIDDEN void __kmpc_barrier(void *where, int thread) { GOMP_barrier(); }
HIDDEN void __kmpc_flush(void *where) { __sync_synchronize(); }

#define A1 a[0]
#define A2 A1, a[1]
#define A3 A2, a[2]
#define A4 A3, a[3]
#define A5 A4, a[4]
#define A6 A5, a[5]
#define A7 A6, a[6]
#define A8 A7, a[7]
#define A9 A8, a[8]
#define A10 A9, a[9]
#define A11 A10, a[10]
#define A12 A11, a[11]
#define A13 A12, a[12]
#define A14 A13, a[13]
#define A15 A14, a[14]
#define A16 A15, a[15]
#define A17 A16, a[16]
#define A18 A17, a[17]
#define A19 A18, a[18]
#define A20 A19, a[19]
#define A21 A20, a[20]
#define A22 A21, a[21]
#define A23 A22, a[22]
#define A24 A23, a[23]
#define A25 A24, a[24]
#define A26 A25, a[25]
#define A27 A26, a[26]
#define A28 A27, a[27]
#define A29 A28, a[28]
#define A30 A29, a[29]
#define A31 A30, a[30]
#define A32 A31, a[31]
#define A33 A32, a[32]
#define A34 A33, a[33]
#define A35 A34, a[34]
#define A36 A35, a[35]
#define A37 A36, a[36]
#define A38 A37, a[37]
#define A39 A38, a[38]
#define A40 A39, a[39]
#define A41 A40, a[40]
#define A42 A41, a[41]
#define A43 A42, a[42]
#define A44 A43, a[43]
#define A45 A44, a[44]
#define A46 A45, a[45]
#define A47 A46, a[46]
#define A48 A47, a[47]
#define A49 A48, a[48]
#define A50 A49, a[49]
#define A51 A50, a[50]
#define A52 A51, a[51]
#define A53 A52, a[52]
#define A54 A53, a[53]
#define A55 A54, a[54]
#define A56 A55, a[55]
#define A57 A56, a[56]
#define A58 A57, a[57]
#define A59 A58, a[58]
#define A60 A59, a[59]
#define A61 A60, a[60]
#define A62 A61, a[61]
#define A63 A62, a[62]
#define A64 A63, a[63]
#define CASE(count)                          \
  case count:                                \
    call->task(&thread, &thread, A##count);  \
    break;

static void run(void *data) {
  struct call *call = data;
  void **a = call->arguments;
  int thread = omp_get_thread_num();
  struct loop saved = current;
  struct kept *saved_outer = outer;
  current.is_open = 0;
  outer = 0;
  switch (call->count) {
    case 0:
      call->task(&thread, &thread);
      break;
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(5)
    CASE(6)
    CASE(7)
    CASE(8)
    CASE(9)
    CASE(10)
    CASE(11)
    CASE(12)
    CASE(13)
    CASE(14)
    CASE(15)
    CASE(16)
    CASE(17)
    CASE(18)
    CASE(19)
    CASE(20)
    CASE(21)
    CASE(22)
    CASE(23)
    CASE(24)
    CASE(25)
    CASE(26)
    CASE(27)
    CASE(28)
    CASE(29)
    CASE(30)
    CASE(31)
    CASE(32)
    CASE(33)
    CASE(34)
    CASE(35)
    CASE(36)
    CASE(37)
    CASE(38)
    CASE(39)
    CASE(40)
    CASE(41)
    CASE(42)
    CASE(43)
    CASE(44)
    CASE(45)
    CASE(46)
    CASE(47)
    CASE(48)
    CASE(49)
    CASE(50)
    CASE(51)
    CASE(52)
    CASE(53)
    CASE(54)
    CASE(55)
    CASE(56)
    CASE(57)
    CASE(58)
    CASE(59)
    CASE(60)
    CASE(61)
    CASE(62)
    CASE(63)
    CASE(64)
    default:
      abort(); /* a region that shares more than 64 variables */
  }
  current = saved;
  outer = saved_outer;
}

HIDDEN void __kmpc_fork_call(void *where, int count, microtask task, ...) {
  void *arguments[64];
  struct call call = {task, count, arguments};
  unsigned threads = wanted_threads, binding = wanted_binding;
  __builtin_va_list given;
  __builtin_va_start(given, task);
  for (int at = 0; at < count && at < 64; at++) {
    arguments[at] = __builtin_va_arg(given, void *);
  }
  __builtin_va_end(given);
  wanted_threads = wanted_binding = 0;
  GOMP_parallel(run, &call, threads, binding);
}

static void nothing(void *data) {}

/* A region that 'if' leaves to one thread: the caller runs it between these two. */
HIDDEN void __kmpc_serialized_parallel(void *where, int thread) {
  struct kept *kept = malloc(sizeof *kept);
  if (!kept) {
    abort();
  }
  kept->loop = current;
  kept->next = outer;
  outer = kept;
  current.is_open = 0;
  wanted_threads = wanted_binding = 0;
  GOMP_parallel_start(nothing, 0, 1);
}

HIDDEN void __kmpc_end_serialized_parallel(void *where, int thread) {
  struct kept *kept = outer;
  GOMP_parallel_end();
  current = kept->loop;
  outer = kept->next;
  free(kept);
}

enum { STATIC_CHUNKED = 33, STATIC, DYNAMIC, GUIDED, RUNTIME, AUTO, ORDERED = 32, MODIFIERS = 3 << 29 };

/* The part of a loop from *lower to *upper (included) that this thread does, known at once. */
#define STATIC_INIT(suffix, type, whole, difference)                                                                  \
  HIDDEN void __kmpc_for_static_init_##suffix(void *where, int thread, int schedule, int *is_last, type *lower,      \
                                              type *upper, difference *stride, difference step, difference chunk) {  \
    whole count = omp_get_num_threads(), own = omp_get_thread_num(), trips;                                          \
    *is_last = 0;                                                                                                    \
    if (step > 0 ? *upper < *lower : *lower < *upper) {                                                              \
      *stride = step;                                                                                                \
      return;                                                                                                        \
    }                                                                                                                \
    trips = step > 0 ? ((whole)*upper - (whole)*lower) / (whole)step                                                 \
                     : ((whole)*lower - (whole)*upper) / -(whole)step;                                               \
    trips += 1;                                                                                                      \
    if ((schedule & ~MODIFIERS) == STATIC_CHUNKED) {                                                                 \
      whole size = chunk < 1 ? 1 : chunk, span = size * (whole)step;                                                 \
      *is_last = own == (trips - 1) / size % count;                                                                  \
      *lower += span * own;                                                                                          \
      *upper = *lower + span - (whole)step;                                                                          \
      *stride = span * count;                                                                                        \
    } else {                                                                                                         \
      whole share = trips / count, more = trips % count;                                                             \
      whole before = own * share + (own < more ? own : more), mine = share + (own < more);                           \
      *is_last = mine && before + mine == trips;                                                                     \
      *lower += before * (whole)step;                                                                                \
      *upper = *lower + (mine - 1) * (whole)step;                                                                    \
      *stride = trips;                                                                                               \
    }                                                                                                                \
  }

STATIC_INIT(4, int, u4, int)
STATIC_INIT(4u, u4, u4, int)
STATIC_INIT(8, long, u8, long)
STATIC_INIT(8u, u8, u8, long)

HIDDEN void __kmpc_for_static_fini(void *where, int thread) {}

#define PIECES(kind)                                                                    \
  extern _Bool GOMP_loop_##kind##_start(long, long, long, long, long *, long *);        \
  extern _Bool GOMP_loop_##kind##_next(long *, long *);                                 \
  extern _Bool GOMP_loop_ull_##kind##_start(_Bool, u8, u8, u8, u8, u8 *, u8 *);         \
  extern _Bool GOMP_loop_ull_##kind##_next(u8 *, u8 *);                                 \
  static _Bool pieces_##kind(struct loop *loop, u8 *begin, u8 *end) {                            \
    if (loop->is_unsigned) {                                                            \
      return loop->is_open ? GOMP_loop_ull_##kind##_next(begin, end)                    \
                           : GOMP_loop_ull_##kind##_start(loop->step > 0, loop->begin, loop->end, loop->step, \
                                                          loop->chunk, begin, end);     \
    }                                                                                   \
    return loop->is_open ? GOMP_loop_##kind##_next((long *)begin, (long *)end)          \
                         : GOMP_loop_##kind##_start(loop->begin, loop->end, loop->step, loop->chunk, \
                                                    (long *)begin, (long *)end);        \
  }

#define PIECES_OF_RUNTIME(kind)                                                         \
  extern _Bool GOMP_loop_##kind##_start(long, long, long, long *, long *);              \
  extern _Bool GOMP_loop_##kind##_next(long *, long *);                                 \
  extern _Bool GOMP_loop_ull_##kind##_start(_Bool, u8, u8, u8, u8 *, u8 *);             \
  extern _Bool GOMP_loop_ull_##kind##_next(u8 *, u8 *);                                 \
  static _Bool pieces_##kind(struct loop *loop, u8 *begin, u8 *end) {                            \
    if (loop->is_unsigned) {                                                            \
      return loop->is_open ? GOMP_loop_ull_##kind##_next(begin, end)                    \
                           : GOMP_loop_ull_##kind##_start(loop->step > 0, loop->begin, loop->end, loop->step, begin, \
                                                          end);                         \
    }                                                                                   \
    return loop->is_open ? GOMP_loop_##kind##_next((long *)begin, (long *)end)          \
                         : GOMP_loop_##kind##_start(loop->begin, loop->end, loop->step, (long *)begin, (long *)end); \
  }

PIECES(static)
PIECES(dynamic)
PIECES(guided)
PIECES_OF_RUNTIME(runtime)
PIECES(ordered_static)
PIECES(ordered_dynamic)
PIECES(ordered_guided)
PIECES_OF_RUNTIME(ordered_runtime)

static _Bool piece(struct loop *loop, u8 *begin, u8 *end) {
  switch (loop->schedule) {
    case DYNAMIC: return pieces_dynamic(loop, begin, end);
    case GUIDED: return pieces_guided(loop, begin, end);
    case RUNTIME: return pieces_runtime(loop, begin, end);
    case STATIC_CHUNKED + ORDERED:
    case STATIC + ORDERED:
    case AUTO + ORDERED: return pieces_ordered_static(loop, begin, end);
    case DYNAMIC + ORDERED: return pieces_ordered_dynamic(loop, begin, end);
    case GUIDED + ORDERED: return pieces_ordered_guided(loop, begin, end);
    case RUNTIME + ORDERED: return pieces_ordered_runtime(loop, begin, end);
    default: return pieces_static(loop, begin, end);
  }
}

#define DISPATCH(suffix, type, difference, unsigned_type)                                                             \
  HIDDEN void __kmpc_dispatch_init_##suffix(void *where, int thread, int schedule, type lower, type upper,            \
                                            difference step, difference chunk) {                                     \
    int kind = schedule & ~MODIFIERS;                                                                                \
    _Bool whole = kind == STATIC || kind == STATIC + ORDERED || kind == AUTO || kind == AUTO + ORDERED;              \
    struct loop loop = {kind, 0, unsigned_type, lower, upper + (step > 0 ? 1 : -1), step, 0};                         \
    loop.chunk = whole ? 0 : chunk < 1 ? 1 : chunk;                                                                  \
    current = loop;                                                                                                  \
  }                                                                                                                  \
  HIDDEN int __kmpc_dispatch_next_##suffix(void *where, int thread, int *is_last, type *lower, type *upper,           \
                                           difference *stride) {                                                     \
    u8 begin, end;                                                                                                   \
    if (!piece(&current, &begin, &end)) {                                                                            \
      current.is_open = 0;                                                                                           \
      GOMP_loop_end_nowait();                                                                                        \
      return 0;                                                                                                      \
    }                                                                                                                \
    current.is_open = 1;                                                                                             \
    *lower = begin;                                                                                                  \
    *upper = end - (current.step > 0 ? 1 : -1);                                                                      \
    *stride = current.step;                                                                                          \
    if (is_last) {                                                                                                   \
      *is_last = (long)end == current.end;                                                                           \
    }                                                                                                                \
    return 1;                                                                                                        \
  }                                                                                                                  \
  HIDDEN void __kmpc_dispatch_fini_##suffix(void *where, int thread) {}

DISPATCH(4, int, int, 0)
DISPATCH(4u, u4, int, 0)
DISPATCH(8, long, long, 0)
DISPATCH(8u, u8, long, 1)

HIDDEN void __kmpc_dispatch_deinit(void *where, int thread) {}

HIDDEN void __kmpc_critical(void *where, int thread, void **lock) { GOMP_critical_name_start(lock); }
HIDDEN void __kmpc_critical_with_hint(void *where, int thread, void **lock, unsigned hint) {
  GOMP_critical_name_start(lock);
}
HIDDEN void __kmpc_end_critical(void *where, int thread, void **lock) { GOMP_critical_name_end(lock); }

/* Each thread adds its part, one after the other. */
HIDDEN int __kmpc_reduce(void *where, int thread, int count, size_type size, void *data, void (*add)(void *, void *),
                         void **lock) {
  GOMP_critical_name_start(lock);
  return 1;
}
HIDDEN void __kmpc_end_reduce(void *where, int thread, void **lock) {
  GOMP_critical_name_end(lock);
  GOMP_barrier();
}
HIDDEN int __kmpc_reduce_nowait(void *where, int thread, int count, size_type size, void *data,
                                void (*add)(void *, void *), void **lock) {
  GOMP_critical_name_start(lock);
  return 1;
}
HIDDEN void __kmpc_end_reduce_nowait(void *where, int thread, void **lock) { GOMP_critical_name_end(lock); }

HIDDEN int __kmpc_single(void *where, int thread) { return GOMP_single_start(); }
HIDDEN void __kmpc_end_single(void *where, int thread) {}
HIDDEN int __kmpc_master(void *where, int thread) { return omp_get_thread_num() == 0; }
HIDDEN void __kmpc_end_master(void *where, int thread) {}
HIDDEN int __kmpc_masked(void *where, int thread, int filter) { return omp_get_thread_num() == filter; }
HIDDEN void __kmpc_end_masked(void *where, int thread) {}
HIDDEN void __kmpc_ordered(void *where, int thread) { GOMP_ordered_start(); }
HIDDEN void __kmpc_end_ordered(void *where, int thread) { GOMP_ordered_end(); }
