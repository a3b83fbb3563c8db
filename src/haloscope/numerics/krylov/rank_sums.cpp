// Sums over the ranks on GPUs of one host, in one launch: each rank adds up its own parts, gives the
// result to all others, waits for theirs, and adds all of them in the order of ranks.
//
//   parts: pairs of each chunk of each of `count` vectors, as node_vectors.cpp leaves them
//   boxes: for each rank r six addresses: where this rank's row goes in even and in odd sums, the flag
//     that says so, then where r's row arrives, and its flag; see exchange/rows.py
//   row: room for this rank's own; counters[0]: vectors that are added up, counters[1]: sums so far

#include "pairs.hpp"

#define WORDS 6

KERNEL(add_over_ranks, IN(double, parts), LONG(chunks), LONG(count), IN(double, turns),
       DOUBLE(least), IN(long, boxes), LONG(rank), LONG(ranks), OUT(double, row),
       INOUT(long, counters), OUT(double, products)) {
#if ON_GPU
  if (*turns < least) return;
  BLOCKS(v, count) {
    SHARED(double, high, LANES);
    SHARED(double, low, LANES);
    SHARED(long, done, 1);
    ADD_CHUNKS(parts + 2 * v * chunks, chunks, high, low);
    THREADS(i, 1) {
      round_pair(high[0], low[0], row + 2 * v);
      __threadfence();
      done[0] = (long)atomicAdd((unsigned long long *)counters, 1ULL) + 1;
      __threadfence();
    }
    BARRIER();
    // The block that ends last speaks for all.
    if (done[0] == count) {
      const long epoch = counters[1], odd = epoch & 1;
      for (long r = 0; r < ranks; r++) {
        if (r == rank) continue;
        double *to = (double *)boxes[WORDS * r + odd];
        // Not through the first-level cache, which does not see what other blocks write.
        THREADS(i, 2 * count) to[i] = __ldcg(row + i);
      }
      BARRIER();
      THREADS(r, ranks) if (r != rank) flag_raise((long *)boxes[WORDS * r + 2], epoch + 1);
      THREADS(r, ranks) if (r != rank) flag_wait((const long *)boxes[WORDS * r + 5], epoch + 1);
      BARRIER();
      THREADS(u, count) {
        double h = 0, l = 0;
        for (long r = 0; r < ranks; r++) {
          const double *from = r == rank ? row : (const double *)boxes[WORDS * r + 3 + odd];
          add_pair(__ldcg(from + 2 * u), __ldcg(from + 2 * u + 1), h, l);
        }
        round_pair(h, l, products + 2 * u);
      }
      THREADS(i, 1) {
        counters[0] = 0;
        counters[1] = epoch + 1;
      }
    }
    BARRIER();
  }
#endif
}
