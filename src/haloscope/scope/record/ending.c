/* The end of the recorder: in whatever way the process ends, its files are closed in order. */
#include "location.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MEMBARRIER_CMD_PRIVATE_EXPEDITED
#define MEMBARRIER_CMD_PRIVATE_EXPEDITED (1 << 3)
#endif

static int has_thread(const struct location *me) {
  return me->thread && me->in_use && !me->ended;
}

/* True when no other thread is writing any more. */
static int others_are_quiet(void) {
  const struct timespec pause = {0, 1000000};
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)) return 0;
  for (int attempt = 0; attempt < 20; attempt++) {
    int busy = 0;
    for (struct location *location = hs_recorder.locations; location; location = location->next_location)
      busy |= location != hs_me && has_thread(location) && location->busy;
    if (!busy) return 1;
    nanosleep(&pause, NULL);
  }
  return 0;
}

static void record_counts(const struct location *me) {
  char deep[64] = "";
  struct text text;
  text_open(&text, deep, sizeof deep);
  if (me->left_out) text_format(&text, ", \"too_deep\": %lu", me->left_out);
  definitions_format("{\"counted\": %u, \"events\": %lu, \"flushes\": %lu, \"flush_seconds\": %f%s}", me->number,
                     me->events, me->flushes, (double)me->flush_ticks / clock_rate(), deep);
}

/* A short file of the system's, empty where it cannot be read. */
static void read_text(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
}

/* Use of the cores by the process: processor time of all its threads, number of involuntary context
 * switches and, where the kernel reports it, the time that the first thread was ready to run but
 * had no core. */
static void record_processor(void) {
  char scheduled[128], waited[64] = "";
  struct text text;
  struct rusage used;
  if (getrusage(RUSAGE_SELF, &used) != 0) return;
  text_open(&text, waited, sizeof waited);
  read_text("/proc/self/schedstat", scheduled, sizeof scheduled);
  const char *ready = strchr(scheduled, ' ');
  if (ready) text_format(&text, ", \"without_core\": %f", (double)strtoull(ready, NULL, 10) * 1e-9);
  definitions_format("{\"processor\": %f, \"preempted\": %ld%s}",
                     (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6,
                     used.ru_nivcsw, waited);
}

/* Peak of the resident memory in bytes without the recorder's windows; 0 where the kernel does not
 * report it. */
static uint64_t peak_memory(void) {
  char text[4096];
  read_text("/proc/self/status", text, sizeof text);
  const char *at = strstr(text, "VmHWM:");
  uint64_t kibibytes = 0;
  for (at = at ? at + 6 : ""; *at && *at != '\n'; at++)
    if (*at >= '0' && *at <= '9') kibibytes = 10 * kibibytes + (uint64_t)(*at - '0');
  uint64_t windows = 0;
  for (struct location *location = hs_recorder.locations; location; location = location->next_location)
    if (location->base) windows += location->length;
  return kibibytes << 10 > windows ? (kibibytes << 10) - windows : 0;
}

void hs_record_rate(double rate) {
  if (hs_recorder.tsc)
    definitions_format("{\"rate\": %f, \"at\": %lu}", rate, clock_epoch() - clock_base());
}

static void record_totals(double rate, uint64_t heap) {
  if (heap) definitions_format("{\"heap\": %lu}", heap);
  record_processor();
  hs_record_rate(rate);
}

/* Writes the profile when a signal or an abort ends the process here; false where nothing is
 * recorded. */
static int finish_here(void) {
  if (hs_recorder.state != ON || getpid() != hs_recorder.process) return 0;
  uint64_t tick = now();
  double rate = clock_final_rate();
  if (!hs_recorder.attached) hs_become_rank(0, 1, "", "");
  if (hs_recorder.state != ON) return 0;
  hs_record_no_more(ENDED);
  for (struct location *location = hs_recorder.locations; location; location = location->next_location)
    if (!location->ended) location_count_open(location, tick);
  profile_write(rate);
  record_totals(rate, peak_memory());
  return 1;
}

void hs_finish_in_signal(int number) {
  if (finish_here()) definitions_format("{\"signal\": %d}", number);
}

void hs_record_abort(int code) {
  if (hs_recorder.state != ON || getpid() != hs_recorder.process) return;
  definitions_format("{\"abort\": %d}", code);
  if (hs_recorder.mode == MODE_PROFILE) finish_here();
}

void hs_finish(void) {
  if (hs_recorder.state != ON || getpid() != hs_recorder.process) return;
  streams_finish();
  hs_lock();
  if (hs_recorder.state == ON && !hs_recorder.attached) hs_become_rank(0, 1, "", "");
  int last = hs_recorder.state == ON;
  uint64_t tick = now();
  if (last) hs_record_no_more(ENDED);
  hs_unlock();
  if (!last) return;
  if (hs_me) hs_me->busy = 1;
  double rate = clock_final_rate();
  uint64_t heap = peak_memory();
  int quiet = others_are_quiet();
  for (struct location *location = hs_recorder.locations; location; location = location->next_location) {
    int ours = quiet || location == hs_me || !has_thread(location);
    if (ours && !location->ended) {
      hs_take_toggles(location);
      openmp_close(location);
      if (!hs_recorder.stopped) location_close_calls(location, tick);
    }
    buffer_close(location, ours);
    record_counts(location);
  }
  if (hs_recorder.mode == MODE_PROFILE) profile_write(rate);
  record_totals(rate, heap);
  if (hs_recorder.mpi_runs) definitions_format("{\"early\": %lu}", tick - clock_base());
  definitions_format("{\"end\": true, \"at\": %lu}", tick - clock_base());
  definitions_close();
  hs_me = NULL;
}

__attribute__((destructor)) static void on_exit_of_process(void) { hs_finish(); }

/* Ways out of a process that leave destructors away. */
__attribute__((visibility("default"), noreturn)) void _exit(int status) {
  hs_finish();
  for (;;) syscall(SYS_exit_group, status);
}

__attribute__((visibility("default"), noreturn)) void _Exit(int status) { _exit(status); }
