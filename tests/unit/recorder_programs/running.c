/* Ends while threads are still recording as fast as they can. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "recorder_calls.h"

static pthread_barrier_t all;

static void *work(void *unused) {
  uint32_t region = hs_region("endless", "user", "other", "", 0);
  for (long i = 0;; i++) {
    hs_enter(region, NULL);
    hs_leave(region);
    if (i == 1000) pthread_barrier_wait(&all);
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_barrier_init(&all, NULL, 4);
  for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, work, NULL);
  pthread_barrier_wait(&all);
  struct timespec rest = {0, 5000000};
  nanosleep(&rest, NULL);
  exit(0);
}
