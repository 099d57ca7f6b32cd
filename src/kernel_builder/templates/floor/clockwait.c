/* glibc 2.30: waiting until a time of a chosen clock. Older functions know the realtime clock only, so a time of the
   monotonic clock is moved to it; a jump of the system clock during the wait makes that wait shorter or longer, which
   every caller must expect of a timed wait anyway. */
#include "floor.h"

extern int clock_gettime(int, struct timespec_64 *);
extern int pthread_cond_timedwait(void *, void *, const struct timespec_64 *);
extern int pthread_mutex_timedlock(void *, const struct timespec_64 *);
extern int pthread_rwlock_timedrdlock(void *, const struct timespec_64 *);
extern int pthread_rwlock_timedwrlock(void *, const struct timespec_64 *);
extern int sem_timedwait(void *, const struct timespec_64 *);

enum { REALTIME = 0, SECOND = 1000000000 };

static struct timespec_64 to_realtime(int clock, const struct timespec_64 *until) {
  if (clock == REALTIME) {
    return *until;
  }
  struct timespec_64 here, real, result;
  clock_gettime(clock, &here);
  clock_gettime(REALTIME, &real);
  result.seconds = until->seconds - here.seconds + real.seconds;
  result.nanoseconds = until->nanoseconds - here.nanoseconds + real.nanoseconds;
  while (result.nanoseconds < 0) {
    result.nanoseconds += SECOND;
    result.seconds -= 1;
  }
  while (result.nanoseconds >= SECOND) {
    result.nanoseconds -= SECOND;
    result.seconds += 1;
  }
  return result;
}

HIDDEN int pthread_cond_clockwait(void *condition, void *mutex, int clock, const struct timespec_64 *until) {
  struct timespec_64 real = to_realtime(clock, until);
  return pthread_cond_timedwait(condition, mutex, &real);
}

HIDDEN int pthread_mutex_clocklock(void *mutex, int clock, const struct timespec_64 *until) {
  struct timespec_64 real = to_realtime(clock, until);
  return pthread_mutex_timedlock(mutex, &real);
}

HIDDEN int pthread_rwlock_clockrdlock(void *lock, int clock, const struct timespec_64 *until) {
  struct timespec_64 real = to_realtime(clock, until);
  return pthread_rwlock_timedrdlock(lock, &real);
}

HIDDEN int pthread_rwlock_clockwrlock(void *lock, int clock, const struct timespec_64 *until) {
  struct timespec_64 real = to_realtime(clock, until);
  return pthread_rwlock_timedwrlock(lock, &real);
}

HIDDEN int sem_clockwait(void *semaphore, int clock, const struct timespec_64 *until) {
  struct timespec_64 real = to_realtime(clock, until);
  return sem_timedwait(semaphore, &real);
}
