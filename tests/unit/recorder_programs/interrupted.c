/* Records while a timer's signal handler records, too. */
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#include "recorder_calls.h"

static volatile sig_atomic_t signals;
static uint32_t handler;

static void on_signal(int number) {
  (void)number;
  signals++;
  hs_enter(handler, NULL);
  hs_leave(handler);
}

int main(int count, char **arguments) {
  int wanted = count > 1 ? atoi(arguments[1]) : 100;
  uint32_t outer = hs_region("outer", "user", "other", "", 0);
  uint32_t inner = hs_region("inner", "user", "other", "", 0);
  handler = hs_region("handler", "user", "other", "", 0);
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; signals < wanted || i < 50000; i++) {
    hs_enter(outer, NULL);
    hs_enter(inner, NULL);
    hs_leave(inner);
    hs_leave(outer);
  }
  return 0;
}
