/* What recording costs in this process, here and now: visits made for the purpose alone.
 *
 * They are written to memory that is thrown away, through a location that nobody else sees. A
 * replay takes the cost out of what it is asked to predict; Malony, Reed, Wijshoff, IEEE Transactions
 * on Parallel and Distributed Systems 3 (1992), call this perturbation analysis. */
#include "location.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

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
