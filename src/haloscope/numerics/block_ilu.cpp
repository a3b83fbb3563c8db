// Incomplete factors of block sparse rows without fill, and the two sweeps that apply them. Cores only.
//
//   F: the matrix's blocks, replaced by L below the diagonal, U above it, and on it the inverses
//
// Rows follow one another on one core. Levels of rows that need not wait for each other were tried:
// on two cores they gained a sixth at best, as their rows lie apart, and lost much where the cores
// had other work too. A rank a core gains all.

#include "small_blocks.hpp"

#if !ON_GPU
// c = c - a b, or a b where `only`.
INLINE void block_product(const double *a, const double *b, bool only, double *c) {
  double result[ENTRIES];
  for (int m = 0; m < ENTRIES; m++) result[m] = only ? 0 : c[m];
  const double sign = only ? 1 : -1;
  for (int column = 0; column < B; column++)
    for (int k = 0; k < B; k++) {
      const double factor = sign * b[column * B + k];
      PRAGMA(omp simd) for (int r = 0; r < B; r++)
          result[column * B + r] = fused(a[k * B + r], factor, result[column * B + r]);
    }
  for (int m = 0; m < ENTRIES; m++) c[m] = result[m];
}

// Row by row (Saad, Iterative Methods for Sparse Linear Systems, 2003, algorithm 10.4).
KERNEL factorise(const int *starts, const int *columns, const int *diagonal, long n, double *F,
                 long *singular) {
  for (long i = 0; i < n; i++) {
    for (long k = starts[i]; k < diagonal[i]; k++) {
      const long row = columns[k];
      double *factor = F + k * ENTRIES;
      block_product(factor, F + (long)diagonal[row] * ENTRIES, true, factor);
      long m = k + 1;
      for (long other = diagonal[row] + 1; other < starts[row + 1]; other++) {
        while (m < starts[i + 1] && columns[m] < columns[other]) m++;
        if (m == starts[i + 1]) break;
        if (columns[m] == columns[other])
          block_product(factor, F + other * ENTRIES, false, F + m * ENTRIES);
      }
    }
    if (!invert(F + (long)diagonal[i] * ENTRIES)) ++*singular;
  }
}

// The blocks of F in the order of a sweep.
KERNEL pack(const double *F, const int *sources, long count, stored *blocks) {
  BLOCKS(k, count) {
    const double *from = F + (long)sources[k] * ENTRIES;
    THREADS(m, ENTRIES) blocks[k * ENTRIES + m] = (stored)from[m];
  }
}

// y = x - L y; blocks packed[i] .. packed[i + 1] belong to row i.
KERNEL sweep_down(long n, const int *packed, const int *columns, const stored *blocks,
                  const double *x, double *y) {
  for (long i = 0; i < n; i++) {
    double sum[B];
    row_product(columns, blocks, y, packed[i], packed[i + 1], sum);
    for (int r = 0; r < B; r++) y[i * B + r] = x[i * B + r] - sum[r];
  }
}

// y = inverse diagonal times (y - U y), from the last row on; the diagonal comes first.
KERNEL sweep_up(long n, const int *packed, const int *columns, const stored *blocks, double *y) {
  for (long p = 0; p < n; p++) {
    const long i = n - 1 - p;
    double sum[B], result[B] = {};
    row_product(columns, blocks, y, packed[p] + 1, packed[p + 1], sum);
    const stored *inverse = blocks + (long)packed[p] * ENTRIES;
    for (int c = 0; c < B; c++) {
      const double rest = y[i * B + c] - sum[c];
      PRAGMA(omp simd) for (int r = 0; r < B; r++)
          result[r] = fused((double)inverse[c * B + r], rest, result[r]);
    }
    for (int r = 0; r < B; r++) y[i * B + r] = result[r];
  }
}
#endif
