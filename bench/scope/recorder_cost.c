/* Cost of the recorder: nanoseconds of a visit, an event and a filtered call, beside the clock.
 *
 * Started by recorder_cost.py with the recorder preloaded. Each line: name and nanoseconds; the
 * smallest of several rounds, the loop itself taken off. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define WEAK __attribute__((weak))
WEAK uint32_t hs_region(const char *, const char *, const char *, const char *, int);
WEAK void hs_enter(uint32_t, const void *);
WEAK void hs_enter_unwound(uint32_t, const void *);
WEAK void hs_skip(uint32_t, uint64_t, uint64_t);
WEAK void hs_leave(uint32_t);
WEAK int hs_event(uint32_t, uint32_t, uint64_t, uint64_t, uint64_t, uint64_t);
WEAK void __cyg_profile_func_enter(void *, void *);
WEAK void __cyg_profile_func_exit(void *, void *);

enum { ROUNDS = 300, TURNS = 2000, SEND = 4 };

static const uint64_t RECEIVED = 1ull << 62; /* HS_SKIPPED_RECEIVED */
static uint32_t region, other;
static volatile uint64_t sink;

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void nothing(void) {}
static void read_clock(void) {
#if defined(__x86_64__)
  sink = __rdtsc();
#endif
}
static void system_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  sink = (uint64_t)time.tv_nsec;
}
static void visit(void) {
  hs_enter(region, NULL);
  hs_leave(region);
}
static void two_visits(void) {
  hs_enter(region, NULL);
  hs_leave(region);
  hs_enter(other, NULL);
  hs_leave(other);
}
static void visit_with_message(void) {
  hs_enter(region, NULL);
  hs_event(SEND, 1, 0, 800, 0, 0);
  hs_leave(region);
}
static void unwound_visit(void) {
  hs_enter_unwound(region, __builtin_return_address(0));
  hs_leave(region);
}
__attribute__((noinline)) static void an_instrumented_function(void) { __asm__ volatile(""); }
__attribute__((noinline)) static void a_filtered_function(void) { __asm__ volatile(""); }
static void instrumented(void) {
  __cyg_profile_func_enter((void *)an_instrumented_function, NULL);
  __cyg_profile_func_exit((void *)an_instrumented_function, NULL);
}
static void filtered(void) {
  __cyg_profile_func_enter((void *)a_filtered_function, NULL);
  __cyg_profile_func_exit((void *)a_filtered_function, NULL);
}

/* Of 64 ranks in turns. */
static void skipped(void) {
  static unsigned turn;
  hs_skip(turn++ & 63, 5ull << 32, RECEIVED);
}

static double cost(void (*action)(void)) {
  double least = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    double begin = seconds();
    for (int turn = 0; turn < TURNS; turn++) {
      action();
      __asm__ volatile("" ::: "memory");
    }
    double taken = seconds() - begin;
    if (taken < least) least = taken;
  }
  return 1e9 * least / TURNS;
}

__attribute__((noinline)) static double through_callers(int depth, void (*action)(void)) {
  double result = depth ? through_callers(depth - 1, action) : cost(action);
  __asm__ volatile("");
  return result;
}

int main(void) {
  double empty = cost(nothing);
  printf("clock %.3f\n", cost(read_clock) - empty);
  printf("system_clock %.3f\n", cost(system_clock) - empty);
  if (hs_region) {
    region = hs_region("MPI_Send", "mpi", "send", "", 0);
    other = hs_region("other", "user", "other", "", 0);
    printf("visit %.3f\n", cost(visit) - empty);
    printf("two_visits %.3f\n", cost(two_visits) - empty);
    printf("visit_with_message %.3f\n", cost(visit_with_message) - empty);
    if (hs_enter_unwound) printf("unwound_visit %.3f\n", through_callers(10, unwound_visit) - empty);
    printf("instrumented %.3f\n", cost(instrumented) - empty);
    printf("filtered %.3f\n", cost(filtered) - empty);
    if (hs_skip) printf("skipped %.3f\n", cost(skipped) - empty);
  }
  return 0;
}
