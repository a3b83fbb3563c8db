/* Clock of a process: the time-stamp counter where the processor says that it never changes its
 * pace, else CLOCK_MONOTONIC in nanoseconds.
 *
 * The counter is held against CLOCK_MONOTONIC_RAW when the library is loaded, when the rank is
 * known and at the end. Ticks that leave this file are shifted so that tick / rate is the raw
 * clock's reading when the library was loaded: ranks of one machine agree without comparing. */
#include "location.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

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

/* What recording costs in this process, here and now: visits made for the purpose alone.
 *
 * They are written to memory that is thrown away, through a location that nobody else sees. A
 * replay takes the cost out of what it is asked to predict; Malony, Reed, Wijshoff, IEEE Transactions
 * on Parallel and Distributed Systems 3 (1992), call this perturbation analysis. */
enum { BATCHES = 9, VISITS = 128, MOST_WORDS = 16 /* of a visit */ };

static const uint8_t further_words[HS_EVENT_KINDS] = HS_WORDS_OF_KINDS;

static uint64_t ticks_within_visits(const uint64_t *at, const uint64_t *end) {
  uint64_t sum = 0;
  int inside = 0;
  while (at < end) {
    const uint32_t kind = *at & 63;
    if (kind >= HS_EVENT_KINDS) break;
    if (inside && kind != HS_EVENT_TIME) sum += *at >> 6 & HS_MOST_DELTA;
    if (kind == HS_EVENT_ENTER) inside = 1;
    if (kind == HS_EVENT_LEAVE) inside = 0;
    at += 1 + further_words[kind];
  }
  return sum;
}

static double median(double *values) {
  for (int i = 1; i < BATCHES; i++)
    for (int j = i; j > 0 && values[j] < values[j - 1]; j--) {
      const double larger = values[j - 1];
      values[j - 1] = values[j];
      values[j] = larger;
    }
  return values[BATCHES / 2];
}

int hs_rehearse(void (*visit)(void), double *within, double *beyond) {
  struct location *me = here();
  if (!me || me->busy || !tracing(me) || hs_recorder.counters || hs_recorder.state != ON) return 0;
  const size_t length = (size_t)VISITS * MOST_WORDS * sizeof(uint64_t);
  uint64_t *words = mmap(NULL, length, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (words == MAP_FAILED) return 0;
  /* Region 0, which is there in any case, as a child of itself. */
  struct node outside, visited;
  memset(&outside, 0, sizeof outside);
  memset(&visited, 0, sizeof visited);
  visited.parent = &outside;
  outside.last = &visited;
  struct location rehearsing;
  memset(&rehearsing, 0, sizeof rehearsing);
  rehearsing.turn = hs_recorder.turn;
  rehearsing.toggles = hs_recorder.toggle_count;
  rehearsing.current = &outside;
  rehearsing.base = (char *)words;
  rehearsing.limit = words + length / sizeof *words;
  /* A handler of the program would be recorded there, too. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  hs_me = &rehearsing;
  double inside[BATCHES], whole[BATCHES];
  for (int batch = 0; batch < BATCHES; batch++) {
    rehearsing.next = words;
    const uint64_t begin = rehearsing.last = now();
    for (int i = 0; i < VISITS; i++) visit();
    const uint64_t end = now();
    whole[batch] = (double)(end - begin) / VISITS;
    inside[batch] = (double)ticks_within_visits(words, rehearsing.next) / VISITS;
  }
  hs_me = me;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  munmap(words, length);
  *within = median(inside) / clock_rate();
  *beyond = median(whole) / clock_rate() - *within;
  if (*beyond < 0) *beyond = 0;
  return 1;
}
