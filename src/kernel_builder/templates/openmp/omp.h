/* OpenMP's functions as GNU's runtime has them, for clang, which comes without this header: OpenMP 4.5. */
#pragma once

#ifdef __cplusplus
extern "C" {
#define KERNEL_BUILDER_NOTHROW noexcept
#else
#define KERNEL_BUILDER_NOTHROW
#endif

typedef struct { __attribute__((aligned(4))) unsigned char kernel_builder_x[4]; } omp_lock_t;
typedef struct { __attribute__((aligned(8))) unsigned char kernel_builder_x[16]; } omp_nest_lock_t;

typedef enum omp_sched_t {
  omp_sched_static = 1,
  omp_sched_dynamic = 2,
  omp_sched_guided = 3,
  omp_sched_auto = 4
} omp_sched_t;

typedef enum omp_proc_bind_t {
  omp_proc_bind_false = 0,
  omp_proc_bind_true = 1,
  omp_proc_bind_master = 2,
  omp_proc_bind_close = 3,
  omp_proc_bind_spread = 4
} omp_proc_bind_t;

typedef enum omp_lock_hint_t {
  omp_lock_hint_none = 0,
  omp_lock_hint_uncontended = 1,
  omp_lock_hint_contended = 2,
  omp_lock_hint_nonspeculative = 4,
  omp_lock_hint_speculative = 8
} omp_lock_hint_t;

extern void omp_set_num_threads(int) KERNEL_BUILDER_NOTHROW;
extern int omp_get_num_threads(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_max_threads(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_thread_num(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_num_procs(void) KERNEL_BUILDER_NOTHROW;
extern int omp_in_parallel(void) KERNEL_BUILDER_NOTHROW;
extern void omp_set_dynamic(int) KERNEL_BUILDER_NOTHROW;
extern int omp_get_dynamic(void) KERNEL_BUILDER_NOTHROW;
extern void omp_set_nested(int) KERNEL_BUILDER_NOTHROW;
extern int omp_get_nested(void) KERNEL_BUILDER_NOTHROW;
extern void omp_set_schedule(omp_sched_t, int) KERNEL_BUILDER_NOTHROW;
extern void omp_get_schedule(omp_sched_t *, int *) KERNEL_BUILDER_NOTHROW;
extern int omp_get_thread_limit(void) KERNEL_BUILDER_NOTHROW;
extern void omp_set_max_active_levels(int) KERNEL_BUILDER_NOTHROW;
extern int omp_get_max_active_levels(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_level(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_ancestor_thread_num(int) KERNEL_BUILDER_NOTHROW;
extern int omp_get_team_size(int) KERNEL_BUILDER_NOTHROW;
extern int omp_get_active_level(void) KERNEL_BUILDER_NOTHROW;
extern int omp_in_final(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_cancellation(void) KERNEL_BUILDER_NOTHROW;
extern omp_proc_bind_t omp_get_proc_bind(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_num_places(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_place_num_procs(int) KERNEL_BUILDER_NOTHROW;
extern void omp_get_place_proc_ids(int, int *) KERNEL_BUILDER_NOTHROW;
extern int omp_get_place_num(void) KERNEL_BUILDER_NOTHROW;
extern int omp_get_partition_num_places(void) KERNEL_BUILDER_NOTHROW;
extern void omp_get_partition_place_nums(int *) KERNEL_BUILDER_NOTHROW;
extern void omp_init_lock(omp_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_init_lock_with_hint(omp_lock_t *, omp_lock_hint_t) KERNEL_BUILDER_NOTHROW;
extern void omp_destroy_lock(omp_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_set_lock(omp_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_unset_lock(omp_lock_t *) KERNEL_BUILDER_NOTHROW;
extern int omp_test_lock(omp_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_init_nest_lock(omp_nest_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_init_nest_lock_with_hint(omp_nest_lock_t *, omp_lock_hint_t) KERNEL_BUILDER_NOTHROW;
extern void omp_destroy_nest_lock(omp_nest_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_set_nest_lock(omp_nest_lock_t *) KERNEL_BUILDER_NOTHROW;
extern void omp_unset_nest_lock(omp_nest_lock_t *) KERNEL_BUILDER_NOTHROW;
extern int omp_test_nest_lock(omp_nest_lock_t *) KERNEL_BUILDER_NOTHROW;
extern double omp_get_wtime(void) KERNEL_BUILDER_NOTHROW;
extern double omp_get_wtick(void) KERNEL_BUILDER_NOTHROW;

#ifdef __cplusplus
}
#endif
#undef KERNEL_BUILDER_NOTHROW
