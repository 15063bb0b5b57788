// Moves the wall clock of one process: loaded with LD_PRELOAD, it adds the seconds in the file named by FAULTS_CLOCK.
// The monotonic clock stays as it is.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("FAULTS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *map = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) offset = map;
  close(file);
}

static long moved(void) { return offset ? *offset : 0; }

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += moved();
  return result;
}

int gettimeofday(struct timeval *time, void *zone) {
  (void)zone;
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec + moved();
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  time_t seconds = now.tv_sec + moved();
  if (out) *out = seconds;
  return seconds;
}
