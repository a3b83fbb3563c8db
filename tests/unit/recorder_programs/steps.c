/* Does what its arguments say, one after the other, with the recorder: see the tests.
 *
 *   enter:NAME  leave:NAME       a region of the user
 *   call:NAME                    enter and leave at once, as an MPI call
 *   send:PEER:BYTES  recv:PEER:BYTES  collective:BYTES   within calls of their own
 *   rehearse                     what recording a message costs: prints whether it is known
 *   pause  resume  attach:RANK:SIZE  sleep:MILLISECONDS  define:LINE
 *   repeat:N                     the step that follows N times
 *   signal:NUMBER  exit:HOW      end: return, exit, _exit, _Exit, quick_exit, pthread_exit, abort
 *   exec:STEP                    this program anew, with one step
 *   fork                         a child that records a region named child and ends */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recorder_calls.h"

enum { SEND = 4, RECV = 7, COLLECTIVE = 11, BARRIER = 1, COMM = 0, TAG = 5 };

static uint32_t user(const char *name) { return hs_region(name, "user", "other", "", 0); }

static void message(const char *name, const char *role, uint32_t kind, const char *what) {
  uint32_t region = hs_region(name, "mpi", role, "", 0);
  char *rest;
  uint32_t peer = (uint32_t)strtoul(what, &rest, 10);
  uint64_t bytes = strtoull(rest + 1, NULL, 10);
  hs_enter(region, NULL);
  hs_event(kind, peer, COMM | (uint64_t)TAG << 32, bytes, 0, 0);
  hs_leave(region);
}

static void collective(const char *what) {
  uint32_t region = hs_region("MPI_Allreduce", "mpi", "allreduce", "", 0);
  uint64_t bytes = strtoull(what, NULL, 10);
  hs_enter(region, NULL);
  hs_event(COLLECTIVE, COMM, 9 | (uint64_t)UINT32_MAX << 32, bytes, bytes, 0);
  hs_leave(region);
}

static void rehearsed(void) {
  hs_enter(0, NULL);
  hs_event(SEND, 1, COMM, 0, 0, 0);
  hs_event(RECV, 1, COMM, 0, 0, 0);
  hs_leave(0);
}

static void rehearse(void) {
  double within = -1, beyond = -1;
  const int known = hs_rehearse(rehearsed, &within, &beyond);
  printf("%s\n", !known ? "unknown" : within > 0 && beyond >= 0 && within + beyond < 1 ? "known" : "wrong");
}

static void nap(const char *milliseconds) {
  long time = strtol(milliseconds, NULL, 10);
  struct timespec rest = {time / 1000, time % 1000 * 1000000};
  while (nanosleep(&rest, &rest)) continue;
}

static void child(void) {
  pid_t process = fork();
  if (process == 0) {
    for (int i = 0; i < 1000; i++) {
      hs_enter(user("child"), NULL);
      hs_leave(user("child"));
    }
    exit(0);
  }
  waitpid(process, NULL, 0);
}

static void end(const char *how) {
  if (strcmp(how, "exit") == 0) exit(0);
  if (strcmp(how, "_exit") == 0) _exit(0);
  if (strcmp(how, "_Exit") == 0) _Exit(0);
  if (strcmp(how, "quick_exit") == 0) quick_exit(0);
  if (strcmp(how, "pthread_exit") == 0) pthread_exit(NULL);
  if (strcmp(how, "abort") == 0) abort();
}

static void become(const char *what) {
  char *arguments[] = {"steps", (char *)(uintptr_t)what, NULL};
  execv("/proc/self/exe", arguments);
  exit(7);
}

static void step(const char *what) {
  char name[256];
  const char *colon = strchr(what, ':');
  size_t length = colon ? (size_t)(colon - what) : strlen(what);
  const char *rest = colon ? colon + 1 : "";
  snprintf(name, sizeof name, "%.*s", (int)length, what);
  if (strcmp(name, "enter") == 0) hs_enter(user(rest), NULL);
  else if (strcmp(name, "leave") == 0) hs_leave(user(rest));
  else if (strcmp(name, "call") == 0) {
    uint32_t region = hs_region(rest, "mpi", "other", "", 0);
    if (region != UINT32_MAX) {
      hs_enter(region, NULL);
      hs_leave(region);
    }
  }
  else if (strcmp(name, "send") == 0) message("MPI_Send", "send", SEND, rest);
  else if (strcmp(name, "recv") == 0) message("MPI_Recv", "recv", RECV, rest);
  else if (strcmp(name, "collective") == 0) collective(rest);
  else if (strcmp(name, "rehearse") == 0) rehearse();
  else if (strcmp(name, "pause") == 0) hs_pause();
  else if (strcmp(name, "resume") == 0) hs_resume();
  else if (strcmp(name, "sleep") == 0) nap(rest);
  else if (strcmp(name, "define") == 0) hs_define(rest);
  else if (strcmp(name, "fork") == 0) child();
  else if (strcmp(name, "exec") == 0) become(rest);
  else if (strcmp(name, "signal") == 0) raise(atoi(rest));
  else if (strcmp(name, "exit") == 0) end(rest);
  else if (strcmp(name, "recording") == 0) printf("%d\n", hs_recording());
  else if (strcmp(name, "rate") == 0) printf("%.6f\n", hs_ticks_per_second());
  else if (strcmp(name, "close") == 0) for (int fd = 3; fd < 4096; fd++) close(fd);
  else if (strcmp(name, "attach") == 0)
    hs_attach(atoi(rest), atoi(strchr(rest, ':') + 1), "some MPI 1.0", "single");
  else {
    fprintf(stderr, "what is %s?\n", what);
    exit(9);
  }
  fflush(stdout);
}

int main(int count, char **arguments) {
  if (!hs_region) return 8;
  for (int i = 1; i < count; i++) {
    long times = 1;
    if (strncmp(arguments[i], "repeat:", 7) == 0) times = atol(arguments[i++] + 7);
    for (long n = 0; n < times; n++) step(arguments[i]);
  }
  return 0;
}
