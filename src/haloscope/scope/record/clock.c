/* Clock of a process: the time-stamp counter where the processor says that it never changes its
 * pace, else CLOCK_MONOTONIC in nanoseconds.
 *
 * The counter is held against CLOCK_MONOTONIC_RAW when the library is loaded, when the rank is
 * known and at the end. Ticks that leave this file are shifted so that tick / rate is the raw
 * clock's reading when the library was loaded: ranks of one machine agree without comparing. */
#include "location.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const double NANOSECONDS = 1e9;
static const uint64_t LEAST_CALIBRATION = 5000000; /* nanoseconds: 10 ns off are then 2e-6 */

static int begun;
static int fixed;
static uint64_t first_tick, first_nanosecond;
static double rate = 1e9;
static uint64_t base;

static uint64_t raw_nanoseconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC_RAW, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Both clocks at one moment: the closest of some attempts. */
static void both_clocks(uint64_t *tick, uint64_t *nanosecond, int attempts) {
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < attempts; i++) {
    uint64_t before = now(), raw = raw_nanoseconds(), after = now();
    if (after - before < closest) {
      closest = after - before;
      *tick = before + (after - before) / 2;
      *nanosecond = raw;
    }
  }
}

static int counter_is_steady(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(0x80000000u, &a, &b, &c, &d) || a < 0x80000007u) return 0;
  __get_cpuid(0x80000007u, &a, &b, &c, &d);
  return d >> 8 & 1;
#else
  return 0;
#endif
}

void clock_begin(void) {
  if (begun) return;
  begun = 1;
  hs_recorder.tsc = counter_is_steady();
  if (hs_recorder.tsc) {
    both_clocks(&first_tick, &first_nanosecond, 4);
  } else {
    first_tick = now();
    fixed = 1;
  }
}

/* When the program began: two readings of the clock, the only thing done before the first call. */
__attribute__((constructor)) static void on_load(void) { clock_begin(); }

static double rate_until_now(void) {
  uint64_t tick = 0, nanosecond = 0;
  both_clocks(&tick, &nanosecond, 16);
  if (nanosecond <= first_nanosecond) return rate;
  return (double)((long double)(tick - first_tick) * NANOSECONDS /
                  (long double)(nanosecond - first_nanosecond));
}

/* From here on the rate that the first line of the definitions tells stays. */
void clock_fix(void) {
  if (fixed) return;
  while (raw_nanoseconds() - first_nanosecond < LEAST_CALIBRATION) continue;
  rate = rate_until_now();
  base = first_tick - (uint64_t)((long double)first_nanosecond * rate / NANOSECONDS);
  fixed = 1;
}

double clock_rate(void) { return rate; }
uint64_t clock_base(void) { return base; }
uint64_t clock_epoch(void) { return first_tick; }
double clock_final_rate(void) { return hs_recorder.tsc ? rate_until_now() : rate; }

uint64_t hs_ticks(void) {
  clock_begin();
  clock_fix();
  return now() - base;
}

double hs_ticks_per_second(void) {
  clock_begin();
  clock_fix();
  return rate;
}
