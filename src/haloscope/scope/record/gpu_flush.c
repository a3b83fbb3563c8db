/* A thread that asks CUPTI for its records each second.
 *
 * CUPTI's own period hands over full buffers only: a slow program would yield no records for
 * minutes, and none at all where it is killed. A buffer with unfinished work stays with CUPTI until
 * that work ends. */
#include "gpu_calls.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

enum { PERIOD = 1 }; /* seconds */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t over;
  pthread_t thread;
  int runs, ends;
} flusher = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void *flush_periodically(void *unused) {
  struct timespec until;
  pthread_mutex_lock(&flusher.lock);
  while (!flusher.ends) {
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PERIOD;
    pthread_cond_timedwait(&flusher.over, &flusher.lock, &until);
    if (flusher.ends) break;
    pthread_mutex_unlock(&flusher.lock);
    gpu_cupti.cuptiActivityFlushAll_(0);
    hs_streams_settle();
    pthread_mutex_lock(&flusher.lock);
  }
  pthread_mutex_unlock(&flusher.lock);
  return unused;
}

static void begin(void) {
  sigset_t all, before;
  sigfillset(&all); /* signals are the program's */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&flusher.lock);
  if (!flusher.ends)
    flusher.runs = pthread_create(&flusher.thread, NULL, flush_periodically, NULL) == 0;
  pthread_mutex_unlock(&flusher.lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void gpu_flush_from_now_on(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
}

int gpu_flush_no_more(void) {
  pthread_mutex_lock(&flusher.lock);
  int first = !flusher.ends;
  flusher.ends = 1;
  pthread_cond_signal(&flusher.over);
  pthread_mutex_unlock(&flusher.lock);
  if (first && flusher.runs) pthread_join(flusher.thread, NULL);
  return first;
}
