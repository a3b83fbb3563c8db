// Sums in twice the working precision, as pairs high + low: see node_vectors.cpp.

#define LANES 256

// high + low += a * b.
INLINE void add_product(double a, double b, double &high, double &low) {
  const double p = a * b, rest = fused(a, b, -p), s = high + p, t = s - high;
  low += ((high - (s - t)) + (p - t)) + rest;
  high = s;
}

// high + low += another pair.
INLINE void add_pair(double h, double l, double &high, double &low) {
  const double s = high + h, t = s - high;
  low = (low + l) + ((high - (s - t)) + (h - t));
  high = s;
}

// pair = high + low, of which the first is the sum rounded once.
INLINE void round_pair(double high, double low, double *pair) {
  const double sum = high + low;
  pair[0] = sum;
  pair[1] = (high - sum) + low;
}

// high[0], low[0] = the sum of the pairs of all chunks, by the threads of a block.
#define ADD_CHUNKS(pairs, chunks, high, low)                                        \
  THREADS(i, LANES) {                                                               \
    double h = 0, l = 0;                                                            \
    for (long b = i; b < (chunks); b += LANES) add_pair((pairs)[2 * b], (pairs)[2 * b + 1], h, l); \
    high[i] = h;                                                                    \
    low[i] = l;                                                                     \
  }                                                                                 \
  BARRIER();                                                                        \
  for (int half = LANES / 2; half > 0; half /= 2) {                                 \
    THREADS(i, half) add_pair(high[i + half], low[i + half], high[i], low[i]);      \
    BARRIER();                                                                      \
  }
