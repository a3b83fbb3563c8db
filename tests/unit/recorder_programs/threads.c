/* Threads at the same time and one after the other; the arguments are the two numbers, the visits
 * of each thread and, if given, "pause": the main thread pauses and resumes meanwhile. */
#include <pthread.h>
#include <stdlib.h>

#include "recorder_calls.h"

static long visits;
static volatile int pausing;
static pthread_barrier_t begun;

static void *work(void *unused) {
  uint32_t outer = hs_region("outer", "user", "other", "", 0);
  uint32_t inner = hs_region("inner", "user", "other", "", 0);
  hs_enter(outer, NULL);
  pthread_barrier_wait(&begun);
  for (long i = 0; i < visits || pausing; i++) {
    hs_enter(inner, NULL);
    hs_leave(inner);
  }
  hs_leave(outer);
  return unused;
}

int main(int count, char **arguments) {
  int together = atoi(arguments[1]), turns = atoi(arguments[2]);
  visits = atol(arguments[3]);
  pthread_barrier_init(&begun, NULL, (unsigned)together + 1);
  pthread_t *threads = malloc((size_t)together * sizeof *threads);
  for (int turn = 0; turn < turns; turn++) {
    pausing = count > 4;
    for (int i = 0; i < together; i++) pthread_create(&threads[i], NULL, work, NULL);
    pthread_barrier_wait(&begun);
    for (int i = 0; count > 4 && i < 500; i++) {
      hs_pause();
      hs_resume();
    }
    pausing = 0;
    for (int i = 0; i < together; i++) pthread_join(threads[i], NULL);
  }
  free(threads);
  return 0;
}
